//! The words of all dialects of XML feeds: which namespaces and elements mean what.
//!
//! One vocabulary for RSS 0.90 to 2.0, RDF, Atom 0.3 and 1.0 and CDF: publishers mix them, and where a word is used by
//! several it means the same. Namespaces count where they are known; an unknown one of the document's own elements, and an
//! unknown one behind a well-known prefix, are taken for what was meant. Letters may be of either case.

/// A family of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Space {
    /// The feed's own: RSS, Atom, CDF, and no namespace at all.
    Feed,
    /// Dublin Core, elements and terms.
    Dc,
    /// `content:encoded`
    Content,
    /// Media RSS.
    Media,
    /// Apple's podcasts.
    Itunes,
    /// Podcasting 2.0.
    Podcast,
    /// `slash:comments`
    Slash,
    /// Atom's threads (RFC 4685).
    Thread,
    /// GeoRSS, and the W3C's latitude and longitude.
    Geo,
    /// The points of GeoRSS in GML.
    Gml,
    /// `feedburner:origLink`
    FeedBurner,
    /// `webfeeds:icon`
    WebFeeds,
    /// `rdf:RDF`, `rdf:li`
    Rdf,
    Xhtml,
    /// A family that is not read here.
    Other,
}

impl Space {
    /// Returns the family of a namespace's name; `None` for an unknown one.
    pub(super) fn of_uri(uri: &str) -> Option<Space> {
        let bare = uri.trim();
        let bare = bare.strip_prefix("http://").or_else(|| bare.strip_prefix("https://")).unwrap_or(bare);
        let bare = bare.trim_end_matches('/');
        let known = URIS.iter().find(|(known, _)| known.eq_ignore_ascii_case(bare));
        known.map(|(_, space)| *space)
    }

    /// Returns the usual family of a prefix.
    pub(super) fn of_prefix(prefix: &str) -> Space {
        PREFIXES.iter().find(|(known, _)| known.eq_ignore_ascii_case(prefix)).map_or(Space::Other, |(_, space)| *space)
    }

    /// The feed's own words are trusted more than those of extensions: lower is better.
    fn rank(self) -> u8 {
        match self {
            Space::Feed => 0,
            Space::Dc | Space::Content | Space::Rdf | Space::Xhtml => 1,
            Space::Media => 2,
            _ => 3,
        }
    }
}

/// Without scheme and final slash. Old, misspelt and new names alike.
const URIS: &[(&str, Space)] = &[
    ("www.w3.org/2005/Atom", Space::Feed),
    ("purl.org/atom/ns#", Space::Feed),
    ("purl.org/atom", Space::Feed),
    ("example.com/newformat#", Space::Feed),
    ("example.com/necho", Space::Feed),
    ("purl.org/echo", Space::Feed),
    ("uri/of/echo/namespace#", Space::Feed),
    ("purl.org/pie", Space::Feed),
    ("purl.org/rss/1.0", Space::Feed),
    ("my.netscape.com/rdf/simple/0.9", Space::Feed),
    ("channel.netscape.com/rdf/simple/0.9", Space::Feed),
    ("my.netscape.com/publish/formats/rss-0.91.dtd", Space::Feed),
    ("purl.org/net/rss1.1#", Space::Feed),
    ("backend.userland.com/rss", Space::Feed),
    ("backend.userland.com/rss2", Space::Feed),
    ("backend.userland.com/rss091", Space::Feed),
    ("blogs.law.harvard.edu/tech/rss", Space::Feed),
    ("cyber.law.harvard.edu/rss/rss.html", Space::Feed),
    ("www.rssboard.org/rss-specification", Space::Feed),
    ("purl.org/dc/elements/1.0", Space::Dc),
    ("purl.org/dc/elements/1.1", Space::Dc),
    ("purl.org/dc/terms", Space::Dc),
    ("purl.org/rss/1.0/modules/content", Space::Content),
    ("search.yahoo.com/mrss", Space::Media),
    ("tools.search.yahoo.com/mrss", Space::Media),
    ("video.search.yahoo.com/mrss", Space::Media),
    ("www.itunes.com/dtds/podcast-1.0.dtd", Space::Itunes),
    ("example.com/dtds/podcast-1.0.dtd", Space::Itunes),
    ("podcastindex.org/namespace/1.0", Space::Podcast),
    ("github.com/Podcastindex-org/podcast-namespace/blob/main/docs/1.0.md", Space::Podcast),
    ("purl.org/rss/1.0/modules/slash", Space::Slash),
    ("purl.org/syndication/thread/1.0", Space::Thread),
    ("www.georss.org/georss", Space::Geo),
    ("www.w3.org/2003/01/geo/wgs84_pos#", Space::Geo),
    ("www.opengis.net/gml", Space::Gml),
    ("rssnamespace.org/feedburner/ext/1.0", Space::FeedBurner),
    ("webfeeds.org/rss/1.0", Space::WebFeeds),
    ("www.w3.org/1999/02/22-rdf-syntax-ns#", Space::Rdf),
    ("www.w3.org/1999/xhtml", Space::Xhtml),
];

