//! Microformats2: which elements of a page are items, and what their properties say.
//!
//! After the parsing rules of microformats.org, for the vocabularies and properties that a feed has; each rule has its test
//! below. One deviation: only known vocabularies make an item. Names of style sheets such as `h-full` match the
//! specification's pattern and would swallow the properties around them.
//!
//! Nothing recurses. Properties may be nested, and each is read through to its end: what reading a page costs has a budget in
//! proportion to the page, beyond which its items have nothing more to say.

use std::borrow::Cow;
use std::cell::Cell;

use common::html::{Content, NodeId, Tree};
use common::url::FeedUrl;
use url::Url;

use crate::parse::draft::MAX_MEMBERS;

/// A property's class: its prefix says how its value is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Property<'t> {
    pub(super) prefix: &'t str,
    pub(super) name: &'t str,
    pub(super) at: NodeId,
    /// Its element is an item, whose name or URL is the value.
    pub(super) is_item: bool,
}

/// An item: its element, its content, and the items in it that are not the value of a property.
#[derive(Debug)]
pub(super) struct Item<'t> {
    pub(super) root: NodeId,
    pub(super) properties: Vec<Property<'t>>,
    pub(super) children: Vec<NodeId>,
    /// It contains an item, whether or not as the value of a property: then nothing is implied.
    nests: bool,
}

/// A page, and what its relative links are resolved against.
pub(super) struct Page {
    pub(super) tree: Tree,
    base: Option<Url>,
    /// Nodes, and bytes of texts and attributes, that may still be looked at.
    budget: Cell<usize>,
    /// Bytes that resolving links may still add.
    link_budget: Cell<usize>,
}

/// How often all of a page may be looked at: once for its items, once for their properties, and for texts in texts.
const READINGS: usize = 16;
/// What resolving links may add to one page, in bytes.
const LINK_BUDGET: usize = 16 * 1024 * 1024;
/// What an attribute counts when its element is looked at, in bytes: finding one compares the names of all before it.
const ATTRIBUTE: usize = 4;
/// What resolving a link counts for each of its bytes: it takes longer than copying them.
const RESOLVING: usize = 2;
/// Properties of one item that are kept. The largest entries have hundreds, most of them pictures and comments.
const MAX_PROPERTIES: usize = 2_000;

/// The vocabularies, in use or once proposed.
const VOCABULARIES: [&str; 16] = [
    "h-entry",
    "h-feed",
    "h-card",
    "h-cite",
    "h-event",
    "h-review",
    "h-review-aggregate",
    "h-adr",
    "h-geo",
    "h-item",
    "h-listing",
    "h-product",
    "h-recipe",
    "h-resume",
    "h-app",
    "h-x-app",
];

impl Page {
    pub(super) fn new(tree: Tree, base: Option<Url>) -> Self {
        let budget = tree.size().saturating_mul(READINGS);
        Page { tree, base, budget: Cell::new(budget), link_budget: Cell::new(LINK_BUDGET) }
    }

    /// Pays for looking at a node or at the bytes of a text or an attribute. False once the budget is used up.
    fn pays(&self, bytes: usize) -> bool {
        let left = self.budget.get().saturating_sub(bytes + 1);
        self.budget.set(left);
        left > 0
    }

    /// Returns the node after `node` inside of `within`, if the page may still be looked at.
    fn next(&self, node: NodeId, within: NodeId, descend: bool) -> Option<NodeId> {
        let classes = self.tree.attribute(node, "class").map_or(0, str::len);
        let (attributes, _) = self.tree.attributes(node).size_hint();
        self.pays(classes + attributes * ATTRIBUTE).then(|| self.tree.after(node, within, descend)).flatten()
    }

    pub(super) fn classes(&self, node: NodeId) -> impl Iterator<Item = &str> {
        self.tree.attribute(node, "class").unwrap_or_default().split_ascii_whitespace()
    }

    /// Returns whether this is an item of that vocabulary.
    pub(super) fn is_a(&self, node: NodeId, vocabulary: &str) -> bool {
        self.classes(node).any(|class| class == vocabulary)
    }

    fn is_item(&self, node: NodeId) -> bool {
        self.classes(node).any(|class| VOCABULARIES.contains(&class))
    }

    /// Returns the items outside of each other, in order.
    pub(super) fn top_items(&self) -> Vec<NodeId> {
        let root = self.tree.root();
        let mut found = Vec::new();
        let mut next = self.tree.after(root, root, true);
        while let Some(node) = next {
            let is_item = self.is_item(node);
            found.extend(is_item.then_some(node));
            next = self.next(node, root, !is_item);
        }
        found
    }

