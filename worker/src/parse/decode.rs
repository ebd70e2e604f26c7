//! From bytes to text: what encoding a document is written in, whatever it says about itself.
//!
//! The order is that of XML's appendix F and RFC 7303: a byte order mark, the shape of the first bytes, the `charset` of
//! the content type, the XML declaration, then a guess. Declarations are often wrong, so each candidate must really fit
//! the bytes: one that does not is passed over. The result is UTF-8 without byte order mark, without NULs and without the
//! XML declaration, which would contradict it.
//!
//! Deliberately not here: statistical guessing of single-byte encodings.

use std::borrow::Cow;

use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252};

use super::codepages::CodePage;

/// An XML declaration ends within this number of bytes, if there is one.
const DECLARATION_WINDOW: usize = 4 * 1024;

/// Returns a document's text, whatever it says about its encoding. Never fails: what fits nothing is read as Windows-1252,
/// in which every byte means something.
pub fn text_of<'a>(bytes: &'a [u8], content_type: Option<&str>) -> Cow<'a, str> {
    let by_first_bytes = unicode_by_first_bytes(bytes).or_else(|| ebcdic(bytes).map(Cow::Owned));
    let text = by_first_bytes.unwrap_or_else(|| by_declaration(bytes, content_type));
    without_declaration(without_nuls(text))
}

/// Texts that say by their first bytes that they are Unicode: a byte order mark, or a `<` or `{` two or four bytes wide.
fn unicode_by_first_bytes(bytes: &[u8]) -> Option<Cow<'_, str>> {
    let wide = |encoding: &'static Encoding, skip: usize| Some(encoding.decode_without_bom_handling(&bytes[skip..]).0);
    match bytes {
        [0xEF, 0xBB, 0xBF, rest @ ..] => Some(utf8(rest).unwrap_or_else(|| String::from_utf8_lossy(rest))),
        [0xFF, 0xFE, 0, 0, rest @ ..] => Some(utf32(rest, u32::from_le_bytes).into()),
        [0, 0, 0xFE, 0xFF, rest @ ..] => Some(utf32(rest, u32::from_be_bytes).into()),
        [b'<' | b'{', 0, 0, 0, ..] => Some(utf32(bytes, u32::from_le_bytes).into()),
        [0, 0, 0, b'<' | b'{', ..] => Some(utf32(bytes, u32::from_be_bytes).into()),
        [0xFF, 0xFE, ..] => wide(UTF_16LE, 2),
        [0xFE, 0xFF, ..] => wide(UTF_16BE, 2),
        [b'<' | b'{', 0, second, 0, ..] if *second != 0 => wide(UTF_16LE, 0),
        [0, b'<' | b'{', 0, second, ..] if *second != 0 => wide(UTF_16BE, 0),
        _ => None,
    }
}

/// `<?xm` in EBCDIC; which of its relatives it is, the declaration says.
fn ebcdic(bytes: &[u8]) -> Option<String> {
    if !bytes.starts_with(&[0x4C, 0x6F, 0xA7, 0x94]) {
        return None;
    }
    let common = CodePage::ebcdic()?;
    let head = common.decode(&bytes[..bytes.len().min(DECLARATION_WINDOW)]);
    let declared = declared_label(head.as_bytes()).and_then(|label| CodePage::for_label(&label));
    Some(declared.filter(|page| page.is_ebcdic()).unwrap_or(common).decode(bytes))
}

/// Bytes beyond ASCII that make a text which is valid UTF-8 certain to be UTF-8: one letter of two bytes can be a letter of another
/// encoding.
const LEAST_EVIDENCE: usize = 3;

fn by_declaration<'a>(bytes: &'a [u8], content_type: Option<&str>) -> Cow<'a, str> {
    let as_utf8 = utf8(bytes);
    // An escape character is the one way in which bytes of ASCII mean something else (ISO 2022).
    if bytes.is_ascii() && !bytes.contains(&0x1B) {
        return as_utf8.unwrap_or_default();
    }
    let labels = [content_type.and_then(charset_parameter), declared_label(bytes)];
    let page = labels.iter().flatten().find_map(|label| CodePage::for_label(label));
    if let (Some(page), None) = (page.filter(|page| !page.is_ebcdic()), &as_utf8) {
        return page.decode(bytes).into();
    }
    let declared = labels.map(|label| label.and_then(|label| encoding(&label)));
    let wide_bytes = bytes.iter().filter(|byte| !byte.is_ascii()).count();
    for encoding in declared.into_iter().flatten() {
        // A label in ASCII bytes cannot mean UTF-16. And text that is valid UTF-8 beyond ASCII is UTF-8 by overwhelming
        // odds, while other encodings accept nearly anything: servers add `charset=iso-8859-1` to whatever they send, and GBK
        // takes most of what is UTF-8, until one day an entry does not fit.
        let implausible = matches!(encoding, e if e == UTF_16LE || e == UTF_16BE || e == UTF_8)
            || (encoding.is_single_byte() && !bytes.is_ascii() && is_nearly_utf8(bytes))
            || (as_utf8.is_some() && wide_bytes >= LEAST_EVIDENCE);
        if implausible {
            continue;
        }
        if let Some(text) = encoding.decode_without_bom_handling_and_without_replacement(bytes) {
            return text;
        }
    }
    as_utf8.or_else(|| damaged_utf8(bytes)).unwrap_or_else(|| {
        let wide = declared.into_iter().flatten().find(|encoding| !encoding.is_single_byte() && *encoding != UTF_8);
        let encoding = wide.filter(|encoding| encoding.is_ascii_compatible()).unwrap_or(WINDOWS_1252);
        encoding.decode_without_bom_handling(bytes).0
    })
}

