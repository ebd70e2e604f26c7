//! Names and moments as the pages show them.

use std::time::Duration;

use common::outcome::OutcomeKind;
use common::policy::{Category, Status};
use common::time::Timestamp;
use store::StoredEntry;

pub(super) use common::words::{
    bytes, count, counted, duration, failure, full, rate, relative, seconds, status, whole,
};

/// A moment, for `<time>`: for machines, in full, and as seen from now.
pub(super) struct Moment {
    pub(super) machine: String,
    pub(super) full: String,
    pub(super) relative: String,
}

impl Moment {
    /// `at` as seen from `now`.
    pub(super) fn of(at: Timestamp, now: Timestamp) -> Self {
        Moment { machine: at.to_string(), full: full(at), relative: relative(at, now) }
    }

    /// A due time as seen from `now`.
    pub(super) fn due(at: Timestamp, now: Timestamp) -> Self {
        Moment { relative: due(at, now), ..Moment::of(at, now) }
    }
}

/// A due time as seen from `now`.
pub(super) fn due(at: Timestamp, now: Timestamp) -> String {
    match now.since(at) {
        late if late >= Duration::from_secs(1) => format!("due for {}", duration(late)),
        _ => relative(at, now),
    }
}

/// A name of the API's as words.
pub(super) fn spaced(name: &str) -> String {
    name.replace('_', " ")
}

/// An outcome in words.
pub(super) fn outcome(kind: OutcomeKind) -> &'static str {
    match kind {
        OutcomeKind::Modified => "New content",
        OutcomeKind::NotModified => "Not modified",
        OutcomeKind::Throttled => "Throttled",
        OutcomeKind::Failed => "Failed",
        OutcomeKind::Gone => "Gone",
        OutcomeKind::Deferred => "Deferred",
    }
}

/// A feed's status in words.
pub(super) fn feed_status(status: Status) -> &'static str {
    match status {
        Status::Active => "active",
        Status::Paused => "paused",
        Status::Gone => "gone (410)",
        Status::Blacklisted => "blacklisted: failed for too long",
        Status::Quarantined => "quarantined: crashed a worker",
        Status::Removed => "removed",
        Status::Merged => "merged into another feed",
    }
}

/// What a category means.
pub(super) fn category(category: Category) -> &'static str {
    match category {
        Category::A => "under an SLA",
        Category::B => "more than 20 subscribers, or important",
        Category::C => "2 to 20 subscribers, or a login",
        Category::D => "one subscriber, or none",
        Category::F => "the host has its own interval",
    }
}

/// How many there are, of which a page shows the beginning, all, or a later part: `None` if nothing is known.
pub(super) fn at_least(shown: usize, is_first: bool, has_more: bool, (one, several): (&str, &str)) -> Option<String> {
    let counted = counted(shown as u64, one, several);
    match (is_first, has_more) {
        (true, false) => Some(counted),
        (true, true) if shown > 0 => Some(format!("more than {counted}")),
        _ => None,
    }
}

/// What an entry's feed is called: its title, else its address.
pub(super) fn feed_name(stored: &StoredEntry) -> String {
    let feed = &stored.feed;
    let names = [&feed.feed_title, &feed.feed_url].into_iter().flatten();
    names
        .map(|name| name.trim())
        .find(|name| !name.is_empty())
        .map_or_else(|| format!("feed {}", stored.feed_id), str::to_owned)
}

/// Only http and https make a link: a feed may announce `javascript:`.
pub(super) fn web_link(link: &str) -> Option<String> {
    (link.starts_with("http://") || link.starts_with("https://")).then(|| link.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_late_is_due_for_so_long() {
        let now = Timestamp::from_millis(10_000_000);
        assert_eq!(due(now.before(Duration::from_secs(90)), now), "due for 1 min 30 s");
        assert_eq!(due(now.after(Duration::from_secs(90)), now), "in 1 min 30 s");
        assert_eq!(
            (due(now, now), relative(now.before(Duration::from_secs(90)), now)),
            ("now".into(), "1 min 30 s ago".into())
        );
    }

    #[test]
    fn only_web_addresses_become_links() {
        assert_eq!(web_link("https://a.example/"), Some("https://a.example/".to_owned()));
        for link in ["javascript:alert(1)", "JAVASCRIPT:x", "data:text/html,x", "//a.example", " https://a.example"] {
            assert_eq!(web_link(link), None, "{link}");
        }
    }
}
