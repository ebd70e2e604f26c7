//! h-feed: the feed that a page itself is, by microformats2 in its HTML.
//!
//! A page is one if it has an `h-feed` with entries in it, or several entries outside of any other item. A page with one
//! entry is that entry's own page. Classic microformats (`hentry`) are not read: themes of weblogs are full of them, on pages
//! that announce a better feed.

use common::document::FeedAbout;
use common::entry::{Author, Enclosure, EntryDetails, Geo, Number};
use common::html::{NodeId, Tree, TreeLimits};
use common::url::FeedUrl;
use url::Url;

use super::mf2::{Item, Page, Property};
use super::posts::{Post, Posts, media_type_of, time};
use crate::parse::ParseLimits;
use crate::parse::one_line::{self, MAX_NAME_BYTES};
use crate::parse::text::{beginning, escaped};

/// What the tree of one page may cost: several times what the largest honest pages do.
const LIMITS: TreeLimits = TreeLimits { max_nodes: 200_000, max_depth: 400, max_bytes: 8_000_000, deadline: None };
/// Longest page that is read, in bytes: parts that are not kept cost time too.
const MAX_PAGE_BYTES: usize = 8_000_000;
/// Longest name and address of an author, in bytes: a page's own are repeated in every entry.
const MAX_AUTHOR_BYTES: usize = 1024;
/// Vocabularies whose items are entries of a feed.
const ENTRIES: [&str; 2] = ["h-entry", "h-event"];

/// Returns the feed that a page is.
pub(in crate::parse) fn read(html: &str, url: Option<&Url>, limits: &ParseLimits) -> Option<Posts> {
    // most pages have none, and a tree costs a hundred times what looking for a name does
    if html.len() > MAX_PAGE_BYTES || (!html.contains("h-entry") && !html.contains("h-event")) {
        return None;
    }
    let tree = Tree::of_document(html, TreeLimits { deadline: limits.deadline, ..LIMITS }).ok()?;
    let base = base(&tree, url);
    let page = Page::new(tree, base);
    let (feed, entries) = feed_of(&page)?;
    let author = feed.as_ref().and_then(|feed| author(&page, feed));
    let head = Head::of(&page);
    let posts = posts(&page, &entries, author.as_ref(), limits)?;
    Some(Posts {
        title: feed.as_ref().and_then(|feed| page.text_of(feed.of("p", "name")?)).or(head.title),
        link: feed
            .as_ref()
            .and_then(|feed| page.url_of(feed.of("u", "url")?))
            .or(url.map(|url| url.as_str().to_owned())),
        id: feed.as_ref().and_then(|feed| page.url_of(feed.of("u", "uid")?)),
        language: head.language,
        hub: head.hub,
        self_link: head.self_link,
        about: FeedAbout {
            description: feed
                .as_ref()
                .and_then(|feed| page.text_of(feed.any("summary").or_else(|| feed.any("note"))?))
                .or(head.description),
            image: feed.as_ref().and_then(|feed| page.url_of(feed.of("u", "photo")?)),
            icon: head.icon,
            authors: author.into_iter().collect(),
            ..FeedAbout::default()
        },
        posts,
    })
}

/// Returns the feed's own item, if it has one, and its entries.
fn feed_of(page: &Page) -> Option<(Option<Item<'_>>, Vec<NodeId>)> {
    let is_entry = |node: &NodeId| ENTRIES.iter().any(|vocabulary| page.is_a(*node, vocabulary));
    let feeds = page.tree.inside(page.tree.root()).filter(|node| page.is_a(*node, "h-feed"));
    for feed in feeds {
        let item = page.item(feed);
        let entries: Vec<NodeId> = item.children.iter().copied().filter(is_entry).collect();
        if !entries.is_empty() {
            return Some((Some(item), entries));
        }
    }
    let entries: Vec<NodeId> = page.top_items().into_iter().filter(is_entry).collect();
    (entries.len() > 1).then_some((None, entries))
}

/// Returns the entries of a page, unless the deadline passes before the last.
fn posts(page: &Page, entries: &[NodeId], author: Option<&Author>, limits: &ParseLimits) -> Option<Vec<Post>> {
    let entries = entries.iter().take(limits.max_entries);
    let in_time = |entry| (!limits.is_late()).then(|| post(page, &page.item(entry), author, limits.max_text_bytes));
    entries.copied().map(in_time).collect()
}

