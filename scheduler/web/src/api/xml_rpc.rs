//! XML-RPC as far as pings need it: a call's name and its texts, and the answers that clients know.
//!
//! Strict where strangers could do harm: no document type, no entities beyond XML's own five, no depth.

use std::borrow::Cow;

use quick_xml::Reader;
use quick_xml::escape::{escape, resolve_predefined_entity};
use quick_xml::events::Event;

/// Open elements: a text in a struct in an array has fewer.
const MAX_DEPTH: usize = 16;
/// The maximum number of parameters; no ping has that many.
const MAX_PARAMS: usize = 16;

/// A call.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Call {
    pub(super) method: String,
    /// Its parameters; those that are not texts are empty.
    pub(super) params: Vec<String>,
}

/// Returns a call's body. The error says what is wrong with it.
pub(super) fn read(body: &[u8]) -> Result<Call, String> {
    // Addresses and names of methods are ASCII in every encoding that is still in use here.
    let text = std::str::from_utf8(body).map_or_else(|_| latin(body), Cow::Borrowed);
    let mut reader = Reader::from_str(text.trim_start_matches('\u{feff}'));
    reader.config_mut().expand_empty_elements = true;
    let (mut call, mut open, mut param) = (Call::default(), Vec::new(), String::new());
    loop {
        let event = reader.read_event().map_err(|error| format!("it is not well-formed XML: {error}"))?;
        let piece: Cow<'_, str> = match event {
            Event::DocType(_) => return Err("a document type is not read".to_owned()),
            Event::Start(element) => {
                open.push(element.name().as_ref().to_owned());
                if open.len() > MAX_DEPTH {
                    return Err("it is nested too deeply".to_owned());
                }
                continue;
            }
            Event::End(_) => {
                if open.pop().as_deref() == Some("param") && call.params.len() < MAX_PARAMS {
                    call.params.push(std::mem::take(&mut param).trim().to_owned());
                }
                continue;
            }
            Event::Text(text) => text.into_inner(),
            Event::CData(text) => text.into_inner(),
            Event::GeneralRef(reference) => match reference.resolve_char_ref() {
                Ok(Some(character)) => character.to_string().into(),
                _ => match resolve_predefined_entity(&reference) {
                    Some(meant) => meant.into(),
                    None => return Err("an entity beyond XML's own five is not read".to_owned()),
                },
            },
            Event::Eof => break,
            _ => continue,
        };
        match open.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["methodCall", "methodName"] => call.method.push_str(&piece),
            ["methodCall", "params", "param", "value"] | ["methodCall", "params", "param", "value", "string"] => {
                param.push_str(&piece);
            }
            _ => {}
        }
    }
    call.method = call.method.trim().to_owned();
    if !open.is_empty() || call.method.is_empty() {
        return Err("it is not a complete methodCall".to_owned());
    }
    Ok(call)
}

fn latin(body: &[u8]) -> Cow<'static, str> {
    body.iter().map(|byte| char::from(*byte)).collect::<String>().into()
}

/// Returns the answer to `weblogUpdates.*`: whether it was refused, and a sentence.
pub(super) fn weblog_answer(refused: bool, message: &str) -> String {
    answer(&structure(&[("flerror", boolean(refused)), ("message", string(message))]))
}

/// Returns the answer to `rssCloud.ping`.
pub(super) fn cloud_answer(known: bool) -> String {
    answer(&boolean(known))
}

/// Returns a call that could not be carried out.
pub(super) fn fault(code: i32, message: &str) -> String {
    let value = structure(&[("faultCode", format!("<int>{code}</int>")), ("faultString", string(message))]);
    response(&format!("<fault><value>{value}</value></fault>"))
}

fn answer(value: &str) -> String {
    response(&format!("<params><param><value>{value}</value></param></params>"))
}

fn response(content: &str) -> String {
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<methodResponse>{content}</methodResponse>\n")
}

fn boolean(value: bool) -> String {
    format!("<boolean>{}</boolean>", u8::from(value))
}

fn string(text: &str) -> String {
    format!("<string>{}</string>", escape(text))
}

fn structure(members: &[(&str, String)]) -> String {
    let member = |(name, value): &(&str, String)| format!("<member><name>{name}</name><value>{value}</value></member>");
    format!("<struct>{}</struct>", members.iter().map(member).collect::<String>())
}

#[cfg(test)]
mod tests {
    use common::testing::mutations::{count, survives, write_seeds};
    use common::testing::{self, assert_linear};

    use super::*;

