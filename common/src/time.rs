//! Points in time, and the clock that the outer layers read them from.
//!
//! All inner code takes `now` as an argument, so that tests and simulations can choose it.

use std::fmt;
use std::future::Future;
use std::sync::Mutex;
use std::time::Duration;

use chrono::{DateTime, Datelike, NaiveDate, Timelike, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use tokio::time::Instant;

/// A point in time: milliseconds since 1970-01-01T00:00:00Z. In JSON an RFC 3339 string in UTC with milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema)]
#[schemars(inline, extend("format" = "date-time"))]
pub struct Timestamp(#[schemars(with = "String")] i64);

impl Timestamp {
    /// 1970-01-01T00:00:00Z, used for "never" where an order is needed.
    pub const EPOCH: Timestamp = Timestamp(0);
    /// 1000-01-01T00:00:00Z: archives have entries from before 1970.
    pub const MIN: Timestamp = Timestamp(-30_610_224_000_000);
    /// The latest time that RFC 3339 can write: 9999-12-31T23:59:59.999Z.
    pub const MAX: Timestamp = Timestamp(253_402_300_799_999);

    /// From milliseconds since 1970; values outside of [`Self::MIN`]..=[`Self::MAX`] saturate.
    pub fn from_millis(millis: i64) -> Self {
        Timestamp(millis.clamp(Self::MIN.0, Self::MAX.0))
    }

    /// Returns the milliseconds since 1970.
    pub fn millis(self) -> i64 {
        self.0
    }

    /// Returns the whole seconds since 1970, rounded down.
    pub fn unix_seconds(self) -> i64 {
        self.0.div_euclid(1000)
    }

    /// Returns this time moved later; saturates at [`Self::MAX`].
    pub fn after(self, by: Duration) -> Self {
        let millis = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        Self::from_millis(self.0.saturating_add(millis))
    }

    /// Returns this time moved earlier; saturates at [`Self::EPOCH`].
    pub fn before(self, by: Duration) -> Self {
        let millis = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        Self::from_millis(self.0.saturating_sub(millis)).max(Self::EPOCH.min(self))
    }

    /// Returns how long ago `earlier` was; zero if it is in the future.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_millis(u64::try_from(self.0 - earlier.0).unwrap_or(0))
    }

    /// Returns true if something that is done once in `every` and was last done at `last` is due. After a clock was set
    /// back it is due at once; otherwise it would wait until the clock reaches `last` again.
    pub fn is_time_again(self, last: Timestamp, every: Duration) -> bool {
        self < last || self.since(last) >= every
    }

    /// Converts to chrono's type, for calendars and feeds' dates.
    pub fn to_chrono(self) -> DateTime<Utc> {
        DateTime::from_timestamp_millis(self.0).unwrap_or_default()
    }

    /// Converts from chrono's type; saturates like [`Self::from_millis`].
    pub fn from_chrono(at: DateTime<Utc>) -> Self {
        Self::from_millis(at.timestamp_millis())
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text(&mut [0; TEXT.len()]))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.text(&mut [0; TEXT.len()]))
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        if let Some(at) = Self::read_own(&text) {
            return Ok(at);
        }
        let at = DateTime::parse_from_rfc3339(&text).map_err(de::Error::custom)?;
        Ok(Self::from_chrono(at.to_utc()))
    }
}

/// The form that times are written in. Each job and report has about ten of them, so they are written and read without
/// chrono's reader of all forms.
const TEXT: &[u8; 24] = b"0000-00-00T00:00:00.000Z";

impl Timestamp {
    fn text(self, text: &mut [u8; TEXT.len()]) -> &str {
        let at = self.to_chrono();
        *text = *TEXT;
        let parts = [at.month(), at.day(), at.hour(), at.minute(), at.second()];
        put(&mut text[..4], at.year().unsigned_abs());
        for (number, part) in parts.into_iter().enumerate() {
            put(&mut text[5 + 3 * number..][..2], part);
        }
        put(&mut text[20..23], at.timestamp_subsec_millis());
        std::str::from_utf8(text).unwrap_or_default()
    }

    /// Reads what [`Self::text`] writes; `None` for every other form.
    fn read_own(text: &str) -> Option<Self> {
        let text: &[u8; TEXT.len()] = text.as_bytes().try_into().ok()?;
        let is_form = text.iter().zip(TEXT).all(|(byte, form)| byte == form || *form == b'0' && byte.is_ascii_digit());
        let number = |at: usize, len: usize| {
            text[at..at + len].iter().fold(0, |number, digit| 10 * number + u32::from(digit & 0x0F))
        };
        if !is_form {
            return None;
        }
        let date = NaiveDate::from_ymd_opt(number(0, 4).cast_signed(), number(5, 2), number(8, 2))?;
        let at = date.and_hms_milli_opt(number(11, 2), number(14, 2), number(17, 2), number(20, 3))?;
        Some(Self::from_chrono(at.and_utc()))
    }
}