const PREFIXES: &[(&str, Space)] = &[
    ("atom", Space::Feed),
    ("atom10", Space::Feed),
    ("a10", Space::Feed),
    ("rss", Space::Feed),
    ("dc", Space::Dc),
    ("dcterms", Space::Dc),
    ("content", Space::Content),
    ("media", Space::Media),
    ("itunes", Space::Itunes),
    ("podcast", Space::Podcast),
    ("slash", Space::Slash),
    ("thr", Space::Thread),
    ("georss", Space::Geo),
    ("geo", Space::Geo),
    ("gml", Space::Gml),
    ("feedburner", Space::FeedBurner),
    ("webfeeds", Space::WebFeeds),
    ("rdf", Space::Rdf),
    ("xhtml", Space::Xhtml),
];

/// What an element says, whatever it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element {
    Entry,
    /// The feed itself inside of its root, and lists of entries.
    Channel,
    Title,
    Link,
    Id,
    Summary,
    Content,
    Published,
    Updated,
    Author,
    Name,
    Email,
    Category,
    Language,
    /// `enclosure`, `media:content`
    File,
    /// `media:group`
    Group,
    /// A person's page.
    Uri,
    /// `feedburner:origLink`
    OriginalLink,
    /// Categories in one text, with commas between them.
    Keywords,
    Detail(Detail),
    Hint(Hint),
    /// Not read here; nor is what it holds.
    Unknown,
}

/// What only some entries have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detail {
    /// A picture: in attributes `href` or `url`.
    Image,
    Comments,
    CommentsCount,
    Source,
    InReplyTo,
    Rights,
    /// Latitude and longitude in one text.
    Point,
    Latitude,
    Longitude,
    Duration,
    Episode,
    Season,
    EpisodeType,
    Explicit,
    Transcript,
    Chapters,
    Person,
    AlternateEnclosure,
    Soundbite,
    Value,
    Recipient,
    License,
    Location,
    /// Of feeds alone.
    Subtitle,
    /// `image` of RSS with its address in it, `logo`.
    Logo,
    Icon,
    Generator,
    Guid,
    Locked,
    Funding,
    Medium,
    UpdateFrequency,
    /// Any other element of a specific namespace.
    Extension,
}

/// What an element says about when and where to poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hint {
    Ttl,
    SkipHours,
    SkipDays,
    Hour,
    Day,
    UpdatePeriod,
    UpdateFrequency,
    Cloud,
    NewFeedUrl,
    Complete,
}

/// A word's meaning, and how much it is trusted among words of equal meaning: lower is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) element: Element,
    pub(super) rank: u8,
}

/// Longest name that means anything, in bytes.
const LONGEST_NAME: usize = 20;

