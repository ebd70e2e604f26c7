//! Builds a [`Tree`] with html5ever, at a cost in proportion to the HTML.
//!
//! html5ever has no limits, and takes quadratic time in places. The text is therefore fed to it in portions, each of
//! which begins at a `<`, and its work on them is counted in units of [`Builder::work`]:
//!
//! - Attributes. Its tokenizer compares each attribute of a tag with all before it, and returns to its caller only at the end
//!   of what it was given. [`Feeder`] counts the attributes before html5ever sees them.
//! - Tokens. A page has one in some ten bytes; `&&&&` and `<<<<` have one or two in each.
//! - Looking through the open elements. Most tags do, and there may be as many as [`TreeLimits::max_depth`].
//! - Comparing formatting elements (the standard's "Noah's Ark clause"): each with all open ones of its name, attributes sorted.
//! - Looking for an element among its siblings. This tree does not, but ammonia's does, on the same requests.

use std::borrow::Cow;
use std::cell::{Cell, Ref, RefCell};
use std::time::Instant;

use html5ever::buffer_queue::BufferQueue;
use html5ever::interface::{ElemName, ElementFlags, NodeOrText, QuirksMode, TreeSink, create_element};
use html5ever::tendril::StrTendril;
use html5ever::tokenizer::{Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts};
use html5ever::tree_builder::{TreeBuilder, TreeBuilderOpts};
use html5ever::{Attribute, LocalName, Namespace, QualName, TokenizerResult, local_name, ns};

use super::tags::{Reached, Tag};
use super::{Content, Node, NodeId, TooCostly, Tree, TreeLimits};

/// Bytes of one portion at most, and how often the costlier limits are checked.
const PORTION: usize = 4096;
/// Units of work for each byte of HTML, on top of [`MIN_WORK`]. A unit is about 2 ns; ordinary pages take 8 to 20 a byte.
const WORK_PER_BYTE: u64 = 24;
/// Units of work that any HTML may take: old pages nest dozens of `font` elements and stay small.
const MIN_WORK: u64 = 20_000_000;
/// Units for each token.
const TOKEN: u64 = 90;
/// Units for comparing two formatting elements of one name, and for each attribute of either.
const COMPARISON: u64 = 20;
const COMPARED_ATTRIBUTE: u64 = 12;

impl Tree {
    /// Reads a whole document.
    pub fn of_document(html: &str, limits: TreeLimits) -> Result<Tree, TooCostly> {
        build(html, None, limits)
    }

    /// Reads a piece of HTML as the inside of a `div`.
    pub fn of_fragment(html: &str, limits: TreeLimits) -> Result<Tree, TooCostly> {
        let context = QualName::new(None, ns!(html), local_name!("div"));
        build(html, Some(context), limits)
    }
}

/// Builds the tree of a document, or of a fragment inside of `context`.
pub(super) fn build(html: &str, context: Option<QualName>, limits: TreeLimits) -> Result<Tree, TooCostly> {
    let builder = Builder::new(limits, html.len());
    let options = TreeBuilderOpts::default();
    let (tree_builder, initial_state) = match context {
        None => (TreeBuilder::new(builder, options), None),
        Some(context) => {
            let context = create_element(&builder, context, Vec::new());
            let tree_builder = TreeBuilder::new_for_fragment(builder, context, None, options);
            let state = tree_builder.tokenizer_state_for_context_elem(false);
            (tree_builder, Some(state))
        }
    };
    let counted = Counted { tree_builder, tokens: Cell::new(0) };
    let options = TokenizerOpts { initial_state, ..TokenizerOpts::default() };
    let mut feeder = Feeder {
        tokenizer: Tokenizer::new(counted, options),
        input: BufferQueue::default(),
        rest: html,
        inside: None,
        unchecked: 0,
    };
    while !feeder.rest.is_empty() {
        feeder.feed_portion()?;
    }
    feeder.finish()
}

/// The same without limits, fed at once.
#[cfg(test)]
pub(super) fn build_at_once(html: &str, limits: TreeLimits) -> Tree {
    use html5ever::tendril::TendrilSink;
    let context = QualName::new(None, ns!(html), local_name!("div"));
    let parser =
        html5ever::parse_fragment(Builder::new(limits, 0), html5ever::ParseOpts::default(), context, Vec::new(), false);
    parser.one(html).tree.into_inner()
}

/// Passes tokens on and counts them: as long as there are none, the tokenizer is inside of a tag or a comment.
struct Counted {
    tree_builder: TreeBuilder<NodeId, Builder>,
    tokens: Cell<u64>,
}

