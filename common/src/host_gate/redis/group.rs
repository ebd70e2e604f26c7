//! A group of hosts: everything that the gate keeps of them is in one slot of a Redis Cluster, with its own marks, so
//! that a group that lost its memory closes alone.

use std::sync::atomic::{AtomicI64, Ordering};

use ::redis::ScriptInvocation;

use crate::host::HostKey;
use crate::redis::Part;
use crate::url::FeedId;

/// The keys of a group.
pub(super) struct Group {
    pub(super) part: Part,
    /// The newest generation of this group that this process has seen.
    generation: AtomicI64,
    prefix: String,
    pub(super) mark: String,
    pub(super) loading: String,
    pub(super) holds: String,
    /// Used in the first group only.
    pub(super) rules: [String; 2],
}

impl Group {
    pub(super) fn new(part: Part) -> Self {
        let prefix = format!("{}:gate:", part.tag);
        Group {
            part,
            generation: AtomicI64::new(0),
            mark: format!("{prefix}open"),
            loading: format!("{prefix}loading"),
            holds: format!("{prefix}holds"),
            rules: [format!("{prefix}rules"), format!("{prefix}rules-hash")],
            prefix,
        }
    }

    pub(super) fn host(&self, host: &HostKey) -> String {
        format!("{}host:{host}", self.prefix)
    }

    pub(super) fn feed(&self, feed: FeedId) -> String {
        format!("{}feed:{}", self.prefix, feed.0)
    }

    /// Passes to a script the marks and the first arguments of every script: the run of the server's process, and a
    /// time in place of the server's own.
    pub(super) fn begin(&self, call: &mut ScriptInvocation<'_>, run: &str, time: Option<i64>) {
        call.key(&self.mark).key(&self.loading).arg(run);
        match time {
            Some(time) => call.arg(time),
            None => call.arg(""),
        };
        call.arg(self.generation());
    }

    /// Remembers a generation that was seen: an older one counts as lost from here on.
    pub(super) fn note_generation(&self, seen: i64) {
        self.generation.fetch_max(seen, Ordering::Relaxed);
    }

    /// The same, of the text of a mark: the fourth word; one of a program that knows no generations has none.
    pub(super) fn note_mark(&self, mark: Option<&str>) {
        let generation = mark.and_then(|mark| mark.split(' ').nth(3)).and_then(|word| word.parse().ok());
        self.note_generation(generation.unwrap_or_default());
    }

    pub(super) fn generation(&self) -> i64 {
        self.generation.load(Ordering::Relaxed)
    }
}

/// What was begun to load into a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Loading {
    pub(super) group: usize,
    pub(super) nonce: String,
    pub(super) begun: i64,
    pub(super) generation: i64,
    /// It does not open before.
    pub(super) opens: i64,
}

/// Returns the text for a mark of all these.
pub(super) fn to_text(loadings: &[Loading]) -> String {
    let text = |Loading { group, nonce, begun, generation, opens }: &Loading| {
        format!("{group} {nonce} {begun} {generation} {opens}")
    };
    loadings.iter().map(text).collect::<Vec<_>>().join(",")
}

/// Reads the text of a mark.
pub(super) fn of_text(text: &str) -> Vec<Loading> {
    let loading = |text: &str| {
        let mut words = text.split(' ');
        Some(Loading {
            group: words.next()?.parse().ok()?,
            nonce: words.next()?.to_owned(),
            begun: words.next()?.parse().ok()?,
            generation: words.next()?.parse().ok()?,
            opens: words.next()?.parse().ok()?,
        })
    };
    text.split(',').filter_map(loading).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written() {
        let loading =
            |group, nonce: &str| Loading { group, nonce: nonce.to_owned(), begun: 7, generation: 9, opens: 8 };
        for loadings in [vec![], vec![loading(0, "a")], vec![loading(3, "a"), loading(15, "b")]] {
            assert_eq!(of_text(&to_text(&loadings)), loadings);
        }
    }
}
