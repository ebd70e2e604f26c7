//! A body from the wire into memory, within limits of bytes and time, and within what all fetches together may hold.
//!
//! Beyond `fetch.large_body_bytes` a body needs one of a few places, of which each host may have one. While it waits
//! nothing is read, so that the server waits too and nothing piles up, and the time is not the server's. If its length was
//! announced, it waits before its first byte; if it found no place before, it has one before it is requested. Once it has a
//! place, it must arrive at a least rate, so that a few slow servers cannot keep all other large bodies out. Bytes stay
//! as they came: [`crate::decode`] does the rest.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use common::host::HostKey;
use http_body_util::BodyExt;
use hyper::body::Body;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};

/// How much may be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WireLimits {
    /// More is an error.
    pub(crate) max_bytes: usize,
    /// More needs a place.
    pub(crate) large_bytes: usize,
    /// Reading ends here, finished or not; later by the time that the body waited for its place.
    pub(crate) deadline: Instant,
    /// The longest wait for a place.
    pub(crate) max_wait: Duration,
    /// What a body with a place must deliver.
    pub(crate) least_rate: Rate,
    /// The longest time without a byte of this body. Of a connection with several streams another may have some.
    pub(crate) idle: Duration,
}

/// A number of bytes within a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    pub(crate) bytes: usize,
    pub(crate) within: Duration,
}

impl Rate {
    /// What a large body must deliver: a third of what it takes to arrive whole before the deadline.
    pub(crate) const LEAST: Rate = Rate { bytes: 64 * 1024, within: Duration::from_secs(5) };
}

/// The places for large bodies.
#[derive(Debug)]
pub(crate) struct BodySlots {
    free: Arc<Semaphore>,
    hosts: Mutex<HashSet<HostKey>>,
    left: Notify,
}

impl BodySlots {
    pub(crate) fn new(places: usize) -> Arc<Self> {
        let free = Arc::new(Semaphore::new(places));
        Arc::new(BodySlots { free, hosts: Mutex::default(), left: Notify::new() })
    }

    /// Waits for a place for a body of this host, for at most this time.
    pub(crate) async fn take_within(self: &Arc<Self>, host: &HostKey, max_wait: Duration) -> Option<BodySlot> {
        timeout(max_wait, self.take(host)).await.ok().flatten()
    }

    /// Waits for a place for a body of this host.
    async fn take(self: &Arc<Self>, host: &HostKey) -> Option<BodySlot> {
        let turn = loop {
            // Made before the look, so that it misses no host that leaves after it.
            let left = self.left.notified();
            if self.hosts().insert(host.clone()) {
                break HostSlot { host: host.clone(), places: Arc::clone(self) };
            }
            left.await;
        };
        let permit = Arc::clone(&self.free).acquire_owned().await.ok()?;
        Some(BodySlot { _permit: permit, _turn: turn })
    }

    fn hosts(&self) -> MutexGuard<'_, HashSet<HostKey>> {
        common::lock(&self.hosts)
    }
}

/// A place for one large body, free again when it is dropped.
#[derive(Debug)]
pub(crate) struct BodySlot {
    _permit: OwnedSemaphorePermit,
    _turn: HostSlot,
}

/// The right of a host to its one place.
#[derive(Debug)]
struct HostSlot {
    host: HostKey,
    places: Arc<BodySlots>,
}

impl Drop for HostSlot {
    fn drop(&mut self) {
        self.places.hosts().remove(&self.host);
        self.places.left.notify_waiters();
    }
}

/// A whole body. Its place is free again when it is dropped.
#[derive(Debug)]
pub(crate) struct WireBody {
    pub(crate) bytes: Vec<u8>,
    pub(crate) place: Option<BodySlot>,
}

/// Why a body was not read to its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BodyError<E> {
    /// More than allowed, announced or sent.
    TooLarge,
    /// The deadline passed.
    Late,
    /// It came more slowly than [`WireLimits::least_rate`].
    Slow,
    /// Nothing of it came for this time.
    Silent(Duration),
    /// Other large bodies had all places for too long: not the server's fault.
    NoSlot,
    /// The connection broke, or the body contradicts its framing.
    Broken(E),
}

/// How fast a body with a place arrives.
struct Pace {
    rate: Rate,
    ends: Instant,
    missing: usize,
}

impl Pace {
    fn new(rate: Rate) -> Self {
        Pace { rate, ends: Instant::now() + rate.within, missing: rate.bytes }
    }

    /// Counts bytes, none when time passed without any; false when there were too few.
    fn keeps_up(&mut self, bytes: usize) -> bool {
        self.missing = self.missing.saturating_sub(bytes);
        if Instant::now() < self.ends {
            return true;
        }
        let enough = self.missing == 0;
        *self = Pace::new(self.rate);
        enough
    }
}