    fn call(params: &str) -> Result<Call, String> {
        let body = format!(
            "<?xml version='1.0'?><methodCall><methodName>a.b</methodName><params>{params}</params></methodCall>"
        );
        read(body.as_bytes())
    }

    #[test]
    fn a_call_is_read_with_its_texts() {
        let read = call(
            "<param><value><string>Caf\u{e9} &amp; Bar&#33;</string></value></param><param><value> http://a/?x=1&amp;y </value>\
             </param><param><value><int>7</int></value></param><param><value/></param><param><value><![CDATA[<]]></value></param>",
        );
        let params = ["Caf\u{e9} & Bar!", "http://a/?x=1&y", "", "", "<"].map(str::to_owned).to_vec();
        assert_eq!(read, Ok(Call { method: "a.b".into(), params }));
        let latin = b"<methodCall><methodName>a</methodName><params><param><value>\xe9 http://a/</value></param></params></methodCall>";
        assert_eq!(super::read(latin).unwrap().params, ["\u{e9} http://a/"]);
    }

    #[test]
    fn what_could_do_harm_is_refused() {
        let bomb = "<!DOCTYPE a [<!ENTITY b \"bb\">]><methodCall><methodName>a</methodName></methodCall>";
        assert!(read(bomb.as_bytes()).is_err());
        assert!(call("<param><value>&b;</value></param>").is_err());
        assert!(call(&"<value>".repeat(20)).is_err());
        for broken in ["", "{}", "<methodCall>", "<methodCall><methodName>a", "<methodCall></methodName></methodCall>"]
        {
            assert!(read(broken.as_bytes()).is_err(), "{broken}");
        }
        assert_eq!(call(&"<param><value>a</value></param>".repeat(100)).unwrap().params.len(), MAX_PARAMS);
    }

    #[test]
    fn time_grows_with_the_call_whatever_is_repeated() {
        let begun = "<methodCall><methodName>a</methodName><params>";
        let pieces = [
            "<",
            "<a",
            "<a ",
            "<a b=\"",
            "</a>",
            "<a/>",
            "<!--",
            "<![CDATA[",
            "]]>",
            "&",
            "&amp;",
            "&#65;",
            "&x;",
            "<?",
            "<!x",
            "x",
        ];
        let params = ["<param><value>x</value></param>", "<param><value>&amp;</value></param>"];
        let generated = testing::pieces(&pieces, 24);
        for piece in pieces.into_iter().chain(params).chain(generated.iter().map(String::as_str)) {
            for beginning in ["", begun, "<methodCall><methodName>"] {
                let make = |length: usize| format!("{beginning}{}", piece.repeat(length / piece.len()));
                assert_linear(&format!("{beginning}{piece}.."), make, |call| drop(read(call.as_bytes())));
            }
        }
        let attributes = |length: usize| {
            let attributes: String = (0..length / 6).map(|n| format!(" a{n}=''")).collect();
            format!("{begun}<param{attributes}><value>x</value></param></params></methodCall>")
        };
        assert_linear("attributes", attributes, |call| drop(read(call.as_bytes())));
    }

    #[test]
    fn mutated_calls_neither_kill_the_reader_nor_take_long() {
        let call = |method: &str, params: &str| {
            format!(
                "<?xml version='1.0'?><methodCall><methodName>{method}</methodName><params>{params}</params></methodCall>"
            )
        };
        let string = "<param><value><string>Caf\u{e9} &amp; &#33; <![CDATA[<]]></string></value></param>";
        let seeds = [
            call("weblogUpdates.ping", &string.repeat(2)),
            call("weblogUpdates.extendedPing", &string.repeat(4)),
            call(
                "rssCloud.ping",
                "<param><value>http://a/?x=1&amp;y</value></param><param><value><int>7</int></value></param>",
            ),
            "<!DOCTYPE a [<!ENTITY b 'c'>]><methodCall><methodName>&b;</methodName></methodCall>".to_owned(),
        ];
        let seeds = seeds.map(String::into_bytes);
        // For libFuzzer, if requested.
        write_seeds("xml_rpc", &seeds);
        survives("calls", &seeds, 4 * count(), |bytes| {
            if let Ok(call) = read(bytes) {
                assert!(call.params.len() <= MAX_PARAMS && !call.method.is_empty());
                // A byte that is not UTF-8 becomes a character of two.
                let length = call.method.len() + call.params.iter().map(String::len).sum::<usize>();
                assert!(length <= 2 * bytes.len(), "{length} bytes out of {}", bytes.len());
            }
        });
    }
}
