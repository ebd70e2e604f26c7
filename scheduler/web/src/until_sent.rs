//! A body that keeps something for as long as it is being sent: a permit, or the knowledge that a response is in progress.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};

/// A body with what is dropped when it was sent, or when its caller is gone.
struct BodyWith<T> {
    body: Body,
    begun: bool,
    ended: bool,
    _held: T,
}

/// Keeps `held` until the response was sent.
pub(crate) fn until_sent<T: Send + Unpin + 'static>(response: Response, held: T) -> Response {
    response.map(|body| Body::new(BodyWith { body, begun: false, ended: false, _held: held }))
}

impl<T: Unpin> hyper::body::Body for BodyWith<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        (self.begun, self.ended) = (true, frame.is_none());
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        // Hyper drops the body as soon as it ends: after the only frame of most bodies not a byte of it was sent.
        if self.begun { self.ended } else { self.body.is_end_stream() }
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
