//! What the engines hand on: a feed in our words, not yet within our limits.

use common::entry::{Enclosure, Entry};

use super::hints::Announced;
use super::text::Markup;

/// Files that are kept of one entry.
pub(super) const MAX_ENCLOSURES: usize = 64;

/// A feed as an engine read it.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) title: Option<String>,
    /// What of the title is markup; `None` for plain text.
    pub(super) title_markup: Option<Markup>,
    pub(super) link: Option<String>,
    /// Empty when the feed has none.
    pub(super) id: String,
    pub(super) language: Option<String>,
    pub(super) announced: Announced,
    pub(super) entries: Vec<DraftEntry>,
}

/// An entry as an engine read it. Its id is empty when the publisher gave none.
#[derive(Debug, Default)]
pub(super) struct DraftEntry {
    pub(super) entry: Entry,
    /// What of the title is markup; `None` for plain text.
    pub(super) title_markup: Option<Markup>,
}

impl DraftEntry {
    /// Adds a file, or completes what is known of it: the same file is often announced in two ways.
    pub(super) fn add_enclosure(&mut self, new: Enclosure) {
        let full = self.entry.enclosures.len() == MAX_ENCLOSURES;
        match self.entry.enclosures.iter_mut().find(|known| known.url == new.url) {
            Some(known) => {
                known.media_type = known.media_type.take().or(new.media_type);
                known.length = known.length.or(new.length);
            }
            None if full => self.entry.cut = true,
            None => self.entry.enclosures.push(new),
        }
    }
}

impl Draft {
    /// Neither a title nor an entry: probably read by the wrong rules.
    pub(super) fn is_hollow(&self) -> bool {
        self.entries.is_empty() && self.title.as_deref().is_none_or(|title| title.trim().is_empty())
    }
}
