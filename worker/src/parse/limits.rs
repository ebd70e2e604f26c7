//! The limits of one document.

use std::time::Instant;

use crate::watch;

/// What one document may cost. The code that reads the bytes limits their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseLimits {
    /// Entries that are kept: the first, or the last of a document whose first entry is the oldest.
    pub max_entries: usize,
    /// Bytes of one summary or content; longer ones are cut and marked.
    pub max_text_bytes: usize,
    /// Nesting of elements; a deeper document is refused.
    pub max_depth: usize,
    /// Elements in all, but for those of entries that are left out unread; a document with more is refused.
    pub max_elements: usize,
    /// Attributes of one element; a document with more is refused.
    pub max_attributes: usize,
    /// When reading ends: a document that is not read by then is refused. `None`: never.
    pub deadline: Option<Instant>,
}

impl ParseLimits {
    /// Returns true once the deadline has passed.
    pub(crate) fn is_late(&self) -> bool {
        watch::has_passed(self.deadline)
    }
}

impl Default for ParseLimits {
    fn default() -> Self {
        ParseLimits {
            max_entries: 2_000,
            max_text_bytes: 1024 * 1024,
            max_depth: 128,
            max_elements: 1_000_000,
            max_attributes: 256,
            deadline: None,
        }
    }
}
