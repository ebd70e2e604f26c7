//! What only some entries have: pictures, people, podcasts, sources. In JSON the fields are beside the entry's others;
//! absent ones take no space there, in messages, and in a store.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What only some entries have. Addresses are absolute, texts are plain unless they say otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct EntryDetails {
    /// A picture that represents it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The authors, where more is known of them than [`super::Entry::author`] says.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(description = "Its authors, each with what is known.")]
    pub authors: Vec<Author>,
    /// The page with its comments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comments_url: Option<String>,
    /// The number of comments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comments_count: Option<u32>,
    /// The feed that an aggregator took it from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// Addresses that it relates to or was found by (`related`, `via`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub related: Vec<String>,
    /// The page that it is about, on another site (JSON Feed's `external_url`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_url: Option<String>,
    /// Ids or addresses of what it answers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub in_reply_to: Vec<String>,
    /// Its licence or copyright.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rights: Option<String>,
    /// Where it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub geo: Option<Geo>,
    /// What its publisher says that the content is: `html`, `xhtml`, `text`, or a media type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// What relative links of the content are resolved against, where the publisher says it (`xml:base`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// What it says as an episode (iTunes, Podcasting 2.0).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub podcast: Option<Box<Podcast>>,
    /// Further elements by their name with its prefix, at most 4 KB: texts, or attributes with the text as `#text`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extensions: BTreeMap<String, Vec<Extension>>,
}

impl EntryDetails {
    /// Returns the number of bytes that they take as JSON.
    pub fn json_bytes(&self) -> usize {
        json_bytes(self)
    }
}

/// Returns the number of bytes that a value of ours takes as JSON.
pub(crate) fn json_bytes(value: &impl Serialize) -> usize {
    let mut counted = Counted(0);
    // Nothing in it could not be written, and counting does not fail.
    let _ = serde_json::to_writer(&mut counted, value);
    counted.0
}

/// Counts what is written.
struct Counted(usize);

impl std::io::Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A person or organisation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(inline)]
pub struct Author {
    /// The name; an address where there is none.
    pub name: String,
    /// A page about them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Their address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// Their picture.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub avatar: Option<String>,
}

/// The feed that an aggregated entry was taken from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(inline)]
pub struct Source {
    /// Its title.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Its address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

/// A place on Earth (WGS 84), in degrees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Geo {
    /// Degrees, north is positive.
    pub lat: Number,
    /// Degrees, east is positive.
    pub lon: Number,
}

/// What an entry says as an episode (iTunes, Podcasting 2.0).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(inline)]
pub struct Podcast {
    /// Its number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub episode: Option<Number>,
    /// Its season's number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub season: Option<Number>,
    /// `full`, `trailer` or `bonus`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Not for children.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explicit: Option<bool>,
    /// Seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<Number>,
    /// What is said in it, as text.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub transcripts: Vec<Transcript>,
    /// Its chapters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chapters: Option<Chapters>,
    /// The people who take part.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub persons: Vec<Person>,
    /// Other forms of its file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub alternate_enclosures: Vec<AlternateEnclosure>,
    /// Parts that represent the whole.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub soundbites: Vec<Soundbite>,
    /// How to pay for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// Its licence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub license: Option<License>,
    /// Where it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location: Option<Location>,
}

/// `podcast:transcript`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(inline)]
pub struct Transcript {
    /// Where it is.
    pub url: String,
    /// Its media type.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// Its language.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// `captions`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rel: Option<String>,
}

/// `podcast:chapters`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(inline)]
pub struct Chapters {
    /// Where they are.
    pub url: String,
    /// Their media type.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
}

