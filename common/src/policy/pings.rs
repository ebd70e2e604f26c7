//! When a feed is polled because of pings: once for all pings that arrive together, after the last of them
//! (`docs/decisions/0021-pings-are-gathered.md`).

use std::time::Duration;

use super::plan::scaled;
use super::state::{PollState, Status};
use crate::config::PolicyConfig;
use crate::time::Timestamp;

/// A feed whose pings never pause is polled after `ping_quiet` times this, or after `ping_spread` if that is longer.
const LONGEST: u32 = 30;
/// Pings without effect lengthen a feed's rest after a poll up to this many times `ping_spread`: to an hour by default.
const WIDEST: u32 = 60;

/// The time in which one poll answers all pings of a feed. Both fields count from the first ping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PingWindow {
    /// The earliest time of the poll.
    pub place: Duration,
    /// The latest time of the poll, even if pings continue.
    pub end: Duration,
}

impl PingWindow {
    /// Opens the window of a feed whose first ping arrived `now`. `draw`, a number in [0, 1), chooses its position in
    /// the spread; the feed is not polled again until its rest after the last poll has passed.
    pub fn open(now: Timestamp, status: Status, state: &PollState, draw: f64, config: &PolicyConfig) -> Self {
        // The poll itself may take up to the quiet time, so that everything ends within the spread.
        let latest = config.ping_spread.saturating_sub(config.ping_quiet);
        let rest = rest_after_poll(now, status, state, config);
        let end = latest.max(config.ping_quiet.saturating_mul(LONGEST)).max(rest);
        PingWindow { place: scaled(latest, draw.min(1.0)).max(rest), end }
    }

    /// Returns when the feed is polled if no ping follows the one that arrived `last` after the first.
    pub fn due(self, last: Duration, config: &PolicyConfig) -> Duration {
        self.place.max(last.saturating_add(config.ping_quiet)).min(self.end)
    }
}

