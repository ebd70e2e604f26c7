//! Signed requests for servers that show an outbox to known readers only.
//!
//! The form is the one that these servers read: draft-cavage-http-signatures-12 with `rsa-sha256` over the request's
//! target, host and date. The key's id is `fetch.user_agent_url` with `#main-key`: a server that checks a signature requests that
//! URL and expects an actor with the public key. Nothing else is signed, because every other server would only wonder.

use std::path::Path;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeyPair;
use aws_lc_rs::signature::RSA_PKCS1_SHA256;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use common::config::FetchConfig;
use common::time::Timestamp;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use url::Url;

use crate::setup::FetchSetupError;

const SIGNATURE: HeaderName = HeaderName::from_static("signature");

/// Signs requests.
pub(crate) struct Signer {
    key: KeyPair,
    key_id: String,
}

impl Signer {
    /// By the configuration; `None` when it names no key.
    pub(crate) fn of(config: &FetchConfig) -> Result<Option<Self>, FetchSetupError> {
        let path = &config.activitypub_key;
        if path.is_empty() {
            return Ok(None);
        }
        let unusable = |why: String| FetchSetupError::Key { key: "fetch.activitypub_key", path: path.clone(), why };
        let key = PrivateKeyDer::from_pem_file(Path::new(path)).map_err(|error| unusable(error.to_string()))?;
        let key = match key {
            PrivateKeyDer::Pkcs8(key) => KeyPair::from_pkcs8(key.secret_pkcs8_der()),
            PrivateKeyDer::Pkcs1(key) => KeyPair::from_der(key.secret_pkcs1_der()),
            _ => return Err(unusable("it is not an RSA key".to_owned())),
        };
        let key = key.map_err(|error| unusable(format!("it is not an RSA key of 2048 bits or more ({error})")))?;
        Ok(Some(Signer { key, key_id: format!("{}#main-key", config.user_agent_url) }))
    }

    /// Adds the time and the signature to a GET's fields.
    pub(crate) fn sign(&self, url: &Url, now: Timestamp, fields: &mut HeaderMap) {
        let date = httpdate::fmt_http_date(now.to_chrono().into());
        let query = url.query().map_or_else(String::new, |query| format!("?{query}"));
        let host = url.host_str().unwrap_or_default();
        let port = url.port().map_or_else(String::new, |port| format!(":{port}"));
        let signed = format!("(request-target): get {}{query}\nhost: {host}{port}\ndate: {date}", url.path());
        let mut signature = vec![0; self.key.public_modulus_len()];
        // this provider draws no random numbers for this kind of signature, and fails only without memory
        if self.key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature).is_err() {
            return;
        }
        let signature = format!(
            "keyId=\"{}\",algorithm=\"rsa-sha256\",headers=\"(request-target) host date\",signature=\"{}\"",
            self.key_id,
            STANDARD.encode(signature)
        );
        let fields_of = [(header::DATE, date), (SIGNATURE, signature)];
        fields
            .extend(fields_of.into_iter().filter_map(|(name, value)| Some((name, HeaderValue::try_from(value).ok()?))));
    }
}
