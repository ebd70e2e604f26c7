//! The result of judging: figures, violations with their reasons, a readable table.

use std::fmt;

use crate::origin::log::Record;

/// The kinds of violations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// No condition was sent although the path's server had sent validators.
    UnconditionalRepeat,
    /// One of two validators was sent, the other omitted.
    MissingValidator,
    /// A condition that is not, byte for byte, the last validator of that path.
    InventedValidator,
    /// A path was polled before its freshness, its `Retry-After` or its floor had expired.
    EarlyPoll,
    /// A path was polled after it had responded with 410.
    AfterGone,
    /// A host was polled while a `Retry-After` of one of its paths held the whole host.
    PollDuringHold,
    /// Two requests to a host started closer than its gap.
    Gap,
    /// More requests in flight at a host than allowed.
    HostOverlap,
    /// Two requests in flight for one path.
    PathOverlap,
    /// A method other than GET.
    Method,
    /// A target other than the URL's: a query was added, changed or lost.
    ChangedTarget,
    /// A cookie was sent.
    Cookie,
    /// A `Referer` was sent.
    Referer,
    /// `Cache-Control` or `Pragma` that bypass caches.
    CacheBuster,
    /// No `User-Agent`, or that of a browser.
    UserAgent,
}

impl Fault {
    /// All kinds, in the table's order.
    pub const ALL: [Fault; 15] = [
        Fault::UnconditionalRepeat,
        Fault::MissingValidator,
        Fault::InventedValidator,
        Fault::EarlyPoll,
        Fault::AfterGone,
        Fault::PollDuringHold,
        Fault::Gap,
        Fault::HostOverlap,
        Fault::PathOverlap,
        Fault::Method,
        Fault::ChangedTarget,
        Fault::Cookie,
        Fault::Referer,
        Fault::CacheBuster,
        Fault::UserAgent,
    ];

    /// Returns its name in the table.
    pub fn as_str(self) -> &'static str {
        match self {
            Fault::UnconditionalRepeat => "unconditional repeats",
            Fault::MissingValidator => "validators left out",
            Fault::InventedValidator => "invented validators",
            Fault::EarlyPoll => "early polls",
            Fault::AfterGone => "polls after 410",
            Fault::PollDuringHold => "polls during a host's hold",
            Fault::Gap => "starts within the gap",
            Fault::HostOverlap => "overlaps per host",
            Fault::PathOverlap => "overlaps per path",
            Fault::Method => "methods other than GET",
            Fault::ChangedTarget => "changed targets",
            Fault::Cookie => "cookies",
            Fault::Referer => "referers",
            Fault::CacheBuster => "cache busters",
            Fault::UserAgent => "bad user agents",
        }
    }
}

/// One violation of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule.
    pub fault: Fault,
    /// [`Record::number`] of the request that violated it.
    pub request: usize,
    /// Times, numbers of the relevant requests, and the reason.
    pub explanation: String,
}

impl Violation {
    pub(super) fn new(fault: Fault, record: &Record, why: impl fmt::Display) -> Self {
        let start = record.start.as_secs_f64();
        let explanation = format!("request {} (+{start:.3} s, {}): {why}", record.number, record.path);
        Violation { fault, request: record.number, explanation }
    }
}

/// The findings of [`judge`](super::judge). Its `Display` is a table with the first reasons of each kind.
#[derive(Clone, Debug, Default)]
pub struct ScoreCard {
    /// Requests judged.
    pub requests: usize,
    /// Hosts polled.
    pub hosts: usize,
    /// Paths polled.
    pub paths: usize,
    /// Responses of status 200 with a scripted feed.
    pub feeds_sent: usize,
    /// Responses of status 304.
    pub not_modified: usize,
    /// Bytes of bodies, as coded.
    pub body_bytes: u64,
    /// All violations.
    pub violations: Vec<Violation>,
}

/// The number of reasons per kind in the table.
const SHOWN: usize = 5;

impl ScoreCard {
    pub(super) fn of(log: &[Record], hosts: usize, paths: usize) -> Self {
        ScoreCard {
            requests: log.len(),
            hosts,
            paths,
            feeds_sent: log.iter().filter(|record| record.items.is_some()).count(),
            not_modified: log.iter().filter(|record| record.status == Some(304)).count(),
            body_bytes: log.iter().map(|record| record.body_bytes).sum(),
            violations: Vec::new(),
        }
    }

    /// Returns how often a rule was violated.
    pub fn count(&self, fault: Fault) -> usize {
        self.of_kind(fault).count()
    }

    /// Returns the violations of one rule.
    pub fn of_kind(&self, fault: Fault) -> impl Iterator<Item = &Violation> {
        self.violations.iter().filter(move |violation| violation.fault == fault)
    }

    /// Returns true if no rule was violated.
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty()
    }
}

impl fmt::Display for ScoreCard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requests, hosts, paths, feeds_sent, not_modified, body_bytes, violations: _ } = self;
        let other = requests - feeds_sent - not_modified;
        writeln!(
            f,
            "{requests} requests to {hosts} hosts and {paths} paths: {feeds_sent} feeds, {not_modified} not modified, \
             {other} other; {body_bytes} bytes of bodies"
        )?;
        for fault in Fault::ALL {
            let count = self.count(fault);
            writeln!(f, "  {:<28}{count:>7}", fault.as_str())?;
            for violation in self.of_kind(fault).take(SHOWN) {
                writeln!(f, "      {}", violation.explanation)?;
            }
            if count > SHOWN {
                writeln!(f, "      and {} more", count - SHOWN)?;
            }
        }
        Ok(())
    }
}