/// Reads a body of this host, which may have its place already; `read` counts its bytes, also of one that fails.
pub(crate) async fn read<B: Body<Data = Bytes> + Unpin>(
    mut incoming: B,
    limits: WireLimits,
    (places, host): (&Arc<BodySlots>, &HostKey),
    place: Option<BodySlot>,
    read: &mut u64,
) -> Result<WireBody, BodyError<B::Error>> {
    let announced = incoming.size_hint().lower();
    if announced > limits.max_bytes as u64 {
        return Err(BodyError::TooLarge);
    }
    let expected = usize::try_from(announced).unwrap_or(usize::MAX).min(limits.large_bytes);
    let mut body = WireBody { bytes: Vec::with_capacity(expected), place };
    let (mut deadline, mut pace) = (limits.deadline, None);
    loop {
        let length = announced.max(body.bytes.len() as u64);
        if body.place.is_none() && length > limits.large_bytes as u64 {
            let asked = Instant::now();
            body.place = Some(places.take_within(host, limits.max_wait).await.ok_or(BodyError::NoSlot)?);
            deadline += asked.elapsed();
            pace = (!body.bytes.is_empty()).then(|| Pace::new(limits.least_rate));
        }
        let now = Instant::now();
        let silent = now + limits.idle.min(deadline.saturating_duration_since(now));
        let until = pace.as_ref().map_or(silent, |pace| pace.ends.min(silent));
        let frame = match timeout_at(until, incoming.frame()).await {
            Ok(None) => return Ok(body),
            Ok(Some(frame)) => frame.map_err(BodyError::Broken)?,
            Err(_) if Instant::now() >= deadline => return Err(BodyError::Late),
            Err(_) if Instant::now() >= silent => return Err(BodyError::Silent(limits.idle)),
            Err(_) if pace.as_mut().is_none_or(|pace| pace.keeps_up(0)) => continue,
            Err(_) => return Err(BodyError::Slow),
        };
        let Ok(data) = frame.into_data() else { continue };
        *read += data.len() as u64;
        if body.place.is_some() && length.max((body.bytes.len() + data.len()) as u64) > limits.large_bytes as u64 {
            pace.get_or_insert_with(|| Pace::new(limits.least_rate));
        }
        if pace.as_mut().is_some_and(|pace| !pace.keeps_up(data.len())) {
            return Err(BodyError::Slow);
        }
        let total = body.bytes.len() + data.len();
        if total > limits.max_bytes {
            return Err(BodyError::TooLarge);
        }
        if total > body.bytes.capacity() {
            let most = if body.place.is_some() { limits.max_bytes } else { limits.large_bytes };
            let capacity = (2 * body.bytes.capacity()).min(most).max(total);
            body.bytes.reserve_exact(capacity - body.bytes.len());
        }
        body.bytes.extend_from_slice(&data);
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::stream;
    use http_body_util::{Full, StreamBody};
    use hyper::body::Frame;

    use super::*;

    fn limits() -> WireLimits {
        let wait = Duration::from_millis(50);
        let least_rate = Rate { bytes: 100, within: Duration::from_millis(100) };
        let (deadline, idle) = (Instant::now() + wait, wait);
        WireLimits { max_bytes: 1000, large_bytes: 100, deadline, max_wait: wait, least_rate, idle }
    }

    fn host(name: &str) -> HostKey {
        HostKey::new(name)
    }

    /// Returns a body of unknown length in pieces of ten bytes.
    fn pieces(bytes: usize) -> impl Body<Data = Bytes, Error = Infallible> + Unpin {
        let piece = || Ok(Frame::data(Bytes::from_static(b"0123456789")));
        StreamBody::new(stream::iter(std::iter::repeat_with(piece).take(bytes / 10)))
    }

    fn failed(result: Result<WireBody, BodyError<Infallible>>) -> Option<BodyError<Infallible>> {
        result.err()
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_large_body_takes_a_place_and_keeps_it() {
        let (places, host) = (BodySlots::new(1), host("a"));
        let mut count = 0;
        let small = read(pieces(100), limits(), (&places, &host), None, &mut count).await.unwrap();
        assert_eq!((small.bytes.len(), count, places.free.available_permits()), (100, 100, 1));
        let large = read(pieces(110), limits(), (&places, &host), None, &mut count).await.unwrap();
        assert_eq!((large.bytes.len(), places.free.available_permits()), (110, 0));
        drop(large);
        assert_eq!(places.free.available_permits(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_place_a_large_body_ends_at_the_deadline() {
        let (places, host, mut count) = (BodySlots::new(0), host("a"), 0);
        assert_eq!(
            failed(read(pieces(500), limits(), (&places, &host), None, &mut count).await),
            Some(BodyError::NoSlot)
        );
        assert_eq!(count, 110, "nothing more is read meanwhile");
        assert!(read(pieces(100), limits(), (&places, &host), None, &mut count).await.is_ok());
        count = 0;
        let announced = Full::new(Bytes::from(vec![0; 500]));
        assert_eq!(
            failed(read(announced, limits(), (&places, &host), None, &mut count).await),
            Some(BodyError::NoSlot)
        );
        assert_eq!(count, 0, "of a large body that is announced nothing is read");
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_body_that_has_its_place_takes_no_other() {
        let (places, host, mut count) = (BodySlots::new(1), host("a"), 0);
        let place = places.take_within(&host, Duration::from_millis(50)).await;
        let large = read(pieces(500), limits(), (&places, &host), place, &mut count).await.unwrap();
        assert_eq!((large.bytes.len(), large.place.is_some()), (500, true));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_may_be_as_large_as_the_limit_and_no_larger() {
        let (places, host, mut count) = (BodySlots::new(1), host("a"), 0);
        let whole = read(pieces(1000), limits(), (&places, &host), None, &mut count).await.unwrap();
        assert_eq!((whole.bytes.len(), whole.bytes.capacity()), (1000, 1000));
        drop(whole);
        assert_eq!(
            failed(read(pieces(1010), limits(), (&places, &host), None, &mut count).await),
            Some(BodyError::TooLarge)
        );
        count = 0;
        let announced = Full::new(Bytes::from(vec![0; 1001]));
        assert_eq!(
            failed(read(announced, limits(), (&places, &host), None, &mut count).await),
            Some(BodyError::TooLarge)
        );
        assert_eq!(count, 0, "an announced length is believed");
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stops_coming_is_late() {
        let (places, host, mut count) = (BodySlots::new(1), host("a"), 0);
        let stuck = StreamBody::new(stream::pending::<Result<Frame<Bytes>, Infallible>>());
        assert_eq!(failed(read(stuck, limits(), (&places, &host), None, &mut count).await), Some(BodyError::Late));
    }

    #[tokio::test(start_paused = true)]
    async fn armour_a_body_that_is_silent_ends_before_its_deadline() {
        let (places, host, mut count) = (BodySlots::new(1), host("a"), 0);
        let idle = Duration::from_secs(15);
        let patient = WireLimits { deadline: Instant::now() + 2 * idle, idle, ..limits() };
        let begin = Instant::now();
        // A stream that stalls while others of its connection do not.
        let stuck = StreamBody::new(stream::pending::<Result<Frame<Bytes>, Infallible>>());
        let stalled = failed(read(stuck, patient, (&places, &host), None, &mut count).await);
        assert_eq!(stalled, Some(BodyError::Silent(idle)));
        assert!(begin.elapsed() < idle + Duration::from_secs(1), "{:?}", begin.elapsed());
        // Slow, but never silent.
        let slow = read(drip(Duration::from_secs(2)), patient, (&places, &host), None, &mut count).await;
        assert_eq!(failed(slow), Some(BodyError::Late));
    }

    /// Returns a body of unknown length whose pieces of ten bytes come this long after each other.
    fn drip(every: Duration) -> impl Body<Data = Bytes, Error = Infallible> + Unpin {
        let piece = move |()| async move {
            tokio::time::sleep(every).await;
            Some((Ok(Frame::data(Bytes::from_static(b"0123456789"))), ()))
        };
        StreamBody::new(Box::pin(stream::unfold((), piece)))
    }

    #[tokio::test(start_paused = true)]
    async fn armour_a_large_body_that_drips_gives_its_place_up() {
        let (places, host, mut count) = (BodySlots::new(1), host("a"), 0);
        let patient = WireLimits { deadline: Instant::now() + Duration::from_secs(60), ..limits() };
        let slow = failed(read(drip(Duration::from_millis(20)), patient, (&places, &host), None, &mut count).await);
        assert_eq!((slow, places.free.available_permits()), (Some(BodyError::Slow), 1));
        let fast = failed(read(drip(Duration::from_millis(2)), patient, (&places, &host), None, &mut count).await);
        assert_eq!(fast, Some(BodyError::TooLarge), "came to the limit");
    }

    #[tokio::test(start_paused = true)]
    async fn armour_a_host_has_one_place_and_waits_outside_of_its_fetch() {
        let (places, a, b, mut count) = (BodySlots::new(4), host("a"), host("b"), 0);
        let first = read(pieces(500), limits(), (&places, &a), None, &mut count).await.unwrap();
        assert_eq!(failed(read(pieces(500), limits(), (&places, &a), None, &mut count).await), Some(BodyError::NoSlot));
        assert!(read(pieces(500), limits(), (&places, &b), None, &mut count).await.is_ok());
        let patient = WireLimits { max_wait: Duration::from_secs(60), ..limits() };
        let leaving = async {
            tokio::time::sleep(Duration::from_millis(150)).await;
            drop(first);
        };
        // Three times as long as the fetch may take.
        let waited = tokio::join!(read(pieces(500), patient, (&places, &a), None, &mut count), leaving).0;
        assert_eq!(waited.unwrap().bytes.len(), 500);
        assert!(places.hosts().is_empty());
    }
}
