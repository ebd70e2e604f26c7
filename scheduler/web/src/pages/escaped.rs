//! How templates print texts. Those of strangers must not turn around the words beside them.

use std::fmt::{self, Write};

use askama::filters::{Escaper, Html};
use common::words::turns_text;

/// Escapes for HTML, and leaves out the characters that turn the direction of the text around them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Page;

impl Escaper for Page {
    fn write_escaped_str<W: Write>(&self, mut page: W, text: &str) -> fmt::Result {
        text.split(turns_text).try_for_each(|part| Html.write_escaped_str(&mut page, part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_turns_what_is_beside_it() {
        let mut page = String::new();
        Page.write_escaped_str(&mut page, "a\u{202e}<b>\u{2066} שלום\u{2069}").unwrap();
        assert_eq!(page, "a&#60;b&#62; שלום");
    }
}
