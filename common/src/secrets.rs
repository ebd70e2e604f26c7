//! User names and passwords of feeds: encrypted where they are stored and sent, decrypted only where a request is made.
//!
//! A login is sealed (AES-256-GCM) with the first key of a [`Keyring`] for one origin: scheme, host and port. A party
//! that can write to the store or the queue cannot redirect it to another origin, and a feed may move within its origin
//! without being sealed again. Older keys open what they sealed. The types never print a secret.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, Nonce, RandomizedNonceKey};
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize, Serializer};
use url::Url;

use crate::url::{FeedUrl, FeedUrlError, read_web_url};
use crate::webhook::WebhookSecret;

/// A user name and a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// `user:password`, as in RFC 7617; a user name cannot contain a colon.
    pair: String,
}

/// Why something is not a login. Contains no part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    /// RFC 7617, section 2.
    #[error("a user name must not hold a colon")]
    Colon,
    /// RFC 7617, section 2.
    #[error("user name and password must not hold control characters")]
    Control,
    /// Both are empty.
    #[error("user name and password must not both be empty")]
    Empty,
    /// Longer than [`Login::MAX_LENGTH`].
    #[error("user name and password together must be at most {max} bytes", max = Login::MAX_LENGTH)]
    TooLong,
}

impl Login {
    /// The maximum length of user name and password together, in bytes.
    pub const MAX_LENGTH: usize = 2048;

    /// Creates a login, if it can be sent.
    pub fn new(username: &str, password: &str) -> Result<Self, LoginError> {
        if username.contains(':') {
            return Err(LoginError::Colon);
        }
        if username.is_empty() && password.is_empty() {
            return Err(LoginError::Empty);
        }
        if username.len() + password.len() > Self::MAX_LENGTH {
            return Err(LoginError::TooLong);
        }
        if username.chars().chain(password.chars()).any(char::is_control) {
            return Err(LoginError::Control);
        }
        Ok(Login { pair: format!("{username}:{password}") })
    }

    /// Returns the value of an `Authorization` field (RFC 7617).
    pub fn authorization(&self) -> String {
        format!("Basic {}", STANDARD.encode(&self.pair))
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login(***)")
    }
}

/// Why a text is not the URL of a feed, with or without a user name and password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SplitLoginError {
    /// The text is not the URL of a feed.
    #[error(transparent)]
    Url(#[from] FeedUrlError),
    /// The URL contains a user name or password that cannot be sent.
    #[error("the credentials in the URL of {0} cannot be used: {1}")]
    Login(String, #[source] LoginError),
    /// The URL contains a user name or password that does not decode to UTF-8.
    #[error("the credentials in the URL of {0} cannot be used: they are not percent-encoded UTF-8")]
    Encoding(String),
}

/// Parses a URL like [`FeedUrl::from_str`](std::str::FromStr::from_str), and splits user name and password from it.
pub fn split_login(text: &str) -> Result<(FeedUrl, Option<Login>), SplitLoginError> {
    let url = read_web_url(text)?;
    let login = login_of(&url)?;
    Ok((FeedUrl::without_credentials(url), login))
}

fn login_of(url: &Url) -> Result<Option<Login>, SplitLoginError> {
    if url.username().is_empty() && url.password().is_none() {
        return Ok(None);
    }
    let host = || url.host_str().unwrap_or_default().to_owned();
    let decoded = |text| percent_decode_str(text).decode_utf8().map_err(|_| SplitLoginError::Encoding(host()));
    let (username, password) = (decoded(url.username())?, decoded(url.password().unwrap_or_default())?);
    Login::new(&username, &password).map(Some).map_err(|error| SplitLoginError::Login(host(), error))
}

/// An encrypted login: layout number, key number, nonce, ciphertext and tag. In JSON base64.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Sealed(Vec<u8>);

/// The only layout so far.
const LAYOUT: u8 = 1;
const KEY_ID_BYTES: usize = 4;
const HEAD_BYTES: usize = 1 + KEY_ID_BYTES;
const NONCE_BYTES: usize = 12;

impl Sealed {
    /// Creates it from stored bytes; only a keyring can check whether it can be opened.
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        Sealed(bytes)
    }

    /// Returns the bytes to store.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the number of the key that sealed it, as hexadecimal digits; empty for an unknown layout.
    pub fn key_id(&self) -> String {
        self.key().map_or_else(String::new, |id| id.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    fn key(&self) -> Option<[u8; KEY_ID_BYTES]> {
        let (layout, rest) = self.0.split_first()?;
        rest.first_chunk().copied().filter(|_| *layout == LAYOUT)
    }
}

impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sealed(key {})", self.key_id())
    }
}

