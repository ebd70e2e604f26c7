//! The second try for JSON: the mistakes of generators without a JSON library.
//!
//! Repairs raw control characters inside of strings, halves of surrogate pairs, commas before a closing bracket, and a
//! document that ends too early: whole items are kept.

use super::{MAX_GROWTH, Mended};
use crate::parse::ParseLimits;
use crate::watch::Watch;

/// Returns the repaired document; `None` when it does not look as if it had been meant as a feed, or when its deadline
/// has passed.
pub(in crate::parse) fn mended(text: &str, limits: &ParseLimits) -> Option<Mended> {
    let watch = Watch::new(limits.deadline);
    if crate::parse::json::claims_to_be_a_feed(text) { balanced(text, watch) } else { None }
}

fn balanced(text: &str, mut watch: Watch) -> Option<Mended> {
    let mut scanner = Scanner { out: String::with_capacity(text.len() + 16), open: Vec::new(), whole: None };
    let longest = text.len() + text.len() / 2 + MAX_GROWTH;
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if watch.is_late(text.len() - rest.len()) {
            return None;
        }
        rest = match first {
            '"' => scanner.string(rest, longest)?,
            _ => {
                scanner.outside(first);
                &rest[first.len_utf8()..]
            }
        };
        if scanner.open.is_empty() && first == '}' {
            break;
        }
    }
    Some(scanner.finish())
}

struct Scanner {
    out: String,
    /// The brackets that are open, by what closes them.
    open: Vec<char>,
    /// The output's length behind the last whole member of a list in the outermost object.
    whole: Option<usize>,
}

/// Brackets that may be open at once; a deeper document is cut there.
const MAX_OPEN: usize = 1_000;

impl Scanner {
    fn outside(&mut self, character: char) {
        match character {
            '{' | '[' if self.open.len() < MAX_OPEN => self.open.push(if character == '{' { '}' } else { ']' }),
            '}' | ']' => {
                let kept = self.out.trim_end().trim_end_matches(',').len();
                if self.out[kept..].contains(',') {
                    self.out.truncate(kept);
                }
                if self.open.last() == Some(&character) {
                    self.open.pop();
                }
            }
            _ => {}
        }
        self.out.push(character);
        if character == '}' && self.open == ['}', ']'] {
            self.whole = Some(self.out.len());
        }
    }

    /// Copies the string that the text begins with, and returns what follows. `None`: the output is longer than that.
    fn string<'t>(&mut self, text: &'t str, longest: usize) -> Option<&'t str> {
        self.out.push('"');
        let mut rest = &text[1..];
        while let Some(at) = rest.find(|c: char| c == '"' || c == '\\' || c.is_ascii_control()) {
            if self.out.len() > longest {
                return None;
            }
            self.out.push_str(&rest[..at]);
            rest = &rest[at..];
            match rest.as_bytes()[0] {
                b'"' => {
                    self.out.push('"');
                    return Some(&rest[1..]);
                }
                b'\\' => rest = self.escape(rest),
                control => {
                    self.out.push_str(&format!("\\u{control:04x}"));
                    rest = &rest[1..];
                }
            }
        }
        self.out.push_str(rest);
        Some("")
    }

    /// Copies the escape that the text begins with, and returns what follows.
    fn escape<'t>(&mut self, text: &'t str) -> &'t str {
        let unit = |text: &str| text.strip_prefix("\\u").and_then(|hex| u32::from_str_radix(hex.get(..4)?, 16).ok());
        let length = match (unit(text), text.get(6..).and_then(unit)) {
            (Some(0xD800..0xDC00), Some(0xDC00..0xE000)) => 12,
            (Some(0xD800..0xE000), _) => {
                self.out.push_str("\\ufffd");
                return &text[6..];
            }
            (Some(_), _) => 6,
            (None, _) if text[1..].starts_with(['"', '\\', '/', 'b', 'f', 'n', 'r', 't']) => 2,
            // A backslash that escapes nothing stands for itself.
            (None, _) => {
                self.out.push_str("\\\\");
                return &text[1..];
            }
        };
        self.out.push_str(&text[..length]);
        &text[length..]
    }

    fn finish(mut self) -> Mended {
        let truncated = !self.open.is_empty();
        if let (true, Some(whole)) = (truncated, self.whole) {
            self.out.truncate(whole);
            self.out.push_str("]}");
        }
        Mended { text: self.out, truncated }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_broken_is_mended() {
        let table = [
            ("{\"a\":\"b\tc\nd\"}", "{\"a\":\"b\\u0009c\\u000ad\"}", false),
            ("{\"a\":[1,2,],}", "{\"a\":[1,2]}", false),
            ("{\"a\":\"\\ud83d x \\ud83d\\ude00 \\udc00\"}", "{\"a\":\"\\ufffd x \\ud83d\\ude00 \\ufffd\"}", false),
            ("{\"a\":\"c:\\windows \\\"q\\\"\"}", "{\"a\":\"c:\\\\windows \\\"q\\\"\"}", false),
            ("{\"items\":[{\"id\":1},{\"id\":2},{\"id", "{\"items\":[{\"id\":1},{\"id\":2}]}", true),
            ("{\"items\":[{\"id\":1}]} trailing", "{\"items\":[{\"id\":1}]}", false),
            ("{\"a\":\"\\", "{\"a\":\"\\\\", true),
        ];
        for (broken, whole, truncated) in table {
            let mended = balanced(broken, Watch::new(None));
            assert_eq!(mended, Some(Mended { text: whole.into(), truncated }), "{broken}");
        }
    }

    #[test]
    fn a_document_of_control_characters_is_given_up() {
        let with = |characters: usize| {
            format!("{{\"version\":\"https://jsonfeed.org/version/1\",\"title\":\"{}\"}}", "\x01".repeat(characters))
        };
        let limits = ParseLimits::default();
        assert!(mended(&with(10_000), &limits).is_some());
        assert!(mended(&with(1_000_000), &limits).is_none());
    }
}
