//! Follows one tag through its bytes, to count its attributes before html5ever compares each of them with all others.
//!
//! The states are those of the HTML standard's tokenizer (sections 13.2.5.8 and 13.2.5.32 to 13.2.5.40) without what they
//! collect, so that a tag ends here exactly where it ends there.

/// The tokenizer's state in a tag that began with `<a` or `</a`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tag {
    state: State,
    attributes: usize,
    bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Name,
    BeforeAttribute,
    Attribute,
    AfterAttribute,
    BeforeValue,
    Quoted(u8),
    Unquoted,
    AfterQuoted,
    Slash,
}

/// How far a tag was followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reached {
    /// The tag's end, this many bytes in.
    End(usize),
    /// The first byte, this many bytes in, that the tag has no right to: one more attribute, or one more byte.
    Limit(usize),
    /// The end of the bytes.
    Inside,
}

/// Attributes of one tag. html5ever compares each new one with all before it, and ammonia moves the others when it removes one.
pub(super) const MAX_ATTRIBUTES: usize = 256;
/// Bytes of one tag. Pictures in `data:` addresses are large and honest.
pub(super) const MAX_BYTES: usize = 1024 * 1024;

impl Tag {
    /// Returns a tag whose name begins with the next byte.
    pub(super) fn new() -> Self {
        Tag { state: State::Name, attributes: 0, bytes: 0 }
    }

    /// Follows the tag through further bytes.
    pub(super) fn follow(&mut self, bytes: &[u8]) -> Reached {
        for (at, byte) in bytes.iter().enumerate() {
            let next = self.state.after(*byte);
            if next == Some(State::Attribute) && self.state != State::Attribute {
                if self.attributes == MAX_ATTRIBUTES {
                    return Reached::Limit(at);
                }
                self.attributes += 1;
            }
            if self.bytes == MAX_BYTES {
                return Reached::Limit(at);
            }
            self.bytes += 1;
            match next {
                Some(state) => self.state = state,
                None => return Reached::End(at + 1),
            }
        }
        Reached::Inside
    }
}

impl State {
    /// Returns the state behind a byte; `None` behind the tag.
    fn after(self, byte: u8) -> Option<State> {
        let is_space = matches!(byte, b'\t' | b'\n' | b'\r' | b'\x0C' | b' ');
        let next = match (self, byte) {
            (State::Quoted(quote), byte) if quote == byte => State::AfterQuoted,
            (State::Quoted(_), _) => self,
            (_, b'>') => return None,
            (State::BeforeValue, _) if is_space => State::BeforeValue,
            (State::BeforeValue, b'"' | b'\'') => State::Quoted(byte),
            (State::BeforeValue, _) => State::Unquoted,
            (State::Unquoted, _) => {
                if is_space {
                    State::BeforeAttribute
                } else {
                    State::Unquoted
                }
            }
            (State::Attribute | State::AfterAttribute, b'=') => State::BeforeValue,
            (State::Attribute | State::AfterAttribute, _) if is_space => State::AfterAttribute,
            (State::Name, _) if !is_space && byte != b'/' => State::Name,
            (_, b'/') => State::Slash,
            _ if is_space => State::BeforeAttribute,
            _ => State::Attribute,
        };
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn followed(tag: &str) -> (Reached, usize) {
        let mut state = Tag::new();
        (state.follow(tag.as_bytes()), state.attributes)
    }

    #[test]
    fn tags_end_and_attributes_begin_where_the_standard_says() {
        let table = [
            ("p>", Reached::End(2), 0),
            ("br/>", Reached::End(4), 0),
            ("a href=x>", Reached::End(9), 1),
            ("a b='>' c=\">\" d>", Reached::End(16), 3),
            ("a b='x'c='y'/d/>", Reached::End(16), 3),
            ("a =b = c =d>", Reached::End(12), 2),
            ("a b = 'c' d= e/f g>", Reached::End(19), 3),
            ("a b=>c", Reached::End(5), 1),
            ("a \" '>", Reached::End(6), 2),
            ("a<b<c", Reached::Inside, 0),
            ("a b='", Reached::Inside, 1),
        ];
        for (tag, reached, attributes) in table {
            assert_eq!(followed(tag), (reached, attributes), "{tag}");
        }
    }

    #[test]
    fn a_tag_ends_at_its_limits() {
        let attributes = format!("a{}", " b".repeat(MAX_ATTRIBUTES + 1));
        assert_eq!(followed(&attributes).0, Reached::Limit(attributes.len() - 1));
        let long = format!("a b='{}", "x".repeat(MAX_BYTES));
        assert_eq!(followed(&long).0, Reached::Limit(MAX_BYTES));
    }
}
