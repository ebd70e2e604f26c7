//! Parses JSON Feed 1.0 and 1.1 leniently: a field whose type differs from the specification is interpreted (such as a
//! number as an id) or omitted, and never makes the whole feed fail.
//!
//! Nesting is harmless: unknown values are skipped without recursion, and known ones nest to a fixed depth.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use common::document::FeedAbout;
use common::entry::{Author, Number};
use common::time::Timestamp;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::draft::{Best, Draft, DraftAbout, DraftEntry, File, MAX_MEMBERS, Text};
use super::hints::Announced;
use super::kept::Kept;
use super::link::Link;
use super::text::as_html;
use super::{ParseError, ParseLimits, dates};

/// Attachments that are read: one more than an entry keeps, so that the entry is marked as cut.
const MAX_ATTACHMENTS: usize = MAX_MEMBERS + 1;

/// Reads a document that begins with `{`.
///
/// The deadline is checked before: one pass of the JSON reader is linear, and 20 MB of it take a fraction of a second.
pub(super) fn read(text: &str, limits: &ParseLimits) -> Result<Draft<'static>, ParseError> {
    if limits.is_late() {
        return Err(ParseError::late());
    }
    let mut json = serde_json::Deserializer::from_str(text);
    let feed = Any::<LooseObject<JsonFeed>, JsonFeed>::new(limits.max_entries).deserialize(&mut json);
    match feed.and_then(|feed| json.end().map(|()| feed)) {
        Ok(LooseObject(feed)) => draft(feed.unwrap_or_default()),
        Err(error) if claims_to_be_a_feed(text) => Err(ParseError::malformed(&error)),
        Err(error) => Err(ParseError::not_a_feed(&format!("neither XML nor JSON: {error}"))),
    }
}

fn draft(feed: JsonFeed) -> Result<Draft<'static>, ParseError> {
    let version = feed.version.0.unwrap_or_default();
    let is_feed = version.contains("jsonfeed.org/") || (feed.title.0.is_some() && feed.items.0.is_some());
    if !is_feed {
        return Err(ParseError::not_a_feed(&"JSON, but no JSON Feed"));
    }
    let is_hub = |hub: &JsonHub| {
        let kind = hub.r#type.0.as_deref().unwrap_or("");
        ["websub", "pubsubhubbub"].iter().any(|known| kind.eq_ignore_ascii_case(known))
    };
    let hub = feed.hubs.0.unwrap_or_default().into_iter().find(is_hub);
    let announced = Announced {
        hub: hub.and_then(|hub| hub.url.0).map(link),
        self_link: feed.feed_url.0.clone().map(link),
        next: feed.next_url.0.map(link),
        expired: feed.expired.0,
        ..Announced::default()
    };
    let known = listed_authors(feed.author.0.as_ref(), feed.authors.0.as_deref());
    let about = DraftAbout {
        description: Best::of(feed.description.0.map(|raw| Text { raw: raw.into(), markup: None })),
        image: Best::of(feed.icon.0.map(link)),
        icon: Best::of(feed.favicon.0.map(link)),
        fields: FeedAbout { authors: known.collect(), ..FeedAbout::default() },
        ..DraftAbout::default()
    };
    Ok(Draft {
        about,
        title: Best::of(feed.title.0.map(|raw| Text { raw: raw.into(), markup: None })),
        link: Best::of(feed.home_page_url.0.map(link)),
        id: Best::of(feed.feed_url.0.map(Cow::from)),
        language: Best::of(feed.language.0.map(Cow::from)),
        authors: authors(feed.author.0, feed.authors.0),
        announced,
        entries: feed.items.0.unwrap_or_default(),
    })
}

/// Returns whether a text that is not JSON looks as if it had been meant as a JSON Feed.
pub(super) fn claims_to_be_a_feed(text: &str) -> bool {
    text[..text.floor_char_boundary(4 * 1024)].contains("jsonfeed.org")
}

