//! Texts of publishers made fit to store: no characters that databases refuse, no more bytes than allowed, and titles as
//! plain text.
//!
//! Deliberately not here: sanitising of HTML. Content stays as the publisher wrote it; the code that shows it must
//! sanitise.

use std::borrow::Cow;

use encoding_rs::WINDOWS_1252;

use super::entities;

/// Removes control characters (NUL above all) and reads the second block of them, as browsers do, as Windows-1252: they
/// come from that encoding taken for Latin-1. White space at both ends goes; a text of nothing is none.
pub(super) fn cleaned(text: Cow<'_, str>) -> Option<String> {
    let text = if has_unwanted(&text) { text.chars().filter_map(repaired).collect::<String>().into() } else { text };
    let trimmed = text.trim();
    match (trimmed.len(), text) {
        (0, _) => None,
        (all, Cow::Owned(text)) if all == text.len() => Some(text),
        (_, text) => Some(text.trim().to_owned()),
    }
}

fn has_unwanted(text: &str) -> bool {
    // The second block of control characters begins with this byte in UTF-8; so do some letters, hence the second look.
    let suspicious = |byte: u8| (byte < 0x20 && !matches!(byte, b'\t' | b'\n' | b'\r')) || matches!(byte, 0x7F | 0xC2);
    // All bytes of a block are looked at without a branch, so that the compiler does it for many at once.
    let in_block = |block: &[u8]| block.iter().fold(false, |found, byte| found | suspicious(*byte));
    text.as_bytes().chunks(64).any(in_block) && text.chars().any(is_unwanted)
}

fn is_unwanted(character: char) -> bool {
    matches!(character, '\0'..='\u{8}' | '\u{B}' | '\u{C}' | '\u{E}'..='\u{1F}' | '\u{7F}'..='\u{9F}')
}

fn repaired(character: char) -> Option<char> {
    match character {
        '\u{80}'..='\u{9F}' => {
            let byte = u8::try_from(u32::from(character)).ok()?;
            let meant = WINDOWS_1252.decode_without_bom_handling(&[byte]).0.chars().next()?;
            (!meant.is_control()).then_some(meant)
        }
        _ => (!is_unwanted(character)).then_some(character),
    }
}

/// Longest summary or content, in bytes, whatever the limits of a document allow: readers that do not know the limits
/// escape no more of a text.
pub(super) const MAX_TEXT_BYTES: usize = 1024 * 1024;

/// Returns as much of a text as may be kept and one character more, so that the entry is marked as cut. Escaping makes
/// a text up to six times as long.
pub(super) fn beginning(text: &str, max_bytes: usize) -> &str {
    const LONGEST_CHARACTER: usize = 4;
    &text[..text.floor_char_boundary(max_bytes.saturating_add(LONGEST_CHARACTER))]
}

/// Returns a plain text as HTML that shows it, line breaks included: long texts of entries are HTML, whatever their
/// publisher wrote.
pub(super) fn as_html(text: Cow<'_, str>) -> Cow<'_, str> {
    if !text.trim().contains(['&', '<', '>', '\n']) {
        return text;
    }
    escaped_lines(beginning(text.trim(), MAX_TEXT_BYTES), "<br>\n").into()
}

/// Returns a text that must not be taken for markup, fit for an attribute too.
pub(super) fn escaped(text: &str) -> String {
    escaped_lines(text, "\n")
}

/// Returns the same with this HTML in place of each line feed.
pub(super) fn escaped_lines(text: &str, line_break: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\n' => html.push_str(line_break),
            _ => html.push(character),
        }
    }
    html
}

/// Cuts a text to at most `max` bytes at a character's border. Says whether it did.
pub(super) fn cut(text: &mut Cow<'_, str>, max: usize) -> bool {
    let too_long = text.len() > max;
    if too_long {
        match text {
            Cow::Borrowed(borrowed) => *borrowed = &borrowed[..borrowed.floor_char_boundary(max)],
            Cow::Owned(owned) => owned.truncate(owned.floor_char_boundary(max)),
        }
    }
    too_long
}

