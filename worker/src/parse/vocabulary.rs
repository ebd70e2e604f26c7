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
    let element = match space {
        Space::Feed => of_feed(lower),
        Space::Dc => of_dublin_core(lower),
        Space::Content if lower == "encoded" => Element::Content,
        Space::Media => of_media(lower),
        Space::Itunes => of_itunes(lower),
        Space::Podcast => of_podcasting(lower),
        Space::Slash if lower == "comments" => Element::Detail(Detail::CommentsCount),
        Space::Thread => of_threads(lower),
        Space::Geo => of_geo(lower),
        Space::Gml => of_gml(lower),
        Space::FeedBurner if lower == "origlink" => Element::OriginalLink,
        Space::WebFeeds if lower == "icon" => Element::Detail(Detail::Icon),
        Space::Rdf if lower == "seq" => Element::Channel,
        Space::Xhtml if matches!(lower, "body" | "div") => Element::Content,
        _ => hint(lower),
    };
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

/// Hints have unique names, and are bound to every address that publishers can think of.
fn hint(name: &str) -> Element {
    Element::Hint(match name {
        "ttl" => Hint::Ttl,
        "skiphours" => Hint::SkipHours,
        "skipdays" => Hint::SkipDays,
        "hour" => Hint::Hour,
        "day" => Hint::Day,
        "updateperiod" => Hint::UpdatePeriod,
        "updatefrequency" => Hint::UpdateFrequency,
        "cloud" => Hint::Cloud,
        "new-feed-url" => Hint::NewFeedUrl,
        _ => return Element::Unknown,
    })
}

fn of_feed(name: &str) -> Element {
    match name {
        "item" | "entry" => Element::Entry,
        "channel" | "items" => Element::Channel,
        "title" => Element::Title,
        "link" => Element::Link,
        "id" | "guid" => Element::Id,
        "description" | "summary" | "abstract" => Element::Summary,
        "content" | "encoded" | "fullitem" | "body" => Element::Content,
        "pubdate" | "published" | "issued" | "created" => Element::Published,
        "updated" | "modified" => Element::Updated,
        "author" | "managingeditor" => Element::Author,
        "name" => Element::Name,
        "email" => Element::Email,
        "uri" | "url" | "homepage" => Element::Uri,
        "comments" => Element::Detail(Detail::Comments),
        "source" => Element::Detail(Detail::Source),
        "rights" | "copyright" => Element::Detail(Detail::Rights),
        "subtitle" | "tagline" => Element::Detail(Detail::Subtitle),
        "image" | "logo" => Element::Detail(Detail::Logo),
        "icon" => Element::Detail(Detail::Icon),
        "generator" => Element::Detail(Detail::Generator),
        "category" => Element::Category,
        "tags" => Element::Keywords,
        "language" => Element::Language,
        "enclosure" => Element::File,
        name => hint(name),
    }
}

fn of_dublin_core(name: &str) -> Element {
    match name {
        "title" => Element::Title,
        "description" | "abstract" => Element::Summary,
        "date" | "issued" | "created" | "available" => Element::Published,
        "modified" => Element::Updated,
        "creator" | "author" => Element::Author,
        "subject" => Element::Category,
        "rights" => Element::Detail(Detail::Rights),
        "language" => Element::Language,
        _ => Element::Unknown,
    }
}

fn of_media(name: &str) -> Element {
    match name {
        "title" => Element::Title,
        "description" => Element::Summary,
        "content" => Element::File,
        "group" => Element::Group,
        "thumbnail" => Element::Detail(Detail::Image),
        "category" => Element::Category,
        "keywords" => Element::Keywords,
        _ => Element::Unknown,
    }
}

fn of_itunes(name: &str) -> Element {
    match name {
        "title" => Element::Title,
        "summary" => Element::Summary,
        "author" | "owner" => Element::Author,
        "name" => Element::Name,
        "email" => Element::Email,
        "subtitle" => Element::Detail(Detail::Subtitle),
        "category" => Element::Category,
        "complete" => Element::Hint(Hint::Complete),
        "keywords" => Element::Keywords,
        // the latter before there was the former
        "image" | "link" => Element::Detail(Detail::Image),
        "duration" => Element::Detail(Detail::Duration),
        "episode" => Element::Detail(Detail::Episode),
        "season" => Element::Detail(Detail::Season),
        "episodetype" => Element::Detail(Detail::EpisodeType),
        "explicit" => Element::Detail(Detail::Explicit),
        name => hint(name),
    }
}

fn of_podcasting(name: &str) -> Element {
    Element::Detail(match name {
        "transcript" => Detail::Transcript,
        "chapters" => Detail::Chapters,
        "person" => Detail::Person,
        "alternateenclosure" => Detail::AlternateEnclosure,
        "source" => Detail::Source,
        "soundbite" => Detail::Soundbite,
        "value" => Detail::Value,
        "valuerecipient" => Detail::Recipient,
        "license" => Detail::License,
        "location" => Detail::Location,
        "season" => Detail::Season,
        "episode" => Detail::Episode,
        "guid" => Detail::Guid,
        "locked" => Detail::Locked,
        "funding" => Detail::Funding,
        "medium" => Detail::Medium,
        "updatefrequency" => Detail::UpdateFrequency,
        _ => return Element::Unknown,
    })
}

fn of_threads(name: &str) -> Element {
    match name {
        "in-reply-to" => Element::Detail(Detail::InReplyTo),
        "total" => Element::Detail(Detail::CommentsCount),
        _ => Element::Unknown,
    }
}

fn of_geo(name: &str) -> Element {
    match name {
        "point" => Element::Detail(Detail::Point),
        "where" => Element::Group,
        "lat" => Element::Detail(Detail::Latitude),
        "long" => Element::Detail(Detail::Longitude),
        _ => Element::Unknown,
    }
}

fn of_gml(name: &str) -> Element {
    match name {
        "point" => Element::Group,
        "pos" => Element::Detail(Detail::Point),
        _ => Element::Unknown,
    }
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
