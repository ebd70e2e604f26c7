//! A body from the wire into memory, within limits of bytes and time, and within what all fetches together may hold.
//!
//! Beyond `fetch.large_body_bytes` a body needs one of a few places. While it waits nothing is read, so that the server
//! waits too and nothing piles up. Bytes stay as they came: [`crate::decode`] does the rest.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Body;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

/// How much may be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WireLimits {
    /// More is an error.
    pub(crate) max_bytes: usize,
    /// More needs a place.
    pub(crate) large_bytes: usize,
    /// Reading ends here, finished or not.
    pub(crate) deadline: Instant,
}

/// A whole body. Its place is free again when it is dropped.
#[derive(Debug)]
pub(crate) struct WireBody {
    pub(crate) bytes: Vec<u8>,
    pub(crate) place: Option<OwnedSemaphorePermit>,
}

/// Why a body was not read to its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BodyError<E> {
    /// More than allowed, announced or sent.
    TooLarge,
    /// The deadline passed.
    Late,
    /// The deadline passed while other large bodies had all places: nobody's fault over there.
    NoPlace,
    /// The connection broke, or the body contradicts its framing.
    Broken(E),
}

/// Reads a body; `read` counts its bytes, also of one that fails.
pub(crate) async fn read<B: Body<Data = Bytes> + Unpin>(
    mut incoming: B,
    limits: WireLimits,
    places: &Arc<Semaphore>,
    read: &mut u64,
) -> Result<WireBody, BodyError<B::Error>> {
    let announced = incoming.size_hint().lower();
    if announced > limits.max_bytes as u64 {
        return Err(BodyError::TooLarge);
    }
    let expected = usize::try_from(announced).unwrap_or(usize::MAX).min(limits.large_bytes);
    let mut body = WireBody { bytes: Vec::with_capacity(expected), place: None };
    while let Some(frame) = timeout_at(limits.deadline, incoming.frame()).await.map_err(|_| BodyError::Late)? {
        let Ok(data) = frame.map_err(BodyError::Broken)?.into_data() else { continue };
        *read += data.len() as u64;
        let total = body.bytes.len() + data.len();
        if total > limits.max_bytes {
            return Err(BodyError::TooLarge);
        }
        if total > limits.large_bytes && body.place.is_none() {
            let place = timeout_at(limits.deadline, Arc::clone(places).acquire_owned()).await;
            body.place = Some(place.ok().and_then(Result::ok).ok_or(BodyError::NoPlace)?);
        }
        if total > body.bytes.capacity() {
            let capacity = total.max(2 * body.bytes.capacity()).min(limits.max_bytes);
            body.bytes.reserve_exact(capacity - body.bytes.len());
        }
        body.bytes.extend_from_slice(&data);
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use futures_util::stream;
    use http_body_util::{Full, StreamBody};
    use hyper::body::Frame;

    use super::*;

    fn limits() -> WireLimits {
        let deadline = Instant::now() + Duration::from_millis(50);
        WireLimits { max_bytes: 1000, large_bytes: 100, deadline }
    }

    /// A body of unknown length in pieces of ten bytes.
    fn pieces(bytes: usize) -> impl Body<Data = Bytes, Error = Infallible> + Unpin {
        let piece = || Ok(Frame::data(Bytes::from_static(b"0123456789")));
        StreamBody::new(stream::iter(std::iter::repeat_with(piece).take(bytes / 10)))
    }

    fn failed(result: Result<WireBody, BodyError<Infallible>>) -> Option<BodyError<Infallible>> {
        result.err()
    }

    #[tokio::test]
    async fn only_a_large_body_takes_a_place_and_keeps_it() {
        let places = Arc::new(Semaphore::new(1));
        let mut count = 0;
        let small = read(pieces(100), limits(), &places, &mut count).await.unwrap();
        assert_eq!((small.bytes.len(), count, places.available_permits()), (100, 100, 1));
        let large = read(pieces(110), limits(), &places, &mut count).await.unwrap();
        assert_eq!((large.bytes.len(), places.available_permits()), (110, 0));
        drop(large);
        assert_eq!(places.available_permits(), 1);
    }

    #[tokio::test]
    async fn without_a_place_a_large_body_ends_at_the_deadline() {
        let (places, mut count) = (Arc::new(Semaphore::new(0)), 0);
        assert_eq!(failed(read(pieces(500), limits(), &places, &mut count).await), Some(BodyError::NoPlace));
        assert_eq!(count, 110, "nothing more is read meanwhile");
        assert!(read(pieces(100), limits(), &places, &mut count).await.is_ok());
    }

    #[tokio::test]
    async fn a_body_may_be_as_large_as_the_limit_and_no_larger() {
        let (places, mut count) = (Arc::new(Semaphore::new(1)), 0);
        let whole = read(pieces(1000), limits(), &places, &mut count).await.unwrap();
        assert_eq!((whole.bytes.len(), whole.bytes.capacity()), (1000, 1000));
        drop(whole);
        assert_eq!(failed(read(pieces(1010), limits(), &places, &mut count).await), Some(BodyError::TooLarge));
        count = 0;
        let announced = Full::new(Bytes::from(vec![0; 1001]));
        assert_eq!(failed(read(announced, limits(), &places, &mut count).await), Some(BodyError::TooLarge));
        assert_eq!(count, 0, "an announced length is believed");
    }

    #[tokio::test]
    async fn a_body_that_stops_coming_is_late() {
        let (places, mut count) = (Arc::new(Semaphore::new(1)), 0);
        let stuck = StreamBody::new(stream::pending::<Result<Frame<Bytes>, Infallible>>());
        assert_eq!(failed(read(stuck, limits(), &places, &mut count).await), Some(BodyError::Late));
    }
}
