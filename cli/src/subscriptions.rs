//! Files of subscriptions: OPML, or a plain list with one URL per line, in any encoding. A file is read in full before
//! it is used, so an invalid file changes nothing.

use anyhow::{Context, anyhow, ensure};

use web::opml::{self, Subscription};

use crate::usage::Usage;
use crate::whole_file;

/// Returns the subscriptions of a file; `-` is standard input.
pub(crate) fn read_file(file: &str) -> anyhow::Result<Vec<Subscription>> {
    if file.starts_with("http://") || file.starts_with("https://") {
        let advice = format!("download it first: curl -L '{file}' | feedfleet import -");
        return Err(Usage(format!("{file} is not a file; {advice}")).into());
    }
    let bytes = whole_file::read(file)?;
    read_bytes(&bytes).with_context(|| format!("{file} cannot be read"))
}

fn read_bytes(bytes: &[u8]) -> anyhow::Result<Vec<Subscription>> {
    let text = worker::parse::text_of(bytes, None);
    if text.trim_start().starts_with('<') {
        opml::read(&text).map_err(|error| anyhow!("it is not an OPML file: {error}"))
    } else {
        list(&text)
    }
}

/// Reads one URL per line; skips empty lines and those that begin with `#`.
fn list(text: &str) -> anyhow::Result<Vec<Subscription>> {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    let named = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let read = named.map(|(line, url)| {
        ensure!(
            !url.contains(char::is_whitespace),
            "line {line} has more than an address; a comment needs a separate line"
        );
        Ok(Subscription::of(line, url))
    });
    read.collect()
}

#[cfg(test)]
mod tests {
    use common::testing::mutations::{count, survives};

    use super::*;

    fn urls(bytes: &[u8]) -> Vec<String> {
        read_bytes(bytes).unwrap().into_iter().map(|found| found.url).collect()
    }

    #[test]
    fn a_file_that_is_too_large_is_refused_before_it_is_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        // A hole: it takes no room.
        file.as_file().set_len(1 << 40).unwrap();
        let error = read_file(file.path().to_str().unwrap()).unwrap_err().to_string();
        assert!(error.ends_with("is larger than 256 MiB; split it"), "{error}");
    }

    #[test]
    fn a_list_has_a_url_a_line() {
        let list = "\u{feff}# mine\r\nhttp://a.example/\r\n\r\n  http://b.example/#x  \r\nnonsense";
        let found: Vec<_> =
            read_bytes(list.as_bytes()).unwrap().into_iter().map(|found| (found.line, found.url)).collect();
        let expected = [(2, "http://a.example/"), (4, "http://b.example/#x"), (5, "nonsense")];
        assert_eq!(found, expected.map(|(line, url)| (line, url.to_owned())));
    }

    #[test]
    fn a_list_has_any_line_ends_and_nothing_beside_an_address() {
        assert_eq!(urls(b"http://a.example/\rhttp://b.example/\r"), ["http://a.example/", "http://b.example/"]);
        let error = read_bytes(b"# mine\nhttp://a.example/ # the first").unwrap_err().to_string();
        assert_eq!(error, "line 2 has more than an address; a comment needs a separate line");
    }

    #[test]
    fn the_encoding_does_not_matter() {
        let document = "<?xml version=\"1.0\" encoding=\"iso-8859-1\"?>\n<opml><outline xmlUrl=\"http://a.example/caf\u{e9}\"/></opml>";
        let latin: Vec<u8> = document.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect();
        assert_eq!(urls(&latin), ["http://a.example/caf\u{e9}"]);
        let wide: Vec<u8> =
            document.replace("iso-8859-1", "utf-16").encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert_eq!(urls(&wide), ["http://a.example/caf\u{e9}"]);
        assert_eq!(urls(&[&[0xFF, 0xFE][..], &wide].concat()), ["http://a.example/caf\u{e9}"]);
        let wide_list: Vec<u8> = "\u{feff}http://a.example/".encode_utf16().flat_map(u16::to_be_bytes).collect();
        assert_eq!(urls(&wide_list), ["http://a.example/"]);
    }

    #[test]
    fn mutated_files_neither_kill_their_reader_nor_take_long() {
        let opml = "<?xml version='1.0' encoding='utf-8'?><opml version='2.0' xmlns:feedfleet='urn:feedfleet:opml'><head>\
            <title>a &amp; b</title></head><body><outline text='folder'><outline type='rss' text='&lt;b&gt;' \
            xmlUrl='http://a.example/?x=1&amp;y=2' feedfleet:subscribers='7' feedfleet:calm='[\"Europe/Zurich\"]'/></outline>\n\
            <outline xmlUrl='http://b.example/?x&y'></outline><!-- x --><![CDATA[y]]></body></opml>";
        let wide: Vec<u8> = opml.replace("utf-8", "utf-16").encode_utf16().flat_map(u16::to_le_bytes).collect();
        let list = "# mine\r\nhttp://a.example/\r\n\r\n  http://b.example/#x  \r\nnonsense".as_bytes();
        let seeds =
            [opml.as_bytes().to_vec(), wide, list.to_vec(), b"<opml><outline xmlUrl='&#x41;&nbsp;&'/>".to_vec()];
        survives("files of subscriptions", &seeds, 4 * count(), |bytes| {
            let found = read_bytes(bytes).unwrap_or_default();
            assert!(found.len() <= bytes.len() && found.iter().all(|subscription| subscription.line > 0));
        });
    }
}
