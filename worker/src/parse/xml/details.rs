//! What only some entries say: pictures, files in detail, sources, threads, podcasts, and elements of no known meaning.
//!
//! Each list has at most [`MAX_MEMBERS`] members and each text a length that suits it: what an entry says here is kept in
//! messages and stores whole.

use std::borrow::Cow;
use std::ops::Range;

use common::entry::{
    AlternateEnclosure, Chapters, Geo, License, Location, Number, Person, Recipient, Soundbite, Source, Transcript,
    Value,
};
use quick_xml::events::BytesStart;

use super::attribute::{MAX_NAME, address_of_image, attribute, attributes, short, some, value};
use super::extensions::add_extension;
use super::pass::{Pass, Root, Scope};
use crate::parse::draft::{DraftDetails, DraftEntry, File, MAX_MEMBERS, Text};
use crate::parse::link::Link;
use crate::parse::text::{self, Markup};
use crate::parse::vocabulary::{Detail, Element, Word};

/// Ranks of a source's authors begin here, behind all of the entry's own.
const OF_SOURCE: u8 = 10;

impl<'a> Pass<'a, '_> {
    /// Returns the open entry's details.
    pub(super) fn details(&mut self) -> Option<&mut DraftDetails<'a>> {
        let base = self.context.base();
        let (entry, _) = self.entry.as_mut()?;
        let details = entry.details();
        if details.base.is_none() {
            details.base = base;
        }
        Some(details)
    }

    /// Handles an element of an entry whose attributes, text or members are details.
    pub(super) fn detail(&mut self, detail: Detail, word: Word, tag: &BytesStart<'_>, span: &Range<usize>) -> Scope {
        self.keep_further(detail, tag);
        match detail {
            Detail::Image => self.image(word.rank, tag),
            Detail::Source if self.root == Some(Root::Atom) => {
                if let Some(details) = self.details() {
                    details.fields.source.get_or_insert_default();
                }
                Scope::Source
            }
            Detail::Transcript | Detail::Chapters | Detail::InReplyTo => {
                self.pointer(detail, tag);
                Scope::Ignored
            }
            Detail::AlternateEnclosure => {
                self.alternate_enclosure(tag);
                Scope::Alternate
            }
            Detail::Value => {
                let (kind, method) = (short(tag, "type"), short(tag, "method"));
                let suggested = attribute(tag, "suggested").as_deref().and_then(number);
                let value = Value {
                    kind: kind.unwrap_or_default(),
                    method: method.unwrap_or_default(),
                    suggested,
                    recipients: vec![],
                };
                if let Some((entry, _)) = &mut self.entry {
                    entry.podcast().value.get_or_insert(value);
                }
                Scope::Value
            }
            Detail::Source | Detail::Person | Detail::Soundbite | Detail::License | Detail::Location => {
                self.attributes = attributes(tag);
                self.hold(word, tag, span)
            }
            Detail::Recipient
            | Detail::Extension
            | Detail::Subtitle
            | Detail::Logo
            | Detail::Icon
            | Detail::Generator => match tag.name().prefix() {
                Some(_) => self.extension(word, tag, span),
                None => Scope::Ignored,
            },
            _ => self.hold(word, tag, span),
        }
    }

    /// Handles a picture in an attribute, of the file around it or of the entry.
    fn image(&mut self, rank: u8, tag: &BytesStart<'_>) -> Scope {
        let Some(href) = address_of_image(tag) else { return Scope::Ignored };
        let link = self.link_here(href);
        let of_file = self.scopes.last() == Some(&Scope::File);
        if let Some((entry, _)) = self.entry.as_mut().filter(|_| of_file)
            && let Some(file) = entry.open_file()
            && file.more().thumbnails.len() < MAX_MEMBERS
        {
            file.more().thumbnails.push(link.href.clone().into_owned());
        }
        if let Some(details) = self.details() {
            details.image.offer(rank, link);
        }
        Scope::Ignored
    }

    /// Elements that say all in attributes.
    fn pointer(&mut self, detail: Detail, tag: &BytesStart<'_>) {
        let Some((entry, _)) = &mut self.entry else { return };
        let url = attribute(tag, "url").unwrap_or_default();
        match detail {
            Detail::Transcript => {
                let transcripts = &mut entry.podcast().transcripts;
                if transcripts.len() < MAX_MEMBERS {
                    let (language, rel) = (short(tag, "language"), short(tag, "rel"));
                    transcripts.push(Transcript { url, media_type: short(tag, "type"), language, rel });
                }
            }
            Detail::Chapters => {
                entry.podcast().chapters.get_or_insert(Chapters { url, media_type: short(tag, "type") });
            }
            _ => {
                let answered = short(tag, "ref").or_else(|| short(tag, "href"));
                if let (Some(answered), Some(details)) = (answered, self.details())
                    && details.fields.in_reply_to.len() < MAX_MEMBERS
                {
                    details.fields.in_reply_to.push(answered);
                }
            }
        }
    }

    fn alternate_enclosure(&mut self, tag: &BytesStart<'_>) {
        let Some((entry, _)) = &mut self.entry else { return };
        let alternates = &mut entry.podcast().alternate_enclosures;
        let written = |name| attribute(tag, name);
        let alternate = AlternateEnclosure {
            media_type: short(tag, "type"),
            length: written("length").and_then(|length| length.trim().parse().ok()),
            bitrate: written("bitrate").as_deref().and_then(number),
            height: written("height").and_then(|height| height.trim().parse().ok()),
            language: short(tag, "lang"),
            title: short(tag, "title"),
            sources: Vec::new(),
        };
        if alternates.len() < MAX_MEMBERS {
            alternates.push(alternate);
        }
    }

    /// Members of `podcast:value` and `podcast:alternateEnclosure`.
    pub(super) fn meet_in_podcast(&mut self, detail: Detail, tag: &BytesStart<'_>) -> Scope {
        self.keep_further(detail, tag);
        let Some(podcast) = self.entry.as_mut().map(|(entry, _)| entry.podcast()) else { return Scope::Ignored };
        match detail {
            Detail::Recipient => {
                let recipients = podcast.value.as_mut().map(|value| &mut value.recipients);
                let recipient = Recipient {
                    name: short(tag, "name"),
                    kind: short(tag, "type").unwrap_or_default(),
                    address: short(tag, "address").unwrap_or_default(),
                    split: attribute(tag, "split").as_deref().and_then(number).unwrap_or_default(),
                    fee: attribute(tag, "fee").is_some_and(|fee| fee.trim().eq_ignore_ascii_case("true")),
                };
                if let Some(recipients) = recipients.filter(|recipients| recipients.len() < MAX_MEMBERS) {
                    recipients.push(recipient);
                }
            }
            Detail::Source => {
                let uri = attribute(tag, "uri").filter(|uri| !uri.trim().is_empty());
                let sources = podcast.alternate_enclosures.last_mut().map(|alternate| &mut alternate.sources);
                if let (Some(uri), Some(sources)) = (uri, sources)
                    && sources.len() < MAX_MEMBERS
                {
                    sources.push(uri);
                }
            }
            _ => {}
        }
        Scope::Ignored
    }

    /// Members of Atom's `source`. Its authors are those of an entry without its own (RFC 4287, section 4.2.1).
    pub(super) fn meet_in_source(&mut self, word: Word, tag: &BytesStart<'_>, span: &Range<usize>) -> Scope {
        match word.element {
            Element::Title | Element::Id => self.hold(word, tag, span),
            Element::Author => self.begin_person(OF_SOURCE + word.rank),
            Element::Link => {
                let relation = attribute(tag, "rel").unwrap_or_default();
                let (href, is_page) = (attribute(tag, "href"), matches!(relation.trim(), "" | "alternate"));
                if let (Some(href), Some(source)) = (href, self.source())
                    && (is_page || (relation.trim() == "self" && source.url.is_none()))
                {
                    source.url = Some(href);
                }
                Scope::Ignored
            }
            _ => Scope::Ignored,
        }
    }

    fn source(&mut self) -> Option<&mut Source> {
        self.details().map(|details| details.fields.source.get_or_insert_default())
    }

    pub(super) fn part_of_source(&mut self, element: Element, text: Cow<'a, str>) {
        let Some(source) = self.source() else { return };
        let place = if element == Element::Title { &mut source.title } else { &mut source.id };
        place.get_or_insert_with(|| text.into_owned());
    }

    /// Links of an entry that lead neither to it nor to a file of it.
    pub(super) fn further_link(&mut self, relation: &str, link: &Link<'a>, is_page: bool, tag: &BytesStart<'_>) {
        let href = || link.href.clone().into_owned();
        match relation.to_ascii_lowercase().as_str() {
            "related" | "via" => {
                if let Some(details) = self.details()
                    && details.fields.related.len() < MAX_MEMBERS
                {
                    details.fields.related.push(href());
                }
            }
            "replies" => {
                let count = attribute(tag, "thr:count").and_then(|count| count.trim().parse().ok());
                if let Some(details) = self.details() {
                    let fields = &mut details.fields;
                    fields.comments_count = fields.comments_count.or(count);
                    if is_page {
                        fields.comments_url.get_or_insert_with(href);
                    }
                }
            }
            _ => {}
        }
    }

    /// What is declared of an entry's content.
    pub(super) fn content_is(&mut self, tag: &BytesStart<'_>) {
        let base = self.context.base();
        let declared = short(tag, "type").map(|declared| declared.trim().to_ascii_lowercase());
        if let Some((entry, depth)) = &mut self.entry {
            if let Some(language) = self.context.language_below(*depth) {
                entry.language.offer(0, language.to_owned().into());
            }
            entry.content_base = entry.content_base.take().or(base);
        }
        if let (Some(declared), Some(details)) = (declared.filter(|declared| !declared.is_empty()), self.details()) {
            details.fields.content_type.get_or_insert(declared);
        }
    }

    /// The base in force around an entry's summary, for entries without content.
    pub(super) fn summary_is(&mut self) {
        let base = self.context.base();
        if let Some((entry, _)) = &mut self.entry {
            entry.summary_base = entry.summary_base.take().or(base);
        }
    }

    /// `enclosure` and `media:content`. Words inside of the latter are about the entry as well.
    pub(super) fn file(&mut self, tag: &BytesStart<'_>) -> Scope {
        let url = attribute(tag, "url").or_else(|| attribute(tag, "href")).filter(|url| !url.trim().is_empty());
        let Some(url) = url else { return Scope::Group };
        let whole = |name: &str| attribute(tag, name).and_then(|number| number.trim().parse().ok());
        let decimal = |name: &str| attribute(tag, name).as_deref().and_then(number);
        let length = attribute(tag, "length").or_else(|| attribute(tag, "fileSize"));
        let mut file = File {
            link: self.link_here(url),
            media_type: attribute(tag, "type").map(Cow::from),
            length: length.and_then(|length| length.trim().parse().ok()),
            more: None,
        };
        // only Media RSS has them, and most files are none of its
        if tag.name().prefix().is_some() {
            let (width, height): (Option<u32>, Option<u32>) = (whole("width"), whole("height"));
            let (duration, bitrate, medium) = (decimal("duration"), decimal("bitrate"), short(tag, "medium"));
            if width.is_some() || height.is_some() || duration.is_some() || bitrate.is_some() || medium.is_some() {
                let more = file.more();
                (more.width, more.height, more.duration, more.bitrate, more.medium) =
                    (width, height, duration, bitrate, medium);
            }
        }
        if let Some((entry, _)) = &mut self.entry {
            entry.add_file(file);
        }
        Scope::File
    }

    /// `feedburner:origLink`
    pub(super) fn original_link(&mut self, text: Cow<'a, str>) {
        let link = self.link_here(text);
        if let Some(details) = self.details() {
            details.original_link.get_or_insert(link);
        }
    }

    /// Categories with commas between them.
    pub(super) fn keywords(&mut self, text: &str) {
        for keyword in text.split(',').map(str::trim).filter(|keyword| !keyword.is_empty()).take(MAX_MEMBERS) {
            self.category(keyword.to_owned().into());
        }
    }

    /// The end of a detail whose text was collected.
    pub(super) fn release_detail(&mut self, detail: Detail, rank: u8, text: Text<'a>) {
        let written = std::mem::take(&mut self.attributes);
        if self.entry.is_none() {
            return self.release_about(detail, rank, text, &written);
        }
        let Some(details) = self.details() else { return };
        let plain = text.raw.trim();
        match detail {
            Detail::Rights => {
                if !plain.is_empty() {
                    details.rights.offer(rank, text);
                }
                return;
            }
            Detail::Comments => details.fields.comments_url = details.fields.comments_url.take().or(some(plain)),
            Detail::CommentsCount => {
                details.fields.comments_count = details.fields.comments_count.or_else(|| plain.parse().ok());
            }
            Detail::Source => {
                let source = details.fields.source.get_or_insert_default();
                (source.title, source.url) = (some(plain), value(&written, "url"));
            }
            Detail::Point => details.fields.geo = details.fields.geo.or_else(|| point(plain)),
            Detail::Latitude | Detail::Longitude => {
                let half = number(plain).filter(|degrees| degrees.get().abs() <= 180.0);
                let zero = Geo { lat: Number::default(), lon: Number::default() };
                if let Some(half) = half {
                    let geo = details.fields.geo.get_or_insert(zero);
                    *(if detail == Detail::Latitude { &mut geo.lat } else { &mut geo.lon }) = half;
                }
            }
            Detail::Extension => {
                add_extension(details, written, plain);
                return;
            }
            _ => {}
        }
        if let Some((entry, _)) = &mut self.entry {
            of_podcast(entry, detail, plain, &written);
        }
    }
}

