//! Logins to the pages: a cookie that names a token of `api.tokens` and a time, with a MAC that only a process with the same
//! configuration can make. Nothing is stored: every scheduler of a fleet accepts the login of every other one, and a token that is
//! replaced or taken away takes its logins along.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use aws_lc_rs::hmac;
use axum::http::{HeaderMap, HeaderValue, header};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use common::config::{ApiRole, ApiToken, Config, hash_of_token};
use common::labels::read_labels;
use common::time::Timestamp;
use rand::RngExt;
use scheduler::condition::tokens::Tokens;
use subtle::ConstantTimeEq;

/// What the MAC is for: nothing else that is signed with these keys can be taken for a login.
const PURPOSE: &str = "feedfleet session 1";
/// Bytes of a cookie that are looked at.
const LONGEST: usize = 1024;

/// The audit's name for a caller without a token.
pub(crate) const NOBODY: &str = "nobody";

/// The caller of a request, and its permissions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// A token's name, or what the audit calls others.
    pub(crate) name: Arc<str>,
    /// Nothing without a token.
    pub(crate) role: Option<ApiRole>,
    /// Logged in on the pages: there is something to log out from.
    pub(crate) in_session: bool,
    /// It sees and changes only feeds with one of these labels; none: all feeds.
    pub(crate) labels: Arc<[String]>,
    /// Its token's hash.
    token: Option<Arc<str>>,
}

/// What distinguishes callers: its token, as a program or in a browser. Programs that read slowly do not hold up the person
/// who looks at the pages with the same token.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    /// The token's hash.
    pub(crate) token: Arc<str>,
    /// Logged in on the pages.
    pub(crate) in_session: bool,
}

impl Caller {
    /// Returns who it is; `None` without a token: a program on this machine, like any other.
    pub(crate) fn identity(&self) -> Option<Identity> {
        self.token.clone().map(|token| Identity { token, in_session: self.in_session })
    }

    /// Returns a caller without a token.
    pub(crate) fn nobody() -> Self {
        Caller { name: NOBODY.into(), role: None, in_session: false, labels: Arc::default(), token: None }
    }

    /// Returns a program or browser on this machine, where there are no tokens.
    pub(crate) fn loopback() -> Self {
        Caller { name: "loopback".into(), role: Some(ApiRole::Write), ..Caller::nobody() }
    }

    /// Returns a caller with this token.
    pub(crate) fn with(token: &ApiToken) -> Self {
        Caller {
            name: token.name.as_str().into(),
            role: Some(token.role),
            in_session: false,
            labels: labels_of(token),
            token: Some(token.hash().into()),
        }
    }

    /// Returns a caller that logged in with this token.
    pub(crate) fn logged_in(token: &ApiToken) -> Self {
        Caller { in_session: true, ..Caller::with(token) }
    }

    /// Returns whether this caller sees only feeds with its labels.
    pub(crate) fn is_limited(&self) -> bool {
        !self.labels.is_empty()
    }

    /// Returns whether this caller may change something.
    pub(crate) fn may_write(&self) -> bool {
        self.role == Some(ApiRole::Write)
    }
}

/// Returns the labels of a token as feeds have them. The configuration was checked: it has some, and all of them can be
/// read.
fn labels_of(token: &ApiToken) -> Arc<[String]> {
    let labels = token.labels.as_deref().unwrap_or_default();
    read_labels(labels).unwrap_or_else(|_| labels.to_vec()).into()
}

/// The tokens in force.
struct Known {
    /// What this was made from.
    source: Arc<[ApiToken]>,
    tokens: Vec<KnownToken>,
}

struct KnownToken {
    token: Arc<ApiToken>,
    hash: String,
    /// The key of its logins.
    key: hmac::Key,
}

/// Makes and checks logins.
pub(crate) struct Sessions {
    live: Arc<Tokens>,
    known: RwLock<Arc<Known>>,
    /// A cookie alone, without the key, gives no way to try out tokens.
    pepper: hmac::Key,
    /// A reader of a hash in the configuration could make logins of it: without a key they hold in this process only.
    own: hmac::Key,
    has_key: bool,
    lifetime: Duration,
    /// Browsers reach the pages over https: the cookie never leaves it.
    secure: bool,
}

impl Sessions {
    /// Returns the logins that this configuration allows, with the tokens in force.
    pub(crate) fn new(config: &Config, live: Arc<Tokens>) -> Self {
        let own: [u8; 32] = rand::rng().random();
        let none = Known { source: Arc::default(), tokens: Vec::new() };
        Sessions {
            live,
            known: RwLock::new(Arc::new(none)),
            pepper: hmac::Key::new(hmac::HMAC_SHA256, config.secrets.key.as_bytes()),
            own: hmac::Key::new(hmac::HMAC_SHA256, &own),
            has_key: !config.secrets.key.is_empty(),
            lifetime: config.api.session,
            secure: config.api.public_url.starts_with("https:"),
        }
    }

