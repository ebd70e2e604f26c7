//! What is in force at a place of a document because of the elements around it: namespaces, base URL, language.

use std::rc::Rc;

use quick_xml::events::BytesStart;
use url::Url;

use super::attribute::MAX_NAME;
use crate::parse::text;
use crate::parse::vocabulary::Space;

/// Namespaces, bases and languages that may be in force at once, of each; further ones are ignored.
const MAX_IN_FORCE: usize = 64;
/// Longest base URL, in bytes; a longer one is ignored.
const MAX_BASE: usize = common::url::FeedUrl::MAX_LENGTH;
/// Bytes of the bases of one document together, as each may be kept by a link. Beyond it the outer base stays in force.
const MAX_BASES: usize = 4 * 1024 * 1024;

/// Declarations in force, each with the depth of the element that made it.
#[derive(Debug, Default)]
pub(super) struct Context {
    spaces: Vec<(usize, Binding)>,
    bases: Vec<(usize, Rc<Url>)>,
    /// Bytes of all bases so far, whether or not they are in force.
    base_bytes: usize,
    languages: Vec<(usize, String)>,
}

#[derive(Debug)]
struct Binding {
    /// Empty for the default namespace.
    prefix: String,
    space: Space,
}

impl Context {
    /// An element begins at this depth. `document` is the URL of the document.
    pub(super) fn open(&mut self, depth: usize, tag: &BytesStart<'_>, document: Option<&Url>) {
        if !tag.attributes_raw().contains("xml") {
            return;
        }
        for declaration in tag.attributes().with_checks(false).flatten() {
            let value = &declaration.value;
            match declaration.key.as_ref() {
                "xml:base" if self.bases.len() < MAX_IN_FORCE => self.bind_base(depth, value, document),
                "xml:lang" if self.languages.len() < MAX_IN_FORCE => {
                    // each element of content inside copies it
                    let language = value.trim();
                    self.languages.push((depth, language[..language.floor_char_boundary(MAX_NAME)].to_owned()));
                }
                "xmlns" => self.bind(depth, tag, "", value),
                key => {
                    if let Some(prefix) = key.strip_prefix("xmlns:") {
                        self.bind(depth, tag, prefix, value);
                    }
                }
            }
        }
    }

    /// The element at this depth ends.
    pub(super) fn close(&mut self, depth: usize) {
        while self.spaces.pop_if(|(of, _)| *of >= depth).is_some() {}
        while self.bases.pop_if(|(of, _)| *of >= depth).is_some() {}
        while self.languages.pop_if(|(of, _)| *of >= depth).is_some() {}
    }

    /// Returns the family that a name with this prefix belongs to.
    pub(super) fn space(&self, prefix: &str) -> Space {
        let bound = self.spaces.iter().rev().find(|(_, binding)| binding.prefix == prefix);
        match bound {
            Some((_, binding)) => binding.space,
            None if prefix.is_empty() => Space::Feed,
            None => Space::of_prefix(prefix),
        }
    }

    /// Returns the base in force, where it is another than the document's URL.
    pub(super) fn base(&self) -> Option<Rc<Url>> {
        self.bases.last().map(|(_, base)| Rc::clone(base))
    }

    /// Returns the language in force, if one is declared by an element deeper than this.
    pub(super) fn language_below(&self, depth: usize) -> Option<&str> {
        let (of, language) = self.languages.last()?;
        (*of > depth && !language.is_empty()).then_some(language)
    }

    fn bind(&mut self, depth: usize, tag: &BytesStart<'_>, prefix: &str, uri: &str) {
        if self.spaces.len() == MAX_IN_FORCE {
            return;
        }
        let known = Space::of_uri(uri);
        let is_root = depth == 1;
        let of_root = tag.name().prefix().map_or("", |prefix| prefix.into_inner()) == prefix;
        let space = match known {
            // RDF's root belongs to RDF; any other root's namespace is that of the feed, whatever its name.
            Some(Space::Rdf) => Space::Rdf,
            _ if is_root && of_root => Space::Feed,
            Some(space) => space,
            None if prefix.is_empty() && (is_root || uri.is_empty()) => Space::Feed,
            // Also where a generator declares a namespace that nobody else has on an element of the feed.
            None if prefix.is_empty() && is_frame(tag) => Space::Feed,
            None if prefix.is_empty() => Space::Other,
            None => Space::of_prefix(prefix),
        };
        self.spaces.push((depth, Binding { prefix: prefix.to_owned(), space }));
    }

    /// An element with several bases, which is not well-formed, has the first.
    fn bind_base(&mut self, depth: usize, raw: &str, document: Option<&Url>) {
        let is_bound = self.bases.last().is_some_and(|(of, _)| *of == depth);
        // references only become shorter
        if is_bound || raw.len() > MAX_BASE || self.base_bytes > MAX_BASES {
            return;
        }
        let written = text::resolved(raw);
        let outer = self.bases.last().map(|(_, base)| &**base).or(document);
        let base = match outer {
            Some(outer) => outer.join(written.trim()),
            None => Url::parse(written.trim()),
        };
        let is_web = |base: &Url| matches!(base.scheme(), "http" | "https");
        if let Some(base) = base.ok().filter(|base| is_web(base) && base.as_str().len() <= MAX_BASE) {
            let base = self.shared(base);
            self.bases.push((depth, base));
        }
    }

    /// Returns the base in force if it is the same: entries often repeat it.
    fn shared(&mut self, base: Url) -> Rc<Url> {
        if let Some(outer) = self.base().filter(|outer| **outer == base) {
            return outer;
        }
        self.base_bytes += base.as_str().len();
        Rc::new(base)
    }
}

/// Returns whether an element without prefix has the name of a feed or an entry.
fn is_frame(tag: &BytesStart<'_>) -> bool {
    let name = tag.name();
    ["channel", "item", "feed", "entry"].iter().any(|frame| name.as_ref().eq_ignore_ascii_case(frame))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the base in force inside of an element with this one.
    fn inside(context: &mut Context, depth: usize, base: &str) -> Rc<Url> {
        let tag = BytesStart::from_content(format!("x xml:base='{base}'"), 1);
        context.open(depth, &tag, None);
        context.base().unwrap()
    }

    #[test]
    fn bases_of_a_document_are_bounded_together() {
        let mut context = Context::default();
        let outer = inside(&mut context, 1, &format!("https://a.example/{}/", "b".repeat(8_000)));
        let mut kept = Vec::new();
        for n in 0..2_000 {
            let base = inside(&mut context, 2, &n.to_string());
            context.close(2);
            if Rc::ptr_eq(&base, &outer) {
                break;
            }
            kept.push(base);
        }
        let bytes: usize = kept.iter().map(|base| base.as_str().len()).sum();
        assert!((MAX_BASES - 2 * MAX_BASE..=MAX_BASES + MAX_BASE).contains(&bytes), "{bytes}");
        let last = inside(&mut context, 2, "https://b.example/");
        assert!(Rc::ptr_eq(&last, &outer), "the outer base stays in force");
    }

    #[test]
    fn a_base_that_is_repeated_is_the_same() {
        let mut context = Context::default();
        let outer = inside(&mut context, 1, "https://a.example/b/");
        for base in ["https://a.example/b/", "/b/", ""] {
            assert!(Rc::ptr_eq(&inside(&mut context, 2, base), &outer), "{base}");
            context.close(2);
        }
        assert_eq!(inside(&mut context, 2, "c").as_str(), "https://a.example/b/c");
        assert_eq!(context.base_bytes, "https://a.example/b/https://a.example/b/c".len());
    }
}