fn draft_entry(item: JsonItem) -> DraftEntry<'static> {
    let as_html = |text: Loose| text.0.map(|text| as_html(text.into()));
    let external_url = item.external_url.0.clone().filter(|_| item.url.0.is_some());
    let known_authors = known_authors(item.author.0.as_ref(), item.authors.0.as_deref());
    let (summary, plain) = (as_html(item.summary), as_html(item.content_text));
    let (content, summary) = match item.content_html.0 {
        Some(html) => (Some(Cow::from(html)), summary.or(plain)),
        None => (plain, summary),
    };
    let time = |text: Loose| {
        Best::of(
            text.0.as_deref().and_then(|text| dates::parse(text, dates::Order::default())).map(Timestamp::from_chrono),
        )
    };
    let mut draft = DraftEntry {
        id: Best::of(item.id.0.map(Cow::from)),
        id_is_link: None,
        id_base: None,
        link: Best::of(item.url.0.or(item.external_url.0).map(link)),
        title: Best::of(item.title.0.map(|raw| Text { raw: raw.into(), markup: None })),
        published: time(item.date_published),
        updated: time(item.date_modified),
        authors: authors(item.author.0, item.authors.0),
        summary: Best::of(summary),
        content: Best::of(content),
        language: Best::of(item.language.0.map(Cow::from)),
        ..DraftEntry::default()
    };
    for attachment in item.attachments.0.unwrap_or_default() {
        let Some(url) = attachment.url.0 else { continue };
        let length = attachment.size_in_bytes.0.and_then(|size| size.split('.').next()?.parse().ok());
        let mut file = File { link: link(url), media_type: attachment.mime_type.0.map(Cow::from), length, more: None };
        let duration = attachment.duration_in_seconds.0.and_then(|seconds| Number::new(seconds.parse().ok()?));
        if let Some(duration) = duration {
            file.more().duration = Some(duration);
        }
        draft.add_file(file);
    }
    if let Some(image) = item.image.0.or(item.banner_image.0).filter(|image| !image.trim().is_empty()) {
        draft.details().image = Best::of(Some(link(image)));
    }
    if external_url.is_some() {
        draft.details().fields.external_url = external_url;
    }
    if !known_authors.is_empty() {
        draft.details().authors = known_authors;
    }
    for tag in item.tags.0.unwrap_or_default() {
        draft.add_category(tag.into());
    }
    draft
}

fn link(href: String) -> Link<'static> {
    Link { href: href.into(), base: None }
}

/// Returns those of which more is known than their names.
fn known_authors(one: Option<&JsonAuthor>, list: Option<&[JsonAuthor]>) -> Vec<(u8, Author)> {
    let known = listed_authors(one, list).filter(|author| author.url.is_some() || author.avatar.is_some());
    known.map(|author| (0, author)).collect()
}

fn listed_authors<'j>(one: Option<&'j JsonAuthor>, list: Option<&'j [JsonAuthor]>) -> impl Iterator<Item = Author> {
    let list = list.filter(|list| !list.is_empty()).or(one.map(std::slice::from_ref)).unwrap_or_default();
    list.iter().filter_map(|author| {
        let name = author.name.0.clone()?;
        Some(Author { name, url: author.url.0.clone(), email: None, avatar: author.avatar.0.clone() })
    })
}

/// Version 1.0 has one author, 1.1 a list; some feeds have both.
fn authors(one: Option<JsonAuthor>, list: Option<Vec<JsonAuthor>>) -> Best<Vec<Cow<'static, str>>> {
    let mut authors = Best::default();
    let list = list.filter(|list| !list.is_empty()).or_else(|| one.map(|author| vec![author]));
    for name in list.into_iter().flatten().filter_map(|author| author.name.0) {
        authors.add(0, name.into());
    }
    authors
}

