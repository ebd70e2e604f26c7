//! What our requests look like: how we identify ourselves, what we accept, and what makes a request conditional.
//!
//! Pure. Nothing here is sent; [`crate::fetch`] does that.

use std::borrow::Cow;

use common::bot_auth::{BotKey, Signature};
use common::document::Validators;
use common::secrets::Login;
use common::time::Timestamp;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use url::Url;

use crate::headers::{MAX_VALIDATOR_BYTES, to_value};

/// Feed types first; the rest is for servers that know their feed by another name and would answer 406.
const ACCEPT: &str = "application/atom+xml, application/rss+xml, application/feed+json, application/rdf+xml;q=0.9, \
                      application/xml;q=0.8, text/xml;q=0.8, application/json;q=0.7, */*;q=0.1";

/// The `Accept` for an actor's document, its outbox and the pages of that. Never sent for a feed: sites that have both
/// under one URL would answer with the wrong one.
const ACCEPT_ACTIVITIES: &str =
    "application/activity+json, application/ld+json; profile=\"https://www.w3.org/ns/activitystreams\"";

const ACCEPT_ENCODING: &str = "gzip, br, zstd, deflate";

/// The `User-Agent` field.
#[derive(Clone, Debug)]
pub struct UserAgent {
    /// What comes before the number of subscribers.
    start: String,
}

impl UserAgent {
    /// `info_url` is a page about the fleet, empty when there is none. `None` for texts that no field can hold.
    pub fn new(version: &str, info_url: &str) -> Option<Self> {
        let page = Some(info_url.trim()).filter(|url| !url.is_empty()).map(|url| format!("+{url}; "));
        let agent = UserAgent { start: format!("feedfleet/{version} ({}", page.unwrap_or_default()) };
        HeaderValue::try_from(agent.text(1)).is_ok().then_some(agent)
    }

    /// `feedfleet/1.2.3 (+https://example.com/bot; 17 subscribers)`
    pub fn text(&self, subscribers: u32) -> String {
        let plural = if subscribers == 1 { "" } else { "s" };
        format!("{}{subscribers} subscriber{plural})", self.start)
    }
}

/// Returns all fields of a request but `Host`. Empty `validators` make it an unconditional one.
pub fn fields(user_agent: &str, validators: &Validators) -> HeaderMap {
    let mut fields = HeaderMap::with_capacity(5);
    // checked by `UserAgent::new` and for each host rule when the fetcher was made: only digits were added since
    fields.extend(HeaderValue::try_from(user_agent).ok().map(|agent| (header::USER_AGENT, agent)));
    fields.insert(header::ACCEPT, HeaderValue::from_static(ACCEPT));
    fields.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(ACCEPT_ENCODING));
    let etag = validators.etag.as_deref().and_then(|etag| to_value(&if_none_match(etag)));
    fields.extend(etag.map(|etag| (header::IF_NONE_MATCH, etag)));
    let date = validators.last_modified.as_deref().and_then(to_value);
    fields.extend(date.map(|date| (header::IF_MODIFIED_SINCE, date)));
    fields
}

/// Proves our identity (RFC 9421).
pub(crate) fn sign(fields: &mut HeaderMap, key: &BotKey, url: &Url, now: Timestamp) {
    let Signature { input, signature } = key.sign_request(url, now);
    let signed = [("signature-agent", key.agent().to_owned()), ("signature-input", input), ("signature", signature)];
    // of our own making: base64, numbers, and a URL that was checked
    fields.extend(
        signed
            .into_iter()
            .filter_map(|(name, value)| Some((HeaderName::from_static(name), HeaderValue::try_from(value).ok()?))),
    );
}

/// Adds the user name and password.
pub(crate) fn authorize(fields: &mut HeaderMap, login: &Login) {
    // base64 is always sendable
    if let Ok(mut value) = HeaderValue::try_from(login.authorization()) {
        value.set_sensitive(true);
        fields.insert(header::AUTHORIZATION, value);
    }
}

/// RFC 3229, section 10.5.3.
pub(crate) const A_IM: HeaderName = HeaderName::from_static("a-im");

/// Of a feed that is known: says that its new entries alone are enough (RFC 3229). Without a validator a server could not know
/// which are new.
pub(crate) fn ask_for_delta(fields: &mut HeaderMap) {
    if is_conditional(fields) {
        fields.insert(A_IM, HeaderValue::from_static("feed"));
    }
}