fn utf8(bytes: &[u8]) -> Option<Cow<'_, str>> {
    std::str::from_utf8(bytes).ok().map(Cow::Borrowed)
}

/// UTF-8 with a few broken bytes in it (a cut document, a careless `substr`) rather than another encoding: most of what
/// is not ASCII is sound.
fn damaged_utf8(bytes: &[u8]) -> Option<Cow<'_, str>> {
    let (sound, broken) = beyond_ascii(bytes);
    (sound > broken).then(|| String::from_utf8_lossy(bytes))
}

/// Returns whether this is UTF-8 whatever a label says: in other encodings hardly any letter beyond ASCII is sound.
fn is_nearly_utf8(bytes: &[u8]) -> bool {
    let (sound, broken) = beyond_ascii(bytes);
    sound > 4 * broken
}

/// Returns how many characters beyond ASCII are sound UTF-8, and how many places are broken.
fn beyond_ascii(bytes: &[u8]) -> (usize, usize) {
    let (mut sound, mut broken) = (0_usize, 0_usize);
    for chunk in bytes.utf8_chunks() {
        sound += chunk.valid().chars().filter(|character| !character.is_ascii()).count();
        broken += usize::from(!chunk.invalid().is_empty());
    }
    (sound, broken)
}

fn utf32(bytes: &[u8], unit: fn([u8; 4]) -> u32) -> String {
    let (units, _) = bytes.as_chunks::<4>();
    units.iter().map(|bytes| char::from_u32(unit(*bytes)).unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
}

/// Returns the `charset` parameter of a media type (RFC 9110, section 8.3.1), as [`plain_label`].
fn charset_parameter(content_type: &str) -> Option<String> {
    content_type.split(';').skip(1).find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("charset").then(|| plain_label(value.trim().trim_matches(['"', '\''])))
    })
}

/// Returns the label of the encoding that an XML declaration in ASCII-compatible bytes names, as [`plain_label`].
fn declared_label(bytes: &[u8]) -> Option<String> {
    let head = &bytes[..bytes.len().min(DECLARATION_WINDOW)];
    let start = head.windows(5).position(|window| window == b"<?xml")?;
    let end = start + head[start..].windows(2).position(|window| window == b"?>")?;
    let declaration = std::str::from_utf8(&head[start..end]).ok()?;
    let (_, value) = declaration.split_once("encoding")?.1.split_once('=')?;
    let value = value.trim_start();
    let quote = value.chars().next().filter(|first| matches!(first, '"' | '\''))?;
    value[1..].split(quote).next().map(plain_label)
}

/// In lower case, with hyphens.
fn plain_label(label: &str) -> String {
    label.trim().to_ascii_lowercase().replace('_', "-")
}

/// The names that Windows and the Macintosh have for encodings of the standard, beside its own many.
const ALIASES: &[(&str, &str)] = &[
    ("mac-cyrillic", "x-mac-cyrillic"),
    ("mac-roman", "macintosh"),
    ("maccyrillic", "x-mac-cyrillic"),
    ("macroman", "macintosh"),
    ("ms-ansi", "windows-1252"),
    ("ms-arab", "windows-1256"),
    ("ms-cyrl", "windows-1251"),
    ("ms-ee", "windows-1250"),
    ("ms-greek", "windows-1253"),
    ("ms-hebr", "windows-1255"),
    ("ms-turk", "windows-1254"),
    ("winbaltrim", "windows-1257"),
];

fn encoding(label: &str) -> Option<&'static Encoding> {
    let alias = ALIASES.iter().find(|(alias, _)| *alias == label).map(|(_, standard)| *standard);
    // The standard's own labels have both hyphens and underscores.
    let standard = alias.unwrap_or(label);
    let known = Encoding::for_label(standard.as_bytes());
    known.or_else(|| Encoding::for_label(standard.replace('-', "_").as_bytes()))
}

