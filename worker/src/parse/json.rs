//! JSON Feed 1.0 and 1.1, read with patience: a field of another type than the specification's is taken for what it
//! means (a number as an id) or left out, and never costs the feed.
//!
//! Not read by the XML engine's library, whose reader gives up on a numeric id or a missing title. Nesting is no danger:
//! unknown values are skipped without recursion, and known ones nest to a fixed depth.

use std::fmt;
use std::marker::PhantomData;

use common::entry::{Enclosure, Entry};
use common::time::Timestamp;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, DeserializeOwned, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::draft::{Draft, DraftEntry};
use super::hints::Announced;
use super::{ParseError, ParseLimits, Reading, dates, repair};

/// Members of one list that are kept: an empty object of three bytes becomes an item of three hundred.
const MAX_MEMBERS: usize = 20_000;

/// Reads a document that begins with `{`; one that is broken, a second time after a repair.
pub(super) fn read(text: &str, limits: &ParseLimits) -> Result<Reading, ParseError> {
    let error = match serde_json::from_str(text) {
        Ok(feed) => return draft(feed, limits).map(Reading::sound),
        Err(error) if claims_to_be_a_feed(text) => ParseError::malformed(&error),
        Err(error) => return Err(ParseError::not_a_feed(&format!("neither XML nor JSON: {error}"))),
    };
    let mended = repair::json::mended(text);
    let draft = serde_json::from_str(&mended.text).ok().and_then(|feed| draft(feed, limits).ok());
    draft.map(|draft| Reading { draft, repaired: true, truncated: mended.truncated }).ok_or(error)
}

fn draft(feed: JsonFeed, limits: &ParseLimits) -> Result<Draft, ParseError> {
    let version = feed.version.0.unwrap_or_default();
    let is_feed = version.contains("jsonfeed.org/") || (feed.title.0.is_some() && feed.items.0.is_some());
    if !is_feed {
        return Err(ParseError::not_a_feed(&"JSON, but no JSON Feed"));
    }
    let by_default = authors(feed.author.0, feed.authors.0);
    let items = feed.items.0.unwrap_or_default();
    let hub = feed.hubs.0.unwrap_or_default().into_iter().find(|hub| {
        hub.kind
            .0
            .as_deref()
            .is_some_and(|kind| kind.eq_ignore_ascii_case("websub") || kind.eq_ignore_ascii_case("pubsubhubbub"))
    });
    Ok(Draft {
        title: feed.title.0,
        title_markup: None,
        link: feed.home_page_url.0,
        id: feed.feed_url.0.clone().unwrap_or_default(),
        language: feed.language.0,
        announced: Announced { hub: hub.and_then(|hub| hub.url.0), self_link: feed.feed_url.0, ..Announced::default() },
        entries: items
            .into_iter()
            .take(limits.max_entries)
            .map(|item| draft_entry(item, by_default.as_deref()))
            .collect(),
    })
}

/// Does a text that is no JSON look as if it had been meant as a JSON Feed?
fn claims_to_be_a_feed(text: &str) -> bool {
    text[..text.floor_char_boundary(4 * 1024)].contains("jsonfeed.org")
}

fn draft_entry(item: JsonItem, default_author: Option<&str>) -> DraftEntry {
    let is_html = item.content_html.0.is_some();
    let (content, plain) = (item.content_html.0.or_else(|| item.content_text.0.clone()), item.content_text.0);
    let time = |text: Loose| text.0.as_deref().and_then(dates::parse).map(Timestamp::from_chrono);
    let mut draft = DraftEntry {
        title_markup: None,
        entry: Entry {
            id: item.id.0.unwrap_or_default(),
            url: item.url.0.or(item.external_url.0),
            title: item.title.0,
            published: time(item.date_published),
            updated: time(item.date_modified),
            author: authors(item.author.0, item.authors.0).or_else(|| default_author.map(str::to_owned)),
            summary: item.summary.0.or_else(|| plain.filter(|_| is_html)),
            content,
            ..Entry::default()
        },
    };
    for attachment in item.attachments.0.unwrap_or_default() {
        let Some(url) = attachment.url.0 else { continue };
        let length = attachment.size_in_bytes.0.and_then(|size| size.split('.').next()?.parse().ok());
        draft.add_enclosure(Enclosure { url, media_type: attachment.mime_type.0, length });
    }
    draft
}

