//! When a fleet has recovered from trouble.

use std::collections::HashSet;
use std::time::Duration;

use load_tests::Record;
use tokio::time::Instant;

use super::load::{Load, Size, now, path};

/// The time within which the usual rate is reached after a server is back: seconds, unless the machine is very busy.
const RECOVERY: Duration = Duration::from_secs(240);
const WINDOW: Duration = Duration::from_secs(2);

/// Waits until requests have arrived at nine tenths of the usual rate and no feed is overdue: a burst of late feeds would hide hosts
/// that still wait, and after it nothing is due for a while. Returns how long that took.
pub(super) async fn until_usual_rate(load: &Load) -> Duration {
    let began = Instant::now();
    let window = WINDOW.min(load.size.interval / 3);
    let mut was_usual = false;
    loop {
        let rate = load.rate_over(window).await;
        was_usual |= rate >= 0.9 * load.size.rate();
        let late = if was_usual { overdue(load) } else { Vec::new() };
        if was_usual && late.is_empty() {
            return began.elapsed();
        }
        let left: Vec<&String> = late.iter().take(5).collect();
        assert!(
            began.elapsed() < RECOVERY,
            "not back within {RECOVERY:?}: {rate:.0} polls/s of {:.0}, {} feeds overdue, such as {left:?}",
            load.size.rate(),
            late.len(),
        );
    }
}

/// Returns how much later than its interval a feed may be polled. The long form allows a tenth of the interval; the short one shares
/// the machine with other tests.
fn slack(size: &Size) -> Duration {
    if std::env::var_os("SOAK").is_some() { size.interval / 10 } else { size.longest_gap() - size.interval }
}

/// Returns the feeds whose last request is too long ago, except those of hosts that a `Retry-After` held meanwhile.
fn overdue(load: &Load) -> Vec<String> {
    let (log, size) = (load.origin.log(), load.size);
    let since = now().before(size.interval + slack(&size));
    let polled: HashSet<&str> = log.iter().filter(|record| record.wall >= since).map(Record::target).collect();
    let holding = |record: &&Record| record.status == Some(429) && record.wall >= since.before(size.hold());
    let held: HashSet<_> = log.iter().filter(holding).map(|record| record.local).collect();
    let is_late =
        |n: &usize| !polled.contains(path(*n).as_str()) && !held.contains(&load.origin.address(load.host_of(*n)));
    (0..size.feeds).filter(is_late).map(path).collect()
}
