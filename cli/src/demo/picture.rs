//! What there is to see at one moment: plain data, gathered by the watch, drawn by view and log.

use std::time::Duration;

/// One moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Picture {
    /// Since the start.
    pub(super) elapsed: Duration,
    /// When it ends.
    pub(super) limit: Duration,
    /// Where the API is.
    pub(super) address: String,
    /// How many hosts there are.
    pub(super) hosts: usize,
    /// Each feed's state.
    pub(super) cells: Vec<Cell>,
    /// What the servers saw.
    pub(super) requests: Requests,
    /// Finished requests in each whole second so far, oldest first; the last minutes.
    pub(super) pace: Vec<u32>,
    /// How late feeds were claimed lately, waiting for a busy host included; on average.
    pub(super) lag: Option<Duration>,
    /// Feeds that wait for a busy or held host.
    pub(super) parked: usize,
    /// Entries stored.
    pub(super) entries: u64,
    /// Of these, published since the start.
    pub(super) fresh: u64,
    /// From their publication to the store, on average.
    pub(super) delay: Option<Duration>,
    /// The judge's last word.
    pub(super) verdict: Option<Verdict>,
    /// What is being asked, the longest waiting first.
    pub(super) asking: Vec<Asking>,
    /// What was asked lately, newest first.
    pub(super) asked: Vec<Asked>,
    /// Entries that came lately, newest first.
    pub(super) came: Vec<Came>,
    /// The penalty box, by turns of the reasons, the first to be tried again first.
    pub(super) boxed: Vec<Boxed>,
    /// Hosts that asked for a pause, the shortest first.
    pub(super) held: Vec<Held>,
    /// What else happened, newest first.
    pub(super) story: Vec<Happening>,
}

/// The servers' log in numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Requests {
    /// Finished ones.
    pub(super) count: u64,
    /// Answered with 304.
    pub(super) not_modified: u64,
    /// Answered with a feed.
    pub(super) full: u64,
    /// Bytes of these feeds.
    pub(super) sent: u64,
    /// Bytes of feeds that 304s made unnecessary.
    pub(super) saved: u64,
}

/// The state of a feed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Cell {
    /// Never asked.
    #[default]
    Unasked,
    /// All is well.
    Quiet,
    /// Being asked, or just asked.
    Asked,
    /// An entry has just come.
    News,
    /// Its server asked us to wait, or it failed and is tried again soon.
    Waiting,
    /// In the penalty box.
    Boxed,
    /// Not polled any more.
    Gone,
}

/// The manners by the servers' own log.
#[derive(Clone, Debug, Default)]
pub(super) struct Verdict {
    /// How many requests were judged.
    pub(super) requests: usize,
    /// How many rules there are.
    pub(super) rules: usize,
    /// Rules that were broken, and how often.
    pub(super) broken: Vec<(&'static str, usize)>,
}

impl Verdict {
    /// All breaches.
    pub(super) fn breaches(&self) -> usize {
        self.broken.iter().map(|(_, count)| count).sum()
    }
}

/// A request under way.
#[derive(Clone, Debug)]
pub(super) struct Asking {
    /// Of which feed.
    pub(super) feed: String,
    /// For how long.
    pub(super) since: Duration,
}

/// A finished request.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    /// Of which feed.
    pub(super) feed: String,
    /// Its status; `None` when the exchange was cut.
    pub(super) status: Option<u16>,
    /// How long it took.
    pub(super) took: Duration,
    /// Bytes of body.
    pub(super) bytes: u64,
}

/// An entry.
#[derive(Clone, Debug)]
pub(super) struct Came {
    /// Since the start.
    pub(super) at: Duration,
    /// Of which feed.
    pub(super) feed: String,
    /// A stranger's words.
    pub(super) title: String,
}

/// A feed in the penalty box.
#[derive(Clone, Debug)]
pub(super) struct Boxed {
    /// Which.
    pub(super) feed: String,
    /// What put it there.
    pub(super) why: String,
    /// When it is tried again.
    pub(super) again: Duration,
}

/// A held host.
#[derive(Clone, Debug)]
pub(super) struct Held {
    /// Which.
    pub(super) host: String,
    /// For how long.
    pub(super) left: Duration,
}

/// Something that happened to a feed or a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Happening {
    /// Since the start.
    pub(super) at: Duration,
    /// Good news?
    pub(super) good: bool,
    /// In words.
    pub(super) text: String,
}
