//! The namespaces of syndication and the older or misspelt names that publishers give them.
//!
//! The engine knows one name of each; the repair maps the others to it.

use quick_xml::events::BytesStart;

/// Atom 1.0.
pub(super) const ATOM: &str = "http://www.w3.org/2005/Atom";
/// RSS 1.0, which the engine also takes for every other RSS.
pub(super) const RSS: &str = "http://purl.org/rss/1.0/";
/// Dublin Core elements.
const DC: &str = "http://purl.org/dc/elements/1.1/";
/// Media RSS.
const MEDIA: &str = "http://search.yahoo.com/mrss/";
/// The content module of RSS 1.0.
const CONTENT: &str = "http://purl.org/rss/1.0/modules/content/";

/// Other names, in lower case and without scheme and final slash, of the canonical ones.
const ALIASES: &[(&str, &str)] = &[
    ("purl.org/atom/ns#", ATOM),
    ("purl.org/atom", ATOM),
    ("example.com/newformat#", ATOM),
    ("example.com/necho", ATOM),
    ("purl.org/echo", ATOM),
    ("uri/of/echo/namespace#", ATOM),
    ("purl.org/pie", ATOM),
    ("www.w3.org/2005/atom", ATOM),
    ("my.netscape.com/rdf/simple/0.9", RSS),
    ("channel.netscape.com/rdf/simple/0.9", RSS),
    ("my.netscape.com/publish/formats/rss-0.91.dtd", RSS),
    ("purl.org/rss/1.0", RSS),
    ("purl.org/net/rss1.1#", RSS),
    ("backend.userland.com/rss", RSS),
    ("backend.userland.com/rss2", RSS),
    ("backend.userland.com/rss091", RSS),
    ("blogs.law.harvard.edu/tech/rss", RSS),
    ("cyber.law.harvard.edu/rss/rss.html", RSS),
    ("www.rssboard.org/rss-specification", RSS),
    ("purl.org/dc/elements/1.0", DC),
    ("purl.org/dc/elements/1.1", DC),
    ("search.yahoo.com/mrss", MEDIA),
    ("tools.search.yahoo.com/mrss", MEDIA),
    ("purl.org/rss/1.0/modules/content", CONTENT),
];

/// The canonical name, where `uri` is another name of it.
pub(super) fn canonical(uri: &str) -> Option<&'static str> {
    let lower = uri.trim().to_ascii_lowercase();
    let bare = lower.strip_prefix("http://").or_else(|| lower.strip_prefix("https://")).unwrap_or(&lower);
    let bare = bare.strip_suffix('/').unwrap_or(bare);
    let (_, canonical) = ALIASES.iter().find(|(alias, _)| *alias == bare)?;
    (*canonical != uri).then_some(canonical)
}

/// Does the element bind one of the other names?
pub(super) fn any_alias(element: &BytesStart<'_>) -> bool {
    let mut attributes = element.attributes();
    let mut bindings = attributes.with_checks(false).flatten().filter(|one| one.key.as_ref().starts_with("xmlns"));
    bindings.any(|binding| canonical(&binding.value).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_names_lead_to_the_canonical_one_and_canonical_names_stay() {
        assert_eq!(canonical("http://purl.org/atom/ns#"), Some(ATOM));
        assert_eq!(canonical("https://www.w3.org/2005/Atom"), Some(ATOM));
        assert_eq!(canonical("http://www.w3.org/2005/atom/"), Some(ATOM));
        assert_eq!(canonical("http://my.netscape.com/rdf/simple/0.9/"), Some(RSS));
        assert_eq!(canonical("http://search.yahoo.com/mrss"), Some(MEDIA));
        for canonical_name in [ATOM, RSS, DC, MEDIA, CONTENT] {
            assert_eq!(canonical(canonical_name), None, "{canonical_name}");
        }
        assert_eq!(canonical("http://www.w3.org/1999/xhtml"), None);
        assert_eq!(canonical(""), None);
    }
}