impl TokenSink for Counted {
    type Handle = NodeId;

    fn process_token(&self, token: Token, line: u64) -> TokenSinkResult<NodeId> {
        let is_error = matches!(token, Token::ParseError(_));
        self.tokens.set(self.tokens.get() + u64::from(!is_error));
        self.tree_builder.sink.work(TOKEN);
        self.tree_builder.process_token(token, line)
    }

    fn end(&self) {
        self.tree_builder.end();
    }

    fn adjusted_current_node_present_but_not_in_html_namespace(&self) -> bool {
        self.tree_builder.adjusted_current_node_present_but_not_in_html_namespace()
    }
}

struct Feeder<'h> {
    tokenizer: Tokenizer<Counted>,
    input: BufferQueue,
    rest: &'h str,
    /// The tag that the tokenizer is inside of, as far as it was followed.
    inside: Option<Tag>,
    /// Bytes since all limits were checked.
    unchecked: usize,
}

impl Feeder<'_> {
    /// Feeds the text up to the next `<`, or one portion of it.
    fn feed_portion(&mut self) -> Result<(), TooCostly> {
        let (rest, bytes) = (self.rest, self.rest.as_bytes());
        let window = &bytes[1..bytes.len().min(PORTION)];
        let next = window.iter().position(|byte| *byte == b'<').map(|at| at + 1);
        let length = next.unwrap_or_else(|| self.rest.floor_char_boundary(PORTION));
        let portion = &rest[..length];
        match (tag_begins(portion.as_bytes()), self.inside.take()) {
            (None, None) => self.feed(length),
            (None, Some(tag)) => self.follow(tag, portion, 0, 0)?,
            // the usual case: a whole tag, and what is behind it
            (Some(name), None) if matches!(Tag::new().follow(&portion.as_bytes()[name..]), Reached::End(_)) => {
                self.feed(length);
            }
            (Some(name), inside) => {
                // the first letter of a name lets go of whatever text was held back before it
                let before = self.tokens();
                self.feed(name + 1);
                match inside {
                    Some(tag) if self.tokens() == before => self.follow(tag, portion, 0, name + 1)?,
                    _ => self.follow(Tag::new(), portion, name, name + 1)?,
                }
            }
        }
        self.check()
    }

    /// Feeds the rest of a portion of which the first `fed` bytes were fed, and follows a tag from the byte at `from` on. What
    /// looks like a tag in a script is none: it is one as long as the tokenizer produces nothing.
    fn follow(&mut self, mut tag: Tag, portion: &str, from: usize, fed: usize) -> Result<(), TooCostly> {
        let reached = tag.follow(&portion.as_bytes()[from..]);
        let before = self.tokens();
        match reached {
            Reached::End(_) => self.feed(portion.len() - fed),
            Reached::Inside => {
                self.feed(portion.len() - fed);
                self.inside = (self.tokens() == before).then_some(tag);
            }
            Reached::Limit(at) => {
                self.feed(self.rest.floor_char_boundary((from + at).saturating_sub(fed)));
                if self.tokens() == before {
                    return Err(TooCostly);
                }
            }
        }
        Ok(())
    }

    fn feed(&mut self, length: usize) {
        let (portion, rest) = self.rest.split_at(length);
        self.rest = rest;
        self.unchecked += length;
        if portion.is_empty() {
            return;
        }
        self.input.push_back(portion.into());
        while !matches!(self.tokenizer.feed(&self.input), TokenizerResult::Done) {}
    }

    fn tokens(&self) -> u64 {
        self.tokenizer.sink.tokens.get()
    }

    fn builder(&self) -> &Builder {
        &self.tokenizer.sink.tree_builder.sink
    }

    fn check(&mut self) -> Result<(), TooCostly> {
        let over = if self.unchecked < PORTION {
            self.builder().is_overdrawn()
        } else {
            self.unchecked = 0;
            self.builder().is_over()
        };
        if over { Err(TooCostly) } else { Ok(()) }
    }

    fn finish(self) -> Result<Tree, TooCostly> {
        self.tokenizer.end();
        let builder = self.tokenizer.sink.tree_builder.sink;
        if builder.is_over() {
            return Err(TooCostly);
        }
        let mut tree = builder.tree.into_inner();
        tree.bytes = builder.bytes.get();
        Ok(tree)
    }
}

/// Returns where the name of the tag is that these bytes begin with.
fn tag_begins(bytes: &[u8]) -> Option<usize> {
    let name = match bytes {
        [b'<', b'/', ..] => 2,
        [b'<', ..] => 1,
        _ => return None,
    };
    bytes.get(name).is_some_and(u8::is_ascii_alphabetic).then_some(name)
}