    /// Returns the tokens in force, with their keys: derived again when the configuration was reloaded.
    fn known(&self) -> Arc<Known> {
        let source = self.live.get();
        let known = Arc::clone(&self.known.read().unwrap_or_else(PoisonError::into_inner));
        if Arc::ptr_eq(&known.source, &source) {
            return known;
        }
        let tokens = source.iter().map(|token| self.made(token)).collect();
        let made = Arc::new(Known { source, tokens });
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&made);
        made
    }

    fn made(&self, token: &ApiToken) -> KnownToken {
        let is_guessable = token.token.is_empty() && !self.has_key;
        let pepper = if is_guessable { &self.own } else { &self.pepper };
        let hash = token.hash();
        let derived = hmac::sign(pepper, format!("{PURPOSE}\n{hash}").as_bytes());
        KnownToken { token: Arc::new(token.clone()), hash, key: hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref()) }
    }

    /// Returns whether callers need a token at all.
    pub(crate) fn needs_token(&self) -> bool {
        !self.live.get().is_empty()
    }

    /// Returns whether an earlier caller may still read what it may read then: its token is the same and has not
    /// expired.
    pub(crate) fn admits(&self, caller: &Caller, now: Timestamp) -> bool {
        let Some(hash) = &caller.token else { return !self.needs_token() };
        self.known().tokens.iter().any(|known| {
            let token = &known.token;
            let is_same = known.hash == **hash && Some(token.role) == caller.role && labels_of(token) == caller.labels;
            is_same && token.expires.is_none_or(|expires| expires > now)
        })
    }

    /// Returns the token that was shown.
    pub(crate) fn token(&self, shown: &str) -> Option<Arc<ApiToken>> {
        // Every hash is compared, and each in constant time: the time reveals nothing about any of them.
        let (mut found, shown) = (None, hash_of_token(shown));
        for known in &self.known().tokens {
            if bool::from(known.hash.as_bytes().ct_eq(shown.as_bytes())) {
                found = Some(Arc::clone(&known.token));
            }
        }
        found
    }

    /// Returns the cookie of a new login with this token.
    pub(crate) fn begin(&self, token: &ApiToken, now: Timestamp) -> Option<HeaderValue> {
        let known = self.known();
        let KnownToken { key, .. } = known.tokens.iter().find(|known| known.token.name == token.name)?;
        let until = now.after(self.lifetime).millis() / 1000;
        let mac = BASE64_URL_SAFE_NO_PAD.encode(hmac::sign(key, signed(&token.name, until).as_bytes()));
        let name = BASE64_URL_SAFE_NO_PAD.encode(&token.name);
        self.cookie(&format!("{until}.{name}.{mac}"), self.lifetime)
    }

    /// Returns the cookie that ends a login.
    pub(crate) fn end(&self) -> Option<HeaderValue> {
        self.cookie("", Duration::ZERO)
    }

    /// Returns the token of the login that these headers have.
    pub(crate) fn of(&self, headers: &HeaderMap, now: Timestamp) -> Option<Arc<ApiToken>> {
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
        let mut pairs = cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.find_map(|(name, value)| if name == self.name() { self.read(value, now) } else { None })
    }

    fn read(&self, value: &str, now: Timestamp) -> Option<Arc<ApiToken>> {
        if value.len() > LONGEST {
            return None;
        }
        let (until, rest) = value.split_once('.')?;
        let (name, mac) = rest.split_once('.')?;
        let until: i64 = until.parse().ok()?;
        let (name, mac) = (BASE64_URL_SAFE_NO_PAD.decode(name).ok()?, BASE64_URL_SAFE_NO_PAD.decode(mac).ok()?);
        let known = self.known();
        let KnownToken { token, key, .. } = known.tokens.iter().find(|known| known.token.name.as_bytes() == name)?;
        hmac::verify(key, signed(&token.name, until).as_bytes(), &mac).ok()?;
        // One that lasts longer than a login does was made by a wrong clock, or with another lifetime.
        let left = until.saturating_sub(now.millis() / 1000);
        let lasts = i64::try_from(self.lifetime.as_secs()).unwrap_or(i64::MAX);
        let is_in_force = token.expires.is_none_or(|expires| expires > now);
        (is_in_force && 0 < left && left <= lasts.saturating_add(60)).then(|| Arc::clone(token))
    }

    /// Browsers take a cookie of the first name only with `Secure`, for this host alone.
    fn name(&self) -> &'static str {
        if self.secure { "__Host-feedfleet" } else { "feedfleet" }
    }

    fn cookie(&self, value: &str, lasts: Duration) -> Option<HeaderValue> {
        let secure = if self.secure { "; Secure" } else { "" };
        let (name, seconds) = (self.name(), lasts.as_secs());
        let text = format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}");
        HeaderValue::try_from(text).ok()
    }
}