/// What an entry says as an episode.
fn of_podcast(entry: &mut DraftEntry<'_>, detail: Detail, text: &str, written: &[(String, String)]) {
    match detail {
        Detail::Duration => {
            if let Some(duration) = duration(text) {
                entry.podcast().duration.get_or_insert(duration);
            }
        }
        Detail::Episode | Detail::Season => {
            if let Some(number) = number(text) {
                let podcast = entry.podcast();
                let place = if detail == Detail::Episode { &mut podcast.episode } else { &mut podcast.season };
                place.get_or_insert(number);
            }
        }
        Detail::EpisodeType => entry.podcast().kind = some(text).map(|kind| kind.to_ascii_lowercase()),
        Detail::Explicit => match text.to_ascii_lowercase().as_str() {
            "yes" | "true" | "explicit" => entry.podcast().explicit = Some(true),
            "no" | "false" | "clean" => entry.podcast().explicit = Some(false),
            _ => {}
        },
        Detail::Person => {
            let persons = &mut entry.podcast().persons;
            if let Some(name) = some(text).filter(|_| persons.len() < MAX_MEMBERS) {
                let [role, group, image, url] = ["role", "group", "img", "href"].map(|name| value(written, name));
                persons.push(Person { name, role, group, image, url });
            }
        }
        Detail::Soundbite => {
            let [start, duration] = ["startTime", "duration"].map(|name| number(&value(written, name)?));
            let soundbites = &mut entry.podcast().soundbites;
            if let (Some(start), Some(duration)) = (start, duration)
                && soundbites.len() < MAX_MEMBERS
            {
                soundbites.push(Soundbite { start, duration, title: some(text) });
            }
        }
        Detail::License => {
            if let Some(name) = some(text) {
                entry.podcast().license = Some(License { name, url: value(written, "url") });
            }
        }
        Detail::Location => {
            let [geo, osm] = ["geo", "osm"].map(|name| value(written, name));
            entry.podcast().location =
                some(text).map(|name| Location { name, geo, osm }).or(entry.podcast().location.take());
        }
        _ => {}
    }
}

