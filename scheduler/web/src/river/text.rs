//! The first words of an entry, as plain text.

use common::entry::Entry;
use common::html::{Content, NodeId, Tree, TreeLimits};

/// Bytes of HTML in which the first words are looked for.
const WINDOW: usize = 8 * 1024;
const LIMITS: TreeLimits = TreeLimits { max_nodes: 4_000, max_depth: 200, max_bytes: 64 * 1024, deadline: None };
/// Elements whose text is not shown.
const UNSHOWN: [&str; 10] =
    ["script", "style", "template", "noscript", "iframe", "object", "svg", "math", "head", "title"];
/// Elements inside of a line of text.
const INLINE: [&str; 18] = [
    "a", "abbr", "b", "bdi", "bdo", "cite", "code", "em", "i", "ins", "kbd", "mark", "s", "small", "span", "strong",
    "sub", "sup",
];

/// Returns the first words of the summary, else of the content: at most `most` characters, cut between words.
pub(crate) fn first_words(entry: &Entry, most: usize) -> String {
    let texts = [&entry.summary, &entry.content].into_iter().flatten();
    let words = texts.map(|html| plain(html, most)).find(|text| !text.is_empty()).unwrap_or_default();
    // Posts without a title are called by their first words already.
    if entry.title.is_none() && entry.first_words.as_deref() == Some(words.as_str()) { String::new() } else { words }
}

/// Returns the beginning of a text without its markup.
fn plain(html: &str, most: usize) -> String {
    let window = &html[..html.floor_char_boundary(WINDOW)];
    let Ok(tree) = Tree::of_fragment(window, LIMITS) else { return String::new() };
    let mut text = String::new();
    let root = tree.root();
    let mut next = tree.after(root, root, true);
    // Cut later between words; white space may double the length.
    while let Some(node) = next.filter(|_| text.len() < most * 8) {
        let shown = add(&tree, node, &mut text);
        next = tree.after(node, root, shown);
    }
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let line: String = line.chars().filter(|c| !c.is_control()).collect();
    let Some((end, _)) = line.char_indices().nth(most) else {
        return if window.len() < html.len() && !line.is_empty() { format!("{line}…") } else { line };
    };
    let whole_words = line[..end].rfind(' ').unwrap_or(end);
    format!("{}…", line[..whole_words].trim_end_matches([',', ';', ':', '.', ' ']))
}

/// Adds a node's own text; returns whether what is inside of it is shown.
fn add(tree: &Tree, node: NodeId, text: &mut String) -> bool {
    if let Content::Text(own) = tree.content(node) {
        text.push_str(own);
        return true;
    }
    let name = tree.name(node);
    if !name.is_empty() && !INLINE.contains(&name) {
        text.push(' ');
    }
    !UNSHOWN.contains(&name)
}

#[cfg(test)]
mod tests {
    use common::testing::{assert_linear, pieces};

    use super::*;

    #[test]
    fn first_words_are_text_without_markup() {
        let table = [
            ("<p>Fog &amp; <b>ra</b>in</p><p>again</p>", "Fog & rain again"),
            ("<script>alert(1)</script><style>p{}</style>Quay<br>side", "Quay side"),
            ("<img src=x onerror=alert(1)>", ""),
            ("5 &lt; 6 <!-- not this -->\n\t and so on", "5 < 6 and so on"),
            ("<ul><li>one<li>two</ul>", "one two"),
        ];
        for (html, expected) in table {
            assert_eq!(plain(html, 100), expected, "{html}");
        }
        assert_eq!(plain("many words, many words, and more", 20), "many words, many…");
        let long = plain(&"<p>wordy</p>".repeat(2_000), 10_000);
        assert!(long.ends_with("wordy…") || long.ends_with('…'), "{long}");
    }

    #[test]
    fn the_summary_goes_before_the_content_unless_it_is_empty() {
        let entry = |summary: &str, content: &str| Entry {
            title: Some("t".into()),
            summary: Some(summary.into()),
            content: Some(content.into()),
            ..Entry::default()
        };
        assert_eq!(first_words(&entry("short", "long"), 100), "short");
        assert_eq!(first_words(&entry("<img src=x>", "long"), 100), "long");
        let untitled = Entry { title: None, first_words: Some("short".into()), ..entry("short", "long") };
        assert_eq!(first_words(&untitled, 100), "", "it is the title already");
    }

    #[test]
    fn time_grows_with_the_text() {
        let tokens = ["<b>", "<p><table>", "&amp;", "<a href=x>", "x ", "<!--"];
        let generated = pieces(&tokens, 24);
        for piece in tokens.into_iter().chain(generated.iter().map(String::as_str)) {
            assert_linear(piece, |length| piece.repeat(length / piece.len()), |html| drop(plain(html, 300)));
        }
    }
}