/// Writes a number with leading zeros.
fn put(place: &mut [u8], mut number: u32) {
    for digit in place.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// The source of the current time: [`SystemClock`] in production, others in tests and simulations.
pub trait Clock: Send + Sync + 'static {
    /// Returns the current time.
    fn now(&self) -> Timestamp;
}

/// A server's clock and ours differ so much that due times and holds would not mean the same to both.
#[derive(Clone, Debug, thiserror::Error)]
#[error("its clock is {0:?} off ours; synchronise both machines' clocks")]
pub struct ClocksDiffer(pub Duration);

/// The maximum difference to a server's clock.
const CLOCK_OFFSET: Duration = Duration::from_secs(1);

/// Checks that a server's clock agrees with ours, to within a second.
pub fn clocks_agree(ours: Timestamp, theirs: Timestamp) -> Result<(), ClocksDiffer> {
    let off = ours.since(theirs).max(theirs.since(ours));
    if off > CLOCK_OFFSET { Err(ClocksDiffer(off)) } else { Ok(()) }
}

/// Tracks whether the machine's clock is reliable: it agreed with a server's within the last second, and was not set
/// since.
#[derive(Debug, Default)]
pub struct ClockWatch {
    agreed: Mutex<Option<(Timestamp, Instant)>>,
    /// Serialises checks: one caller checks on behalf of all.
    asking: tokio::sync::Mutex<()>,
}

impl ClockWatch {
    /// How long an agreement is valid.
    const LASTS: Duration = Duration::from_secs(1);
    /// A clock is compared again with a server that takes longer for its answer.
    const PRECISE: Duration = CLOCK_OFFSET;
    /// The maximum number of checks of a server that is always that slow.
    const TRIES: u32 = 3;
    /// A wall clock that deviates from the monotonic clock by this much was set.
    const SET: Duration = Duration::from_millis(500);

    /// Returns the time, once `check` has compared the clock with a server's, unless that was done just before. A slow answer, for
    /// instance because this process was stopped meanwhile, says little: the clock may be as far ahead as the answer took. Then the
    /// check is repeated, a few times at most.
    ///
    /// # Errors
    ///
    /// Returns the error of `check`; then the next call checks again.
    pub async fn agree<E, C: Future<Output = Result<(), E>>>(
        &self,
        clock: &dyn Clock,
        check: impl Fn() -> C,
    ) -> Result<Timestamp, E> {
        if let Some(now) = self.known(clock) {
            return Ok(now);
        }
        let _turn = self.asking.lock().await;
        if let Some(now) = self.known(clock) {
            return Ok(now);
        }
        let mut tries = Self::TRIES;
        let steady = loop {
            // The clock agreed before the check; it may have been set since.
            let steady = SteadyClock::starting_at(clock.now());
            check().await?;
            tries -= 1;
            if steady.since.elapsed() <= Self::PRECISE || tries == 0 {
                break steady;
            }
        };
        let now = steady.now();
        *crate::lock(&self.agreed) = Some((now, Instant::now()));
        Ok(now)
    }

    /// Returns the time, if the clock ran correctly since it agreed.
    fn known(&self, clock: &dyn Clock) -> Option<Timestamp> {
        let now = clock.now();
        self.is_known(now, Instant::now()).then_some(now)
    }

    fn is_known(&self, now: Timestamp, at: Instant) -> bool {
        let Some((wall, then)) = *crate::lock(&self.agreed) else { return false };
        let passed = at.saturating_duration_since(then);
        let expected = wall.after(passed);
        passed < Self::LASTS && expected.since(now).max(now.since(expected)) < Self::SET
    }
}

/// Returns the time, once `check` has compared the clock with a server's: see [`ClockWatch::agree`].
pub async fn compared<E, C: Future<Output = Result<(), E>>>(
    clock: &dyn Clock,
    check: impl Fn() -> C,
) -> Result<Timestamp, E> {
    ClockWatch::default().agree(clock, check).await
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the edge at which time enters the program")]
    fn now(&self) -> Timestamp {
        Timestamp::from_chrono(Utc::now())
    }
}

/// A clock that continues from a time that was right, by the monotonic clock: setting the machine's clock does not move it.
#[derive(Clone, Copy, Debug)]
pub struct SteadyClock {
    from: Timestamp,
    since: Instant,
}

impl SteadyClock {
    /// Creates a clock that shows `now`, and runs from here on.
    pub fn starting_at(now: Timestamp) -> Self {
        SteadyClock { from: now, since: Instant::now() }
    }
}

impl Clock for SteadyClock {
    fn now(&self) -> Timestamp {
        self.from.after(self.since.elapsed())
    }
}

/// A clock that only moves when a test moves it.
#[derive(Debug)]
pub struct ManualClock(std::sync::atomic::AtomicI64);

impl ManualClock {
    /// Creates a clock that shows `at`.
    pub fn new(at: Timestamp) -> Self {
        ManualClock(at.millis().into())
    }