/// Returns what an element of this family with this local name says.
pub(super) fn word(space: Space, local_name: &str) -> Word {
    let mut buffer = [0; LONGEST_NAME];
    let lower = lower_case(local_name, &mut buffer);
    let element = element(space, lower);
    let rank = match (element, lower) {
        // Dublin Core's creator is a name, where RSS' author is an address.
        (Element::Author, "creator") => 0,
        (Element::Published, "created") => 4,
        // a whole page inside of an item
        (Element::Content, "body") if space == Space::Feed => 4,
        (Element::Detail(Detail::Subtitle), _) if space == Space::Itunes => 5,
        // the owner of a podcast, after its author
        (Element::Author, "owner") => 5,
        _ => space.rank(),
    };
    Word { element, rank }
}

fn element(space: Space, name: &str) -> Element {
    use Space::{Content, Dc, Feed, FeedBurner, Geo, Gml, Itunes, Media, Rdf, Xhtml};
    match (space, name) {
        (Feed, "item" | "entry") => Element::Entry,
        (Feed, "channel" | "items") | (Rdf, "seq") => Element::Channel,
        (Feed | Dc | Media | Itunes, "title") => Element::Title,
        (Feed, "link") => Element::Link,
        (Feed, "id" | "guid") => Element::Id,
        (Feed, "description" | "summary" | "abstract") => Element::Summary,
        (Dc, "description" | "abstract") | (Media, "description") | (Itunes, "summary") => Element::Summary,
        (Feed, "content" | "encoded" | "fullitem" | "body") => Element::Content,
        (Content, "encoded") | (Xhtml, "body" | "div") => Element::Content,
        (Feed, "pubdate" | "published" | "issued" | "created") => Element::Published,
        (Dc, "date" | "issued" | "created" | "available") => Element::Published,
        (Feed, "updated" | "modified") | (Dc, "modified") => Element::Updated,
        (Feed, "author" | "managingeditor") | (Dc, "creator" | "author") => Element::Author,
        (Itunes, "author" | "owner") => Element::Author,
        (Feed | Itunes, "name") => Element::Name,
        (Feed | Itunes, "email") => Element::Email,
        (Feed | Media | Itunes, "category") | (Dc, "subject") => Element::Category,
        (Feed | Dc, "language") => Element::Language,
        (Feed, "enclosure") | (Media, "content") => Element::File,
        (Media, "group") | (Geo, "where") | (Gml, "point") => Element::Group,
        (Feed, "uri" | "url" | "homepage") => Element::Uri,
        (FeedBurner, "origlink") => Element::OriginalLink,
        (Feed, "tags") | (Media | Itunes, "keywords") => Element::Keywords,
        _ => match (detail(space, name), hint(space, name)) {
            (Some(detail), _) => Element::Detail(detail),
            (None, Some(hint)) => Element::Hint(hint),
            (None, None) => Element::Unknown,
        },
    }
}

fn detail(space: Space, name: &str) -> Option<Detail> {
    use Space::{Dc, Feed, Geo, Gml, Itunes, Media, Podcast, Slash, Thread, WebFeeds};
    Some(match (space, name) {
        (Feed, "comments") => Detail::Comments,
        (Slash, "comments") | (Thread, "total") => Detail::CommentsCount,
        (Feed | Podcast, "source") => Detail::Source,
        (Thread, "in-reply-to") => Detail::InReplyTo,
        (Feed, "rights" | "copyright") | (Dc, "rights") => Detail::Rights,
        (Feed, "subtitle" | "tagline") | (Itunes, "subtitle") => Detail::Subtitle,
        (Feed, "image" | "logo") => Detail::Logo,
        (Feed | WebFeeds, "icon") => Detail::Icon,
        (Feed, "generator") => Detail::Generator,
        // `link` before there was `image`
        (Media, "thumbnail") | (Itunes, "image" | "link") => Detail::Image,
        (Geo, "point") | (Gml, "pos") => Detail::Point,
        (Geo, "lat") => Detail::Latitude,
        (Geo, "long") => Detail::Longitude,
        (Itunes, "duration") => Detail::Duration,
        (Itunes | Podcast, "episode") => Detail::Episode,
        (Itunes | Podcast, "season") => Detail::Season,
        (Itunes, "episodetype") => Detail::EpisodeType,
        (Itunes, "explicit") => Detail::Explicit,
        (Podcast, "transcript") => Detail::Transcript,
        (Podcast, "chapters") => Detail::Chapters,
        (Podcast, "person") => Detail::Person,
        (Podcast, "alternateenclosure") => Detail::AlternateEnclosure,
        (Podcast, "soundbite") => Detail::Soundbite,
        (Podcast, "value") => Detail::Value,
        (Podcast, "valuerecipient") => Detail::Recipient,
        (Podcast, "license") => Detail::License,
        (Podcast, "location") => Detail::Location,
        (Podcast, "guid") => Detail::Guid,
        (Podcast, "locked") => Detail::Locked,
        (Podcast, "funding") => Detail::Funding,
        (Podcast, "medium") => Detail::Medium,
        (Podcast, "updatefrequency") => Detail::UpdateFrequency,
        _ => return None,
    })
}