    /// Returns the item at an element.
    pub(super) fn item(&self, root: NodeId) -> Item<'_> {
        let mut item = Item { root, properties: Vec::new(), children: Vec::new(), nests: false };
        let mut next = self.tree.after(root, root, true);
        while let Some(node) = next {
            let is_item = self.is_item(node);
            let mut is_value = false;
            for class in self.classes(node) {
                if let Some((prefix @ ("p" | "u" | "dt" | "e"), name)) = class.split_once('-') {
                    is_value = true;
                    if item.properties.len() < MAX_PROPERTIES {
                        item.properties.push(Property { prefix, name, at: node, is_item });
                    }
                }
            }
            item.nests |= is_item;
            if is_item && !is_value {
                item.children.push(node);
            }
            next = self.next(node, root, !is_item);
        }
        item
    }

    /// Returns a property's value as text.
    pub(super) fn text_of(&self, property: &Property<'_>) -> Option<String> {
        let node = property.at;
        if property.is_item {
            return self.name_of(&self.item(node));
        }
        if property.prefix == "p"
            && let Some(value) = self.value_class(node)
        {
            return Some(value);
        }
        self.written_value(node).or_else(|| self.text(node))
    }

    /// Returns a property's value as an absolute URL.
    pub(super) fn url_of(&self, property: &Property<'_>) -> Option<String> {
        let node = property.at;
        if property.is_item {
            return self.url_of_item(&self.item(node));
        }
        if let Some(link) = self.link(node) {
            return self.absolute(link);
        }
        let value = self.value_class(node).or_else(|| self.written_value(node)).or_else(|| self.text(node))?;
        self.absolute(&value)
    }

    /// Returns a property's value as the text of a date and time.
    pub(super) fn date_of(&self, property: &Property<'_>) -> Option<String> {
        let node = property.at;
        let parts = self.value_parts(node, true);
        if parts.is_empty() {
            return self.date_part(node);
        }
        // a date, a time and a zone may be in separate elements, in any order
        let is_date = |part: &String| part.len() >= 8 && part.as_bytes()[..4].iter().all(u8::is_ascii_digit);
        let (mut date, rest): (Vec<String>, Vec<String>) = parts.into_iter().partition(is_date);
        date.truncate(1);
        date.extend(rest);
        Some(date.join(" "))
    }

    /// Returns an item's name: the property, or what the rules imply where it has neither texts nor items in it.
    pub(super) fn name_of(&self, item: &Item<'_>) -> Option<String> {
        if let Some(name) = item.of("p", "name") {
            return self.text_of(name);
        }
        let has_texts = item.properties.iter().any(|property| matches!(property.prefix, "p" | "e"));
        if has_texts || item.nests {
            return None;
        }
        let shown = |node| match self.tree.name(node) {
            "img" | "area" => self.attribute(node, "alt"),
            "abbr" => self.attribute(node, "title"),
            _ => None,
        };
        let shown = |node| shown(node).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        shown(item.root).or_else(|| self.only_inside(item.root).find_map(shown)).or_else(|| self.text(item.root))
    }

    /// Returns an item's URL: the property, or what the rules imply where it has no other.
    pub(super) fn url_of_item(&self, item: &Item<'_>) -> Option<String> {
        if let Some(url) = item.of("u", "url") {
            return self.url_of(url);
        }
        if item.properties.iter().any(|property| property.prefix == "u") || item.nests {
            return None;
        }
        let href = |node| match self.tree.name(node) {
            "a" | "area" => self.tree.attribute(node, "href"),
            _ => None,
        };
        let href = href(item.root).or_else(|| self.only_inside(item.root).find_map(href))?;
        self.absolute(href)
    }

    /// Returns an item's picture: the property, or what the rules imply.
    pub(super) fn photo_of_item(&self, item: &Item<'_>) -> Option<String> {
        if let Some(photo) = item.of("u", "photo") {
            return self.url_of(photo);
        }
        if item.properties.iter().any(|property| property.prefix == "u") || item.nests {
            return None;
        }
        let source = |node| match self.tree.name(node) {
            "img" => self.tree.attribute(node, "src"),
            "object" => self.tree.attribute(node, "data"),
            _ => None,
        };
        let source = source(item.root).or_else(|| self.only_inside(item.root).find_map(source))?;
        self.absolute(source)
    }

    /// Returns the only element in an element, and the only one in that, as long as no item begins there.
    fn only_inside(&self, node: NodeId) -> impl Iterator<Item = NodeId> {
        let only = |node: NodeId| {
            let mut elements = self.tree.children(node).filter(|child| !self.tree.name(*child).is_empty());
            elements.next().filter(|child| elements.next().is_none() && !self.is_item(*child))
        };
        let first = only(node);
        [first, first.and_then(only)].into_iter().flatten()
    }

    /// Returns what an element links to.
    fn link(&self, node: NodeId) -> Option<&str> {
        let attribute = |name| self.tree.attribute(node, name);
        match self.tree.name(node) {
            "a" | "area" | "link" => attribute("href"),
            "img" | "audio" | "source" | "iframe" => attribute("src"),
            // a player's file may be in an element below it
            "video" => attribute("src").or_else(|| self.source_in(node)).or_else(|| attribute("poster")),
            "object" => attribute("data"),
            _ => None,
        }
        .or_else(|| if self.tree.name(node) == "audio" { self.source_in(node) } else { None })
    }

    fn source_in(&self, node: NodeId) -> Option<&str> {
        let mut sources = self.tree.children(node).filter(|child| self.tree.name(*child) == "source");
        sources.find_map(|source| self.tree.attribute(source, "src"))
    }

    /// Returns a copy of an attribute's value, if the page may still be looked at.
    fn attribute(&self, node: NodeId, name: &str) -> Option<String> {
        self.tree.attribute(node, name).filter(|value| self.pays(value.len())).map(str::to_owned)
    }

    /// Returns the value that an element's attribute has for machines.
    fn written_value(&self, node: NodeId) -> Option<String> {
        let attribute = |name| self.attribute(node, name);
        match self.tree.name(node) {
            "abbr" | "link" => attribute("title"),
            "data" | "input" => attribute("value"),
            "img" | "area" => attribute("alt"),
            _ => None,
        }
    }

    fn date_part(&self, node: NodeId) -> Option<String> {
        match self.tree.name(node) {
            "time" | "ins" | "del" => self.attribute(node, "datetime"),
            _ => self.written_value(node),
        }
        .or_else(|| self.text(node))
    }

    /// Returns the value class pattern: a property's value in parts of its element, put together.
    fn value_class(&self, node: NodeId) -> Option<String> {
        let parts = self.value_parts(node, false);
        (!parts.is_empty()).then(|| parts.concat())
    }

    fn value_parts(&self, within: NodeId, dates: bool) -> Vec<String> {
        let mut parts = Vec::new();
        let mut next = self.tree.after(within, within, true);
        while let Some(node) = next {
            let (value, title) = (self.is_a(node, "value"), self.is_a(node, "value-title"));
            parts.extend(match (value, title) {
                (true, _) if dates => self.date_part(node),
                (true, _) => self.written_value(node).or_else(|| self.text(node)),
                (_, true) => self.attribute(node, "title"),
                _ => None,
            });
            next = self.next(node, within, !(value || title || self.is_item(node)));
        }
        parts
    }

    /// Returns the text inside of an element, pictures by their description; nothing of scripts and styles.
    pub(super) fn text(&self, within: NodeId) -> Option<String> {
        let mut text = String::new();
        let mut next = self.tree.after(within, within, true);
        while let Some(node) = next {
            let name = self.tree.name(node);
            match self.tree.content(node) {
                Content::Text(part) if self.pays(part.len()) => text.push_str(part),
                Content::Element(..) if name == "img" => {
                    if let Some(description) = self.description(node) {
                        text.extend([" ", &*description, " "]);
                    }
                }
                _ => {}
            }
            next = self.next(node, within, !matches!(name, "script" | "style" | "template"));
        }
        let trimmed = text.trim();
        (!trimmed.is_empty()).then(|| trimmed.to_owned())
    }

    /// Returns the text in place of a picture: its description, or its address where it has none.
    fn description(&self, node: NodeId) -> Option<Cow<'_, str>> {
        match self.tree.attribute(node, "alt") {
            Some(alt) => self.pays(alt.len()).then_some(Cow::Borrowed(alt)),
            None => self.absolute(self.tree.attribute(node, "src")?).map(Cow::Owned),
        }
    }

    /// Returns a link made absolute, if the page may still be looked at. One that is longer than a URL may be is none: a
    /// picture written as a `data:` URL would be copied by each property of its element.
    pub(super) fn absolute(&self, link: &str) -> Option<String> {
        let link = link.trim();
        if link.len() > FeedUrl::MAX_LENGTH || !self.pays(link.len() * RESOLVING) {
            return None;
        }
        let base = self.base.as_ref().filter(|_| self.link_budget.get() > 0);
        let joined = base.and_then(|base| base.join(link).ok());
        let absolute = joined.map_or_else(|| link.to_owned(), String::from);
        self.link_budget.set(self.link_budget.get().saturating_sub(absolute.len().saturating_sub(link.len())));
        Some(absolute)
    }
}

