//! Labels and the caller's own id of a feed: what programs and people note on a feed for themselves. Polling does not depend
//! on them.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The maximum number of labels of a feed.
pub const MOST_LABELS: usize = 32;
/// The maximum length of a label, in characters.
pub const LONGEST_LABEL: usize = 64;
/// The maximum length of a caller's own id, in characters.
pub const LONGEST_EXTERNAL_ID: usize = 200;
/// The maximum length of a title that a caller gives to a feed, in characters.
pub const LONGEST_TITLE: usize = 500;

/// The label of feeds that the hub added.
pub const HUB_LABEL: &str = "websub";

/// What a caller notes on a feed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Marks {
    /// The caller's labels of the feed, sorted, each once.
    pub labels: Vec<String>,
    /// The caller's own id of the feed. Several feeds may have the same one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_id: Option<String>,
}

impl Marks {
    /// Returns whether a feed with these marks may become one with those, with its readers: callers that are limited to one of its
    /// labels would get nothing more otherwise, and could change a feed of others. The hub's label limits nobody.
    pub fn may_become(&self, others: &Marks) -> bool {
        self.labels.iter().all(|label| label == HUB_LABEL || others.labels.contains(label))
    }
}

/// A change of a feed's labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelEdit {
    /// Replaces all labels.
    pub set: Option<Vec<String>>,
    /// Labels to add, after that.
    pub add: Vec<String>,
    /// Labels to remove, after that.
    pub remove: Vec<String>,
}

impl LabelEdit {
    /// Returns whether it changes nothing, whatever the labels are.
    pub fn is_empty(&self) -> bool {
        self.set.is_none() && self.add.is_empty() && self.remove.is_empty()
    }

    /// Returns the labels with this change made, sorted.
    pub fn over(&self, before: &[String]) -> Vec<String> {
        let before = self.set.as_deref().unwrap_or(before);
        let kept: BTreeSet<&String> =
            before.iter().chain(&self.add).filter(|name| !self.remove.contains(name)).collect();
        kept.into_iter().cloned().collect()
    }

    /// Adds a further change, which is made after this one.
    pub fn then(&mut self, next: LabelEdit) {
        if next.set.is_some() {
            *self = next;
            return;
        }
        self.add.retain(|name| !next.remove.contains(name));
        self.remove.retain(|name| !next.add.contains(name));
        self.add.extend(next.add.into_iter().filter(|name| !next.remove.contains(name)));
        self.remove.extend(next.remove);
    }
}

/// Reads labels as a caller wrote them: without space around them, sorted, each once.
///
/// # Errors
/// A sentence that says what is accepted, for labels that are empty, too long, or have control characters.
pub fn read_labels(texts: &[String]) -> Result<Vec<String>, String> {
    let labels = texts.iter().map(|text| read(text, "a label", LONGEST_LABEL)).collect::<Result<BTreeSet<_>, _>>()?;
    limited(labels.into_iter().collect())
}

/// Refuses more labels than a feed may have.
///
/// # Errors
/// A sentence that names the limit.
pub fn limited(labels: Vec<String>) -> Result<Vec<String>, String> {
    match labels.len() {
        0..=MOST_LABELS => Ok(labels),
        number => Err(format!("a feed has at most {MOST_LABELS} labels, not {number}")),
    }
}

/// Reads a caller's own id of a feed.
///
/// # Errors
/// A sentence that says what is accepted.
pub fn read_external_id(text: &str) -> Result<String, String> {
    read(text, "external_id", LONGEST_EXTERNAL_ID)
}

/// Reads a title that a caller gives to a feed.
///
/// # Errors
/// A sentence that says what is accepted.
pub fn read_title(text: &str) -> Result<String, String> {
    read(text, "title", LONGEST_TITLE)
}

/// Makes a label of any name, such as a folder's: control characters become spaces, and what is too long is cut. `None`: nothing
/// is left.
pub fn label_of(name: &str) -> Option<String> {
    let plain: String = name.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let cut: String = plain.trim().chars().take(LONGEST_LABEL).collect();
    let label = cut.trim_end();
    (!label.is_empty()).then(|| label.to_owned())
}

fn read(text: &str, what: &str, longest: usize) -> Result<String, String> {
    let text = text.trim();
    let length = text.chars().count();
    if (1..=longest).contains(&length) && !text.chars().any(char::is_control) {
        return Ok(text.to_owned());
    }
    Err(format!("{what} must be 1 to {longest} characters, without control characters"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn labels_are_trimmed_sorted_and_limited() {
        assert_eq!(read_labels(&names(&[" b ", "a", "b"])), Ok(names(&["a", "b"])));
        assert!(read_labels(&names(&["a", " "])).is_err());
        assert!(read_labels(&names(&["a\nb"])).is_err());
        assert!(read_labels(&[("x").repeat(LONGEST_LABEL + 1)]).is_err());
        let many: Vec<String> = (0..=MOST_LABELS).map(|number| number.to_string()).collect();
        assert_eq!(read_labels(&many), Err("a feed has at most 32 labels, not 33".to_owned()));
    }

    #[test]
    fn edits_are_made_in_order() {
        let before = names(&["a", "b"]);
        let edit = |add: &[&str], remove: &[&str]| LabelEdit { set: None, add: names(add), remove: names(remove) };
        assert_eq!(edit(&["c"], &["a"]).over(&before), names(&["b", "c"]));
        let set = LabelEdit { set: Some(names(&["x"])), add: names(&["y"]), remove: Vec::new() };
        assert_eq!(set.over(&before), names(&["x", "y"]));
        for (first, second) in [
            (edit(&["c"], &[]), edit(&[], &["c"])),
            (edit(&[], &["a"]), edit(&["a"], &[])),
            (edit(&["c"], &["a"]), set),
            (edit(&["c"], &["a"]), edit(&["d", "e"], &["e", "b"])),
        ] {
            let one_by_one = second.over(&first.over(&before));
            let mut both = first.clone();
            both.then(second);
            assert_eq!(both.over(&before), one_by_one, "{first:?}");
        }
    }

    #[test]
    fn any_name_becomes_a_label() {
        assert_eq!(label_of(" News\tof today "), Some("News of today".to_owned()));
        assert_eq!(label_of(" \n"), None);
        assert_eq!(label_of(&"x".repeat(200)).map(|label| label.len()), Some(LONGEST_LABEL));
    }
}