fn signed(name: &str, until: i64) -> String {
    format!("{PURPOSE}\n{until}\n{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(name: &str, token: &str, role: ApiRole) -> ApiToken {
        ApiToken::new(name, token, role)
    }

    fn sessions(change: impl FnOnce(&mut Config)) -> Sessions {
        let mut config = common::config::defaults();
        config.api.tokens = vec![
            token("ann; x=\"y\"", "0123456789abcdef", ApiRole::Write),
            token("eve", "fedcba9876543210", ApiRole::Read),
        ];
        change(&mut config);
        Sessions::new(&config, Arc::new(Tokens::of(&config)))
    }

    fn now() -> Timestamp {
        Timestamp::from_millis(1_790_000_000_000)
    }

    /// Returns the cookie as a browser sends it back, among others.
    fn sent(cookie: &HeaderValue) -> HeaderMap {
        let pair = cookie.to_str().unwrap().split(';').next().unwrap();
        let value = HeaderValue::try_from(format!("other=1; {pair}")).unwrap();
        HeaderMap::from_iter([(header::COOKIE, value)])
    }

    fn begun(sessions: &Sessions, index: usize) -> HeaderValue {
        sessions.begin(&sessions.live.get()[index], now()).unwrap()
    }

    #[test]
    fn a_login_is_accepted_by_every_process_with_the_same_configuration_until_it_expires() {
        let (one, other) = (sessions(|_| ()), sessions(|_| ()));
        for (index, name) in [(0, "ann; x=\"y\""), (1, "eve")] {
            let cookie = sent(&begun(&one, index));
            assert_eq!(other.of(&cookie, now()).map(|token| token.name.clone()), Some(name.to_owned()));
            assert!(other.of(&cookie, now().after(Duration::from_secs(12 * 3600 - 1))).is_some());
            assert!(other.of(&cookie, now().after(Duration::from_secs(12 * 3600))).is_none());
        }
        assert!(one.of(&HeaderMap::new(), now()).is_none());
        assert!(one.of(&sent(&one.end().unwrap()), now()).is_none());
    }

    #[test]
    fn a_login_ends_with_its_token_and_with_the_key() {
        let cookie = sent(&begun(&sessions(|_| ()), 0));
        let others: [fn(&mut Config); 4] = [
            |config| config.api.tokens[0].expires = Some(now()),
            |config| config.api.tokens[0].token = "another-token-1234".into(),
            |config| drop(config.api.tokens.remove(0)),
            |config| config.secrets.key = "AAAA".into(),
        ];
        for change in others {
            assert!(sessions(change).of(&cookie, now()).is_none());
        }
    }

    #[test]
    fn a_login_with_a_hash_needs_a_key_to_hold_in_other_processes() {
        let hashed = |config: &mut Config| {
            config.api.tokens[0].token_hash = config.api.tokens[0].hash();
            config.api.tokens[0].token.clear();
        };
        let (one, other) = (sessions(hashed), sessions(hashed));
        let cookie = sent(&begun(&one, 0));
        assert!(one.of(&cookie, now()).is_some() && other.of(&cookie, now()).is_none());
        let with_key = |config: &mut Config| {
            hashed(config);
            config.secrets.key = "AAAA".into();
        };
        assert!(sessions(with_key).of(&sent(&begun(&sessions(with_key), 0)), now()).is_some());
    }

    #[test]
    fn a_forged_login_is_none() {
        let sessions = sessions(|_| ());
        let cookie = begun(&sessions, 1).to_str().unwrap().split(';').next().unwrap().to_owned();
        let value = cookie.strip_prefix("feedfleet=").unwrap();
        let parts: Vec<&str> = value.split('.').collect();
        let ann = BASE64_URL_SAFE_NO_PAD.encode("ann; x=\"y\"");
        let forged = [
            format!("{}.{}.{}", parts[0].parse::<i64>().unwrap() + 1, parts[1], parts[2]),
            format!("{}.{ann}.{}", parts[0], parts[2]),
            format!("{}.{}.", parts[0], parts[1]),
            format!("{}.{}.{}", parts[0], parts[1], &parts[2][..40]),
            value.replace('.', ""),
            format!("{value}{}", "x".repeat(2_000)),
        ];
        for forged in forged {
            let headers = HeaderMap::from_iter([(header::COOKIE, format!("feedfleet={forged}").parse().unwrap())]);
            assert!(sessions.of(&headers, now()).is_none(), "{forged}");
        }
    }

    #[test]
    fn a_cookie_is_out_of_reach_of_scripts_other_sites_and_plain_http() {
        let plain = begun(&sessions(|_| ()), 0).to_str().unwrap().to_owned();
        assert!(plain.ends_with("; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict"), "{plain}");
        let https = sessions(|config| config.api.public_url = "https://fleet.example".into());
        let cookie = begun(&https, 0);
        let text = cookie.to_str().unwrap();
        assert!(text.starts_with("__Host-feedfleet=") && text.ends_with("; Secure"), "{text}");
        assert!(https.of(&sent(&cookie), now()).is_some());
    }
}