impl From<Sealed> for String {
    fn from(sealed: Sealed) -> String {
        STANDARD_NO_PAD.encode(sealed.0)
    }
}

impl TryFrom<String> for Sealed {
    type Error = base64::DecodeError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        STANDARD_NO_PAD.decode(text).map(Sealed)
    }
}

/// A keyed hash that identifies a login. Together with the URL it identifies a feed.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LoginId(pub [u8; 32]);

impl fmt::Debug for LoginId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LoginId(***)")
    }
}

/// A login as the store keeps it.
#[derive(Clone, Debug, PartialEq)]
pub struct Credentials {
    /// Computed with the current key.
    pub id: LoginId,
    /// The ids of the same login under older keys, where a feed may have been stored.
    pub older: Vec<LoginId>,
    /// Sealed with the current key.
    pub sealed: Sealed,
}

/// Why a login cannot be sealed or opened. Contains no part of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// `secrets.key` is empty.
    #[error(
        "user names, passwords and the secrets of subscriptions are stored encrypted only, and there is no key for that: set \
         secrets.key (or FEEDFLEET_SECRETS__KEY) of every scheduler and worker to what `openssl rand -base64 32` prints"
    )]
    NoKey,
    /// It was sealed with a key that this process does not have.
    #[error("the credentials are sealed with key {0}, which is neither secrets.key nor one of secrets.old_keys")]
    OtherKey(String),
    /// It was sealed for another origin, or modified since.
    #[error("the credentials were not sealed for this feed's server")]
    Refused,
    /// The cryptography library failed.
    #[error("the credentials could not be sealed")]
    Failed,
}

/// `[secrets]`
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml documents each key; a second text would drift")]
pub struct SecretsConfig {
    #[serde(serialize_with = "masked")]
    pub key: String,
    #[serde(serialize_with = "all_masked")]
    pub old_keys: Vec<String>,
}

#[expect(clippy::ptr_arg, reason = "serde passes the field")]
fn masked<S: Serializer>(key: &String, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(if key.is_empty() { "" } else { "***" })
}

#[expect(clippy::ptr_arg, reason = "serde passes the field")]
fn all_masked<S: Serializer>(keys: &Vec<String>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(keys.iter().map(|_| "***"))
}

impl fmt::Debug for SecretsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretsConfig").finish_non_exhaustive()
    }
}

/// The keys of `[secrets]`: the first one seals, all open.
#[derive(Default)]
pub struct Keyring(Vec<Key>);

struct Key {
    id: [u8; KEY_ID_BYTES],
    naming: hmac::Key,
    sealing: RandomizedNonceKey,
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keyring({} keys)", self.0.len())
    }
}

/// The length of a key in bytes.
const KEY_BYTES: usize = 32;

/// Decodes a key from the configuration: base64 of 32 bytes, with or without padding.
pub(crate) fn key_bytes(text: &str) -> Option<[u8; KEY_BYTES]> {
    STANDARD_NO_PAD.decode(text.trim().trim_end_matches('=')).ok()?.try_into().ok()
}

impl Keyring {
    /// Creates a keyring from a validated configuration; empty if that contains no key.
    pub fn new(config: &SecretsConfig) -> Self {
        let texts = [&config.key].into_iter().chain(&config.old_keys);
        Keyring(texts.filter_map(|text| Key::new(&key_bytes(text)?)).collect())
    }

    /// Creates a keyring with one random key, for logins that never leave the process.
    pub fn fresh() -> Self {
        let mut bytes = [0; KEY_BYTES];
        let drawn = aws_lc_rs::rand::fill(&mut bytes);
        Keyring(drawn.ok().and_then(|()| Key::new(&bytes)).into_iter().collect())
    }

