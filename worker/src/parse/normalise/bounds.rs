//! How much one entry or feed may say beside its texts: lists of addresses would otherwise take megabytes of every message,
//! row and page that holds them.

use common::entry::{Author, EntryDetails};

/// Bytes of the lists of one entry's details together, and of the same of a feed.
const MAX_BYTES: usize = 32 * 1024;
/// The same of a feed's authors: every entry without authors repeats them.
const MAX_INHERITED_BYTES: usize = 2 * 1024;
/// What a member counts beside its texts.
const MEMBER: usize = 16;

/// What is left of the bytes that lists may take.
pub(super) struct Budget(usize);

impl Budget {
    pub(super) fn new() -> Self {
        Budget(MAX_BYTES)
    }

    pub(super) fn inherited() -> Self {
        Budget(MAX_INHERITED_BYTES)
    }

    /// Takes the bytes of a member, if it still fits.
    pub(super) fn takes<'t>(&mut self, texts: impl IntoIterator<Item = Option<&'t String>>) -> bool {
        let bytes = MEMBER + texts.into_iter().flatten().map(String::len).sum::<usize>();
        let fits = bytes <= self.0;
        self.0 -= if fits { bytes } else { 0 };
        fits
    }

    pub(super) fn takes_author(&mut self, author: &Author) -> bool {
        let Author { name, url, email, avatar } = author;
        self.takes([Some(name), url.as_ref(), email.as_ref(), avatar.as_ref()])
    }
}

/// Leaves as much of an entry's lists as may be kept.
pub(super) fn bounded(details: &mut EntryDetails) {
    let mut left = Budget::new();
    details.related.retain(|link| left.takes([Some(link)]));
    details.in_reply_to.retain(|id| left.takes([Some(id)]));
    let Some(podcast) = &mut details.podcast else { return };
    podcast
        .transcripts
        .retain(|one| left.takes([Some(&one.url), one.media_type.as_ref(), one.language.as_ref(), one.rel.as_ref()]));
    podcast.persons.retain(|one| {
        left.takes([Some(&one.name), one.role.as_ref(), one.group.as_ref(), one.image.as_ref(), one.url.as_ref()])
    });
    podcast.soundbites.retain(|one| left.takes([one.title.as_ref()]));
    if let Some(value) = &mut podcast.value {
        value.recipients.retain(|one| left.takes([one.name.as_ref(), Some(&one.kind), Some(&one.address)]));
    }
    podcast.alternate_enclosures.retain_mut(|one| {
        one.sources.retain(|source| left.takes([Some(source)]));
        left.takes([one.media_type.as_ref(), one.language.as_ref(), one.title.as_ref()])
    });
}
