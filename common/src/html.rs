//! HTML as a tree, built the way browsers build it, with an end to what hostile markup can cost.
//!
//! The rules for broken HTML multiply: an unclosed `<b>` is opened again, attributes and all, in every paragraph that
//! follows, so that a megabyte may unfold to gigabytes. A tree is built in small portions here and given up as soon as it
//! is beyond its limits. Whoever hands HTML to another builder of the same kind (a sanitiser) can ask first whether it is
//! within them.
//!
//! It says nothing about what the HTML means, and nothing recurses.

use std::borrow::Cow;
use std::cell::{Cell, Ref, RefCell};

use html5ever::interface::{ElemName, ElementFlags, NodeOrText, QuirksMode, TreeSink};
use html5ever::tendril::{StrTendril, TendrilSink};
use html5ever::{Attribute, LocalName, Namespace, ParseOpts, Parser, QualName, local_name, ns};

/// What one tree may cost.
#[derive(Clone, Copy, Debug)]
pub struct TreeLimits {
    /// Elements and texts.
    pub max_nodes: usize,
    /// Elements inside of each other. Looked at now and then: a portion more is possible.
    pub max_depth: usize,
    /// Bytes of all texts and attributes: about what writing the tree out would take.
    pub max_bytes: usize,
}

/// The HTML unfolds to more than the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the HTML unfolds to more than a page should")]
pub struct TooCostly;

/// A node of a [`Tree`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeId(usize);

/// A document or fragment.
#[derive(Debug)]
pub struct Tree {
    nodes: Vec<Node>,
}

#[derive(Debug, Default)]
struct Node {
    content: Content,
    parent: Option<NodeId>,
    previous: Option<NodeId>,
    next: Option<NodeId>,
    first_child: Option<NodeId>,
    last_child: Option<NodeId>,
}

/// What a node is.
#[derive(Debug, Default)]
pub enum Content {
    /// The root, comments, and what else is of no interest.
    #[default]
    Other,
    /// Text.
    Text(StrTendril),
    /// An element, and the contents if it is a template.
    Element(QualName, Vec<Attribute>, Option<NodeId>),
}

impl Tree {
    /// Reads a whole document.
    pub fn of_document(html: &str, limits: TreeLimits) -> Result<Tree, TooCostly> {
        build(html5ever::parse_document(Builder::new(limits), ParseOpts::default()), html)
    }

    /// Reads a piece of HTML as the inside of a `div`.
    pub fn of_fragment(html: &str, limits: TreeLimits) -> Result<Tree, TooCostly> {
        let context = QualName::new(None, ns!(html), local_name!("div"));
        build(html5ever::parse_fragment(Builder::new(limits), ParseOpts::default(), context, Vec::new(), false), html)
    }

    /// The root, which is no element.
    pub fn root(&self) -> NodeId {
        NodeId(0)
    }

    /// What a node is.
    pub fn content(&self, node: NodeId) -> &Content {
        &self.nodes[node.0].content
    }

    /// An element's local name; empty for other nodes.
    pub fn name(&self, node: NodeId) -> &str {
        match self.content(node) {
            Content::Element(name, ..) => &name.local,
            _ => "",
        }
    }

    /// An element's attribute.
    pub fn attribute(&self, node: NodeId, name: &str) -> Option<&str> {
        let Content::Element(_, attributes, _) = self.content(node) else { return None };
        attributes.iter().find(|attribute| &*attribute.name.local == name).map(|attribute| &*attribute.value)
    }

    /// An element's attributes.
    pub fn attributes(&self, node: NodeId) -> impl Iterator<Item = (&str, &str)> {
        let attributes = match self.content(node) {
            Content::Element(_, attributes, _) => attributes.as_slice(),
            _ => &[],
        };
        attributes.iter().map(|attribute| (&*attribute.name.local, &*attribute.value))
    }

    /// A node's children, in order.
    pub fn children(&self, node: NodeId) -> impl Iterator<Item = NodeId> {
        std::iter::successors(self.nodes[node.0].first_child, |child| self.nodes[child.0].next)
    }

