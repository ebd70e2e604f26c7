//! What the elements of a broken document are to its structure, by their names.

use super::tokens;

/// The families of feeds, by their root element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Rss,
    Rdf,
    Atom,
}

/// Elements of entries that HTML does not have, and how others begin that it does not have.
const FEEDS_ALONE: [&str; 10] =
    ["author", "category", "comments", "content:encoded", "enclosure", "guid", "id", "pubdate", "published", "updated"];
/// Elements of entries without content.
const ALWAYS_EMPTY: [&str; 4] = ["enclosure", "media:thumbnail", "itunes:image", "atom:link"];
const EXTENSIONS: [&str; 4] = ["atom:", "dc:", "itunes:", "media:"];

/// A document's family, and the prefix of its own elements.
#[derive(Clone, Debug)]
pub(super) struct Dialect {
    kind: Kind,
    /// `a:` of `<a:feed>`; of RSS in RDF the usual one.
    prefix: Option<String>,
}

/// What ends an element first: its end tag, or that of its entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct NextEnd {
    /// Bytes of the document from there on.
    pub(super) left: usize,
    /// It is the element's own end tag.
    pub(super) is_own: bool,
}

/// Returns the family of a root element's name.
pub(super) fn kind(name: &str) -> Option<Kind> {
    let local = name.rsplit(':').next().unwrap_or(name);
    match local.to_ascii_lowercase().as_str() {
        "rss" => Some(Kind::Rss),
        "rdf" => Some(Kind::Rdf),
        "feed" => Some(Kind::Atom),
        _ => None,
    }
}

impl Dialect {
    /// Returns the dialect of a document with this root element.
    pub(super) fn of_root(name: &str) -> Option<Self> {
        let kind = kind(name)?;
        // RDF's own prefix is not that of the feed in it.
        let prefix = if kind == Kind::Rdf { Some("rss") } else { name.rsplit_once(':').map(|(prefix, _)| prefix) };
        let prefix = prefix.map(|prefix| format!("{prefix}:"));
        Some(Dialect { kind, prefix })
    }

    /// Returns a name as it would be in a plain document of this kind: in lower case, without the document's own
    /// prefix.
    pub(super) fn plain(&self, name: &str) -> String {
        let bare = self.prefix.as_deref().and_then(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
        bare.to_ascii_lowercase()
    }

    /// Returns whether this plain name is that of an entry.
    pub(super) fn is_entry(&self, plain: &str) -> bool {
        match self.kind {
            Kind::Rss | Kind::Rdf => plain == "item",
            Kind::Atom => plain == "entry",
        }
    }

    /// Returns whether this plain name is that of the element with all entries of a document.
    pub(super) fn is_channel(&self, plain: &str) -> bool {
        self.kind == Kind::Rss && plain == "channel"
    }

    /// Returns whether an element belongs to the document's frame, so that its end closes all elements that were left
    /// open.
    pub(super) fn is_frame(&self, plain: &str) -> bool {
        self.is_entry(plain) || matches!(plain, "channel" | "rss" | "rdf:rdf" | "feed")
    }

    /// Returns whether an element holds text, so that markup inside of it is a part of the text.
    pub(super) fn holds_text(&self, plain: &str) -> bool {
        if matches!(plain, "itunes:summary" | "itunes:subtitle" | "media:description" | "media:title") {
            return true;
        }
        match self.kind {
            Kind::Rss | Kind::Rdf => {
                matches!(
                    plain,
                    "title" | "description" | "content:encoded" | "content" | "summary" | "body" | "fullitem"
                )
            }
            Kind::Atom => matches!(plain, "title" | "subtitle" | "tagline" | "summary" | "content" | "rights" | "info"),
        }
    }

    /// Returns whether an element that is open ends where another one with these attributes begins: the two are neighbours in
    /// an entry, and the end tag is missing.
    pub(super) fn ends_before(&self, open: &str, next: &str, attributes: &str) -> bool {
        let is_short =
            matches!(open, "title" | "link" | "guid" | "id" | "pubdate" | "published" | "updated" | "dc:date")
                || ALWAYS_EMPTY.contains(&open);
        let is_of_feeds_alone = FEEDS_ALONE.contains(&next) || EXTENSIONS.iter().any(|prefix| next.starts_with(prefix));
        if is_short {
            return is_of_feeds_alone || matches!(next, "title" | "link" | "description" | "summary" | "content");
        }
        // HTML has links as well, with attributes.
        let is_link_of_rss = next == "link" && self.kind != Kind::Atom && attributes.is_empty();
        self.holds_text(open) && (is_of_feeds_alone || is_link_of_rss)
    }

    /// Returns where in this text the next end tag of such an element is, or the end of the entry if that comes first.
    pub(super) fn next_end(&self, plain: &str, text: &str) -> NextEnd {
        for (at, _) in text.match_indices('<') {
            let tag = &text[at + 1..];
            let name = tag.trim_start_matches('/');
            let length = name.find(|end: char| end.is_whitespace() || "/><".contains(end)).unwrap_or(name.len());
            let name = self.plain(&name[..length]);
            let is_own = tag.starts_with('/') && name == plain;
            if is_own || self.is_entry(&name) {
                return NextEnd { left: text.len() - at, is_own };
            }
        }
        NextEnd { left: 0, is_own: false }
    }

    /// Returns whether the text of an element with these attributes is unescaped markup. Atom 0.3 says so by
    /// `mode="xml"`.
    pub(super) fn is_xhtml(&self, attributes: &str) -> bool {
        let value = |wanted: &str| {
            let found = tokens::attributes(attributes).find(|(name, _)| *name == wanted);
            found.map(|(_, value)| value.trim().to_ascii_lowercase()).unwrap_or_default()
        };
        let (declared, mode) = (value("type"), value("mode"));
        self.kind == Kind::Atom && (declared.contains("xhtml") || mode == "xml")
    }
}
