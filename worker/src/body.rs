//! A body from the wire into memory, within limits of bytes and time, and within what all fetches together may hold.
//!
//! Beyond `fetch.large_body_bytes` a body needs one of a few places. While it waits nothing is read, so that the server
//! waits too and nothing piles up. Bytes stay as they came: [`crate::decode`] does the rest.

use std::sync::Arc;

use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
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
pub(crate) struct WireBody {
    pub(crate) bytes: Vec<u8>,
    pub(crate) place: Option<OwnedSemaphorePermit>,
}

/// Why a body was not read to its end.
#[derive(Debug)]
pub(crate) enum BodyError {
    /// More than allowed, announced or sent.
    TooLarge,
    /// The deadline passed.
    Late,
    /// The deadline passed while other large bodies had all places: nobody's fault over there.
    NoPlace,
    /// The connection broke, or the body contradicts its framing.
    Broken(hyper::Error),
}

/// Reads a body; `read` counts its bytes, also of one that fails.
pub(crate) async fn read(
    mut incoming: Incoming,
    limits: WireLimits,
    places: &Arc<Semaphore>,
    read: &mut u64,
) -> Result<WireBody, BodyError> {
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