/// Hints have unique names, and are bound to every address that publishers can think of.
fn hint(space: Space, name: &str) -> Option<Hint> {
    Some(match (space, name) {
        (Space::Dc | Space::Media | Space::Podcast | Space::Thread | Space::Geo | Space::Gml, _) => return None,
        (Space::Itunes, "complete") => Hint::Complete,
        (_, "ttl") => Hint::Ttl,
        (_, "skiphours") => Hint::SkipHours,
        (_, "skipdays") => Hint::SkipDays,
        (_, "hour") => Hint::Hour,
        (_, "day") => Hint::Day,
        (_, "updateperiod") => Hint::UpdatePeriod,
        (_, "updatefrequency") => Hint::UpdateFrequency,
        (_, "cloud") => Hint::Cloud,
        (_, "new-feed-url") => Hint::NewFeedUrl,
        _ => return None,
    })
}

/// Returns the name in lower case; empty, which means nothing, where it is longer than any that does.
fn lower_case<'b>(name: &str, buffer: &'b mut [u8; LONGEST_NAME]) -> &'b str {
    let Some(lower) = buffer.get_mut(..name.len()) else { return "" };
    lower.copy_from_slice(name.as_bytes());
    lower.make_ascii_lowercase();
    std::str::from_utf8(lower).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_and_misspelt_namespaces_are_known_and_others_are_not() {
        let table = [
            ("http://purl.org/atom/ns#", Some(Space::Feed)),
            ("https://www.w3.org/2005/Atom", Some(Space::Feed)),
            ("http://www.w3.org/2005/atom/", Some(Space::Feed)),
            ("http://my.netscape.com/rdf/simple/0.9/", Some(Space::Feed)),
            (" http://search.yahoo.com/mrss ", Some(Space::Media)),
            ("http://www.itunes.com/DTDs/Podcast-1.0.dtd", Some(Space::Itunes)),
            ("http://www.w3.org/1999/xhtml", Some(Space::Xhtml)),
            ("http://example.org/", None),
            ("", None),
        ];
        for (uri, space) in table {
            assert_eq!(Space::of_uri(uri), space, "{uri}");
        }
    }

    #[test]
    fn words_are_known_in_either_case_and_the_feeds_own_come_first() {
        let element = |space, name| word(space, name).element;
        assert_eq!(element(Space::Feed, "pubDate"), Element::Published);
        assert_eq!(element(Space::Feed, "TITLE"), Element::Title);
        assert_eq!(element(Space::Other, "title"), Element::Unknown);
        assert_eq!(element(Space::Other, "updatePeriod"), Element::Hint(Hint::UpdatePeriod));
        assert_eq!(element(Space::Feed, "a-name-that-is-longer-than-any"), Element::Unknown);
        let ranks = [Space::Feed, Space::Dc, Space::Media, Space::Itunes].map(|space| word(space, "title").rank);
        assert!(ranks.is_sorted_by(|one, next| one < next), "{ranks:?}");
    }
}
