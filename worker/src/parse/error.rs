//! Why bytes are not a feed.

use std::fmt::Display;

/// Why bytes are not a valid feed. The texts are single lines for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Something else: a page, an empty file.
    #[error("not a feed: {0}")]
    NotAFeed(String),
    /// A feed, but broken beyond repair.
    #[error("broken feed: {0}")]
    Malformed(String),
    /// Beyond a limit that is not one of bytes: nesting, elements, attributes, time.
    #[error("feed beyond the limits: {0}")]
    TooLarge(String),
}

/// Longest text of an error, in characters: it may quote the document.
const MAX_ERROR_CHARS: usize = 200;

impl ParseError {
    /// Reading it did not end by [`ParseLimits::deadline`](super::ParseLimits::deadline).
    pub(crate) fn late() -> Self {
        ParseError::TooLarge("reading it takes too long".to_owned())
    }

    pub(super) fn malformed(why: &dyn Display) -> Self {
        ParseError::Malformed(one_line(why))
    }

    pub(super) fn not_a_feed(why: &dyn Display) -> Self {
        ParseError::NotAFeed(one_line(why))
    }
}

fn one_line(why: &dyn Display) -> String {
    let whole = why.to_string();
    whole.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_ERROR_CHARS).collect()
}