/// White space of all kinds as single spaces: what a title looks like on a page.
pub(super) fn on_one_line(text: &str) -> Cow<'_, str> {
    let plain = !text.contains(|c: char| c.is_whitespace() && c != ' ') && !text.contains("  ");
    if plain { text.into() } else { text.split_whitespace().collect::<Vec<_>>().join(" ").into() }
}

/// Which tags are markup in a text that may or may not be HTML.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Markup {
    /// The text is HTML: every tag is.
    All,
    /// The text may be either (an RSS title): tags that format are, `Vec<T>` is not.
    Formatting,
}

const FORMATTING: &[&str] = &[
    "a", "abbr", "acronym", "b", "big", "br", "cite", "code", "del", "div", "em", "font", "h1", "h2", "h3", "h4", "h5",
    "h6", "i", "img", "ins", "kbd", "li", "mark", "nobr", "p", "q", "s", "small", "span", "strike", "strong", "sub",
    "sup", "tt", "u", "wbr",
];

/// Returns the plain text of HTML: tags left out, references resolved.
pub(super) fn plain(html: &str, markup: Markup) -> Cow<'_, str> {
    if !html.contains(['<', '&']) {
        return html.into();
    }
    let mut text = String::with_capacity(html.len());
    let mut rest = html;
    while let Some(at) = rest.find(['<', '&']) {
        text.push_str(&rest[..at]);
        rest = &rest[at..];
        let is_tag = rest.starts_with('<');
        let consumed = if is_tag { skip_tag(rest, markup) } else { push_reference(&mut text, rest) };
        if consumed == 0 {
            text.push_str(&rest[..1]);
        } else if is_tag && breaks_line(rest) && !text.ends_with(char::is_whitespace) {
            text.push(' ');
        }
        rest = &rest[consumed.max(1)..];
    }
    text.push_str(rest);
    text.into()
}

/// Returns whether what is before the tag and what is behind it are on separate lines.
fn breaks_line(tag: &str) -> bool {
    const BLOCKS: [&str; 13] = ["blockquote", "br", "dd", "div", "dt", "h1", "h2", "h3", "h4", "hr", "li", "p", "tr"];
    let inside = tag[1..].trim_start_matches('/');
    let end = inside.bytes().position(|byte| !byte.is_ascii_alphanumeric()).unwrap_or(inside.len());
    BLOCKS.iter().any(|block| block.eq_ignore_ascii_case(&inside[..end]))
}

/// Longest tag that is known as one, in bytes: an unclosed one must not cost a search to the text's end.
const MAX_TAG: usize = 2 * 1024;

/// Returns the length of the tag or comment that a text begins with; 0 when it is neither.
fn skip_tag(text: &str, markup: Markup) -> usize {
    if text.starts_with("<!--") {
        // An unclosed one hides the rest.
        return text.find("-->").map_or(text.len(), |end| end + 3);
    }
    let text = &text[..text.floor_char_boundary(MAX_TAG)];
    let inside = text[1..].trim_start_matches('/');
    let name_end = inside.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(inside.len());
    let name = &inside[..name_end];
    let is_name = name.starts_with(|first: char| first.is_ascii_alphabetic());
    let wanted = match markup {
        Markup::All => is_name,
        Markup::Formatting => FORMATTING.iter().any(|known| known.eq_ignore_ascii_case(name)),
    };
    let ended = inside[name_end..].starts_with(|next: char| next.is_whitespace() || matches!(next, '>' | '/'));
    // Looked for first, and fast: a text of nothing but unclosed tags costs that at each of them.
    if !wanted || !ended || !text.contains('>') {
        return 0;
    }
    let tag = 1 + tag_end(&text[1..]);
    let hides = matches!(name.to_ascii_lowercase().as_str(), "script" | "style") && text.as_bytes()[1] != b'/';
    let end_tag = if hides { text[tag.min(text.len())..].find("</") } else { None };
    match text.get(..tag) {
        Some(_) => tag + end_tag.unwrap_or(0),
        None => 0,
    }
}

/// Returns the length of a tag's inside with its `>`; more than there is when the tag does not end.
fn tag_end(inside: &str) -> usize {
    let mut quote = None;
    for (at, byte) in inside.bytes().enumerate() {
        match (quote, byte) {
            (Some(open), byte) if byte == open => quote = None,
            (Some(_), _) => {}
            (None, b'"' | b'\'') => quote = Some(byte),
            (None, b'>') => return at + 1,
            _ => {}
        }
    }
    inside.find('>').map_or(inside.len() + 1, |at| at + 1)
}

