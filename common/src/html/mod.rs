//! HTML as a tree, built the way browsers build it, at a cost in proportion to its length.
//!
//! The rules for broken HTML multiply: an unclosed `<b>` is opened again, attributes and all, in every paragraph that
//! follows, so that a megabyte may unfold to gigabytes. A tree is built in small portions and given up as soon as it is beyond
//! its limits (`build` lists what is counted). Callers that hand HTML to another builder of the same kind (a sanitiser) check
//! first whether it is within them.
//!
//! Says nothing about what the HTML means. Nothing recurses.

mod build;
mod tags;
#[cfg(test)]
mod tests;
mod write;

use std::time::Instant;

use html5ever::tendril::StrTendril;
use html5ever::{Attribute, QualName};

/// What one tree may cost.
#[derive(Clone, Copy, Debug)]
pub struct TreeLimits {
    /// Elements and texts.
    pub max_nodes: usize,
    /// Elements inside of each other. Checked between portions, so one portion may exceed it.
    pub max_depth: usize,
    /// Bytes of all texts and attributes: about what writing the tree out would take.
    pub max_bytes: usize,
    /// When building ends whatever the tree has cost by then.
    pub deadline: Option<Instant>,
}

/// The HTML costs more than the limits allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the HTML costs more than a page should")]
pub struct TooCostly;

/// A node of a [`Tree`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeId(usize);

/// A document or fragment.
#[derive(Debug)]
pub struct Tree {
    nodes: Vec<Node>,
    /// Of all texts and attributes.
    bytes: usize,
}

#[derive(Debug, Default)]
struct Node {
    content: Content,
    parent: Option<NodeId>,
    previous: Option<NodeId>,
    next: Option<NodeId>,
    first_child: Option<NodeId>,
    last_child: Option<NodeId>,
    children: u32,
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
    /// Returns the root, which is not an element.
    pub fn root(&self) -> NodeId {
        NodeId(0)
    }

    /// Returns the tree's nodes and the bytes of their texts and attributes: what a walk through all of it takes.
    pub fn size(&self) -> usize {
        self.nodes.len() + self.bytes
    }

    /// Returns what a node is.
    pub fn content(&self, node: NodeId) -> &Content {
        &self.nodes[node.0].content
    }

    /// Returns an element's local name; empty for other nodes.
    pub fn name(&self, node: NodeId) -> &str {
        match self.content(node) {
            Content::Element(name, ..) => &name.local,
            _ => "",
        }
    }

    /// Returns an element's attribute.
    pub fn attribute(&self, node: NodeId, name: &str) -> Option<&str> {
        let Content::Element(_, attributes, _) = self.content(node) else { return None };
        attributes.iter().find(|attribute| &*attribute.name.local == name).map(|attribute| &*attribute.value)
    }

    /// Returns an element's attributes.
    pub fn attributes(&self, node: NodeId) -> impl Iterator<Item = (&str, &str)> {
        let attributes = match self.content(node) {
            Content::Element(_, attributes, _) => attributes.as_slice(),
            _ => &[],
        };
        attributes.iter().map(|attribute| (&*attribute.name.local, &*attribute.value))
    }

    /// Returns a node's children, in order.
    pub fn children(&self, node: NodeId) -> impl Iterator<Item = NodeId> {
        std::iter::successors(self.nodes[node.0].first_child, |child| self.nodes[child.0].next)
    }

    /// Returns the node after `node` in the document's order, inside of `within`; with `descend` the first child comes
    /// first.
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

    /// Returns all nodes inside of one, in the document's order.
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
        if let Some(parent) = parent {
            self.nodes[parent.0].children -= 1;
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
        self.nodes[parent.0].children += 1;
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

    /// Returns whether the node is deeper than this.
    fn is_deeper(&self, node: NodeId, depth: usize) -> bool {
        std::iter::successors(Some(node), |node| self.nodes[node.0].parent).nth(depth).is_some()
    }
}
