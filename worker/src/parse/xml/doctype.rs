//! The entities that a document defines for itself: plain abbreviations are honoured, within a small budget.
//!
//! A definition that refers to others, or to a file or an address, is not kept: nothing is ever fetched, and nothing
//! grows by more than the budget.

/// Definitions that are kept of one document.
const MAX_ENTITIES: usize = 32;
/// Longest text of one, in bytes.
const MAX_TEXT: usize = 256;
/// What all uses of them may add to one document, in bytes.
const BUDGET: usize = 64 * 1024;

/// The abbreviations of one document.
#[derive(Debug, Default)]
pub(in crate::parse) struct Entities {
    texts: Vec<(String, String)>,
    spent: usize,
}

impl Entities {
    /// From a `<!DOCTYPE …>`, or from its inside.
    pub(in crate::parse) fn of_doctype(doctype: &str) -> Self {
        let mut texts = Vec::new();
        let subset = doctype.split_once('[').map_or("", |(_, subset)| subset);
        for definition in subset.split("<!ENTITY").skip(1) {
            if texts.len() == MAX_ENTITIES {
                break;
            }
            texts.extend(definition.split_once('>').and_then(|_| plain_definition(definition)));
        }
        Entities { texts, spent: 0 }
    }

    pub(in crate::parse) fn contains(&self, name: &str) -> bool {
        self.texts.iter().any(|(known, _)| known == name)
    }

    /// Returns the text of a name.
    pub(super) fn resolve(&mut self, name: &str) -> Option<&str> {
        let (_, text) = self.texts.iter().find(|(known, _)| known == name)?;
        self.spent += text.len();
        (self.spent <= BUDGET).then_some(text)
    }
}

/// ` name "text"`, where the text is nothing but text.
fn plain_definition(definition: &str) -> Option<(String, String)> {
    let (name, value) = definition.trim_start().split_once(char::is_whitespace)?;
    let value = value.trim_start();
    let quote = value.chars().next().filter(|first| matches!(first, '"' | '\''))?;
    let text = value[1..].split(quote).next()?;
    let plain = text.len() <= MAX_TEXT && !text.contains(['&', '<', '%']) && !name.is_empty();
    plain.then(|| (name.to_owned(), text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn abbreviations_are_kept_and_everything_else_is_not() {
        let doctype = " rss [ <!ENTITY a 'Ann'> <!ENTITY b \"B & <b>\">\n<!ENTITY c '&a;&a;'><!ENTITY d SYSTEM 'file:///etc/passwd'>\
                       <!ENTITY % e 'x'> <!ENTITY f ''> ]";
        let mut entities = Entities::of_doctype(doctype);
        let found = ["a", "b", "c", "d", "e", "%", "f"].map(|name| entities.resolve(name).map(str::to_owned));
        assert_eq!(found, [Some("Ann".to_owned()), None, None, None, None, None, Some(String::new())]);
    }

    #[test]
    fn all_uses_together_have_a_budget() {
        let mut entities = Entities::of_doctype(&format!("x [<!ENTITY a '{}'>]", "a".repeat(MAX_TEXT)));
        let resolved = (0..10_000).filter(|_| entities.resolve("a").is_some()).count();
        assert_eq!(resolved, BUDGET / MAX_TEXT);
    }
}
