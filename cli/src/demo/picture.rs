//! Everything that is visible at one moment: plain data, collected by `watch`, rendered by `view` and `log`.

use std::time::Duration;

/// One moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Picture {
    /// Time since the start.
    pub(super) elapsed: Duration,
    /// When the demo ends.
    pub(super) limit: Duration,
    /// The API's address.
    pub(super) address: String,
    /// The number of hosts.
    pub(super) hosts: usize,
    /// Each feed's state.
    pub(super) cells: Vec<Cell>,
    /// What the servers saw.
    pub(super) requests: Requests,
    /// Requests that finished in each whole second, oldest first; the last minutes.
    pub(super) pace: Vec<u32>,
    /// How late feeds were recently claimed, on average, including waits for a busy host.
    pub(super) lag: Option<Duration>,
    /// Feeds that wait for a busy or held host.
    pub(super) parked: usize,
    /// Entries stored.
    pub(super) entries: u64,
    /// Of these, published since the start.
    pub(super) fresh: u64,
    /// Average time from publication to storage.
    pub(super) delay: Option<Duration>,
    /// The judge's latest verdict.
    pub(super) verdict: Option<Verdict>,
    /// Requests in flight, the oldest first.
    pub(super) asking: Vec<Asking>,
    /// Finished requests, newest first.
    pub(super) asked: Vec<Asked>,
    /// New entries, newest first.
    pub(super) came: Vec<Came>,
    /// The penalty box: reasons alternate, and within a reason the earliest retry comes first.
    pub(super) boxed: Vec<Boxed>,
    /// Held hosts, the shortest hold first.
    pub(super) held: Vec<HeldHost>,
    /// Other events, newest first.
    pub(super) story: Vec<Happening>,
}

/// Totals of the servers' log.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Requests {
    /// Finished requests.
    pub(super) count: u64,
    /// Responses with 304.
    pub(super) not_modified: u64,
    /// Responses with a feed.
    pub(super) full: u64,
    /// Body bytes of these feeds.
    pub(super) sent: u64,
    /// Body bytes that 304s saved.
    pub(super) saved: u64,
}

/// The state of a feed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Cell {
    /// Never polled.
    #[default]
    Unasked,
    /// Healthy.
    Quiet,
    /// In flight, or just finished.
    Asked,
    /// Has just published an entry.
    News,
    /// Throttled by its server, or failed and due for a retry soon.
    Waiting,
    /// In the penalty box.
    Boxed,
    /// No longer polled.
    Gone,
}

/// The politeness verdict, based on the servers' own log.
#[derive(Clone, Debug, Default)]
pub(super) struct Verdict {
    /// The number of requests judged.
    pub(super) requests: usize,
    /// The number of rules.
    pub(super) rules: usize,
    /// The rules that were broken, with the number of breaches.
    pub(super) broken: Vec<(&'static str, usize)>,
}

impl Verdict {
    /// Returns the number of all breaches.
    pub(super) fn breaches(&self) -> usize {
        self.broken.iter().map(|(_, count)| count).sum()
    }
}

/// A request in flight.
#[derive(Clone, Debug)]
pub(super) struct Asking {
    /// The feed.
    pub(super) feed: String,
    /// How long it has been in flight.
    pub(super) since: Duration,
}

/// A finished request.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    /// The feed.
    pub(super) feed: String,
    /// Its status code; `None` when the connection was cut.
    pub(super) status: Option<u16>,
    /// How long it took.
    pub(super) took: Duration,
    /// Bytes of body.
    pub(super) bytes: u64,
}

/// An entry.
#[derive(Clone, Debug)]
pub(super) struct Came {
    /// Time since the start.
    pub(super) at: Duration,
    /// The feed.
    pub(super) feed: String,
    /// The title: untrusted text.
    pub(super) title: String,
}

/// A feed in the penalty box.
#[derive(Clone, Debug)]
pub(super) struct Boxed {
    /// The feed.
    pub(super) feed: String,
    /// The reason.
    pub(super) why: String,
    /// Time until the retry.
    pub(super) again: Duration,
}

/// A held host.
#[derive(Clone, Debug)]
pub(super) struct HeldHost {
    /// The host.
    pub(super) host: String,
    /// Time until the hold expires.
    pub(super) left: Duration,
}

/// An event about a feed or a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Happening {
    /// Time since the start.
    pub(super) at: Duration,
    /// Whether it is good news.
    pub(super) good: bool,
    /// The event in words.
    pub(super) text: String,
}
