//! What the readers return: a feed in our types, as its publisher wrote it, not yet within our limits.

use std::borrow::Cow;
use std::rc::Rc;

use common::document::FeedAbout;
use common::entry::{Author, Enclosure, EntryDetails, Podcast};
use common::time::Timestamp;
use url::Url;

use super::hints::Announced;
use super::link::Link;
use super::text::Markup;

/// Files, authors and categories that are kept of one entry, of each.
pub(super) const MAX_MEMBERS: usize = 64;

/// A feed as a reader found it. Texts borrow from the document where nothing in them had to be resolved.
#[derive(Debug, Default)]
pub(super) struct Draft<'a> {
    pub(super) title: Best<Text<'a>>,
    pub(super) link: Best<Link<'a>>,
    pub(super) id: Best<Cow<'a, str>>,
    pub(super) language: Best<Cow<'a, str>>,
    /// Of the entries that name none themselves.
    pub(super) authors: Best<Vec<Cow<'a, str>>>,
    pub(super) announced: Announced<'a>,
    pub(super) about: DraftAbout<'a>,
    pub(super) entries: Vec<DraftEntry<'a>>,
}

/// What a feed says about itself. Addresses in `fields` are as they were written.
#[derive(Debug, Default)]
pub(super) struct DraftAbout<'a> {
    pub(super) description: Best<Text<'a>>,
    pub(super) image: Best<Link<'a>>,
    pub(super) icon: Best<Link<'a>>,
    pub(super) copyright: Best<Text<'a>>,
    pub(super) fields: FeedAbout,
}

/// An entry as a reader found it.
#[derive(Debug, Default)]
pub(super) struct DraftEntry<'a> {
    pub(super) id: Best<Cow<'a, str>>,
    /// The publisher's word on whether the id is the entry's address.
    pub(super) id_is_link: Option<bool>,
    /// The base in force where the id is.
    pub(super) id_base: Option<Rc<Url>>,
    pub(super) link: Best<Link<'a>>,
    pub(super) title: Best<Text<'a>>,
    pub(super) published: Best<Timestamp>,
    pub(super) updated: Best<Timestamp>,
    pub(super) authors: Best<Vec<Cow<'a, str>>>,
    pub(super) summary: Best<Cow<'a, str>>,
    pub(super) content: Best<Cow<'a, str>>,
    pub(super) files: Vec<File<'a>>,
    /// The one whose element is being read.
    pub(super) open_file: Option<usize>,
    pub(super) categories: Vec<Cow<'a, str>>,
    pub(super) language: Best<Cow<'a, str>>,
    /// The base in force around its content, where it is another than the document's own URL.
    pub(super) content_base: Option<Rc<Url>>,
    /// The same around its summary.
    pub(super) summary_base: Option<Rc<Url>>,
    /// What only some entries have.
    pub(super) details: Option<Box<DraftDetails<'a>>>,
    /// Something was left out already.
    pub(super) cut: bool,
}

/// What only some entries have. Addresses are as they were written.
#[derive(Debug, Default)]
pub(super) struct DraftDetails<'a> {
    pub(super) image: Best<Link<'a>>,
    pub(super) rights: Best<Text<'a>>,
    /// The entry's own address, where its link is a redirect of a third party.
    pub(super) original_link: Option<Link<'a>>,
    /// Persons, with the rank of what they said.
    pub(super) authors: Vec<(u8, Author)>,
    /// What the other addresses are resolved against.
    pub(super) base: Option<Rc<Url>>,
    pub(super) fields: EntryDetails,
    /// Bytes of extensions so far.
    pub(super) extension_bytes: usize,
}

/// A text, and what of it is markup; `None` for plain text.
#[derive(Debug, Default)]
pub(super) struct Text<'a> {
    pub(super) raw: Cow<'a, str>,
    pub(super) markup: Option<Markup>,
}