    /// The node after `node` in the document's order, inside of `within`; with `descend` the first child comes first.
    pub fn after(&self, node: NodeId, within: NodeId, descend: bool) -> Option<NodeId> {
        if descend && let Some(child) = self.nodes[node.0].first_child {
            return Some(child);
        }
        let mut node = node;
        while node != within {
            if let Some(next) = self.nodes[node.0].next {
                return Some(next);
            }
            node = self.nodes[node.0].parent?;
        }
        None
    }

    /// All nodes inside of one, in the document's order.
    pub fn inside(&self, node: NodeId) -> impl Iterator<Item = NodeId> {
        std::iter::successors(self.after(node, node, true), move |next| self.after(*next, node, true))
    }

    fn add(&mut self, content: Content) -> NodeId {
        self.nodes.push(Node { content, ..Node::default() });
        NodeId(self.nodes.len() - 1)
    }

    fn detach(&mut self, node: NodeId) {
        let Node { parent, previous, next, .. } = self.nodes[node.0];
        match (previous, parent) {
            (Some(previous), _) => self.nodes[previous.0].next = next,
            (None, Some(parent)) => self.nodes[parent.0].first_child = next,
            _ => {}
        }
        match (next, parent) {
            (Some(next), _) => self.nodes[next.0].previous = previous,
            (None, Some(parent)) => self.nodes[parent.0].last_child = previous,
            _ => {}
        }
        let node = &mut self.nodes[node.0];
        (node.parent, node.previous, node.next) = (None, None, None);
    }

    /// Puts a node between `previous` and `next`, of which at least one exists or neither, under `parent`.
    fn insert(&mut self, node: NodeId, parent: NodeId, previous: Option<NodeId>, next: Option<NodeId>) {
        self.detach(node);
        let place = &mut self.nodes[node.0];
        (place.parent, place.previous, place.next) = (Some(parent), previous, next);
        match previous {
            Some(previous) => self.nodes[previous.0].next = Some(node),
            None => self.nodes[parent.0].first_child = Some(node),
        }
        match next {
            Some(next) => self.nodes[next.0].previous = Some(node),
            None => self.nodes[parent.0].last_child = Some(node),
        }
    }

    fn append(&mut self, node: NodeId, parent: NodeId) {
        self.detach(node);
        let last = self.nodes[parent.0].last_child;
        self.insert(node, parent, last, None);
    }

    /// Is the node deeper than this?
    fn is_deeper(&self, node: NodeId, depth: usize) -> bool {
        std::iter::successors(Some(node), |node| self.nodes[node.0].parent).nth(depth).is_some()
    }
}

/// Bytes that are read before the limits are looked at again.
const PORTION: usize = 4096;

fn build(mut parser: Parser<Builder>, html: &str) -> Result<Tree, TooCostly> {
    let mut rest = html;
    while !rest.is_empty() {
        let (portion, later) = rest.split_at(rest.floor_char_boundary(PORTION));
        rest = later;
        parser.process(portion.into());
        if parser.tokenizer.sink.sink.is_over() {
            return Err(TooCostly);
        }
    }
    let builder = parser.finish();
    if builder.is_over() { Err(TooCostly) } else { Ok(builder.tree.into_inner()) }
}

/// The tree under construction, as html5ever asks for it.
struct Builder {
    tree: RefCell<Tree>,
    limits: TreeLimits,
    bytes: Cell<usize>,
}

impl Builder {
    fn new(limits: TreeLimits) -> Self {
        Builder { tree: RefCell::new(Tree { nodes: vec![Node::default()] }), limits, bytes: Cell::new(0) }
    }

    fn is_over(&self) -> bool {
        let tree = self.tree.borrow();
        let newest = NodeId(tree.nodes.len() - 1);
        tree.nodes.len() > self.limits.max_nodes
            || self.bytes.get() > self.limits.max_bytes
            || tree.is_deeper(newest, self.limits.max_depth)
    }

    fn count(&self, bytes: usize) {
        self.bytes.set(self.bytes.get().saturating_add(bytes));
    }

    fn count_attributes(&self, attributes: &[Attribute]) {
        self.count(attributes.iter().map(|attribute| attribute.name.local.len() + attribute.value.len() + 4).sum());
    }

