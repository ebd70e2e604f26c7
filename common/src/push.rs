//! What schedulers, workers and the store share about pushes: notifications of new entries from WebSub hubs and rssCloud servers.

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::named;
use crate::time::Timestamp;

named! {
    /// The protocol of a push subscription.
    PushKind {
        /// A WebSub hub (W3C Recommendation), or PubSubHubbub.
        WebSub = "websub",
        /// An rssCloud server.
        RssCloud = "rsscloud",
    }
}

named! {
    /// The state of a push subscription.
    PushState {
        /// Requested, and not verified yet.
        Pending = "pending",
        /// The hub verified it: new entries are pushed.
        Verified = "verified",
        /// The hub refused it.
        Denied = "denied",
        /// Its lease expired, or the hub does not answer.
        Lapsed = "lapsed",
        /// We are leaving it.
        Unsubscribing = "unsubscribing",
    }
}

/// The number of entries in a row that must have been pushed before a poll found them, for a feed's pushes to count as reliable.
pub const RELIABLE_AFTER: u32 = 5;

/// The number of polls with entries that were not announced, after which a hub that never sent anything counts as silent.
pub const SILENT_AFTER: u64 = 3;

/// A feed's push subscription, as far as the feed is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedPush {
    /// The protocol.
    pub kind: PushKind,
    /// The hub or the cloud.
    pub hub: String,
    /// What is subscribed there.
    pub topic: String,
    /// The state.
    pub state: PushState,
    /// When the lease expires.
    pub lease_until: Option<Timestamp>,
    /// The number of pushes in a row that announced new entries; zero after a poll found one that was not announced.
    pub announced: u32,
    /// The number of polls that found entries which were not announced.
    pub missed: u64,
    /// The number of deliveries and notifications.
    pub deliveries: u64,
    /// When a push arrived last.
    pub heard_at: Option<Timestamp>,
    /// When one arrived last that only caused a poll.
    pub light_at: Option<Timestamp>,
}

impl FeedPush {
    /// Returns whether its pushes have proved reliable.
    pub fn is_reliable(&self) -> bool {
        self.state == PushState::Verified && self.announced >= RELIABLE_AFTER
    }

    /// Returns whether the feed may be polled less often: its pushes are reliable, and its lease has not expired,
    /// whether or not that was stored.
    pub fn spares_polls(&self, now: Timestamp) -> bool {
        self.is_reliable() && self.lease_until.is_some_and(|until| until > now)
    }

    /// Returns whether the hub accepted the subscription and sends nothing: polls found new entries, and no push ever arrived.
    pub fn is_silent(&self) -> bool {
        self.state == PushState::Verified && self.deliveries == 0 && self.missed >= SILENT_AFTER
    }
}

/// Returns whether one of the signatures in a hub's `X-Hub-Signature` field fits the body. The comparison takes the same time
/// wherever the first difference is. SHA-1 is what hubs of PubSubHubbub know.
pub fn is_signed(secret: &str, signature: &str, body: &[u8]) -> bool {
    let Some((method, digits)) = signature.trim().split_once('=') else { return false };
    let algorithm = match method.trim().to_ascii_lowercase().as_str() {
        "sha1" => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
        "sha256" => hmac::HMAC_SHA256,
        "sha384" => hmac::HMAC_SHA384,
        "sha512" => hmac::HMAC_SHA512,
        _ => return false,
    };
    let digits = digits.trim().as_bytes();
    let (pairs, rest) = digits.as_chunks::<2>();
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let tag: Option<Vec<u8>> = pairs.iter().map(byte).collect();
    let key = hmac::Key::new(algorithm, secret.as_bytes());
    rest.is_empty() && tag.is_some_and(|tag| hmac::verify(&key, body, &tag).is_ok())
}

/// The body of a delivery. Its signature was checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PushedBody {
    /// The `Content-Type` of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// The body. JSON: base64.
    #[serde(serialize_with = "encoded", deserialize_with = "decoded")]
    pub body: Vec<u8>,
}

fn encoded<S: Serializer>(body: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&STANDARD_NO_PAD.encode(body))
}

fn decoded<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
    STANDARD_NO_PAD.decode(text.as_bytes()).map_err(de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_comes_back_equal_from_json() {
        let pushed = PushedBody { content_type: Some("application/atom+xml".into()), body: vec![0, 255, b'<'] };
        let json = serde_json::to_string(&pushed).unwrap();
        assert_eq!(serde_json::from_str::<PushedBody>(&json).unwrap(), pushed);
    }

    fn signature(method: &str, algorithm: hmac::Algorithm, secret: &str, body: &[u8]) -> String {
        let tag = hmac::sign(&hmac::Key::new(algorithm, secret.as_bytes()), body);
        format!("{method}={}", tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect::<String>())
    }

    #[test]
    fn signatures_of_all_methods_are_checked_and_nothing_else_passes() {
        let methods = [
            ("sha1", hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY),
            ("sha256", hmac::HMAC_SHA256),
            ("sha384", hmac::HMAC_SHA384),
            ("sha512", hmac::HMAC_SHA512),
        ];
        for (method, algorithm) in methods {
            let right = signature(method, algorithm, "secret", b"body");
            assert!(is_signed("secret", &right, b"body"), "{method}");
            assert!(is_signed("secret", &right.to_uppercase(), b"body"), "{method}");
            assert!(!is_signed("other", &right, b"body") && !is_signed("secret", &right, b"body "));
            for wrong in [&right[..right.len() - 2], &right[..right.len() - 1], &format!("{right}00")] {
                assert!(!is_signed("secret", wrong, b"body"), "{wrong}");
            }
        }
        let md5 = signature("md5", hmac::HMAC_SHA256, "secret", b"body");
        for wrong in [&*md5, "", "sha256", "sha256=", "=00", "sha256=zz", "sha256=+1", "sha256=\u{e9}\u{e9}"] {
            assert!(!is_signed("secret", wrong, b"body"), "{wrong}");
        }
        // RFC 4231, test case 2, and RFC 2202's of SHA-1.
        let known = "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert!(is_signed("Jefe", known, b"what do ya want for nothing?"));
        let known = "sha1=effcdf6ae5eb2fa2d27416d5f184df9c259a7c79";
        assert!(is_signed("Jefe", known, b"what do ya want for nothing?"));
    }

    #[test]
    fn pushes_are_reliable_after_enough_of_them_while_the_lease_lasts() {
        let push = FeedPush {
            kind: PushKind::WebSub,
            hub: "https://hub.example/".into(),
            topic: "https://a.example/feed".into(),
            state: PushState::Verified,
            lease_until: None,
            announced: RELIABLE_AFTER,
            missed: 0,
            deliveries: 0,
            heard_at: None,
            light_at: None,
        };
        let now = Timestamp::from_millis(1_790_000_000_000);
        assert!(push.is_reliable() && !push.spares_polls(now));
        let leased = |until| FeedPush { lease_until: Some(until), ..push.clone() };
        assert!(
            leased(now.after(std::time::Duration::from_secs(1))).spares_polls(now) && !leased(now).spares_polls(now)
        );
        assert!(!FeedPush { announced: RELIABLE_AFTER - 1, ..push.clone() }.is_reliable());
        for state in [PushState::Pending, PushState::Denied, PushState::Lapsed, PushState::Unsubscribing] {
            assert!(!FeedPush { state, ..push.clone() }.is_reliable());
        }
        let silent = FeedPush { missed: SILENT_AFTER, announced: 0, ..push };
        assert!(silent.is_silent() && !FeedPush { deliveries: 1, ..silent }.is_silent());
    }
}
