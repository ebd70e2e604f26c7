//! The river as a JSON Feed (version 1.1).

use common::entry::{Enclosure, Entry};
use scheduler::delivery::documents::{Channel, entry_urn, modified, web_link};
use scheduler::wire::EntryView;
use serde_json::{Map, Value, json};

/// Writes the feed.
pub(super) fn written(channel: &Channel) -> Option<Vec<u8>> {
    let mut feed = json!({
        "version": "https://jsonfeed.org/version/1.1",
        "title": channel.title,
        "home_page_url": channel.home,
        "feed_url": channel.own,
        "items": channel.entries.iter().map(item).collect::<Vec<_>>(),
    });
    if let Some(next) = &channel.next {
        feed["next_url"] = json!(next);
    }
    serde_json::to_vec(&feed).ok()
}

fn item(view: &EntryView) -> Value {
    let (stored, entry) = (&view.stored, &view.stored.entry);
    let details = entry.details.as_ref();
    let html = view.content_html.as_ref().or(view.summary_html.as_ref());
    let fields = [
        ("id", Some(json!(entry_urn(stored.feed_id, &entry.id)))),
        ("url", web_link(entry.url.as_ref()).map(|url| json!(url))),
        ("external_url", details.and_then(|details| web_link(details.external_url.as_ref())).map(|url| json!(url))),
        ("title", entry.title.as_ref().map(|title| json!(title))),
        ("content_html", html.map(|html| json!(html))),
        // An item has one of the two.
        ("content_text", html.is_none().then(|| json!(entry.first_words.as_deref().unwrap_or_default()))),
        ("image", details.and_then(|details| web_link(details.image.as_ref())).map(|image| json!(image))),
        ("date_published", Some(json!(entry.published.unwrap_or(stored.seen)))),
        ("date_modified", modified(stored).map(|at| json!(at))),
        ("authors", Some(authors(entry)).filter(|authors| !authors.is_empty()).map(Value::Array)),
        ("tags", (!entry.categories.is_empty()).then(|| json!(entry.categories))),
        ("language", entry.language.as_ref().map(|language| json!(language))),
        ("attachments", (!entry.enclosures.is_empty()).then(|| attachments(&entry.enclosures))),
        ("_feedfleet", Some(own(view))),
    ];
    Value::Object(fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect())
}

fn authors(entry: &Entry) -> Vec<Value> {
    let listed = entry.details.as_ref().map_or(&[][..], |details| &details.authors);
    let author = |author: &common::entry::Author| {
        let links = [("url", &author.url), ("avatar", &author.avatar)];
        let links =
            links.into_iter().filter_map(|(name, link)| Some((name.to_owned(), json!(web_link(link.as_ref())?))));
        Value::Object([("name".to_owned(), json!(author.name))].into_iter().chain(links).collect())
    };
    match &entry.author {
        Some(name) if listed.is_empty() => vec![json!({ "name": name })],
        _ => listed.iter().map(author).collect(),
    }
}

fn attachments(enclosures: &[Enclosure]) -> Value {
    let attachment = |enclosure: &Enclosure| {
        let mut fields = Map::new();
        fields.insert("url".to_owned(), json!(web_link(Some(&enclosure.url))?));
        let media_type = enclosure.media_type.as_deref().unwrap_or("application/octet-stream");
        fields.insert("mime_type".to_owned(), json!(media_type));
        fields.extend(enclosure.length.map(|length| ("size_in_bytes".to_owned(), json!(length))));
        Some(Value::Object(fields))
    };
    enclosures.iter().filter_map(attachment).collect()
}

/// Returns what JSON Feed has no field for: where the entry comes from.
fn own(view: &EntryView) -> Value {
    let stored = &view.stored;
    json!({
        "seq": stored.seq,
        "feed_id": stored.feed_id,
        "feed_url": stored.feed.feed_url,
        "feed_title": stored.feed.feed_title,
    })
}