    /// The node to be put in; text is added to the text `before` if there is one, and no node then.
    fn node(&self, new: NodeOrText<NodeId>, before: Option<NodeId>) -> Option<NodeId> {
        let mut tree = self.tree.borrow_mut();
        let text = match new {
            NodeOrText::AppendNode(node) => return Some(node),
            NodeOrText::AppendText(text) => text,
        };
        self.count(text.len());
        if let Some(before) = before
            && let Content::Text(known) = &mut tree.nodes[before.0].content
        {
            known.push_tendril(&text);
            return None;
        }
        Some(tree.add(Content::Text(text)))
    }
}

/// An element's name, borrowed from the tree.
#[derive(Debug)]
struct Name<'a>(Ref<'a, QualName>);

impl ElemName for Name<'_> {
    fn ns(&self) -> &Namespace {
        &self.0.ns
    }

    fn local_name(&self) -> &LocalName {
        &self.0.local
    }
}

impl TreeSink for Builder {
    type Handle = NodeId;
    type Output = Self;
    type ElemName<'a> = Name<'a>;

    fn finish(self) -> Self {
        self
    }

    fn parse_error(&self, _: Cow<'static, str>) {}

    fn get_document(&self) -> NodeId {
        NodeId(0)
    }

    fn elem_name<'a>(&'a self, target: &'a NodeId) -> Name<'a> {
        Name(Ref::map(self.tree.borrow(), |tree| match tree.content(*target) {
            Content::Element(name, ..) => name,
            _ => unreachable!("the builder asks for the names of elements only"),
        }))
    }

    fn create_element(&self, name: QualName, attributes: Vec<Attribute>, flags: ElementFlags) -> NodeId {
        self.count(2 * name.local.len() + 5);
        self.count_attributes(&attributes);
        let mut tree = self.tree.borrow_mut();
        let contents = flags.template.then(|| tree.add(Content::Other));
        tree.add(Content::Element(name, attributes, contents))
    }

    fn create_comment(&self, _: StrTendril) -> NodeId {
        self.tree.borrow_mut().add(Content::Other)
    }

    fn create_pi(&self, _: StrTendril, _: StrTendril) -> NodeId {
        self.tree.borrow_mut().add(Content::Other)
    }

    fn append(&self, parent: &NodeId, child: NodeOrText<NodeId>) {
        let last = self.tree.borrow().nodes[parent.0].last_child;
        if let Some(node) = self.node(child, last) {
            self.tree.borrow_mut().append(node, *parent);
        }
    }

    fn append_based_on_parent_node(&self, element: &NodeId, previous: &NodeId, child: NodeOrText<NodeId>) {
        let has_parent = self.tree.borrow().nodes[element.0].parent.is_some();
        if has_parent { self.append_before_sibling(element, child) } else { self.append(previous, child) }
    }

    fn append_doctype_to_document(&self, _: StrTendril, _: StrTendril, _: StrTendril) {}

    fn get_template_contents(&self, target: &NodeId) -> NodeId {
        match self.tree.borrow().content(*target) {
            Content::Element(_, _, Some(contents)) => *contents,
            _ => *target,
        }
    }

    fn same_node(&self, x: &NodeId, y: &NodeId) -> bool {
        x == y
    }

    fn set_quirks_mode(&self, _: QuirksMode) {}

    fn append_before_sibling(&self, sibling: &NodeId, new: NodeOrText<NodeId>) {
        let before = self.tree.borrow().nodes[sibling.0].previous;
        let Some(node) = self.node(new, before) else { return };
        let mut tree = self.tree.borrow_mut();
        tree.detach(node);
        let Node { parent, previous, .. } = tree.nodes[sibling.0];
        if let Some(parent) = parent {
            tree.insert(node, parent, previous, Some(*sibling));
        }
    }

    fn add_attrs_if_missing(&self, target: &NodeId, new: Vec<Attribute>) {
        self.count_attributes(&new);
        if let Content::Element(_, attributes, _) = &mut self.tree.borrow_mut().nodes[target.0].content {
            for attribute in new {
                if !attributes.iter().any(|known| known.name == attribute.name) {
                    attributes.push(attribute);
                }
            }
        }
    }

    fn remove_from_parent(&self, target: &NodeId) {
        self.tree.borrow_mut().detach(*target);
    }

    fn reparent_children(&self, node: &NodeId, new_parent: &NodeId) {
        let mut tree = self.tree.borrow_mut();
        while let Some(child) = tree.nodes[node.0].first_child {
            tree.append(child, *new_parent);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::processor_time;

    const LIMITS: TreeLimits = TreeLimits { max_nodes: 50_000, max_depth: 300, max_bytes: 4_000_000 };

    /// The tree as text: `div(p("x"))`.
    fn shown(tree: &Tree, node: NodeId) -> String {
        let children: Vec<String> = tree.children(node).map(|child| shown(tree, child)).collect();
        match tree.content(node) {
            Content::Text(text) => format!("{:?}", &**text),
            Content::Element(name, ..) => format!("{}({})", name.local, children.join(" ")),
            Content::Other => children.join(" "),
        }
    }

    fn fragment(html: &str) -> String {
        let tree = Tree::of_fragment(html, LIMITS).unwrap();
        shown(&tree, tree.root())
    }

    #[test]
    fn broken_html_is_read_as_browsers_read_it() {
        let table = [
            ("<p>a<p>b", r#"html(p("a") p("b"))"#),
            ("<b>a<p>b</b>c", r#"html(b("a") p(b("b") "c"))"#),
            ("<table>x<tr><td>y</table>", r#"html("x" table(tbody(tr(td("y")))))"#),
            ("<table><b>x<tr><td>y</table>z", r#"html(b("x") table(tbody(tr(td("y")))) b("z"))"#),
            ("a<!-- b -->c<template><p>d</template>", r#"html("a"  "c" template())"#),
            ("&eacute;&amp;&#0;", "html(\"é&\u{fffd}\")"),
        ];
        for (html, tree) in table {
            assert_eq!(fragment(html), tree, "{html}");
        }
    }

    #[test]
    fn nodes_are_walked_in_order_and_what_is_left_out_is_left_out() {
        let tree = Tree::of_fragment("<ul><li>a</li><li>b<i>c</i></li></ul><p id=x>d", LIMITS).unwrap();
        let names: Vec<&str> = tree.inside(tree.root()).map(|node| tree.name(node)).collect();
        assert_eq!(names, ["html", "ul", "li", "", "li", "", "i", "", "p", ""]);
        let list = tree.inside(tree.root()).find(|node| tree.name(*node) == "ul").unwrap();
        assert_eq!(tree.inside(list).count(), 6, "not beyond its own end");
        let after = tree.after(list, tree.root(), false).unwrap();
        assert_eq!(tree.attribute(after, "id"), Some("x"));
    }

    #[test]
    fn html_that_multiplies_itself_is_given_up_early() {
        let many = |count: usize, make: &dyn Fn(usize) -> String| (0..count).map(make).collect::<String>();
        let table = [
            ("elements without end", "<i></i>".repeat(150_000)),
            ("nesting", "<div>".repeat(200_000)),
            ("formatting that is opened again", many(200, &|n| format!("<b id={n}>")) + &"<p>x".repeat(100_000)),
            (
                "a large attribute that is repeated",
                format!("<b title='{}'>", "x".repeat(200_000)) + &"<p>x</p>".repeat(90_000),
            ),
            ("misnested formatting", many(30_000, &|n| format!("<a id={n}><div>")) + &"</a>".repeat(30_000)),
            ("in a style that is none", format!("<svg><style>{}", many(50_000, &|n| format!("<b id={n}>")))),
        ];
        for (name, html) in table {
            let started = processor_time();
            assert_eq!(Tree::of_fragment(&html, LIMITS).err(), Some(TooCostly), "{name}");
            assert_eq!(Tree::of_document(&html, LIMITS).err(), Some(TooCostly), "{name}");
            let took = processor_time() - started;
            assert!(took < Duration::from_secs(20), "{name}: {took:?}");
        }
        let page = "<div><p>Some <b>text</b> and <a href='https://example.com/'>a link</a>.</p></div>".repeat(5000);
        assert!(Tree::of_document(&page, LIMITS).is_ok(), "a long page is none of these");
    }
}