/// Returns a text with its references resolved, as an attribute's value is read.
pub(super) fn resolved(raw: &str) -> Cow<'_, str> {
    if !raw.contains('&') {
        return raw.into();
    }
    let (mut text, mut rest) = (String::with_capacity(raw.len()), raw);
    while let Some(at) = rest.find('&') {
        text.push_str(&rest[..at]);
        rest = &rest[at..];
        let consumed = push_reference(&mut text, rest);
        if consumed == 0 {
            text.push('&');
        }
        // An invalid reference also begins with an ampersand.
        rest = &rest[consumed.max(1)..];
    }
    text.push_str(rest);
    text.into()
}

/// Returns the value of an attribute inside of a tag of HTML, of which the text behind the name is given; the tag may
/// not be closed in it.
pub(super) fn tag_attribute<'t>(inside: &'t str, name: &str) -> Option<Cow<'t, str>> {
    let mut rest = inside;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '/');
        let end = rest.find(|c: char| c.is_ascii_whitespace() || matches!(c, '=' | '>' | '/')).unwrap_or(rest.len());
        if end == 0 && !rest.starts_with('=') {
            return None;
        }
        let (found, behind) = rest.split_at(end);
        let Some(value) = behind.trim_ascii_start().strip_prefix('=').map(str::trim_ascii_start) else {
            rest = behind;
            continue;
        };
        let quote = value.chars().next().filter(|first| matches!(first, '"' | '\''));
        let value = quote.map_or(value, |_| &value[1..]);
        let ends = |c: char| quote.map_or(c.is_ascii_whitespace() || c == '>', |quote| c == quote);
        let value_end = value.find(ends).unwrap_or(value.len());
        if found.eq_ignore_ascii_case(name) {
            return Some(resolved(&value[..value_end]));
        }
        rest = value.get(value_end + usize::from(quote.is_some())..).unwrap_or("");
    }
}

/// Longest name of a reference in HTML, in bytes, with room.
const MAX_REFERENCE: usize = 40;