/// Defines an object, and how it takes these members. Of several values of one name the last counts, as in most
/// readers of JSON (RFC 8259, section 4); what serde derives refuses such a document.
macro_rules! object {
    ($object:ident { $($member:ident: $value:ty,)+ }) => {
        #[derive(Default)]
        struct $object { $($member: $value,)+ }

        impl Taking<()> for $object {
            fn map<'de, A: MapAccess<'de>>(mut map: A, max_entries: usize) -> Result<Self, A::Error> {
                #[derive(serde::Deserialize)]
                #[serde(field_identifier)]
                #[expect(non_camel_case_types, reason = "these are the names in JSON")]
                enum Name { $($member,)+ #[serde(other)] other }

                let mut object = Self::default();
                while let Some(key) = map.next_key::<Name>()? {
                    match key {
                        $(Name::$member => object.$member = map.next_value_seed(Any::<$value, _>::new(max_entries))?,)+
                        Name::other => {
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                Ok(object)
            }
        }
    };
}

object! {
    JsonFeed {
        version: Loose,
        title: Loose,
        home_page_url: Loose,
        feed_url: Loose,
        next_url: Loose,
        expired: LooseTruth,
        language: Loose,
        description: Loose,
        icon: Loose,
        favicon: Loose,
        author: LooseObject<JsonAuthor>,
        authors: LooseList<JsonAuthor>,
        hubs: LooseList<JsonHub>,
        items: Items,
    }
}

object! {
    JsonItem {
        id: Loose,
        url: Loose,
        external_url: Loose,
        title: Loose,
        content_html: Loose,
        content_text: Loose,
        summary: Loose,
        date_published: Loose,
        date_modified: Loose,
        language: Loose,
        tags: LooseTexts,
        image: Loose,
        banner_image: Loose,
        author: LooseObject<JsonAuthor>,
        authors: LooseList<JsonAuthor>,
        attachments: LooseList<JsonAttachment, MAX_ATTACHMENTS>,
    }
}

object! {
    JsonAuthor {
        name: Loose,
        url: Loose,
        avatar: Loose,
    }
}

object! {
    JsonHub {
        r#type: Loose,
        url: Loose,
    }
}

object! {
    JsonAttachment {
        url: Loose,
        mime_type: Loose,
        size_in_bytes: Loose,
        duration_in_seconds: Loose,
    }
}

/// A text, or a number as its text; anything else is absent.
#[derive(Default)]
struct Loose(Option<String>);

/// `true`; anything else is not.
#[derive(Default)]
struct LooseTruth(bool);

/// A list of texts; other members, and what is beyond [`MAX_MEMBERS`], are left out, anything else is absent.
#[derive(Default)]
struct LooseTexts(Option<Vec<String>>);

/// The items that are kept, as entries: a list of small objects would take many times its size. Members of other types are left
/// out, anything else is absent.
#[derive(Default)]
struct Items(Option<Vec<DraftEntry<'static>>>);

/// An object; anything else is absent.
struct LooseObject<T>(Option<T>);

/// A list of objects; members of other types, and what is beyond `MOST`, are left out, anything else is absent.
struct LooseList<T, const MOST: usize = MAX_MEMBERS>(Option<Vec<T>>);

impl<T> Default for LooseObject<T> {
    fn default() -> Self {
        LooseObject(None)
    }
}

impl<T, const MOST: usize> Default for LooseList<T, MOST> {
    fn default() -> Self {
        LooseList(None)
    }
}

/// Takes any value; a `None` stands for a value of another type.
struct Any<T, R> {
    max_entries: usize,
    taken: PhantomData<(T, R)>,
}

impl<T, R> Any<T, R> {
    /// Of a document of which this number of entries is kept.
    fn new(max_entries: usize) -> Self {
        Any { max_entries, taken: PhantomData }
    }
}

/// How a type takes the values that it accepts. What is not overridden is left out. The numbers are [`Any::max_entries`].
trait Taking<R>: Default {
    fn text(_: String) -> Self {
        Self::default()
    }
    fn truth(_: bool) -> Self {
        Self::default()
    }
    fn map<'de, A: MapAccess<'de>>(mut map: A, _: usize) -> Result<Self, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Self::default())
    }
    fn list<'de, A: SeqAccess<'de>>(mut list: A, _: usize) -> Result<Self, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Self::default())
    }
}

impl Taking<()> for Loose {
    fn text(text: String) -> Self {
        Loose(Some(text))
    }
}

impl Taking<()> for LooseTruth {
    fn truth(truth: bool) -> Self {
        LooseTruth(truth)
    }
}

impl Taking<()> for LooseTexts {
    fn list<'de, A: SeqAccess<'de>>(mut list: A, max_entries: usize) -> Result<Self, A::Error> {
        let mut texts = Vec::new();
        while texts.len() < MAX_MEMBERS {
            let member = list.next_element_seed(Any::<Loose, ()>::new(max_entries))?;
            let Some(member) = member else { return Ok(LooseTexts(Some(texts))) };
            texts.extend(member.0);
        }
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(LooseTexts(Some(texts)))
    }
}

impl Taking<()> for Items {
    fn list<'de, A: SeqAccess<'de>>(mut list: A, max_entries: usize) -> Result<Self, A::Error> {
        let mut kept = Kept::new(max_entries);
        while kept.takes_more() {
            let member = list.next_element_seed(Any::<LooseObject<JsonItem>, JsonItem>::new(max_entries))?;
            let Some(member) = member else { return Ok(Items(Some(kept.into_entries()))) };
            if let Some(item) = member.0 {
                kept.push(draft_entry(item));
            }
        }
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Items(Some(kept.into_entries())))
    }
}

impl<T: Taking<()>> Taking<T> for LooseObject<T> {
    fn map<'de, A: MapAccess<'de>>(map: A, max_entries: usize) -> Result<Self, A::Error> {
        T::map(map, max_entries).map(|object| LooseObject(Some(object)))
    }
}

impl<T: Taking<()>, const MOST: usize> Taking<T> for LooseList<T, MOST> {
    fn list<'de, A: SeqAccess<'de>>(mut list: A, max_entries: usize) -> Result<Self, A::Error> {
        let mut objects = Vec::new();
        while objects.len() < MOST {
            let member = list.next_element_seed(Any::<LooseObject<T>, T>::new(max_entries))?;
            let Some(member) = member else { return Ok(LooseList(Some(objects))) };
            objects.extend(member.0);
        }
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(LooseList(Some(objects)))
    }
}

impl<'de, R, T: Taking<R>> Visitor<'de> for Any<T, R> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_str<E>(self, text: &str) -> Result<T, E> {
        Ok(T::text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<T, E> {
        Ok(T::text(text))
    }

    fn visit_u64<E>(self, number: u64) -> Result<T, E> {
        Ok(T::text(number.to_string()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<T, E> {
        Ok(T::text(number.to_string()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<T, E> {
        Ok(T::text(number.to_string()))
    }

    fn visit_bool<E>(self, truth: bool) -> Result<T, E> {
        Ok(T::truth(truth))
    }

    fn visit_unit<E>(self) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::map(map, self.max_entries)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<T, A::Error> {
        T::list(list, self.max_entries)
    }
}

impl<'de, R, T: Taking<R>> DeserializeSeed<'de> for Any<T, R> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_any(self)
    }
}
