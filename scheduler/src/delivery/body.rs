//! What a request says: events as the API shows them, or entries as a JSON Feed or an Atom feed.

use std::collections::HashSet;

use common::entry::Entry;
use common::feed::Feed;
use common::time::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::documents::{Channel, Health, atom, base_url, entry_urn, modified};
use crate::wire::{EntryView, EventView};
use store::{DeliveryFormat, Event, StoredEntry};

/// A request's body and its media type.
pub(super) struct Body {
    pub(super) media_type: &'static str,
    pub(super) bytes: Vec<u8>,
}

/// The envelope that Standard Webhooks recommends.
#[derive(Serialize)]
struct Envelope<'a> {
    r#type: &'static str,
    timestamp: Timestamp,
    data: Data<'a>,
}

#[derive(Serialize)]
struct Data<'a> {
    subscription: i64,
    epoch: &'a str,
    events: Vec<EventView>,
}

/// What a notification of the hub is about.
pub(super) struct Topic<'a> {
    /// The feed.
    pub(super) feed: &'a Feed,
    /// Its URL, as the subscriber wrote it.
    pub(super) topic: &'a str,
    /// Where the hub is.
    pub(super) hub: &'a str,
}

/// Writes the events of a request; there is one at least.
pub(super) fn written(
    format: DeliveryFormat,
    subscription: i64,
    epoch: &str,
    topic: Option<&Topic<'_>>,
    events: Vec<Event>,
) -> Body {
    // Only texts and numbers, which JSON and XML can always represent.
    match format {
        DeliveryFormat::Feedfleet => {
            let timestamp = events.last().map_or(Timestamp::EPOCH, |event| event.at);
            let events = events.into_iter().map(EventView::of).collect();
            let envelope = Envelope { r#type: "events", timestamp, data: Data { subscription, epoch, events } };
            Body { media_type: "application/json", bytes: serde_json::to_vec(&envelope).unwrap_or_default() }
        }
        DeliveryFormat::JsonFeed => {
            let mut seen = HashSet::new();
            let is_first = |event: &&Event| event.entry.as_ref().is_some_and(|stored| seen.insert(stored.seq));
            let first = events.iter().filter(is_first);
            let items: Vec<Value> = first.filter_map(|event| item(event, topic.is_none())).collect();
            let mut feed = json!({
                "version": "https://jsonfeed.org/version/1.1",
                "title": title(subscription, topic),
                "items": items,
            });
            if let Some(topic) = topic {
                feed["feed_url"] = json!(topic.topic);
                feed["hubs"] = json!([{ "type": "WebSub", "url": topic.hub }]);
                feed["_feedfleet"] = json!({ "status": Health::of(topic.feed) });
            }
            Body { media_type: "application/feed+json", bytes: serde_json::to_vec(&feed).unwrap_or_default() }
        }
        DeliveryFormat::Atom => {
            let channel = channel(subscription, epoch, topic, events);
            Body { media_type: "application/atom+xml", bytes: atom::as_published(&channel) }
        }
    }
}

fn title(subscription: i64, topic: Option<&Topic<'_>>) -> String {
    match topic {
        Some(topic) => topic.feed.title.clone().unwrap_or_else(|| topic.topic.to_owned()),
        None => format!("feedfleet subscription {subscription}"),
    }
}

/// Returns the entries of events, each once and in its newest form, the newest first.
fn channel(subscription: i64, epoch: &str, topic: Option<&Topic<'_>>, events: Vec<Event>) -> Channel {
    let updated = events.last().map_or(Timestamp::EPOCH, |event| event.at);
    let mut seen = HashSet::new();
    let stored = events.into_iter().rev().filter_map(|event| event.entry);
    let entries = stored.filter(|stored| seen.insert(stored.seq)).map(as_published).collect();
    let (id, own) = match topic {
        Some(topic) => (topic.topic.to_owned(), topic.topic.to_owned()),
        None => {
            let id = format!("urn:feedfleet:{epoch}:subscription:{subscription}");
            (id.clone(), id)
        }
    };
    Channel {
        title: title(subscription, topic),
        id,
        home: None,
        own,
        next: None,
        hub: topic.map(|topic| topic.hub.to_owned()),
        updated,
        of: topic.map(|topic| Health::of(topic.feed)),
        entries,
    }
}

/// Returns an entry with its texts as the publisher wrote them.
fn as_published(stored: StoredEntry) -> EntryView {
    let (summary_html, content_html) = (stored.entry.summary.clone(), stored.entry.content.clone());
    EntryView { summary_html, content_html, ..EntryView::of(stored) }
}

/// Returns an entry as an item of a JSON Feed 1.1. Only events of entries have one. What this fleet notes on the feed
/// is for its operators' programs: subscribers of the hub do not get it, but for the base of relative links. Their items keep the
/// publisher's ids; ours may come from feeds that use the same ids.
fn item(event: &Event, is_ours: bool) -> Option<Value> {
    let stored = event.entry.as_ref()?;
    let entry = &stored.entry;
    let base = base_url(entry);
    let id = if is_ours { entry_urn(stored.feed_id, &entry.id) } else { entry.id.clone() };
    let mut item = Map::new();
    let mut set = |name: &str, value: Option<Value>| {
        item.extend(value.map(|value| (name.to_owned(), value)));
    };
    set("id", Some(id.into()));
    set("url", entry.url.as_deref().map(Value::from));
    set("title", entry.title.as_deref().map(Value::from));
    // An item has one of these at least.
    let content = entry.content.as_deref().or(entry.summary.as_deref()).unwrap_or_default();
    set("content_html", Some(content.into()));
    set("summary", entry.summary.as_deref().filter(|_| entry.content.is_some()).map(Value::from));
    set("date_published", entry.published.map(|at| json!(at)));
    set("date_modified", modified(stored).map(|at| json!(at)));
    set("language", entry.language.as_deref().map(Value::from));
    set("tags", (!entry.categories.is_empty()).then(|| json!(entry.categories)));
    set("authors", authors(entry));
    set("attachments", attachments(entry));
    set("_feedfleet", if is_ours { Some(about(event, entry)) } else { base.map(|base| json!({ "base_url": base })) });
    Some(Value::Object(item))
}

/// Returns what JSON Feed has no field for. Texts are as the publisher wrote them, and may have relative links.
fn about(event: &Event, entry: &Entry) -> Value {
    json!({
        "seq": event.seq,
        "kind": event.kind,
        "id": entry.id,
        "base_url": base_url(entry),
        "feed_id": event.feed_id,
        "feed_url": event.feed.feed_url,
        "feed_title": event.feed.feed_title,
        "labels": event.feed.marks.labels,
        "external_id": event.feed.marks.external_id,
    })
}

fn authors(entry: &Entry) -> Option<Value> {
    entry.author.as_deref().map(|name| json!([{ "name": name }]))
}

fn attachments(entry: &Entry) -> Option<Value> {
    let attachment = |enclosure: &common::entry::Enclosure| {
        let media_type = enclosure.media_type.as_deref().unwrap_or("application/octet-stream");
        let mut value = json!({ "url": enclosure.url, "mime_type": media_type });
        if let Some(length) = enclosure.length {
            value["size_in_bytes"] = length.into();
        }
        value
    };
    (!entry.enclosures.is_empty()).then(|| entry.enclosures.iter().map(attachment).collect())
}

#[cfg(test)]
mod tests {
    use common::url::FeedId;
    use store::EntryFeed;

    use super::*;

    fn event(seq: i64, kind: &str, entry: i64) -> Event {
        let stored = StoredEntry {
            seq: entry,
            feed_id: FeedId(1),
            seen: Timestamp::EPOCH,
            stored: Timestamp::EPOCH,
            feed: EntryFeed::default(),
            entry: Entry { id: format!("https://a.example/{entry}"), ..Entry::default() },
        };
        Event {
            seq,
            kind: kind.to_owned(),
            feed_id: FeedId(1),
            subscription: None,
            limited_to: Vec::new(),
            at: Timestamp::EPOCH,
            feed: EntryFeed::default(),
            category: None,
            host: None,
            merged_into: None,
            changed: Vec::new(),
            since: None,
            error: None,
            entry: Some(stored),
        }
    }

    #[test]
    fn an_entry_that_changed_within_a_request_is_in_its_document_once() {
        let events = || vec![event(1, "entry.new", 3), event(2, "entry.new", 2), event(3, "entry.updated", 3)];
        let json = written(DeliveryFormat::JsonFeed, 1, "e", None, events());
        let json: Value = serde_json::from_slice(&json.bytes).unwrap();
        let items = json["items"].as_array().unwrap();
        let about = items.iter().map(|item| &item["_feedfleet"]);
        let seen: Vec<_> = about.map(|about| (&about["id"], &about["kind"])).collect();
        let expected = ["https://a.example/3", "https://a.example/2"].map(|id| (json!(id), json!("entry.new")));
        assert_eq!(seen, expected.each_ref().map(|(id, kind)| (id, kind)));
        let atom = String::from_utf8(written(DeliveryFormat::Atom, 1, "e", None, events()).bytes).unwrap();
        assert_eq!(atom.matches("<title>https://a.example/3</title>").count(), 1, "{atom}");
    }

    #[test]
    fn items_of_two_feeds_with_the_same_id_are_two_and_the_hub_keeps_the_id() {
        let of = |feed: i64| {
            let mut event = event(feed, "entry.new", 1);
            event.feed_id = FeedId(feed);
            let stored = event.entry.take().unwrap();
            Event { entry: Some(StoredEntry { seq: feed, feed_id: FeedId(feed), ..stored }), ..event }
        };
        let json = written(DeliveryFormat::JsonFeed, 1, "e", None, vec![of(1), of(2)]);
        let json: Value = serde_json::from_slice(&json.bytes).unwrap();
        let id = "https://a.example/1";
        let ids = [1, 2].map(|feed| json!(entry_urn(FeedId(feed), id)));
        assert_ne!(ids[0], ids[1]);
        for (number, expected) in ids.iter().enumerate() {
            let item = &json["items"][number];
            assert_eq!((&item["id"], &item["_feedfleet"]["id"]), (expected, &json!(id)));
        }
        let at_hub = item(&of(1), false).unwrap();
        assert_eq!((&at_hub["id"], at_hub.get("_feedfleet")), (&json!(id), None));
    }

    #[test]
    fn an_edit_moves_the_modification_of_an_entry_whose_publisher_states_none() {
        let modified = |published: Option<u64>, updated: Option<u64>, stored: u64| {
            let at = |seconds: u64| Timestamp::EPOCH.after(std::time::Duration::from_secs(seconds));
            let mut event = event(1, "entry.updated", 1);
            let form = event.entry.as_mut().unwrap();
            form.stored = at(stored);
            (form.entry.published, form.entry.updated) = (published.map(at), updated.map(at));
            item(&event, true).unwrap().get("date_modified").cloned()
        };
        let at = |seconds: u64| Some(json!(Timestamp::EPOCH.after(std::time::Duration::from_secs(seconds))));
        assert_eq!((modified(None, None, 0), modified(Some(10), None, 0)), (None, None), "it was not edited");
        assert_eq!((modified(None, None, 30), modified(Some(10), None, 30)), (at(30), at(30)));
        assert_eq!((modified(Some(40), None, 30), modified(Some(10), Some(20), 30)), (at(40), at(20)));
    }

    #[test]
    fn texts_as_published_come_with_the_base_of_their_links() {
        let linked = |stated: Option<&str>| {
            let mut event = event(1, "entry.new", 1);
            let entry = &mut event.entry.as_mut().unwrap().entry;
            entry.content = Some("<a href='2'>next</a>".into());
            entry.url = Some("https://a.example/b/1".into());
            if let Some(stated) = stated {
                entry.details_mut().base_url = Some(stated.into());
            }
            event
        };
        let (url, dir) = ("https://a.example/b/1", "https://a.example/c/");
        for (stated, base) in [(None, url), (Some(dir), dir)] {
            let atom = written(DeliveryFormat::Atom, 1, "e", None, vec![linked(stated)]).bytes;
            let atom = String::from_utf8(atom).unwrap();
            assert!(atom.contains(&format!("<content type=\"html\" xml:base=\"{base}\">")), "{atom}");
            let item = item(&linked(stated), true).unwrap();
            assert_eq!(item["_feedfleet"]["base_url"], base);
            assert_eq!(item["content_html"], "<a href='2'>next</a>", "the text stays");
            let at_hub = super::item(&linked(stated), false).unwrap();
            assert_eq!(at_hub["_feedfleet"], json!({ "base_url": base }), "and nothing that is the operator's");
        }
        assert_eq!(item(&event(1, "entry.new", 1), true).unwrap()["_feedfleet"]["base_url"], Value::Null);
    }
}
