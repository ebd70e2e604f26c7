//! What a simulated fleet must never do, and how often it was done.

use std::fmt::{self, Display};
use std::time::Duration;

/// What a fleet must never do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rule {
    /// Something that was stored or announced is missing, or there twice.
    Lost,
    /// A feed is not polled although all has been well for two leases.
    Stranded,
    /// A feed is requested before it is due, or too soon after its last request.
    Early,
    /// A feed is requested while it is being fetched, or in a version that was stored.
    Double,
    /// A request to a host that is on hold.
    Hold,
    /// Two requests of a host are closer than its gap.
    Gap,
    /// Two requests of a host are in flight.
    Parallel,
    /// A feed is quarantined that kills no worker.
    Innocent,
    /// A process ended.
    Ended,
    /// A process does something while its clock is off.
    Clock,
}

impl Rule {
    pub(crate) const ALL: [(Rule, &'static str); 10] = [
        (Rule::Lost, "lost"),
        (Rule::Stranded, "stranded beyond two leases"),
        (Rule::Early, "early"),
        (Rule::Double, "fetched twice"),
        (Rule::Hold, "holds broken"),
        (Rule::Gap, "gaps broken"),
        (Rule::Parallel, "limits broken"),
        (Rule::Innocent, "innocents quarantined"),
        (Rule::Ended, "processes ended"),
        (Rule::Clock, "wrong clocks used"),
    ];
}

/// What may differ from the rules in this fleet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tolerance {
    /// Between the clocks of two processes.
    pub(crate) skew: Duration,
    /// Between two starts at a host.
    pub(crate) gap: Duration,
    /// Between two requests for a feed.
    pub(crate) interval: Duration,
    /// The life of a permit.
    pub(crate) permit: Duration,
}

/// Counts of a life.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// How often each rule was broken.
    pub(crate) broken: [u64; Rule::ALL.len()],
    pub(crate) calls: u64,
    pub(crate) faults: u64,
    pub(crate) requests: u64,
    pub(crate) repeated: u64,
    /// Feeds that were claimed although a job of theirs was in the queue.
    pub(crate) doubled: u64,
    pub(crate) deaths: u64,
}

impl Counts {
    /// Adds those of another life.
    pub(crate) fn add(&mut self, other: &Counts) {
        self.calls += other.calls;
        self.faults += other.faults;
        self.requests += other.requests;
        self.repeated += other.repeated;
        self.doubled += other.doubled;
        self.deaths += other.deaths;
        self.broken.iter_mut().zip(other.broken).for_each(|(sum, more)| *sum += more);
    }
}

impl Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { calls, faults, requests, deaths, .. } = self;
        write!(f, "{calls} calls, {faults} faults, {deaths} deaths, {requests} requests")?;
        Rule::ALL.iter().try_for_each(|(rule, name)| write!(f, ", {name} {}", self.broken[*rule as usize]))
    }
}
