//! ActivityStreams 2.0: what an actor of the fediverse did, by the collection that its outbox is.
//!
//! An actor's own document names its outbox, the outbox its first page, and the page holds the activities: [`lead`]
//! says where to continue, [`read`] reads what has them. `Create` and bare objects become entries, `Announce` becomes
//! the entry that it repeats; what else actors do (follow, like, delete) is skipped. Of several activities about one
//! object the newest counts.

use std::collections::HashSet;

use common::entry::{Author, Enclosure, EntryDetails, Geo, Number};
use common::url::FeedUrl;
use serde_json::Value;
use url::Url;

use super::posts::{Post, Posts, iso_duration, json, media_type_of, time};
use crate::parse::draft::MAX_MEMBERS;

/// Where a document that has no posts itself says that they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lead {
    /// As written.
    pub(crate) url: String,
    /// The name of the actor, if the document is an actor's.
    pub(crate) name: Option<String>,
    /// That actor's page.
    pub(crate) page: Option<String>,
    /// That actor's own URL.
    pub(crate) id: Option<String>,
}

const NAMESPACE: &str = "www.w3.org/ns/activitystreams";
const ACTORS: [&str; 5] = ["Person", "Service", "Group", "Organization", "Application"];
const COLLECTIONS: [&str; 4] = ["OrderedCollection", "OrderedCollectionPage", "Collection", "CollectionPage"];
const OBJECTS: [&str; 10] =
    ["Note", "Article", "Page", "Question", "Event", "Video", "Audio", "Image", "Document", "Place"];

/// Returns the posts of a collection that has some in it.
pub(in crate::parse) fn read(text: &str, max_entries: usize) -> Option<Posts> {
    let document = document(text)?;
    if !is_one_of(&document, &COLLECTIONS) {
        return None;
    }
    let items = items(&document).or_else(|| items(document.get("first")?))?;
    // a list of followers is a collection too: of addresses alone
    if !items.is_empty() && !items.iter().any(Value::is_object) {
        return None;
    }
    let mut seen = HashSet::new();
    let posts = items.iter().filter_map(post).filter(|post| match &post.id {
        Some(id) => seen.insert(id.clone()),
        None => true,
    });
    Some(Posts { id: string(&document, "id"), posts: posts.take(max_entries).collect(), ..Posts::default() })
}

/// Returns where an actor's document, or a collection in pages, continues.
pub(in crate::parse) fn lead(text: &str) -> Option<Lead> {
    let document = document(text)?;
    if is_one_of(&document, &COLLECTIONS) {
        let url = address(document.get("first")?)?;
        return Some(Lead { url, ..Lead::default() });
    }
    let url = address(document.get("outbox").filter(|_| is_one_of(&document, &ACTORS))?)?;
    let name = string(&document, "name").filter(|name| !name.trim().is_empty());
    let name = name.or_else(|| string(&document, "preferredUsername"));
    Some(Lead { url, name, page: page_of(&document), id: string(&document, "id") })
}

/// Does the document say that it is ActivityStreams?
fn document(text: &str) -> Option<Value> {
    if !text.contains(NAMESPACE) {
        return None;
    }
    let document = json(text)?;
    let speaks = |context: &Value| context.as_str().is_some_and(|context| context.contains(NAMESPACE));
    let speaks = match document.get("@context")? {
        Value::Array(contexts) => contexts.iter().any(speaks),
        context => speaks(context),
    };
    speaks.then_some(document)
}

fn post(item: &Value) -> Option<Post> {
    if is_one_of(item, &OBJECTS) {
        return Some(post_of(item, item));
    }
    let object = item.get("object")?;
    let object = object.get(0).unwrap_or(object);
    if is_one_of(item, &["Create", "Update"]) {
        return is_one_of(object, &OBJECTS).then(|| post_of(object, item));
    }
    if !is_one_of(item, &["Announce"]) {
        return None;
    }
    let repeated = match object {
        Value::String(url) => Post { url: Some(url.clone()), ..Post::default() },
        object => post_of(object, item),
    };
    // when it was repeated is what a reader of this actor wants to know
    let published = string(item, "published").and_then(|at| time(&at)).or(repeated.published);
    Some(Post { id: string(item, "id").or(repeated.id), published, ..repeated })
}