    /// Seals a login for the origin of a feed.
    pub fn seal(&self, login: &Login, url: &FeedUrl) -> Result<Credentials, SecretError> {
        let (key, older) = self.0.split_first().ok_or(SecretError::NoKey)?;
        let sealed = self.seal_for(login.pair.as_bytes(), aad(url))?;
        let older = older.iter().map(|key| key.name(login)).collect();
        Ok(Credentials { id: key.name(login), older, sealed })
    }

    /// Opens what was sealed for the origin of a feed.
    pub fn open(&self, sealed: &Sealed, url: &FeedUrl) -> Result<Login, SecretError> {
        let pair = self.open_for(sealed, aad(url))?;
        let pair = String::from_utf8(pair).map_err(|_| SecretError::Refused)?;
        Ok(Login { pair })
    }

    /// Seals the secret that a subscription signs with.
    pub fn seal_webhook(&self, secret: &WebhookSecret) -> Result<Sealed, SecretError> {
        self.seal_for(secret.reveal().as_bytes(), Aad::from(WEBHOOK.to_vec()))
    }

    /// Opens the secret that a subscription signs with.
    pub fn open_webhook(&self, sealed: &Sealed) -> Result<WebhookSecret, SecretError> {
        let text = self.open_for(sealed, Aad::from(WEBHOOK.to_vec()))?;
        let secret = std::str::from_utf8(&text).ok().and_then(|text| WebhookSecret::parse(text).ok());
        secret.ok_or(SecretError::Refused)
    }

    /// Seals the secret that a WebSub subscriber chose.
    pub fn seal_hub(&self, secret: &str) -> Result<Sealed, SecretError> {
        self.seal_for(secret.as_bytes(), Aad::from(HUB.to_vec()))
    }

    /// Opens the secret that a WebSub subscriber chose.
    pub fn open_hub(&self, sealed: &Sealed) -> Result<String, SecretError> {
        String::from_utf8(self.open_for(sealed, Aad::from(HUB.to_vec()))?).map_err(|_| SecretError::Refused)
    }

    /// Seals the secret of a subscription, of whichever kind, with the current key.
    pub fn reseal(&self, sealed: &Sealed) -> Result<Sealed, SecretError> {
        match self.open_webhook(sealed) {
            Err(SecretError::Refused) => self.seal_hub(&self.open_hub(sealed)?),
            secret => self.seal_webhook(&secret?),
        }
    }

    /// Seals the secret that a hub signs its deliveries with.
    pub fn seal_push(&self, secret: &str) -> Result<Sealed, SecretError> {
        self.seal_for(secret.as_bytes(), Aad::from(PUSH.to_vec()))
    }

    /// Opens the secret that a hub signs its deliveries with.
    pub fn open_push(&self, sealed: &Sealed) -> Result<String, SecretError> {
        String::from_utf8(self.open_for(sealed, Aad::from(PUSH.to_vec()))?).map_err(|_| SecretError::Refused)
    }

    /// Returns whether this was sealed with the current key; true without a key, because nothing can be sealed again then.
    pub fn is_current(&self, sealed: &Sealed) -> bool {
        self.current().is_none_or(|current| sealed.0.starts_with(&current))
    }

    fn seal_for(&self, text: &[u8], purpose: Aad<Vec<u8>>) -> Result<Sealed, SecretError> {
        let key = self.0.first().ok_or(SecretError::NoKey)?;
        let mut text = text.to_vec();
        let nonce = key.sealing.seal_in_place_append_tag(purpose, &mut text).map_err(|_| SecretError::Failed)?;
        Ok(Sealed([&[LAYOUT][..], &key.id, nonce.as_ref(), &text].concat()))
    }

    fn open_for(&self, sealed: &Sealed, purpose: Aad<Vec<u8>>) -> Result<Vec<u8>, SecretError> {
        let other = || SecretError::OtherKey(sealed.key_id());
        let id = sealed.key().ok_or_else(other)?;
        let key = self.0.iter().find(|key| key.id == id).ok_or_else(other)?;
        let (nonce, text) = sealed.0[HEAD_BYTES..].split_first_chunk::<NONCE_BYTES>().ok_or(SecretError::Refused)?;
        let mut text = text.to_vec();
        let opened = key.sealing.open_in_place(Nonce::assume_unique_for_key(*nonce), purpose, &mut text);
        Ok(opened.map_err(|_| SecretError::Refused)?.to_vec())
    }