    /// Moves the clock later and returns the new time.
    pub fn advance(&self, by: Duration) -> Timestamp {
        let now = self.now().after(by);
        self.0.store(now.millis(), std::sync::atomic::Ordering::SeqCst);
        now
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(std::sync::atomic::Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_clock_is_compared_again_when_it_was_set_or_did_not_agree() {
        let (watch, asked) = (ClockWatch::default(), AtomicUsize::new(0));
        let now = SystemClock.now();
        let look = async |at: Timestamp| {
            let check = async || {
                asked.fetch_add(1, Ordering::Relaxed);
                Ok::<(), Infallible>(())
            };
            assert_eq!(watch.agree(&ManualClock::new(at), check).await, Ok(at));
            asked.load(Ordering::Relaxed)
        };
        assert_eq!(look(now).await, 1);
        assert_eq!(look(now).await, 1, "just before");
        let hour = Duration::from_secs(3600);
        assert_eq!(look(now.after(hour)).await, 2);
        assert_eq!(look(now).await, 3);
        let off = ManualClock::new(now.before(hour));
        assert_eq!(watch.agree(&off, async || Err("off")).await, Err("off"));
        assert_eq!(look(now.before(hour)).await, 4, "it did not agree");
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_is_set_while_it_is_compared_is_not_believed() {
        let begun = Timestamp::from_millis(1_790_000_000_000);
        let (clock, watch, second) = (ManualClock::new(begun), ClockWatch::default(), Duration::from_secs(1));
        let compared = watch.agree(&clock, async || {
            tokio::time::advance(second).await;
            // As a server does that compares it with its own from the question to the answer.
            clock.advance(Duration::from_secs(3600));
            Ok::<(), &str>(())
        });
        assert_eq!(compared.await, Ok(begun.after(second)));
        assert_eq!(watch.agree(&clock, async || Err("off")).await, Err("off"), "it is compared again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_is_compared_again_when_the_answer_took_long() {
        let begun = Timestamp::from_millis(1_790_000_000_000);
        let (clock, asked) = (ManualClock::new(begun), AtomicUsize::new(0));
        let minute = Duration::from_secs(60);
        let check = async |slow: usize| {
            if asked.fetch_add(1, Ordering::Relaxed) < slow {
                // As of a process that is stopped.
                tokio::time::advance(minute).await;
                clock.advance(minute);
            }
            Ok::<(), Infallible>(())
        };
        assert_eq!(ClockWatch::default().agree(&clock, || check(1)).await, Ok(begun.after(minute)));
        assert_eq!(asked.swap(0, Ordering::Relaxed), 2);
        assert_eq!(ClockWatch::default().agree(&clock, || check(9)).await, Ok(begun.after(minute * 4)));
        assert_eq!(asked.load(Ordering::Relaxed), 3, "a server that is always slow slows its clients");
    }

    #[test]
    fn a_clock_that_was_ahead_delays_nothing_once_it_is_right() {
        let (right, minute) = (Timestamp::from_millis(1_790_000_000_000), Duration::from_secs(60));
        let ahead = right.after(minute * 60);
        assert!(ahead.is_time_again(right, minute) && right.is_time_again(ahead, minute));
        assert!(right.after(minute).is_time_again(right, minute) && !right.is_time_again(right, minute));
    }

    proptest::proptest! {
        #[test]
        fn times_are_written_and_read_as_chrono_does_it(
            millis in Timestamp::MIN.millis()..=Timestamp::MAX.millis(),
            cut in 0..24_usize,
            other in proptest::char::range(' ', '~'),
        ) {
            let at = Timestamp::from_millis(millis);
            let text = at.to_chrono().to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
            assert_eq!((at.to_string(), Timestamp::read_own(&text)), (text.clone(), Some(at)));
            // With another character somewhere: what chrono refuses is refused, and what it reads is the same time.
            let damaged = format!("{}{other}{}", &text[..cut], &text[cut + 1..]);
            let chronos = DateTime::parse_from_rfc3339(&damaged).ok().map(|at| Timestamp::from_chrono(at.to_utc()));
            let ours = serde_json::from_value::<Timestamp>(damaged.clone().into()).ok();
            assert_eq!(ours, chronos, "{damaged}");
        }
    }

    #[test]
    fn json_is_rfc3339_with_milliseconds_and_comes_back_equal() {
        let at = Timestamp::from_millis(1_790_000_000_007);
        let json = serde_json::to_string(&at).unwrap();
        assert_eq!(json, "\"2026-09-21T14:13:20.007Z\"");
        assert_eq!(serde_json::from_str::<Timestamp>(&json).unwrap(), at);
    }

    #[test]
    fn sums_saturate_instead_of_overflowing() {
        assert_eq!(Timestamp::MAX.after(Duration::MAX), Timestamp::MAX);
        assert_eq!(Timestamp::from_millis(5).before(Duration::MAX), Timestamp::EPOCH);
        assert_eq!(Timestamp::EPOCH.since(Timestamp::MAX), Duration::ZERO);
        assert!(serde_json::to_string(&Timestamp::MAX).unwrap().contains("9999-12-31"));
    }
}
