//! What the elements of a broken document mean: which dialect it is, and how the engine wants its elements to be called.

use super::tokens;

/// The families of feeds, by their root element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Rss,
    Rdf,
    Atom,
}

/// A document's family and spelling.
#[derive(Clone, Debug)]
pub(super) struct Dialect {
    pub(super) kind: Kind,
    /// Names in capitals: `<RSS><CHANNEL>`.
    shouted: bool,
    /// `<a:feed>`: the prefix of the document's own elements, with its colon.
    prefix: Option<String>,
}

/// The family that a root element's name stands for.
pub(super) fn kind(name: &str) -> Option<Kind> {
    match local(name).to_ascii_lowercase().as_str() {
        "rss" => Some(Kind::Rss),
        "rdf" => Some(Kind::Rdf),
        "feed" => Some(Kind::Atom),
        _ => None,
    }
}

/// A name without its prefix.
pub(super) fn local(name: &str) -> &str {
    name.rsplit(':').next().unwrap_or(name)
}

impl Dialect {
    /// The dialect of a document with this root element.
    pub(super) fn of_root(name: &str) -> Option<Self> {
        let kind = kind(name)?;
        // RDF's own prefix is not that of the feed in it.
        let prefix = name.rsplit_once(':').filter(|_| kind != Kind::Rdf).map(|(prefix, _)| format!("{prefix}:"));
        Some(Dialect { kind, shouted: local(name) == "RSS", prefix })
    }

    /// A name as it would be in a plain document of this kind.
    pub(super) fn plain(&self, name: &str) -> String {
        let bare = self.prefix.as_deref().and_then(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
        if self.shouted { bare.to_ascii_lowercase() } else { bare.to_owned() }
    }

    /// The name under which the engine knows an element: Atom 0.3 had others.
    pub(super) fn renamed<'n>(&self, name: &'n str) -> &'n str {
        match (self.kind, name) {
            (Kind::Atom, "issued") => "published",
            (Kind::Atom, "modified") => "updated",
            (Kind::Atom, "tagline") => "subtitle",
            (Kind::Atom, "copyright") => "rights",
            _ => name,
        }
    }

    pub(super) fn is_entry(&self, name: &str) -> bool {
        match self.kind {
            Kind::Rss | Kind::Rdf => name == "item",
            Kind::Atom => name == "entry",
        }
    }

    /// Does an element make up the document's frame, so that its end ends whatever was left open?
    pub(super) fn is_frame(&self, name: &str) -> bool {
        self.is_entry(name) || matches!(local(name), "channel" | "rss" | "RDF" | "feed")
    }

    /// Does an element hold text, so that markup inside of it is a part of the text?
    pub(super) fn holds_text(&self, name: &str) -> bool {
        match self.kind {
            Kind::Rss | Kind::Rdf => matches!(name, "title" | "description" | "content:encoded"),
            Kind::Atom => {
                matches!(
                    name,
                    "title" | "subtitle" | "tagline" | "summary" | "content" | "rights" | "copyright" | "info"
                )
            }
        }
    }

    /// Is an element one that nobody reads here, and whose oddities cost the engine the whole feed?
    pub(super) fn is_unwanted(&self, name: &str) -> bool {
        let strict = ["itunes:", "podcast:"].iter().any(|prefix| name.starts_with(prefix));
        strict || (self.kind == Kind::Atom && name == "created")
    }
}

/// Is an element one whose text the engine is known to panic over?
pub(super) fn is_person(name: &str) -> bool {
    const PEOPLE: [&str; 6] = ["author", "creator", "managingEditor", "webMaster", "contributor", "credit"];
    PEOPLE.contains(&local(name)) || matches!(name, "media:text" | "media:thumbnail")
}

/// The type of an Atom text as the engine should read it once its markup is escaped, and whether it was XHTML. Atom 0.3
/// says `mode="xml"` for markup that is not escaped.
pub(super) fn text_type(attributes: &str) -> (&'static str, bool) {
    let value = |wanted: &str| {
        let found = tokens::attributes(attributes).find(|(name, _)| *name == wanted);
        found.map(|(_, value)| value.trim().to_ascii_lowercase()).unwrap_or_default()
    };
    let (declared, mode) = (value("type"), value("mode"));
    let is_xhtml = declared.contains("xhtml") || (mode == "xml" && declared.contains("html"));
    if is_xhtml || declared.contains("html") { ("html", is_xhtml) } else { ("text", false) }
}