impl<'t> Item<'t> {
    /// Returns its first property of that kind.
    pub(super) fn of(&self, prefix: &str, name: &str) -> Option<&Property<'t>> {
        self.properties.iter().find(|property| property.prefix == prefix && property.name == name)
    }

    /// Returns its links of that name, as [`members`].
    pub(super) fn links<'p>(&'p self, name: &'p str) -> impl Iterator<Item = &'p Property<'t>> {
        members(self.properties.iter().filter(move |property| property.prefix == "u" && property.name == name))
    }

    /// Returns its first property of that name, however it is to be read.
    pub(super) fn any(&self, name: &str) -> Option<&Property<'t>> {
        self.properties.iter().find(|property| property.name == name)
    }

    /// Returns its properties of that name, as [`members`].
    pub(super) fn named<'p>(&'p self, name: &'p str) -> impl Iterator<Item = &'p Property<'t>> {
        members(self.properties.iter().filter(move |property| property.name == name))
    }
}

/// Returns the first of these properties of each element: a class may be repeated, and its value would be copied each
/// time. Returns as many as an entry keeps and one more, so that the entry is marked as cut.
fn members<'p, 't: 'p>(properties: impl Iterator<Item = &'p Property<'t>>) -> impl Iterator<Item = &'p Property<'t>> {
    let mut last = None;
    // properties of one element are next to each other
    properties.filter(move |property| last.replace(property.at) != Some(property.at)).take(MAX_MEMBERS + 1)
}