fn without_nuls(text: Cow<'_, str>) -> Cow<'_, str> {
    if text.as_bytes().contains(&0) { text.replace('\0', "").into() } else { text }
}

/// Leaves out everything up to the end of an XML declaration that no markup precedes.
fn without_declaration(text: Cow<'_, str>) -> Cow<'_, str> {
    let window = text.len().min(DECLARATION_WINDOW);
    let declared = text.as_bytes()[..window].iter().position(|byte| *byte == b'<').filter(|start| {
        text[*start..]
            .strip_prefix("<?xml")
            .is_some_and(|rest| rest.starts_with(|next: char| next.is_ascii_whitespace()))
    });
    let skip = match declared.and_then(|start| text[start..].find("?>").map(|end| start + end + 2)) {
        Some(end) => end,
        None => text.len() - text.trim_start_matches(['\u{FEFF}', ' ', '\t', '\r', '\n']).len(),
    };
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(&text[skip..]),
        Cow::Owned(mut text) => {
            text.drain(..skip);
            Cow::Owned(text)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &str = "<rss>žluť Привет 日本</rss>";

    fn utf16(text: &str, order: fn(u16) -> [u8; 2]) -> Vec<u8> {
        text.encode_utf16().flat_map(order).collect()
    }

    #[test]
    fn unicode_is_known_by_its_first_bytes_with_and_without_a_mark() {
        let marked = format!("\u{FEFF}{PLAIN}");
        let in_utf32 = |order: fn(u32) -> [u8; 4], text: &str| -> Vec<u8> {
            text.chars().flat_map(|character| order(character.into())).collect()
        };
        let forms = [
            PLAIN.as_bytes().to_vec(),
            marked.as_bytes().to_vec(),
            utf16(PLAIN, u16::to_le_bytes),
            utf16(PLAIN, u16::to_be_bytes),
            utf16(&marked, u16::to_le_bytes),
            utf16(&marked, u16::to_be_bytes),
            in_utf32(u32::to_le_bytes, PLAIN),
            in_utf32(u32::to_be_bytes, PLAIN),
            in_utf32(u32::to_le_bytes, &marked),
            in_utf32(u32::to_be_bytes, &marked),
        ];
        for (at, form) in forms.iter().enumerate() {
            assert_eq!(text_of(form, Some("text/xml; charset=iso-8859-1")), PLAIN, "form {at}");
        }
    }

    #[test]
    fn declared_encodings_are_used_and_the_content_type_comes_first() {
        let table = [
            ("iso-8859-1", "<rss>caf\u{e9}</rss>", None),
            ("windows-1251", "<rss>Привет</rss>", None),
            ("shift_jis", "<rss>日本語</rss>", None),
            ("gb2312", "<rss>中文</rss>", None),
            ("koi8-r", "<rss>Привет</rss>", Some("windows-1251")),
        ];
        for (label, text, wrong_declaration) in table {
            let encoding = Encoding::for_label(label.as_bytes()).unwrap();
            let body = encoding.encode(text).0;
            let declared = [
                format!("<?xml version='1.0' encoding=\"{}\"?>", wrong_declaration.unwrap_or(label)).as_bytes(),
                &body,
            ]
            .concat();
            let content_type = wrong_declaration.map(|_| format!("text/xml; Charset=\"{label}\""));
            assert_eq!(text_of(&declared, content_type.as_deref()), text, "{label}");
        }
    }

    #[test]
    fn wrong_declarations_are_passed_over() {
        let declared = |label: &str| format!("<?xml version=\"1.0\" encoding=\"{label}\"?>{PLAIN}").into_bytes();
        for label in ["utf-16", "iso-8859-1", "windows-1251", "us-ascii", "no-such-thing", ""] {
            assert_eq!(text_of(&declared(label), None), PLAIN, "{label}");
            assert_eq!(text_of(PLAIN.as_bytes(), Some(&format!("text/xml;charset={label}"))), PLAIN, "{label}");
        }
        let latin = b"<?xml version='1.0' encoding='utf-8'?><rss>caf\xe9</rss>";
        assert_eq!(text_of(latin, Some("text/xml; charset=utf-8")), "<rss>café</rss>");
    }

    #[test]
    fn a_few_broken_bytes_do_not_turn_utf8_into_another_encoding() {
        let cut = &PLAIN.as_bytes()[..PLAIN.len() - 7];
        assert_eq!(text_of(cut, None), "<rss>žluť Привет 日\u{FFFD}");
        for label in ["iso-8859-1", "windows-1251", "windows-874"] {
            let content_type = format!("text/xml; charset={label}");
            assert_eq!(text_of(cut, Some(&content_type)), "<rss>žluť Привет 日\u{FFFD}", "{label}");
        }
        let thai = "<rss>ราคาน้ำมันวันนี้ รก รก ยก</rss>";
        let (body, ..) = Encoding::for_label(b"windows-874").unwrap().encode(thai);
        assert_eq!(text_of(&body, Some("text/xml; charset=windows-874")), thai);
    }

    #[test]
    fn nuls_marks_and_declarations_are_left_out() {
        assert_eq!(text_of(b"\xEF\xBB\xBF \n<?xml version='1.0'?>\n<r\0ss/>", None), "\n<rss/>");
        assert_eq!(text_of(b"some warning <?xml version='1.0' encoding='utf-7' ?><rss/>", None), "<rss/>");
        assert_eq!(text_of(b"<p><?xml version='1.0'?><rss/>", None), "<p><?xml version='1.0'?><rss/>");
        assert_eq!(text_of(b"<?xml-stylesheet href='a'?><rss/>", None), "<?xml-stylesheet href='a'?><rss/>");
        assert_eq!(text_of(b"", None), "");
    }
}
