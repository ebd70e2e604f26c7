//! The limits of one document.

use std::time::Instant;

/// What one document may cost. The number of its bytes is limited by whoever reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseLimits {
    /// Entries that are read; further ones are left out.
    pub max_entries: usize,
    /// Bytes of one summary or content; longer ones are cut and marked.
    pub max_text_bytes: usize,
    /// Nesting of elements; a deeper document is refused.
    pub max_depth: usize,
    /// Elements in all, but for those of entries that are left out; a document with more is refused.
    pub max_elements: usize,
    /// Attributes of one element; a document with more is refused.
    pub max_attributes: usize,
    /// When building a page's tree ends, whatever has come of it by then.
    pub deadline: Option<Instant>,
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
