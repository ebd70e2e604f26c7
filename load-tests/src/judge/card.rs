//! The result of judging: figures, violations with their reasons, a table to read.

use std::fmt;

use crate::origin::log::Record;

/// A way to be impolite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// No condition was sent although the path's server had given validators.
    UnconditionalRepeat,
    /// One of two validators was sent, the other left out.
    MissingValidator,
    /// A condition that is not, byte for byte, the last validator of that path.
    InventedValidator,
    /// A path was asked before its freshness, its `Retry-After` or its floor was over.
    EarlyPoll,
    /// A path was asked after it had answered 410.
    AfterGone,
    /// A host was asked while a `Retry-After` of one of its paths held all of it.
    PollDuringHold,
    /// Two requests to a host started closer than its gap.
    Gap,
    /// More requests in flight at a host than its parallelism.
    HostOverlap,
    /// Two requests in flight for one path.
    PathOverlap,
    /// A method other than GET.
    Method,
    /// A target other than the one that was given: a query added, changed or lost.
    ChangedTarget,
    /// A cookie was sent.
    Cookie,
    /// A `Referer` was sent.
    Referer,
    /// `Cache-Control` or `Pragma` that ask caches not to help.
    CacheBuster,
    /// No `User-Agent`, or that of a browser.
    UserAgent,
}

impl Fault {
    /// All of them, in the table's order.
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

    /// What the table calls it.
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

/// One breach of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which rule.
    pub fault: Fault,
    /// [`Record::number`] of the request that broke it.
    pub request: usize,
    /// Times, numbers of the requests that matter, and why.
    pub explanation: String,
}

impl Violation {
    pub(super) fn new(fault: Fault, record: &Record, why: impl fmt::Display) -> Self {
        let start = record.start.as_secs_f64();
        let explanation = format!("request {} (+{start:.3} s, {}): {why}", record.number, record.path);
        Violation { fault, request: record.number, explanation }
    }
}

/// What [`judge`](super::judge) found. Its `Display` is a table with the first reasons of each kind.
#[derive(Clone, Debug, Default)]
pub struct ScoreCard {
    /// Requests judged.
    pub requests: usize,
    /// Hosts asked.
    pub hosts: usize,
    /// Paths asked.
    pub paths: usize,
    /// Answers of status 200 with a scripted feed.
    pub feeds_sent: usize,
    /// Answers of status 304.
    pub not_modified: usize,
    /// Bytes of bodies, as coded.
    pub body_bytes: u64,
    /// Every breach.
    pub violations: Vec<Violation>,
}

/// Reasons that the table shows of each kind.
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

    /// How often a rule was broken.
    pub fn count(&self, fault: Fault) -> usize {
        self.of_kind(fault).count()
    }

    /// The breaches of one rule.
    pub fn of_kind(&self, fault: Fault) -> impl Iterator<Item = &Violation> {
        self.violations.iter().filter(move |violation| violation.fault == fault)
    }

    /// Whether no rule was broken.
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