/// Says of the file that is being read what it shows.
pub(super) fn describe_file(entry: &mut DraftEntry<'_>, text: &str, markup: Option<Markup>) {
    let text = &text[..text.floor_char_boundary(MAX_NAME)];
    let plain = markup.map_or(Cow::Borrowed(text), |markup| text::plain(text, markup));
    if let (Some(file), Some(alt)) = (entry.open_file(), some(&plain)) {
        file.more().alt.get_or_insert(alt);
    }
}

/// `01:02:03`, `62:03`, or seconds.
pub(in crate::parse) fn duration(text: &str) -> Option<Number> {
    let mut parts = text.trim().split(':');
    let seconds = parts.try_fold(0.0, |sum, part| {
        let part: f64 = part.trim().parse().ok().filter(|part| *part >= 0.0)?;
        Some(sum * 60.0 + part)
    })?;
    // a day at most: others are milliseconds, or nonsense
    let is_whole = text.split(':').count() <= 3;
    Number::new(seconds).filter(|_| is_whole && seconds > 0.0)
}

/// `45.256 -71.92`, `45.256 -71.92 8`
fn point(text: &str) -> Option<Geo> {
    let mut parts = text.split(|c: char| c.is_whitespace() || c == ',').filter(|part| !part.is_empty());
    let (lat, lon) = (number(parts.next()?)?, number(parts.next()?)?);
    let is_on_earth = lat.get().abs() <= 90.0 && lon.get().abs() <= 180.0;
    // the third is a height
    (is_on_earth && parts.count() < 2).then_some(Geo { lat, lon })
}

fn number(text: &str) -> Option<Number> {
    Number::new(text.trim().parse().ok()?)
}