#[cfg(test)]
mod tests {
    use common::html::TreeLimits;

    use super::*;

    /// Returns the page of one item.
    fn page(inside: &str) -> Page {
        let limits = TreeLimits { max_nodes: 1_000, max_depth: 100, max_bytes: 1_000_000, deadline: None };
        let html = format!("<!DOCTYPE html><div class=h-entry>{inside}</div>");
        Page::new(Tree::of_document(&html, limits).unwrap(), None)
    }

    #[test]
    fn an_item_keeps_a_limited_number_of_properties() {
        let classes: String = (0..10_000).map(|n| format!("p-a{n} ")).collect();
        let page = page(&format!("<b class='{classes}'>x</b><b class='h-card {classes}'>y</b><b class=h-card>z</b>"));
        let item = page.item(page.top_items()[0]);
        assert_eq!(item.properties.len(), MAX_PROPERTIES);
        assert_eq!(item.children.len(), 1, "an item is the value of a property even if that is not kept");
    }

    #[test]
    fn an_element_is_one_member_however_often_it_repeats_its_classes() {
        let repeated = "u-photo p-x p-photo u-photo ".repeat(100);
        let others = "<img class=p-photo src=/b><img class=u-photo src=/c>";
        let page = page(&format!("<img class='{repeated}' src=/a>{others}"));
        let item = page.item(page.top_items()[0]);
        let links: Vec<_> = item.links("photo").filter_map(|photo| page.url_of(photo)).collect();
        assert_eq!(links, ["/a", "/c"]);
        assert_eq!(item.named("photo").count(), 3);
    }

    #[test]
    fn all_readings_of_a_page_together_are_bounded() {
        let long = "a".repeat(4_000);
        for inside in [
            format!("<b class=p-x><img alt='{long}'></b>"),
            format!("<b class=p-x><img src='{long}'></b>"),
            format!("<b class=p-x><b class=value-title title='{long}'></b></b>"),
            format!("<b class=p-x><data class=value value='{long}'></data></b>"),
            format!("<img class=p-x alt='{long}'>"),
            format!("<img class='h-card p-x' alt='{long}'>"),
            format!("<a class=u-x href='{long}'></a>"),
        ] {
            let page = page(&inside);
            let item = page.item(page.top_items()[0]);
            let property = item.any("x").unwrap();
            let value = || if property.prefix == "u" { page.url_of(property) } else { page.text_of(property) };
            assert_eq!(value().map(|value| value.len()), Some(long.len()), "{inside}");
            let read: usize = (0..1_000).filter_map(|_| value()).map(|value| value.len()).sum();
            assert!(read <= READINGS * page.tree.size(), "{read}: {inside}");
        }
    }

    #[test]
    fn a_link_that_is_too_long_is_none() {
        let url = |length: usize| {
            let page = page(&format!("<a class=u-x href='{}'></a>", "a".repeat(length)));
            let item = page.item(page.top_items()[0]);
            item.any("x").and_then(|link| page.url_of(link)).map(|url| url.len())
        };
        let max = FeedUrl::MAX_LENGTH;
        assert_eq!([url(max), url(max + 1)], [Some(max), None]);
    }
}
