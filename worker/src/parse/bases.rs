//! What base URLs cost: the engine copies the one in force to every element, and keeps it with every link that it resolves.
//!
//! An 8 KB `xml:base` above 900,000 links of one letter would become 7 GB.

use quick_xml::events::BytesStart;

use super::guard::Refusal;
use super::hints::attribute;

/// Bytes that the base URLs in force at one place may have together: relative ones add up.
const MAX_IN_FORCE: usize = 16 * 1024;
/// A base up to here costs no more than the link that it completes.
const SHORT: usize = 256;
/// Bytes of longer bases that may be kept with links, over the whole document.
const MAX_KEPT: usize = 64 * 1024 * 1024;

/// The elements whose URLs the engine resolves and keeps.
const RESOLVED: [&str; 12] = [
    "link",
    "enclosure",
    "content",
    "player",
    "icon",
    "logo",
    "comments",
    "commentRss",
    "commentRSS",
    "image",
    "person",
    "transcript",
];

/// The base URLs in force at one place of a document, by their lengths.
#[derive(Debug)]
pub(super) struct Bases {
    /// Of the document's own URL.
    document: usize,
    /// Of each `xml:base` around, with its element's depth.
    around: Vec<(usize, usize)>,
    kept: usize,
}

impl Bases {
    /// At the beginning of a document with a URL of so many bytes.
    pub(super) fn new(document: usize) -> Self {
        Bases { document, around: Vec::new(), kept: 0 }
    }

    /// An element begins at this depth.
    pub(super) fn start(&mut self, depth: usize, element: &BytesStart<'_>) -> Result<(), Refusal> {
        if element.attributes_raw().contains("xml:base") {
            self.around.extend(attribute(element, "xml:base").map(|base| (depth, base.len())));
        }
        let in_force = self.document + self.around.iter().map(|(_, length)| length).sum::<usize>();
        if in_force > MAX_IN_FORCE {
            return Err(Refusal::TooLarge(format!("base URLs of more than {MAX_IN_FORCE} bytes")));
        }
        if in_force > SHORT && RESOLVED.contains(&element.local_name().as_ref()) {
            self.kept += in_force;
            if self.kept > MAX_KEPT {
                return Err(Refusal::TooLarge("too many links below a long base URL".to_owned()));
            }
        }
        Ok(())
    }

    /// The element at this depth ends.
    pub(super) fn end(&mut self, depth: usize) {
        self.around.pop_if(|(around, _)| *around == depth);
    }
}