    /// Returns the bytes with which every [`Sealed`] of the current key starts; `None` without a key.
    pub fn current(&self) -> Option<[u8; HEAD_BYTES]> {
        let [a, b, c, d] = self.0.first()?.id;
        Some([LAYOUT, a, b, c, d])
    }
}

impl Key {
    /// Derives a separate key for each use, so that no use reveals anything about another.
    fn new(bytes: &[u8; KEY_BYTES]) -> Option<Self> {
        let root = hmac::Key::new(hmac::HMAC_SHA256, bytes);
        let derived = |label: &str| hmac::sign(&root, label.as_bytes());
        Some(Key {
            id: *derived("feedfleet key id").as_ref().first_chunk()?,
            naming: hmac::Key::new(hmac::HMAC_SHA256, derived("feedfleet login id").as_ref()),
            sealing: RandomizedNonceKey::new(&AES_256_GCM, derived("feedfleet login").as_ref()).ok()?,
        })
    }

    fn name(&self, login: &Login) -> LoginId {
        let mut id = [0; 32];
        id.copy_from_slice(hmac::sign(&self.naming, login.pair.as_bytes()).as_ref());
        LoginId(id)
    }
}

/// What the secrets of subscriptions are bound to; not an origin.
const WEBHOOK: &[u8] = b"the secret of a webhook";
/// The same for subscribers of the hub.
const HUB: &[u8] = b"the secret of a WebSub subscriber";
/// What sealed secrets of hubs are bound to.
const PUSH: &[u8] = b"the secret of a hub";