fn post(page: &Page, item: &Item<'_>, feed_author: Option<&Author>, max_text_bytes: usize) -> Post {
    let content = item.of("e", "content").or_else(|| item.any("content"));
    let content_text = content.and_then(|content| page.text(content.at));
    let name = page.name_of(item);
    let repeats = |name: &String| content_text.as_ref().is_some_and(|content| same_beginning(content, name));
    let url = page.url_of_item(item);
    let date = |name| item.any(name).and_then(|date| page.date_of(date)).and_then(|date| time(&date));
    let mut files: Vec<Enclosure> =
        ["audio", "video"].iter().flat_map(|kind| item.links(kind)).filter_map(|file| enclosure(page, file)).collect();
    let photos: Vec<Enclosure> = item.links("photo").filter_map(|file| enclosure(page, file)).collect();
    if photos.is_empty() {
        files.extend(page.photo_of_item(item).map(|url| Enclosure {
            media_type: media_type_of(&url),
            url,
            ..Enclosure::default()
        }));
    }
    files.extend(photos);
    // its text may be all of the entry's, and elements in each other repeat it
    let category = |property: &Property<'_>| one_line::name(page.text_of(property)?.into(), MAX_NAME_BYTES);
    let is_html = content.is_some_and(|content| content.prefix == "e");
    Post {
        details: details(page, item, content.map(|_| if is_html { "html" } else { "text" })),
        id: item.of("u", "uid").and_then(|uid| page.url_of(uid)).or_else(|| url.clone()),
        url,
        // a note's name is its text once more
        title: name.filter(|name| !repeats(name)),
        published: date("published").or_else(|| date("start")),
        updated: date("updated"),
        authors: author(page, item).or_else(|| feed_author.cloned()).into_iter().collect(),
        summary: item
            .any("summary")
            .and_then(|summary| page.text(summary.at))
            .map(|text| escaped(beginning(&text, max_text_bytes))),
        content: match content {
            Some(content) if content.prefix == "e" => markup(page, content.at, max_text_bytes),
            _ => content_text.map(|text| escaped(beginning(&text, max_text_bytes))),
        },
        files,
        categories: item.named("category").filter_map(category).collect(),
        language: page.tree.attribute(item.root, "lang").map(str::to_owned),
    }
}

/// Returns whether a text begins with the other one, except for white space. Names of notes are often cut.
fn same_beginning(text: &str, beginning: &str) -> bool {
    let beginning = beginning.trim_end_matches(['…', '.']);
    let mut words = text.split_whitespace().flat_map(str::chars);
    beginning.split_whitespace().flat_map(str::chars).all(|wanted| words.next() == Some(wanted))
}

/// Returns what only some entries say.
fn details(page: &Page, item: &Item<'_>, content_type: Option<&str>) -> EntryDetails {
    let addresses = |name: &'static str| item.named(name).filter_map(|property| page.url_of(property));
    let about = ["bookmark-of", "repost-of", "like-of"].into_iter().find_map(|name| addresses(name).next());
    let picture = ["featured", "photo"].into_iter().find_map(|name| item.links(name).next());
    EntryDetails {
        image: picture.and_then(|picture| page.url_of(picture)),
        in_reply_to: addresses("in-reply-to").collect(),
        related: addresses("syndication").collect(),
        external_url: about,
        geo: geo(page, item),
        content_type: content_type.map(str::to_owned),
        ..EntryDetails::default()
    }
}

/// Returns where an entry was written: its own coordinates, or those of its place.
fn geo(page: &Page, item: &Item<'_>) -> Option<Geo> {
    let of = |item: &Item<'_>| {
        let degrees = |name, most: f64| {
            let degrees: f64 = page.text_of(item.any(name)?)?.trim().parse().ok()?;
            Number::new(degrees).filter(|_| degrees.abs() <= most)
        };
        Some(Geo { lat: degrees("latitude", 90.0)?, lon: degrees("longitude", 180.0)? })
    };
    let places = ["geo", "location"].into_iter().filter_map(|name| item.any(name));
    let mut places = places.filter(|place| place.is_item).map(|place| page.item(place.at));
    of(item).or_else(|| places.find_map(|place| of(&place)))
}

fn author(page: &Page, item: &Item<'_>) -> Option<Author> {
    let property = item.any("author")?;
    let name = page.text_of(property)?;
    let name = &name[..name.floor_char_boundary(MAX_AUTHOR_BYTES)];
    let name = name.split_whitespace().collect::<Vec<_>>().join(" ");
    let short = |address: &String| address.len() <= MAX_AUTHOR_BYTES;
    if !property.is_item {
        let url = (property.prefix == "u").then(|| page.url_of(property)).flatten().filter(short);
        return Some(Author { name, url, ..Author::default() });
    }
    let card = page.item(property.at);
    let email = card.of("u", "email").and_then(|email| page.url_of(email)).filter(short);
    Some(Author {
        name,
        url: page.url_of_item(&card).filter(short),
        email: email.and_then(|email| email.strip_prefix("mailto:").map(str::to_owned)),
        avatar: page.photo_of_item(&card).filter(short),
    })
}