fn post_of(object: &Value, activity: &Value) -> Post {
    let date = |of: &Value, name| string(of, name).and_then(|at| time(&at));
    Post {
        id: string(object, "id").or_else(|| string(activity, "id")),
        url: page_of(object).or_else(|| string(object, "id")),
        title: natural(object, "name", "nameMap"),
        published: date(object, "published").or_else(|| date(activity, "published")),
        updated: date(object, "updated"),
        authors: authors(object.get("attributedTo").or_else(|| activity.get("actor"))),
        summary: natural(object, "summary", "summaryMap"),
        content: natural(object, "content", "contentMap"),
        files: files(object),
        categories: hashtags(object),
        language: object
            .get("contentMap")
            .and_then(Value::as_object)
            .and_then(only_key)
            .or_else(|| string(object.get("language")?, "identifier")),
        details: details(object),
    }
}

/// Returns what only some objects say.
fn details(object: &Value) -> EntryDetails {
    let addresses = |name| object.get(name).into_iter().flat_map(each).filter_map(address);
    // quotations have no name in the vocabulary; these are in use
    let quoted =
        ["quote", "quoteUrl", "quoteUri", "_misskey_quote"].into_iter().find_map(|name| addresses(name).next());
    let attached = object.get("attachment").into_iter().flat_map(each);
    let mut pages = attached.filter(|attached| is_one_of(attached, &["Link"])).filter(|attached| !is_file(attached));
    let licence = |name| object.get(name).and_then(text_or_name);
    let count = object.pointer("/replies/totalItems").and_then(Value::as_u64);
    EntryDetails {
        image: picture(object),
        in_reply_to: addresses("inReplyTo").collect(),
        comments_count: count.and_then(|count| count.try_into().ok()),
        related: quoted.into_iter().collect(),
        external_url: pages.find_map(address),
        rights: licence("licence").or_else(|| licence("license")),
        geo: object.get("location").and_then(place),
        content_type: natural(object, "content", "contentMap").map(|_| content_type(object)),
        ..EntryDetails::default()
    }
}

/// HTML is what nothing is said of.
fn content_type(object: &Value) -> String {
    match string(object, "mediaType") {
        None => "html".to_owned(),
        Some(media_type) => match media_type.trim() {
            "text/html" => "html".to_owned(),
            "text/plain" => "text".to_owned(),
            other => other.to_owned(),
        },
    }
}

fn place(location: &Value) -> Option<Geo> {
    let degrees = |name, most: f64| Number::new(location.get(name)?.as_f64().filter(|it| it.abs() <= most)?);
    Some(Geo { lat: degrees("latitude", 90.0)?, lon: degrees("longitude", 180.0)? })
}

/// Returns an object's or actor's picture: the largest first where there are several, as servers list the smallest
/// first. One whose URL is too long is none: each file of a film has a copy.
fn picture(of: &Value) -> Option<String> {
    let pictures = ["image", "icon"].into_iter().filter_map(|name| of.get(name));
    let width = |picture: &&Value| picture.get("width").and_then(Value::as_u64).unwrap_or(0);
    let picture = |list: &Value| address_of_file(each(list).max_by_key(width)?);
    pictures.filter_map(picture).find(|url| url.len() <= FeedUrl::MAX_LENGTH)
}

fn text_or_name(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned).or_else(|| string(value, "name"))
}

fn hashtags(object: &Value) -> Vec<String> {
    let tags = object.get("tag").into_iter().flat_map(each).filter(|tag| is_one_of(tag, &["Hashtag"]));
    tags.filter_map(|tag| string(tag, "name")).map(|name| name.trim_start_matches('#').to_owned()).collect()
}

/// Returns the language of a text that has one only.
fn only_key(texts: &serde_json::Map<String, Value>) -> Option<String> {
    let mut languages = texts.keys();
    languages.next().filter(|_| languages.next().is_none()).cloned()
}

/// Returns the human page of an object or actor: `url` may be a text, a link, or a list of them.
fn page_of(object: &Value) -> Option<String> {
    let links: Vec<&Value> = each(object.get("url")?).collect();
    let is_page = |link: &&&Value| string(link, "mediaType").is_none_or(|media_type| media_type.contains("html"));
    links.iter().find(is_page).or(links.first()).and_then(|link| address(link))
}

/// Authors as far as the document itself describes them. The address of an actor is taken apart where its form is the
/// usual one, because looking up each would be a request for each.
fn authors(of: Option<&Value>) -> Vec<Author> {
    let author = |actor: &Value| match actor {
        Value::String(url) => Some(Author { name: handle(url)?, url: Some(url.clone()), ..Author::default() }),
        actor => {
            let name = string(actor, "name").or_else(|| string(actor, "preferredUsername"));
            let url = page_of(actor).or_else(|| string(actor, "id"));
            let name = name.or_else(|| handle(&address(actor)?))?;
            Some(Author { name, url, email: None, avatar: picture(actor) })
        }
    };
    of.into_iter().flat_map(each).filter_map(author).collect()
}

