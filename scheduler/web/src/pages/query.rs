//! Query strings of links.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// All but what is unreserved (RFC 3986, section 2.3).
const RESERVED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Encodes a value for a query string, or for a part of a path.
pub(super) fn encoded(value: &str) -> String {
    utf8_percent_encode(value, &RESERVED).to_string()
}

/// The query without a parameter and without what a form left empty, still encoded.
pub(super) fn without(query: &str, name: &str) -> String {
    let stays = |pair: &&str| pair.split_once('=').is_none_or(|(other, value)| other != name && !value.is_empty());
    query.split('&').filter(|pair| !pair.is_empty()).filter(stays).collect::<Vec<_>>().join("&")
}
