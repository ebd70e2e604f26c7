//! Proves the fleet's identity with HTTP message signatures (RFC 9421), in the form that registries of verified bots expect (Web Bot
//! Auth): Ed25519, the tag `web-bot-auth`, and a key that is identified by its JWK thumbprint and published at the `Signature-Agent`.
//!
//! Workers sign requests, schedulers serve the key's directory. Nothing here sends or verifies.

use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use rustls_pki_types::PrivatePkcs8KeyDer;
use rustls_pki_types::pem::PemObject as _;
use url::Url;

use crate::config::Config;
use crate::time::Timestamp;

/// Where the directory of our keys is served.
pub const DIRECTORY_PATH: &str = "/.well-known/http-message-signatures-directory";
/// What it is served as.
pub const DIRECTORY_TYPE: &str = "application/http-message-signatures-directory+json";

/// How long a signature may be used: clocks differ, and a signature must not be kept for later use.
const LIFE: Duration = Duration::from_secs(300);

/// Signs for the fleet.
pub struct BotKey {
    key: Ed25519KeyPair,
    /// RFC 7638 of the public key.
    id: String,
    /// The quoted value of `Signature-Agent`.
    agent: String,
}

/// Fields to be added to a message: `Signature-Input` and `Signature`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The value of `Signature-Input`.
    pub input: String,
    /// The value of `Signature`.
    pub signature: String,
}

/// The key cannot be used. Names the configuration's key.
#[derive(Debug, thiserror::Error)]
pub enum BotKeyError {
    /// The file.
    #[error("fetch.signature_key: {path} cannot be read")]
    Unreadable {
        /// As configured.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// What is in it.
    #[error(
        "fetch.signature_key: {path} holds no Ed25519 private key in PEM; `openssl genpkey -algorithm ed25519` makes one"
    )]
    NoKey {
        /// As configured.
        path: String,
    },
}

impl BotKey {
    /// By the configuration, which was checked; `None` when it names no key.
    pub fn of(config: &Config) -> Result<Option<Self>, BotKeyError> {
        let path = &config.fetch.signature_key;
        if path.is_empty() {
            return Ok(None);
        }
        let text =
            std::fs::read_to_string(path).map_err(|source| BotKeyError::Unreadable { path: path.clone(), source })?;
        let key = Self::from_pem(&text, &config.api.public_url);
        key.map(Some).ok_or_else(|| BotKeyError::NoKey { path: path.clone() })
    }

    /// Returns a key in PEM (PKCS #8), for a fleet that is reached at `public_url`.
    pub fn from_pem(text: &str, public_url: &str) -> Option<Self> {
        let encoded = PrivatePkcs8KeyDer::from_pem_slice(text.as_bytes()).ok()?;
        // as OpenSSL writes it: without the public half
        let key = Ed25519KeyPair::from_pkcs8_maybe_unchecked(encoded.secret_pkcs8_der()).ok()?;
        let id = thumbprint(&public_half(&key));
        Some(BotKey { key, id, agent: format!("\"{}\"", public_url.trim_end_matches('/')) })
    }

    /// Returns the value of `Signature-Agent`: where the directory is.
    pub fn agent(&self) -> &str {
        &self.agent
    }

    /// Returns a signature for a request to `url` that carries [`BotKey::agent`].
    pub fn sign_request(&self, url: &Url, now: Timestamp) -> Signature {
        let components = [("@authority", "", authority(url)), ("signature-agent", "", self.agent.clone())];
        self.sign(&components, "web-bot-auth", now)
    }

    /// Returns a signature for our answer to a request for the directory at the agent's address.
    pub fn sign_directory(&self, now: Timestamp) -> Signature {
        let asked = Url::parse(self.agent.trim_matches('"')).map_or_else(|_| String::new(), |url| authority(&url));
        self.sign(&[("@authority", ";req", asked)], "http-message-signatures-directory", now)
    }

    /// Returns the directory: a JWK set (RFC 7517, RFC 8037).
    pub fn directory(&self) -> String {
        let x = public_half(&self.key);
        format!(r#"{{"keys":[{{"kty":"OKP","crv":"Ed25519","x":"{x}","kid":"{}","use":"sig"}}]}}"#, self.id)
    }

    /// RFC 9421, section 2.5: each component on a separate line, the parameters last.
    fn sign(&self, components: &[(&str, &str, String)], tag: &str, now: Timestamp) -> Signature {
        let names: Vec<String> = components.iter().map(|(name, flag, _)| format!("\"{name}\"{flag}")).collect();
        let (created, expires) = (now.unix_seconds(), now.after(LIFE).unix_seconds());
        let parameters = format!(
            "({});created={created};expires={expires};keyid=\"{}\";alg=\"ed25519\";tag=\"{tag}\"",
            names.join(" "),
            self.id
        );
        let mut base = String::new();
        for (name, (.., value)) in names.iter().zip(components) {
            base.push_str(&format!("{name}: {value}\n"));
        }
        base.push_str(&format!("\"@signature-params\": {parameters}"));
        let signed = STANDARD.encode(self.key.sign(base.as_bytes()));
        Signature { input: format!("sig1={parameters}"), signature: format!("sig1=:{signed}:") }
    }
}

impl std::fmt::Debug for BotKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BotKey").field("id", &self.id).finish_non_exhaustive()
    }
}

fn public_half(key: &Ed25519KeyPair) -> String {
    URL_SAFE_NO_PAD.encode(key.public_key().as_ref())
}

/// RFC 7638 with the members of RFC 8037, section 2.
fn thumbprint(x: &str) -> String {
    let members = format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}"#);
    URL_SAFE_NO_PAD.encode(digest(&SHA256, members.as_bytes()))
}

/// RFC 9421, section 2.2.3: in lower case, without the scheme's own port.
fn authority(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default().to_ascii_lowercase();
    url.port().map_or(host.clone(), |port| format!("{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9421, appendix B.1.4.
    const PEM: &str = "-----BEGIN PRIVATE KEY-----\n\
        MC4CAQAwBQYDK2VwBCIEIJ+DYvh6SEqVTm50DFtMDoQikTmiCqirVv9mWG9qfSnF\n\
        -----END PRIVATE KEY-----\n";

    #[test]
    fn a_key_is_named_by_its_thumbprint() {
        // RFC 8037, appendix A.3
        assert_eq!(
            thumbprint("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"),
            "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"
        );
        let key = BotKey::from_pem(PEM, "https://fleet.example/").unwrap();
        assert_eq!(key.id, "poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U");
        assert!(key.directory().contains("\"x\":\"JrQLj5P_89iXES9-vFgrIy29clF9CC_oPPsw3c5D0bs\""));
        assert_eq!(key.agent(), "\"https://fleet.example\"");
        assert!(!format!("{key:?}").contains("n4Ni"));
    }

    #[test]
    fn an_authority_has_no_port_of_its_own_scheme() {
        let of = |text: &str| authority(&Url::parse(text).unwrap());
        assert_eq!(of("https://Example.COM:443/x"), "example.com");
        assert_eq!(of("https://example.com:8443/x"), "example.com:8443");
        assert_eq!(of("http://[::1]:8080/"), "[::1]:8080");
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for text in ["", "-----BEGIN PRIVATE KEY-----\n!\n-----END PRIVATE KEY-----", "-----BEGIN RSA PRIVATE KEY-----"]
        {
            assert!(BotKey::from_pem(text, "https://fleet.example").is_none());
        }
    }
}