fn enclosure(page: &Page, file: &Property<'_>) -> Option<Enclosure> {
    let url = page.url_of(file)?;
    let attribute = |name| page.tree.attribute(file.at, name);
    let side = |name| attribute(name).and_then(|side| side.trim().parse().ok());
    let media_type = attribute("type").map(str::to_owned).or_else(|| media_type_of(&url));
    let alt = attribute("alt").map(str::trim).filter(|alt| !alt.is_empty());
    Some(Enclosure {
        url,
        media_type,
        width: side("width"),
        height: side("height"),
        alt: alt.map(str::to_owned),
        ..Enclosure::default()
    })
}

/// The first `base` of a page counts. Every link of the page may repeat it, so that it must not be long.
fn base(tree: &Tree, url: Option<&Url>) -> Option<Url> {
    let href = tree.inside(tree.root()).filter(|node| tree.name(*node) == "base");
    let href = href.filter_map(|node| tree.attribute(node, "href")).next();
    let href = href.filter(|href| href.len() <= FeedUrl::MAX_LENGTH);
    match (href, url) {
        (Some(href), Some(url)) => url.join(href.trim()).ok().or_else(|| Some(url.clone())),
        (Some(href), None) => Url::parse(href.trim()).ok(),
        (None, url) => url.cloned(),
    }
}

/// What the page says of itself outside of microformats.
#[derive(Default)]
struct Head {
    title: Option<String>,
    description: Option<String>,
    icon: Option<String>,
    language: Option<String>,
    hub: Option<String>,
    self_link: Option<String>,
}

impl Head {
    fn of(page: &Page) -> Self {
        let mut head = Head::default();
        let attribute = |node, name| page.tree.attribute(node, name);
        for node in page.tree.inside(page.tree.root()) {
            match page.tree.name(node) {
                "html" => head.language = attribute(node, "lang").map(str::to_owned),
                "title" if head.title.is_none() => head.title = page.text(node),
                "meta" if attribute(node, "name").is_some_and(|name| name.eq_ignore_ascii_case("description")) => {
                    head.description = head.description.or_else(|| attribute(node, "content").map(str::to_owned));
                }
                "link" => {
                    let href = attribute(node, "href");
                    for relation in attribute(node, "rel").unwrap_or_default().split_ascii_whitespace() {
                        let place = match relation.to_ascii_lowercase().as_str() {
                            "hub" => &mut head.hub,
                            "self" => &mut head.self_link,
                            "icon" => &mut head.icon,
                            _ => continue,
                        };
                        *place = place.take().or_else(|| page.absolute(href?));
                    }
                }
                _ => {}
            }
        }
        head
    }
}

/// Returns the HTML inside of an element, its links made absolute: they would mean something else anywhere else.
fn markup(page: &Page, within: NodeId, max_bytes: usize) -> Option<String> {
    let html = page.tree.write_inside(within, max_bytes, |attribute| {
        LINKS.contains(&&*attribute.name.local).then(|| page.absolute(&attribute.value)).flatten()
    });
    let kept = beginning(html.trim(), max_bytes);
    (!kept.is_empty()).then(|| kept.to_owned())
}

/// Attributes that hold one URL.
const LINKS: [&str; 6] = ["href", "src", "poster", "cite", "data", "longdesc"];

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn read_entries(html: &str, limits: &ParseLimits) -> Option<Vec<Post>> {
        let page = Page::new(Tree::of_document(html, LIMITS).unwrap(), None);
        let (_, entries) = feed_of(&page).unwrap();
        posts(&page, &entries, None, limits)
    }

    #[test]
    fn reading_ends_between_entries_once_the_deadline_has_passed() {
        let read = |deadline| {
            let limits = ParseLimits { deadline, ..ParseLimits::default() };
            read_entries("<p class=h-entry>one<p class=h-entry>two", &limits)
        };
        assert_eq!(read(None).map(|posts| posts.len()), Some(2));
        assert!(read(Some(Instant::now())).is_none());
    }

    #[test]
    fn texts_are_not_longer_than_what_is_kept_of_them() {
        let limits = ParseLimits { max_text_bytes: 100, ..ParseLimits::default() };
        let text = "\"é".repeat(10_000);
        let entry = |class: &str| format!("<div class=h-entry><p class='{class} p-summary p-category'>{text}</div>");
        let html = format!("<!DOCTYPE html>{}{}", entry("p-content"), entry("e-content"));
        for post in read_entries(&html, &limits).unwrap() {
            let texts = post.content.iter().chain(&post.summary);
            assert!(texts.clone().all(|text| (101..=624).contains(&text.len())), "{post:?}");
            assert_eq!((texts.count(), post.categories.len()), (2, 1));
            assert!(post.categories[0].len() <= MAX_NAME_BYTES);
        }
    }
}