/// `alice@example.social` of `https://example.social/users/alice`, and of `/@alice`.
fn handle(actor: &str) -> Option<String> {
    let url = Url::parse(actor).ok()?;
    let name = url.path_segments()?.rfind(|segment| !segment.is_empty())?.trim_start_matches('@');
    // some servers number their actors
    let is_name = name.len() < 64 && name.contains(|c: char| c.is_ascii_alphabetic()) && !name.contains('%');
    Some(format!("{name}@{}", url.host_str()?)).filter(|_| is_name)
}

/// Returns as many files as an entry keeps and one more, so that the entry is marked as cut.
fn files(object: &Value) -> Vec<Enclosure> {
    let attached = object.get("attachment").into_iter().flat_map(each).filter_map(file);
    // a film's own files are among its addresses
    let own = object.get("url").into_iter().flat_map(each).filter(|link| {
        let media_type = string(link, "mediaType").unwrap_or_default();
        ["audio/", "video/", "image/"].iter().any(|kind| media_type.starts_with(kind))
    });
    // what the film says counts where a file says nothing; it is read once, as both may be long
    let (duration, thumbnails) = (duration(object), picture(object).into_iter().collect::<Vec<_>>());
    let own = own.filter_map(file).map(|file| Enclosure {
        duration: file.duration.or(duration),
        alt: None,
        thumbnails: if file.thumbnails.is_empty() { thumbnails.clone() } else { file.thumbnails },
        ..file
    });
    attached.chain(own).take(MAX_MEMBERS + 1).collect()
}

/// Returns a file, with what it says of itself.
fn file(file: &Value) -> Option<Enclosure> {
    let url = address_of_file(file).filter(|_| is_file(file))?;
    let whole = |name| file.get(name).and_then(Value::as_u64);
    Some(Enclosure {
        media_type: string(file, "mediaType").or_else(|| media_type_of(&url)),
        length: whole("size"),
        duration: duration(file),
        width: whole("width").and_then(|width| width.try_into().ok()),
        height: whole("height").and_then(|height| height.try_into().ok()),
        medium: MEDIA.into_iter().find(|kind| is_one_of(file, &[kind])).map(str::to_ascii_lowercase),
        // a picture's name is its description for readers who cannot see it
        alt: string(file, "name").or_else(|| string(file, "summary")),
        thumbnails: picture(file).into_iter().collect(),
        url,
        ..Enclosure::default()
    })
}

fn duration(of: &Value) -> Option<Number> {
    of.get("duration")?.as_str().and_then(iso_duration)
}

fn address_of_file(file: &Value) -> Option<String> {
    if let Value::String(url) = file {
        return Some(url.clone());
    }
    file.get("url").or_else(|| file.get("href")).and_then(|url| each(url).find_map(address))
}

/// A web page may be attached as well: that is a link, no file.
fn is_file(file: &Value) -> bool {
    let media_type = string(file, "mediaType").or_else(|| media_type_of(&address_of_file(file)?));
    media_type.is_some_and(|it| !it.contains("html")) || is_one_of(file, &FILES)
}

const FILES: [&str; 4] = ["Document", "Image", "Video", "Audio"];
const MEDIA: [&str; 3] = ["Image", "Video", "Audio"];

/// Returns a text in the document's own language, or in the first of several.
fn natural(object: &Value, plain: &str, by_language: &str) -> Option<String> {
    let first = || object.get(by_language)?.as_object()?.values().find_map(Value::as_str).map(str::to_owned);
    string(object, plain).filter(|text| !text.is_empty()).or_else(first)
}

fn items(collection: &Value) -> Option<&Vec<Value>> {
    collection.get("orderedItems").or_else(|| collection.get("items"))?.as_array()
}

/// Returns the address that a value is or has.
fn address(value: &Value) -> Option<String> {
    let text = value.as_str().map(str::to_owned);
    text.or_else(|| string(value, "href")).or_else(|| string(value, "id")).filter(|address| !address.is_empty())
}

/// Returns the members of a list, or the one value in place of a list.
fn each(value: &Value) -> impl Iterator<Item = &Value> {
    let (list, one) = match value {
        Value::Array(list) => (list.as_slice(), None),
        one => (&[][..], Some(one)),
    };
    list.iter().chain(one)
}

fn is_one_of(value: &Value, types: &[&str]) -> bool {
    value.get("type").into_iter().flat_map(each).filter_map(Value::as_str).any(|name| types.contains(&name))
}

fn string(value: &Value, name: &str) -> Option<String> {
    value.get(name)?.as_str().map(str::to_owned)
}