/// Returns how long pings cannot cause a poll of the feed: `ping_spread` after its last poll, doubled by each poll in a
/// row that a ping caused and that found no new entry. Pings need no permission, and the polls reach other people's
/// servers. A feed that is polled for pings alone has the ceiling of the penalty box.
pub fn rest_after_poll(now: Timestamp, status: Status, state: &PollState, config: &PolicyConfig) -> Duration {
    let widest = config.ping_spread.saturating_mul(WIDEST);
    let (first, longest) = match status {
        Status::Active => (config.ping_spread, widest),
        _ => (config.ping_spread.max(config.ping_quiet), widest.max(config.penalty.ceiling)),
    };
    let doubled = 1_u32.checked_shl(state.fruitless_wakes.into()).unwrap_or(u32::MAX);
    let rest = first.saturating_mul(doubled).min(longest);
    // After a clock was set back the last poll may lie in the future.
    state.last_polled.map_or(Duration::ZERO, |polled| polled.after(rest).since(now).min(rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn config(spread: Duration) -> PolicyConfig {
        PolicyConfig { ping_spread: spread, ..crate::config::defaults().policy }
    }

    fn polled(at: Timestamp) -> PollState {
        PollState { last_polled: Some(at), ..PollState::default() }
    }

    const NOW: Timestamp = Timestamp::EPOCH;
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_lone_ping_waits_for_the_quiet_time_alone_where_nothing_is_spread() {
        let none = config(Duration::ZERO);
        let window = PingWindow::open(NOW, Status::Active, &polled(NOW), 0.9, &none);
        assert_eq!(window, PingWindow { place: Duration::ZERO, end: 30 * SECOND });
        assert_eq!(window.due(Duration::ZERO, &none), SECOND);
        assert_eq!(window.due(10 * SECOND, &none), 11 * SECOND, "the last ping counts");
        assert_eq!(window.due(300 * SECOND, &none), window.end, "and not for ever");
    }

    #[test]
    fn a_feed_that_was_just_polled_rests_for_the_spread() {
        let config = config(60 * SECOND);
        let place = |passed: u32| {
            PingWindow::open(NOW.after(passed * SECOND), Status::Active, &polled(NOW), 0.0, &config).place
        };
        assert_eq!(
            [place(0), place(20), place(60), place(90)],
            [60 * SECOND, 40 * SECOND, Duration::ZERO, Duration::ZERO]
        );
    }

    #[test]
    fn a_last_poll_in_the_future_lengthens_no_rest() {
        let config = config(60 * SECOND);
        let ahead = polled(NOW.after(3600 * SECOND));
        assert_eq!(rest_after_poll(NOW, Status::Active, &ahead, &config), 60 * SECOND);
        let window = PingWindow::open(NOW, Status::Active, &ahead, 0.0, &config);
        assert_eq!(window.due(Duration::ZERO, &config), 60 * SECOND);
    }

    #[test]
    fn pings_without_effect_lengthen_the_rest_to_an_hour_and_nothing_else() {
        let config = config(60 * SECOND);
        let tried = |fruitless_wakes| PollState { fruitless_wakes, ..polled(NOW) };
        let rest = |count| rest_after_poll(NOW, Status::Active, &tried(count), &config);
        let rests: Vec<u64> = [0, 1, 2, 5, 6, 32, 255].into_iter().map(|count| rest(count).as_secs()).collect();
        assert_eq!(rests, [60, 120, 240, 1920, 3600, 3600, 3600]);
        let window = PingWindow::open(NOW.after(90 * SECOND), Status::Active, &tried(9), 0.0, &config);
        assert_eq!(window.due(Duration::ZERO, &config), 3510 * SECOND);
        let later = PingWindow::open(NOW.after(7200 * SECOND), Status::Active, &tried(9), 1.0, &config);
        assert_eq!(later.due(Duration::ZERO, &config), 59 * SECOND, "after the rest a ping is answered like any other");
    }

    #[test]
    fn a_feed_that_is_polled_for_pings_alone_is_tried_soon_and_then_ever_more_rarely() {
        let config = config(60 * SECOND);
        for status in [Status::Blacklisted, Status::Gone] {
            let state = |fruitless_wakes| PollState { fruitless_wakes, ..polled(NOW) };
            let minutes = |count| rest_after_poll(NOW, status, &state(count), &config).as_secs() / 60;
            let rests: Vec<u64> = [0, 1, 2, 6, 10, 11, 255].into_iter().map(minutes).collect();
            assert_eq!(rests, [1, 2, 4, 64, 1024, 1440, 1440], "at most a try a day in the long run");
            let first = PingWindow::open(NOW.after(60 * SECOND), status, &state(0), 1.0, &config);
            assert_eq!(first.due(Duration::ZERO, &config), 59 * SECOND, "whatever its last poll was");
        }
        let none = PolicyConfig { ping_spread: Duration::ZERO, ..config };
        let second = rest_after_poll(NOW, Status::Gone, &PollState { fruitless_wakes: 1, ..polled(NOW) }, &none);
        assert_eq!(second, 2 * none.ping_quiet, "also where nothing is spread");
    }

    proptest! {
        #[test]
        fn a_poll_leaves_itself_time_within_the_spread_and_never_comes_amid_pings(
            spread in 0u64..200_000, ago in 0u64..200_000, draw in 0.0..1.0, last in 0u64..100_000,
        ) {
            let config = config(Duration::from_millis(spread));
            let now = NOW.after(Duration::from_millis(ago));
            let window = PingWindow::open(now, Status::Active, &polled(NOW), draw, &config);
            let lone = window.due(Duration::ZERO, &config);
            let within = config.ping_spread.max(config.ping_quiet);
            prop_assert!(lone >= config.ping_quiet && lone <= within, "{lone:?}");
            let last = Duration::from_millis(last).min(window.end);
            let due = window.due(last, &config);
            prop_assert!(due == window.end || due >= last + config.ping_quiet);
            prop_assert!(due >= lone && due <= window.end);
        }
    }
}