/// The tree under construction, as html5ever asks for it.
struct Builder {
    tree: RefCell<Tree>,
    limits: TreeLimits,
    max_work: u64,
    bytes: Cell<usize>,
    work: Cell<u64>,
}

impl Builder {
    fn new(limits: TreeLimits, length: usize) -> Self {
        let tree = Tree { nodes: vec![Node::default()], bytes: 0 };
        let max_work = MIN_WORK + WORK_PER_BYTE * length as u64;
        Builder { tree: RefCell::new(tree), limits, max_work, bytes: Cell::new(0), work: Cell::new(0) }
    }

    /// Looks only at what is counted anyway: a few bytes of HTML may repeat all attributes before them.
    fn is_overdrawn(&self) -> bool {
        self.work.get() > self.max_work || self.bytes.get() > self.limits.max_bytes
    }

    fn is_over(&self) -> bool {
        let tree = self.tree.borrow();
        let newest = NodeId(tree.nodes.len() - 1);
        self.is_overdrawn()
            || tree.nodes.len() > self.limits.max_nodes
            || tree.is_deeper(newest, self.limits.max_depth)
            || self.limits.deadline.is_some_and(|deadline| deadline < Instant::now())
    }

    fn work(&self, units: u64) {
        self.work.set(self.work.get().saturating_add(units));
    }

    fn count(&self, bytes: usize) {
        self.bytes.set(self.bytes.get().saturating_add(bytes));
    }

    fn count_attributes(&self, attributes: &[Attribute]) {
        self.count(attributes.iter().map(|attribute| attribute.name.local.len() + attribute.value.len() + 4).sum());
    }

    /// Counts what comparing a new formatting element with the open ones takes; those are around its place, about.
    fn count_comparisons(&self, node: NodeId, parent: NodeId) {
        let tree = self.tree.borrow();
        let Content::Element(name, attributes, _) = tree.content(node) else { return };
        if !is_formatting(name) {
            return;
        }
        let mut units = 0;
        for around in std::iter::successors(Some(parent), |node| tree.nodes[node.0].parent) {
            units += 1;
            if let Content::Element(other, others, _) = tree.content(around)
                && other == name
            {
                units += COMPARISON + COMPARED_ATTRIBUTE * (attributes.len() + others.len()) as u64;
            }
        }
        self.work(units);
    }

    /// Counts what finding a node among its siblings would take.
    fn count_siblings(&self, node: NodeId) {
        let tree = self.tree.borrow();
        let parent = tree.nodes[node.0].parent;
        self.work(parent.map_or(0, |parent| u64::from(tree.nodes[parent.0].children) / 2));
    }

    /// Returns the node to be put in; text is added to the text `before` if there is one, and no node then.
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

/// Returns whether an element is one of those that are opened again when something else closed them.
fn is_formatting(name: &QualName) -> bool {
    name.ns == ns!(html)
        && matches!(
            name.local,
            local_name!("a")
                | local_name!("b")
                | local_name!("big")
                | local_name!("code")
                | local_name!("em")
                | local_name!("font")
                | local_name!("i")
                | local_name!("nobr")
                | local_name!("s")
                | local_name!("small")
                | local_name!("strike")
                | local_name!("strong")
                | local_name!("tt")
                | local_name!("u")
        )
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
        self.work(1);
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
            self.count_comparisons(node, *parent);
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
        self.work(1);
        x == y
    }

    fn set_quirks_mode(&self, _: QuirksMode) {}

    fn append_before_sibling(&self, sibling: &NodeId, new: NodeOrText<NodeId>) {
        self.count_siblings(*sibling);
        let before = self.tree.borrow().nodes[sibling.0].previous;
        let Some(node) = self.node(new, before) else { return };
        let parent = self.tree.borrow().nodes[sibling.0].parent;
        if let Some(parent) = parent {
            self.count_comparisons(node, parent);
        }
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
                self.work(attributes.len() as u64);
                if !attributes.iter().any(|known| known.name == attribute.name) {
                    attributes.push(attribute);
                }
            }
        }
    }

    fn remove_from_parent(&self, target: &NodeId) {
        self.count_siblings(*target);
        self.tree.borrow_mut().detach(*target);
    }

    fn reparent_children(&self, node: &NodeId, new_parent: &NodeId) {
        let mut tree = self.tree.borrow_mut();
        self.work(u64::from(tree.nodes[node.0].children));
        while let Some(child) = tree.nodes[node.0].first_child {
            tree.append(child, *new_parent);
        }
    }
}