/// Version 1.0 has one author, 1.1 a list; some feeds have both.
fn authors(one: Option<JsonAuthor>, list: Option<Vec<JsonAuthor>>) -> Option<String> {
    let list = list.filter(|list| !list.is_empty()).or_else(|| one.map(|author| vec![author]))?;
    let names: Vec<String> = list.into_iter().filter_map(|author| author.name.0).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct JsonFeed {
    version: Loose,
    title: Loose,
    home_page_url: Loose,
    feed_url: Loose,
    language: Loose,
    author: LooseObject<JsonAuthor>,
    authors: LooseList<JsonAuthor>,
    hubs: LooseList<JsonHub>,
    items: LooseList<JsonItem>,
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct JsonItem {
    id: Loose,
    url: Loose,
    external_url: Loose,
    title: Loose,
    content_html: Loose,
    content_text: Loose,
    summary: Loose,
    date_published: Loose,
    date_modified: Loose,
    author: LooseObject<JsonAuthor>,
    authors: LooseList<JsonAuthor>,
    attachments: LooseList<JsonAttachment>,
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct JsonAuthor {
    name: Loose,
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct JsonHub {
    #[serde(rename = "type")]
    kind: Loose,
    url: Loose,
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct JsonAttachment {
    url: Loose,
    mime_type: Loose,
    size_in_bytes: Loose,
}

/// A text, or a number as its text; anything else is absent.
#[derive(Default)]
struct Loose(Option<String>);

/// An object; anything else is absent.
struct LooseObject<T>(Option<T>);

/// A list of objects; members of other types, and what is beyond [`MAX_MEMBERS`], are left out, anything else is absent.
struct LooseList<T>(Option<Vec<T>>);

impl<T> Default for LooseObject<T> {
    fn default() -> Self {
        LooseObject(None)
    }
}

impl<T> Default for LooseList<T> {
    fn default() -> Self {
        LooseList(None)
    }
}

/// Takes whatever comes; a `None` stands for a type that was not wanted.
struct Any<T, R>(PhantomData<(T, R)>);

/// How one of the loose types takes the values that it wants. What is not overridden is left out.
trait Taking<R>: Default {
    fn text(_: String) -> Self {
        Self::default()
    }
    fn map<'de, A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Self::default())
    }
    fn list<'de, A: SeqAccess<'de>>(mut list: A) -> Result<Self, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Self::default())
    }
}

impl Taking<()> for Loose {
    fn text(text: String) -> Self {
        Loose(Some(text))
    }
}

impl<T: DeserializeOwned> Taking<T> for LooseObject<T> {
    fn map<'de, A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(|object| LooseObject(Some(object)))
    }
}

impl<T: DeserializeOwned> Taking<T> for LooseList<T> {
    fn list<'de, A: SeqAccess<'de>>(mut list: A) -> Result<Self, A::Error> {
        let mut objects = Vec::new();
        while let Some(member) = list.next_element::<LooseObject<T>>()? {
            if objects.len() < MAX_MEMBERS {
                objects.extend(member.0);
            }
        }
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

    fn visit_bool<E>(self, _: bool) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_unit<E>(self) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::map(map)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<T, A::Error> {
        T::list(list)
    }
}

impl<'de> Deserialize<'de> for Loose {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Any::<Self, ()>(PhantomData))
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for LooseObject<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Any::<Self, T>(PhantomData))
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for LooseList<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Any::<Self, T>(PhantomData))
    }
}