/// Makes it a request for ActivityStreams.
pub(crate) fn ask_for_activities(fields: &mut HeaderMap) {
    fields.insert(header::ACCEPT, HeaderValue::from_static(ACCEPT_ACTIVITIES));
}

/// Returns whether the server can answer 304 to a request with these fields.
pub fn is_conditional(fields: &HeaderMap) -> bool {
    fields.contains_key(header::IF_NONE_MATCH) || fields.contains_key(header::IF_MODIFIED_SINCE)
}

/// Returns the stored tag byte for byte, with one exception. Apache (and some caches) mark the tag of a compressed
/// answer with the coding and then do not recognise their own mark: they answer 304 only to the tag without it. Both
/// are sent.
fn if_none_match(etag: &str) -> Cow<'_, str> {
    const MARKS: [&str; 4] = ["-gzip\"", ";gzip\"", "-br\"", "-zstd\""];
    let unmarked = MARKS.iter().find_map(|mark| etag.strip_suffix(mark));
    match unmarked {
        Some(plain) if !plain.ends_with('"') && plain.len() > 1 && 2 * etag.len() < MAX_VALIDATOR_BYTES => {
            format!("{etag}, {plain}\"").into()
        }
        _ => etag.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(etag: Option<&str>, date: Option<&str>) -> (Option<String>, Option<String>) {
        let own = |text: Option<&str>| text.map(str::to_owned);
        let validators = Validators { etag: own(etag), last_modified: own(date), for_url: None };
        let fields = fields("feedfleet/0", &validators);
        let value = |name| fields.get(name).map(|value| String::from_utf8(value.as_bytes().to_vec()).unwrap());
        (value(header::IF_NONE_MATCH), value(header::IF_MODIFIED_SINCE))
    }

    #[test]
    fn p31_the_user_agent_says_who_polls_for_how_many() {
        let with_url = UserAgent::new("1.2.3", "https://example.com/bot").unwrap();
        assert_eq!(with_url.text(17), "feedfleet/1.2.3 (+https://example.com/bot; 17 subscribers)");
        assert_eq!(with_url.text(1), "feedfleet/1.2.3 (+https://example.com/bot; 1 subscriber)");
        let without = UserAgent::new("1.2.3", " ").unwrap();
        assert_eq!(without.text(0), "feedfleet/1.2.3 (0 subscribers)");
        assert!(UserAgent::new("1.2.3", "https://example.com/\nX: y").is_none());
    }

    #[test]
    fn p2_p4_both_validators_are_echoed_as_they_are() {
        assert_eq!(sent(None, None), (None, None));
        assert_eq!(sent(Some("W/\"a\""), Some("never")), (Some("W/\"a\"".into()), Some("never".into())));
        assert_eq!(sent(Some("a"), None), (Some("a".into()), None));
        assert_eq!(sent(Some("broken\nfield"), Some("x")), (None, Some("x".into())), "unsendable: dropped");
    }

    #[test]
    fn p40_a_tag_marked_with_its_coding_is_sent_with_and_without_the_mark() {
        let list = |etag: &str| sent(Some(etag), None).0.unwrap();
        assert_eq!(list("\"x-gzip\""), "\"x-gzip\", \"x\"");
        assert_eq!(list("\"x;gzip\""), "\"x;gzip\", \"x\"");
        assert_eq!(list("W/\"x-br\""), "W/\"x-br\", W/\"x\"");
        assert_eq!(list("\"x-zstd\""), "\"x-zstd\", \"x\"");
        for whole in ["\"x-gzip", "\"gzip\"", "\"-gzip\"", "W/\"-gzip\"", "-gzip\"", "\"x-gzip\" "] {
            assert_eq!(list(whole), whole);
        }
        let long = format!("\"{}-gzip\"", "x".repeat(5000));
        assert_eq!(list(&long), long, "two of them would be too long for many servers");
    }

    #[test]
    fn p32_p33_nothing_else_is_in_a_request() {
        let fields = fields("feedfleet/0", &Validators::default());
        let mut names: Vec<&str> = fields.keys().map(http::HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["accept", "accept-encoding", "user-agent"]);
        assert_eq!(fields[header::ACCEPT_ENCODING], "gzip, br, zstd, deflate");
        assert!(fields[header::ACCEPT].to_str().unwrap().starts_with("application/atom+xml, application/rss+xml,"));
        assert!(!is_conditional(&fields));
    }
}
