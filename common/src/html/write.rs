//! Writes HTML out of a [`Tree`], as the HTML standard's serialisation algorithm does (section 13.3).
//!
//! html5ever has a serialiser too, which takes quadratic time in texts with many `&` (see `docs/decisions`).

use html5ever::{Attribute, QualName, local_name, ns};

use super::{Content, NodeId, Tree};

impl Tree {
    /// Writes the inside of an element, as if that were a `div`. `rewritten` may return another value for an attribute.
    /// Stops soon after `max_bytes`: the result is longer than that only if something is missing at its end.
    pub fn write_inside(
        &self,
        within: NodeId,
        max_bytes: usize,
        mut rewritten: impl FnMut(&Attribute) -> Option<String>,
    ) -> String {
        enum Step<'t> {
            Open(NodeId),
            Close(&'t QualName),
        }
        let mut html = String::new();
        let mut steps: Vec<Step<'_>> = self.children_reversed(within).map(Step::Open).collect();
        while let Some(step) = steps.pop() {
            if html.len() > max_bytes {
                break;
            }
            let node = match step {
                Step::Close(name) => {
                    html.extend(["</", &name.local, ">"]);
                    continue;
                }
                Step::Open(node) => node,
            };
            match self.content(node) {
                Content::Text(text) if self.holds_raw_text(node, within) => html.push_str(text),
                Content::Text(text) => push_escaped(&mut html, text, false),
                Content::Element(name, attributes, _) => {
                    html.extend(["<", &name.local]);
                    for attribute in attributes {
                        let value = rewritten(attribute);
                        html.extend([" ", prefix(attribute), &attribute.name.local, "=\""]);
                        push_escaped(&mut html, value.as_deref().unwrap_or(&attribute.value), true);
                        html.push('"');
                    }
                    html.push('>');
                    if !is_void(name) {
                        steps.push(Step::Close(name));
                        steps.extend(self.children_reversed(node).map(Step::Open));
                    }
                }
                Content::Other => {}
            }
        }
        html
    }

    /// Returns what html5ever's serialiser would take for the tree, in bytes looked at: for each `&` and each byte 0xC2
    /// (with which a no-break space begins) it may look through the rest of the text.
    pub fn serialising_cost(&self) -> usize {
        let cost = |text: &str| {
            let stops = text.bytes().filter(|byte| matches!(byte, b'&' | 0xC2)).count();
            stops.saturating_mul(text.len())
        };
        let costs = self.nodes.iter().map(|node| match &node.content {
            Content::Text(text) => cost(text),
            Content::Element(_, attributes, _) => attributes.iter().map(|attribute| cost(&attribute.value)).sum(),
            Content::Other => 0,
        });
        costs.fold(0, usize::saturating_add)
    }

    fn children_reversed(&self, node: NodeId) -> impl Iterator<Item = NodeId> {
        std::iter::successors(self.nodes[node.0].last_child, |child| self.nodes[child.0].previous)
    }

    /// Returns whether a text is inside of an element whose content is neither escaped nor resolved.
    fn holds_raw_text(&self, text: NodeId, within: NodeId) -> bool {
        let parent = self.nodes[text.0].parent.filter(|parent| *parent != within);
        let parent = parent.map(|parent| self.content(parent));
        let Some(Content::Element(name, ..)) = parent else { return false };
        name.ns == ns!(html)
            && matches!(
                name.local,
                local_name!("style")
                    | local_name!("script")
                    | local_name!("xmp")
                    | local_name!("iframe")
                    | local_name!("noembed")
                    | local_name!("noframes")
                    | local_name!("noscript")
                    | local_name!("plaintext")
            )
    }
}

fn is_void(name: &QualName) -> bool {
    name.ns == ns!(html)
        && matches!(
            name.local,
            local_name!("area")
                | local_name!("base")
                | local_name!("basefont")
                | local_name!("bgsound")
                | local_name!("br")
                | local_name!("col")
                | local_name!("embed")
                | local_name!("frame")
                | local_name!("hr")
                | local_name!("img")
                | local_name!("input")
                | local_name!("keygen")
                | local_name!("link")
                | local_name!("meta")
                | local_name!("param")
                | local_name!("source")
                | local_name!("track")
                | local_name!("wbr")
        )
}

fn prefix(attribute: &Attribute) -> &'static str {
    match attribute.name.ns {
        ns!(xml) => "xml:",
        ns!(xmlns) if attribute.name.local != local_name!("xmlns") => "xmlns:",
        ns!(xlink) => "xlink:",
        _ => "",
    }
}

fn push_escaped(html: &mut String, text: &str, in_attribute: bool) {
    let mut rest = text;
    while let Some(at) = rest.find(['&', '<', '>', '"', '\u{A0}']) {
        let (plain, behind) = rest.split_at(at);
        html.push_str(plain);
        let mut characters = behind.chars();
        match characters.next() {
            Some('&') => html.push_str("&amp;"),
            Some('<') => html.push_str("&lt;"),
            Some('>') => html.push_str("&gt;"),
            Some('"') => html.push_str(if in_attribute { "&quot;" } else { "\"" }),
            _ => html.push_str("&nbsp;"),
        }
        rest = characters.as_str();
    }
    html.push_str(rest);
}