/// Adds the text of the reference at the beginning of `text`; returns the reference's length, 0 when it is invalid.
fn push_reference(text: &mut String, from: &str) -> usize {
    // A text may be all ampersands: each is looked at as far as a name reaches.
    let ends_name = |byte: u8| !byte.is_ascii_alphanumeric() && byte != b'#';
    let end = from.bytes().take(MAX_REFERENCE).skip(1).position(ends_name).map(|at| at + 1);
    let Some(end) = end.filter(|end| from.as_bytes()[*end] == b';') else { return 0 };
    let name = &from[1..end];
    let character = if name.starts_with('#') { entities::number(name) } else { entities::character(name) };
    match character {
        Some(character) => {
            text.extend(repaired(character));
            end + 1
        }
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_control_character_is_found_wherever_it_is() {
        let unwanted = ('\0'..='\u{9F}').filter(|character| is_unwanted(*character));
        for character in unwanted {
            for before in [0, 1, 62, 63, 64, 127, 200] {
                let text = format!("{}{character}x", "é".repeat(before / 2) + &"a".repeat(before % 2));
                assert!(has_unwanted(&text), "{character:?} after {before} bytes");
            }
        }
        assert!(!has_unwanted(&"\tà\r\n~ £".repeat(50)));
    }

    #[test]
    fn a_plain_text_becomes_html_that_shows_it() {
        assert!(matches!(as_html("a plain one".into()), Cow::Borrowed(_)));
        assert_eq!(
            as_html("1 < 2 & \"b\"\n<b>no tag</b>\n".into()),
            "1 &lt; 2 &amp; &quot;b&quot;<br>\n&lt;b&gt;no tag&lt;/b&gt;"
        );
        assert_eq!(escaped("\n"), "\n");
    }

    #[test]
    fn a_long_text_is_escaped_as_far_as_it_is_kept() {
        assert!(crate::parse::ParseLimits::default().max_text_bytes <= MAX_TEXT_BYTES);
        let whole = "&".repeat(MAX_TEXT_BYTES);
        assert_eq!(as_html(whole.as_str().into()).len(), MAX_TEXT_BYTES * "&amp;".len());
        let html = as_html(format!("{whole}{}", "é&".repeat(MAX_TEXT_BYTES)).into());
        assert_eq!(&html[MAX_TEXT_BYTES * "&amp;".len()..], "é&amp;");
    }

    #[test]
    fn a_beginning_is_longer_than_what_is_kept_if_the_text_is() {
        let table = [("abc", "abc"), ("abcdefgh", "abcdefg"), ("abc\u{1F30A}d", "abc\u{1F30A}"), ("ééééé", "ééé")];
        for (text, kept) in table {
            assert_eq!(beginning(text, 3), kept, "{text}");
        }
    }

    #[test]
    fn control_characters_go_and_windows_quotes_are_read() {
        assert_eq!(cleaned(" a\0b\u{1}\tc\n ".into()).as_deref(), Some("ab\tc"));
        assert_eq!(cleaned("\u{93}it\u{92}s\u{94}\u{81}".into()).as_deref(), Some("“it’s”"));
        assert_eq!(cleaned(" \0\n ".into()), None);
    }

    #[test]
    fn a_cut_never_splits_a_character() {
        let whole = "aé".repeat(3);
        for mut text in [Cow::Borrowed(whole.as_str()), Cow::Owned(whole.clone())] {
            assert!(cut(&mut text, 5));
            assert_eq!(text, "aéa");
            assert!(!cut(&mut text, 5));
        }
    }

    #[test]
    fn references_in_attributes_are_resolved_and_everything_else_stays() {
        let table = [
            ("a", "a"),
            ("?a=1&amp;b=2", "?a=1&b=2"),
            ("?a=1&b=2", "?a=1&b=2"),
            ("&&#65;<b>&", "&A<b>&"),
            ("é&é;", "é&é;"),
            ("&amp;à la &#101;é&é&", "&à la eé&é&"),
            ("&#+65;&a b;&a&lt;", "&#+65;&a b;&a<"),
        ];
        for (raw, text) in table {
            assert_eq!(resolved(raw), text, "{raw}");
        }
    }

    #[test]
    fn attributes_of_tags_are_found() {
        let table = [
            (" href='a&amp;b'>x", Some("a&b")),
            (" class=\"x y\" checked HREF = \"/a b\"", Some("/a b")),
            (" href=/a/b>", Some("/a/b")),
            (" data-href='no'>x href='no'", None),
            (" href", None),
            (" = = ='", None),
            (" href='a", Some("a")),
        ];
        for (inside, value) in table {
            assert_eq!(tag_attribute(inside, "href").as_deref(), value, "{inside}");
        }
    }

    #[test]
    fn plain_text_has_no_tags_and_no_references() {
        let table = [
            ("Fish &amp; <b>chips</b>", "Fish & chips"),
            ("a<br/>b<!-- x -->c", "a bc"),
            ("1 < 2 && 3 > 2", "1 < 2 && 3 > 2"),
            ("&eacute;&#233;&#xE9;&#146;&nosuch;&#0;&#xD800;", "ééé’&nosuch;&#xD800;"),
            ("&", "&"),
            ("<", "<"),
            ("<b", "<b"),
            ("AT&T; & co", "AT&T; & co"),
            ("a<img alt='x > y'>b<a href=\"it's\">c</a>", "abc"),
            ("a<b '>c", "ac"),
            ("<b <b <b", "<b <b <b"),
        ];
        for (html, text) in table {
            assert_eq!(plain(html, Markup::All), text, "{html}");
            assert_eq!(plain(html, Markup::Formatting), text, "{html}");
        }
        for markup in [Markup::All, Markup::Formatting] {
            assert_eq!(plain("<p>out.</p><p>Get it<br />now</p>", markup).trim(), "out. Get it now");
            assert_eq!(plain("One <BR>two<b>t</b>hree", markup), "One twothree");
        }
        assert_eq!(plain("Vec<T> and <i>more</i>", Markup::Formatting), "Vec<T> and more");
        assert_eq!(plain("Vec<T> and <i>more</i>", Markup::All), "Vec and more");
        assert_eq!(plain("a<script>alert('<b>')</script>b<style>", Markup::All), "ab");
    }
}