/// A file that belongs to an entry.
#[derive(Debug, Default)]
pub(super) struct File<'a> {
    pub(super) link: Link<'a>,
    pub(super) media_type: Option<Cow<'a, str>>,
    pub(super) length: Option<u64>,
    /// What only some files have: duration, size, alternative text. Addresses are as they were written.
    pub(super) more: Option<Box<Enclosure>>,
}

/// The best of what a document says about one thing. Among equals the first stays.
#[derive(Debug)]
pub(super) struct Best<T> {
    value: Option<T>,
    rank: u8,
}

impl<T> Default for Best<T> {
    fn default() -> Self {
        Best { value: None, rank: u8::MAX }
    }
}

impl<T> Best<T> {
    /// Of one single offer.
    pub(super) fn of(value: Option<T>) -> Self {
        Best { value, rank: 0 }
    }

    /// Takes a value if it is trusted more (its rank is lower) than what there is. Says whether it did.
    pub(super) fn offer(&mut self, rank: u8, value: T) -> bool {
        let better = self.value.is_none() || rank < self.rank;
        if better {
            *self = Best { value: Some(value), rank };
        }
        better
    }

    pub(super) fn get(&self) -> Option<&T> {
        self.value.as_ref()
    }

    pub(super) fn into_option(self) -> Option<T> {
        self.value
    }
}

impl<'a> Best<Vec<Cow<'a, str>>> {
    /// Adds a name to those of its rank; a better rank replaces them, a worse one is nothing.
    pub(super) fn add(&mut self, rank: u8, name: Cow<'a, str>) {
        match &mut self.value {
            Some(names) if rank == self.rank => {
                if names.len() < MAX_MEMBERS && !names.contains(&name) {
                    names.push(name);
                }
            }
            _ => {
                self.offer(rank, vec![name]);
            }
        }
    }
}

impl File<'_> {
    /// Returns what only some files have, to be filled in.
    pub(super) fn more(&mut self) -> &mut Enclosure {
        self.more.get_or_insert_default()
    }
}

impl<'a> DraftEntry<'a> {
    /// Returns what only some entries have, to be filled in.
    pub(super) fn details(&mut self) -> &mut DraftDetails<'a> {
        self.details.get_or_insert_default()
    }

    /// The same for episodes.
    pub(super) fn podcast(&mut self) -> &mut Podcast {
        self.details().fields.podcast.get_or_insert_default()
    }

    /// Returns the file of the element that is being read, if it is kept.
    pub(super) fn open_file(&mut self) -> Option<&mut File<'a>> {
        self.files.get_mut(self.open_file?)
    }

    /// Adds a file, or completes what is known of it: the same file is often announced in two ways.
    pub(super) fn add_file(&mut self, new: File<'a>) {
        let known = self.files.iter().position(|known| known.link.href == new.link.href);
        let place = known.unwrap_or(self.files.len());
        self.open_file = (place < MAX_MEMBERS).then_some(place);
        match self.files.get_mut(place) {
            Some(known) => {
                known.media_type = known.media_type.take().or(new.media_type);
                known.length = known.length.or(new.length);
                if known.more.is_none() {
                    known.more = new.more;
                }
            }
            None if place >= MAX_MEMBERS => self.cut = true,
            None => self.files.push(new),
        }
    }

    pub(super) fn add_category(&mut self, category: Cow<'a, str>) {
        if self.categories.len() < MAX_MEMBERS && !self.categories.contains(&category) {
            self.categories.push(category);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_trusted_word_stays_and_among_equals_the_first() {
        let mut best = Best::default();
        for (rank, word) in [(2, "c"), (1, "a"), (1, "b"), (3, "d")] {
            best.offer(rank, word);
        }
        assert_eq!(best.into_option(), Some("a"));

        let mut names = Best::default();
        for (rank, name) in [(1, "x"), (0, "a"), (0, "b"), (0, "a"), (1, "y")] {
            names.add(rank, Cow::from(name));
        }
        assert_eq!(names.into_option().unwrap(), ["a", "b"]);
    }
}
