//! Writes XML: elements, attributes and text, escaped, without the characters that XML 1.0 does not have.

/// A document in the making.
pub(super) struct Xml(String);

/// The start of an element.
pub(super) struct Element<'a> {
    xml: &'a mut Xml,
    name: &'static str,
}

impl Xml {
    /// Begins a document.
    pub(super) fn new() -> Self {
        Xml("<?xml version=\"1.0\" encoding=\"utf-8\"?>".to_owned())
    }

    /// Begins an element.
    pub(super) fn element(&mut self, name: &'static str) -> Element<'_> {
        self.0.push('<');
        self.0.push_str(name);
        Element { xml: self, name }
    }

    /// Returns the document.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0.into_bytes()
    }

    fn escaped(&mut self, text: &str) {
        for c in text.chars() {
            match c {
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '&' => self.0.push_str("&amp;"),
                '\'' => self.0.push_str("&apos;"),
                '"' => self.0.push_str("&quot;"),
                '\t' | '\n' | '\r' | ' '..='\u{FFFD}' | '\u{10000}'.. => self.0.push(c),
                _ => {}
            }
        }
    }
}

impl Element<'_> {
    /// Adds an attribute.
    pub(super) fn with(self, name: &str, value: &str) -> Self {
        self.xml.0.push(' ');
        self.xml.0.push_str(name);
        self.xml.0.push_str("=\"");
        self.xml.escaped(value);
        self.xml.0.push('"');
        self
    }

    /// Ends it without content.
    pub(super) fn empty(self) {
        self.xml.0.push_str("/>");
    }

    /// Ends it with text.
    pub(super) fn text(self, text: &str) {
        self.inner(|xml| xml.escaped(text));
    }

    /// Ends it with elements.
    pub(super) fn inner(self, write: impl FnOnce(&mut Xml)) {
        self.xml.0.push('>');
        write(self.xml);
        self.xml.0.push_str("</");
        self.xml.0.push_str(self.name);
        self.xml.0.push('>');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_escaped_and_holds_no_character_that_xml_does_not_have() {
        let mut xml = Xml::new();
        xml.element("a").with("b", "\"<\u{1}").inner(|xml| {
            xml.element("c").text("1 < 2 & 'x'\u{fffe}\n\u{1F600}");
            xml.element("d").empty();
        });
        let text = String::from_utf8(xml.into_bytes()).unwrap();
        let (_, text) = text.split_once("?>").unwrap();
        assert_eq!(text, "<a b=\"&quot;&lt;\"><c>1 &lt; 2 &amp; &apos;x&apos;\n\u{1F600}</c><d/></a>");
    }
}
