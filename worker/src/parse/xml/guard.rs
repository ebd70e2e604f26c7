//! What one document may hold: the limits that are checked while it is read.
//!
//! The reader does not recurse and keeps nothing of what it does not understand, so that nesting and numbers cannot
//! hurt it; what is beyond these limits is refused nevertheless, because no publisher means it.

use quick_xml::events::BytesStart;

use super::refusal::Refusal;
use crate::parse::ParseLimits;

/// The shortest attribute, ` a=""`, in bytes.
const SHORTEST_ATTRIBUTE: usize = 5;

/// Counts against the limits.
#[derive(Debug)]
pub(super) struct Guard<'l> {
    limits: &'l ParseLimits,
    depth: usize,
    elements: usize,
}

impl<'l> Guard<'l> {
    pub(super) fn new(limits: &'l ParseLimits) -> Self {
        Guard { limits, depth: 0, elements: 0 }
    }

    /// Returns the number of open elements.
    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    /// Counts an element that begins. One of an entry that is left out does not count.
    pub(super) fn open(&mut self, tag: &BytesStart<'_>, counts: bool) -> Result<(), Refusal> {
        let limits = self.limits;
        self.depth += 1;
        self.elements += usize::from(counts);
        if self.depth > limits.max_depth {
            return Err(Refusal::TooDeep(format!("elements are nested more than {} deep", limits.max_depth)));
        }
        if self.elements > limits.max_elements {
            return Err(Refusal::TooLarge(format!("more than {} elements", limits.max_elements)));
        }
        let limit = limits.max_attributes;
        let count = || tag.attributes().with_checks(false).take(limit + 1).count();
        if tag.attributes_raw().len() / SHORTEST_ATTRIBUTE > limit && count() > limit {
            return Err(Refusal::TooLarge(format!("an element has more than {limit} attributes")));
        }
        // The reader checks attributes only where they are read, and leaves out those that are wrong.
        if let Some(Err(error)) = tag.attributes().with_checks(false).find(Result::is_err) {
            return Err(Refusal::Malformed(format!("an attribute: {error}")));
        }
        Ok(())
    }

    /// An element ends.
    pub(super) fn close(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_elements_and_attributes_are_limited() {
        let limits = ParseLimits { max_depth: 2, max_elements: 3, max_attributes: 1, ..ParseLimits::default() };
        let tag = BytesStart::new("a");
        let mut guard = Guard::new(&limits);
        assert!(guard.open(&tag, true).is_ok() && guard.open(&tag, true).is_ok());
        assert!(guard.open(&tag, false).is_err(), "too deep");
        guard.close();
        guard.close();
        assert!(guard.open(&tag, false).is_ok(), "left out, not counted");
        guard.close();
        assert!(guard.open(&tag, true).is_ok());
        guard.close();
        assert!(guard.open(&tag, true).is_err(), "too many");
        let attributes = BytesStart::from_content("a b='1' c='2'", 1);
        assert!(Guard::new(&limits).open(&attributes, true).is_err());
    }
}