/// `podcast:person`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(inline)]
pub struct Person {
    /// The name.
    pub name: String,
    /// What they do: `host`, `guest`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// The group: `cast`, `writing`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Their picture.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// A page about them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// `podcast:alternateEnclosure`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(inline)]
pub struct AlternateEnclosure {
    /// Its media type.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// Bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub length: Option<u64>,
    /// Bits a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bitrate: Option<Number>,
    /// Lines of a video.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub height: Option<u32>,
    /// Its language.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// What it is called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Where it is, the best place first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
}

/// `podcast:soundbite`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Soundbite {
    /// Seconds from the beginning.
    pub start: Number,
    /// Seconds.
    pub duration: Number,
    /// What it is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}

/// `podcast:value`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(inline)]
pub struct Value {
    /// The payment's network: `lightning`.
    #[serde(rename = "type")]
    pub kind: String,
    /// How it is paid: `keysend`.
    pub method: String,
    /// What is suggested, in the network's unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suggested: Option<Number>,
    /// The recipients among whom it is split.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub recipients: Vec<Recipient>,
}

/// `podcast:valueRecipient`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(inline)]
pub struct Recipient {
    /// Whose it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What the address is: `node`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Where it is paid to.
    pub address: String,
    /// The share.
    pub split: Number,
    /// It is a fee, taken first.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub fee: bool,
}

/// `podcast:license`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(inline)]
pub struct License {
    /// Its name: an identifier of SPDX's list in lower case, or a text.
    pub name: String,
    /// Where it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// `podcast:location`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(inline)]
pub struct Location {
    /// For people.
    pub name: String,
    /// A `geo:` address (RFC 5870).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub geo: Option<String>,
    /// An object of OpenStreetMap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub osm: Option<String>,
}

/// An element without a separate field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum Extension {
    /// One without attributes: its text.
    Text(String),
    /// One with attributes: these, and the text as `#text`.
    Element(BTreeMap<String, String>),
}

/// A finite number. JSON: without a point where it is whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema)]
#[schemars(inline)]
pub struct Number(f64);

/// No number is NaN.
impl Eq for Number {}

impl Number {
    /// `None` for what is not finite.
    pub fn new(number: f64) -> Option<Self> {
        number.is_finite().then_some(Number(number))
    }

    /// Returns the number.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl From<u32> for Number {
    fn from(number: u32) -> Self {
        Number(number.into())
    }
}

/// Whole numbers up to this are exact.
const MAX_WHOLE: f64 = 9_007_199_254_740_992.0;

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.fract() == 0.0 && self.0.abs() < MAX_WHOLE {
            #[expect(clippy::cast_possible_truncation, reason = "whole, and within an i64")]
            serializer.serialize_i64(self.0 as i64)
        } else {
            serializer.serialize_f64(self.0)
        }
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = f64::deserialize(deserializer)?;
        Number::new(number).ok_or_else(|| serde::de::Error::custom("not a finite number"))
    }
}

/// In JSON the fields of details that are not there are absent, and details without a field are not there.
pub(super) mod beside {
    use super::{Deserialize, Deserializer, EntryDetails, Serialize, Serializer};

    pub(in super::super) fn serialize<S: Serializer>(
        details: &Option<Box<EntryDetails>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match details {
            Some(details) => details.serialize(serializer),
            None => EntryDetails::default().serialize(serializer),
        }
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Box<EntryDetails>>, D::Error> {
        let details = EntryDetails::deserialize(deserializer)?;
        Ok((details != EntryDetails::default()).then(|| Box::new(details)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Entry;
    use super::*;

    #[test]
    fn details_stand_beside_the_other_fields_and_none_take_no_space() {
        let bare = Entry { id: "1".into(), ..Entry::default() };
        assert_eq!(serde_json::to_string(&bare).unwrap(), r#"{"id":"1"}"#);
        assert_eq!(serde_json::from_str::<Entry>(r#"{"id":"1","unknown":{"a":[1]}}"#).unwrap(), bare);

        let podcast = Podcast { duration: Number::new(61.5), season: Some(2.into()), ..Podcast::default() };
        let extension = BTreeMap::from([("#text".to_owned(), "x".to_owned()), ("a".to_owned(), "b".to_owned())]);
        let details = EntryDetails {
            image: Some("https://a.example/i.png".into()),
            podcast: Some(Box::new(podcast)),
            extensions: BTreeMap::from([(
                "x:y".to_owned(),
                vec![Extension::Text("z".into()), Extension::Element(extension)],
            )]),
            ..EntryDetails::default()
        };
        let entry = Entry { details: Some(Box::new(details)), ..bare };
        let json = r##"{"id":"1","image":"https://a.example/i.png","podcast":{"season":2,"duration":61.5},"extensions":{"x:y":["z",{"#text":"x","a":"b"}]}}"##;
        assert_eq!(serde_json::to_string(&entry).unwrap(), json);
        assert_eq!(serde_json::from_str::<Entry>(json).unwrap(), entry);
        let details = entry.details.as_ref().unwrap();
        assert_eq!(details.json_bytes(), serde_json::to_string(details).unwrap().len());
        assert_eq!(entry.text_bytes(), "1".len() + details.json_bytes());
    }
}