/// Returns the origin that a login is bound to.
fn aad(url: &FeedUrl) -> Aad<Vec<u8>> {
    Aad::from(url.as_url().origin().ascii_serialization().into_bytes())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ring(key: u8, old: &[u8]) -> Keyring {
        let text = |byte: &u8| STANDARD.encode([*byte; KEY_BYTES]);
        Keyring::new(&SecretsConfig { key: text(&key), old_keys: old.iter().map(text).collect() })
    }

    fn url(text: &str) -> FeedUrl {
        text.parse().unwrap()
    }

    fn login() -> Login {
        Login::new("ann", "pass:w\u{f6}rd").unwrap()
    }

    #[test]
    fn credentials_are_taken_out_of_a_url() {
        let (url, login) = split_login("feed://me:s%3Ae%C3%A9@Example.com/a#b").unwrap();
        assert_eq!((url.as_str(), login), ("http://example.com/a", Some(Login::new("me", "s:e\u{e9}").unwrap())));
        let (url, login) = split_login("https://token@example.com/").unwrap();
        assert_eq!((url.as_str(), login), ("https://example.com/", Some(Login::new("token", "").unwrap())));
        for none in ["https://example.com/", "https://:@example.com/"] {
            assert_eq!(split_login(none).unwrap().1, None);
        }
        for broken in ["https://secret%3Aa:secret@example.com/", "https://a:secret%FF@example.com/"] {
            let error = split_login(broken).unwrap_err().to_string();
            assert!(error.contains(".com") && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn what_was_sealed_opens_for_its_origin_alone() {
        let ring = ring(1, &[]);
        let sealed = ring.seal(&login(), &url("https://a.example/feed?x=1")).unwrap().sealed;
        assert_eq!(ring.open(&sealed, &url("https://a.example:443/moved")), Ok(login()));
        for other in ["http://a.example/feed?x=1", "https://a.example:8443/", "https://b.example/"] {
            assert_eq!(ring.open(&sealed, &url(other)), Err(SecretError::Refused), "{other}");
        }
        assert_eq!(login().authorization(), "Basic YW5uOnBhc3M6d8O2cmQ=");
    }

    #[test]
    fn old_keys_open_and_the_new_one_seals() {
        let feed = url("https://a.example/");
        let before = ring(1, &[]).seal(&login(), &feed).unwrap();
        let rotated = ring(2, &[1]);
        assert_eq!(rotated.open(&before.sealed, &feed), Ok(login()));
        let after = rotated.seal(&login(), &feed).unwrap();
        assert_eq!(after.older, [before.id], "a known feed is found under its old name");
        assert_ne!(after.id, before.id);
        assert!(after.sealed.as_bytes().starts_with(&rotated.current().unwrap()));
        assert!(!before.sealed.as_bytes().starts_with(&rotated.current().unwrap()));
        let gone = ring(2, &[]).open(&before.sealed, &feed).unwrap_err();
        assert_eq!(gone, SecretError::OtherKey(before.sealed.key_id()));
        assert!(gone.to_string().contains("secrets.old_keys"));
    }

    #[test]
    fn the_secret_of_a_webhook_is_sealed_for_that_alone() {
        let secret = WebhookSecret::generate(crate::webhook::SignatureKind::Ed25519).unwrap();
        let sealed = ring(1, &[]).seal_webhook(&secret).unwrap();
        assert_eq!(ring(2, &[1]).open_webhook(&sealed), Ok(secret));
        assert!(ring(1, &[]).is_current(&sealed) && !ring(2, &[1]).is_current(&sealed));
        assert_eq!(ring(1, &[]).open(&sealed, &url("https://a.example/")), Err(SecretError::Refused));
        let login = ring(1, &[]).seal(&login(), &url("https://a.example/")).unwrap().sealed;
        assert_eq!(ring(1, &[]).open_webhook(&login), Err(SecretError::Refused));

        let hub = ring(1, &[]).seal_hub("s3cret").unwrap();
        assert_eq!(ring(1, &[]).open_webhook(&hub), Err(SecretError::Refused));
        let both = ring(2, &[1]);
        assert_eq!(both.open_hub(&both.reseal(&hub).unwrap()).as_deref(), Ok("s3cret"));
        let resealed = both.reseal(&sealed).unwrap();
        assert!(both.is_current(&resealed) && both.open_webhook(&resealed) == both.open_webhook(&sealed));
        assert!(both.reseal(&login).is_err());
    }

    #[test]
    fn without_a_key_nothing_is_sealed_and_the_error_names_the_key_to_set() {
        let error = Keyring::default().seal(&login(), &url("https://a.example/")).unwrap_err();
        assert!(error.to_string().contains("secrets.key") && Keyring::default().current().is_none());
    }

    #[test]
    fn logins_that_cannot_be_sent_are_refused() {
        let long = "x".repeat(Login::MAX_LENGTH);
        for (username, password, error) in [
            ("a:b", "c", LoginError::Colon),
            ("a", "c\n", LoginError::Control),
            ("", "", LoginError::Empty),
            ("a", long.as_str(), LoginError::TooLong),
        ] {
            assert_eq!(Login::new(username, password), Err(error));
        }
        assert!(Login::new("token", "").is_ok() && Login::new("", "token").is_ok());
    }

    #[test]
    fn nothing_printed_holds_the_login() {
        let ring = ring(1, &[2]);
        // So long that the sealed text, which is random, does not contain them by chance.
        let login = Login::new("ann-the-reader", "pass-of-the-reader").unwrap();
        let sealed = ring.seal(&login, &url("https://a.example/")).unwrap();
        let printed = format!("{login:?} {ring:?} {sealed:?} {}", String::from(sealed.sealed.clone()));
        // The last one is how Base64 begins.
        for plain in ["ann-the-reader", "pass-of-the-reader", "YW5uLXRoZS1yZWFk"] {
            assert!(!printed.contains(plain), "{plain} in {printed}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn changed_bytes_never_open(place in 0usize..60, change in 1u8..) {
            let (ring, feed) = (ring(1, &[]), url("https://a.example/"));
            let mut bytes = ring.seal(&login(), &feed).unwrap().sealed.as_bytes().to_vec();
            let place = place % bytes.len();
            bytes[place] ^= change;
            prop_assert!(ring.open(&Sealed(bytes), &feed).is_err());
        }

        #[test]
        fn any_bytes_are_taken_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            prop_assert!(ring(1, &[]).open(&Sealed(bytes), &url("https://a.example/")).is_err());
        }
    }
}
