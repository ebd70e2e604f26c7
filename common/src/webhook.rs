//! Signatures of webhooks as Standard Webhooks defines them (<https://www.standardwebhooks.com>): secrets that begin with `whsec_`
//! sign with HMAC-SHA256, those that begin with `whsk_` with Ed25519.
//!
//! Nothing here sends, stores or verifies. The types never print a secret.

use std::fmt;

use aws_lc_rs::hmac;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};

use crate::named;

named! {
    /// How requests are signed.
    SignatureKind {
        /// With a secret that the receiver has too.
        Hmac = "hmac-sha256",
        /// With a private key, of which the receiver has the public half.
        Ed25519 = "ed25519",
    }
}

/// What a subscription signs with.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookSecret {
    kind: SignatureKind,
    bytes: Vec<u8>,
}

/// A text is not a secret. Contains no part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a secret is whsec_ and base64 of 24 to 64 bytes, or whsk_ and base64 of an Ed25519 private key (32 bytes, or 64 with the \
     public key behind it)"
)]
pub struct NotASecret;

const HMAC_PREFIX: &str = "whsec_";
const PRIVATE_PREFIX: &str = "whsk_";
const PUBLIC_PREFIX: &str = "whpk_";
/// The length of an Ed25519 seed, and of a secret that is generated.
const SEED_BYTES: usize = 32;

impl WebhookSecret {
    /// Generates a random secret; `None` if the machine has no randomness.
    pub fn generate(kind: SignatureKind) -> Option<Self> {
        let mut bytes = [0; SEED_BYTES];
        aws_lc_rs::rand::fill(&mut bytes).ok()?;
        Some(WebhookSecret { kind, bytes: bytes.to_vec() })
    }

    /// Parses a secret as a person writes it.
    pub fn parse(text: &str) -> Result<Self, NotASecret> {
        let text = text.trim();
        let decoded = |text: &str| STANDARD_NO_PAD.decode(text.trim_end_matches('=')).map_err(|_| NotASecret);
        let read = if let Some(text) = text.strip_prefix(HMAC_PREFIX) {
            let bytes = decoded(text)?;
            (24..=64).contains(&bytes.len()).then_some(WebhookSecret { kind: SignatureKind::Hmac, bytes })
        } else if let Some(text) = text.strip_prefix(PRIVATE_PREFIX) {
            let bytes = decoded(text)?;
            let (seed, public) = bytes.split_at_checked(SEED_BYTES).ok_or(NotASecret)?;
            let pair = Ed25519KeyPair::from_seed_unchecked(seed).map_err(|_| NotASecret)?;
            let is_pair = public.is_empty() || public == pair.public_key().as_ref();
            is_pair.then(|| WebhookSecret { kind: SignatureKind::Ed25519, bytes: seed.to_vec() })
        } else {
            None
        };
        read.ok_or(NotASecret)
    }

    /// Returns how it signs.
    pub fn kind(&self) -> SignatureKind {
        self.kind
    }

    /// Returns the secret as a receiver's library reads it. To be shown once.
    pub fn reveal(&self) -> String {
        match self.kind {
            SignatureKind::Hmac => format!("{HMAC_PREFIX}{}", STANDARD.encode(&self.bytes)),
            SignatureKind::Ed25519 => {
                let public = self.pair().map(|pair| pair.public_key().as_ref().to_vec()).unwrap_or_default();
                format!("{PRIVATE_PREFIX}{}", STANDARD.encode([&self.bytes[..], &public].concat()))
            }
        }
    }

    /// Returns the public key that verifies what it signs, for Ed25519.
    pub fn public_key(&self) -> Option<String> {
        let pair = self.pair()?;
        Some(format!("{PUBLIC_PREFIX}{}", STANDARD.encode(pair.public_key())))
    }

    /// Returns the signature of a request, one item of `webhook-signature`.
    pub fn sign(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        let signed = [format!("{id}.{timestamp}.").as_bytes(), body].concat();
        match self.pair() {
            Some(pair) => format!("v1a,{}", STANDARD.encode(pair.sign(&signed))),
            None => {
                let key = hmac::Key::new(hmac::HMAC_SHA256, &self.bytes);
                format!("v1,{}", STANDARD.encode(hmac::sign(&key, &signed)))
            }
        }
    }

    fn pair(&self) -> Option<Ed25519KeyPair> {
        (self.kind == SignatureKind::Ed25519).then(|| Ed25519KeyPair::from_seed_unchecked(&self.bytes).ok())?
    }
}

/// Returns the `X-Hub-Signature` of a notification, as WebSub defines it.
pub fn hub_signature(secret: &str, body: &[u8]) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let digest = hmac::sign(&key, body);
    digest.as_ref().iter().fold("sha256=".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

impl std::str::FromStr for WebhookSecret {
    type Err = NotASecret;

    fn from_str(text: &str) -> Result<Self, NotASecret> {
        WebhookSecret::parse(text)
    }
}

impl fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WebhookSecret({})", self.kind)
    }
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};

    use super::*;

    #[test]
    fn a_request_is_signed_as_in_the_specification() {
        // The example of the specification's reference libraries.
        let secret = WebhookSecret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signature = secret.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert_eq!(secret.reveal(), "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    }

    #[test]
    fn a_request_is_signed_with_ed25519_as_in_the_specification() {
        // The specification shows the signature; the key and the request are those of the server of its authors.
        let private = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg==";
        let secret = WebhookSecret::parse(private).unwrap();
        let signature = secret.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        let expected = "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg==";
        assert_eq!((signature.as_str(), secret.reveal().as_str()), (expected, private));
        assert_eq!(secret.public_key().unwrap(), "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4=");
    }

    #[test]
    fn a_notification_of_the_hub_is_signed_as_in_rfc_4231() {
        let signature = hub_signature("Jefe", b"what do ya want for nothing?");
        assert_eq!(signature, "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    }

    #[test]
    fn the_public_key_verifies_what_the_private_one_signs() {
        let secret = WebhookSecret::generate(SignatureKind::Ed25519).unwrap();
        let bytes = |text: &str, prefix: &str| STANDARD.decode(text.strip_prefix(prefix).unwrap()).unwrap();
        let signature = bytes(&secret.sign("msg_1", 5, b"body"), "v1a,");
        let public = UnparsedPublicKey::new(&ED25519, bytes(&secret.public_key().unwrap(), "whpk_"));
        assert!(public.verify(b"msg_1.5.body", &signature).is_ok());
        assert!(public.verify(b"msg_1.6.body", &signature).is_err());
        assert_eq!(WebhookSecret::parse(&secret.reveal()), Ok(secret.clone()));
        let seed = STANDARD.encode(&secret.bytes);
        assert_eq!(WebhookSecret::parse(&format!("whsk_{seed}")), Ok(secret));
    }

    #[test]
    fn what_is_not_a_secret_is_refused_and_none_is_printed() {
        let short = format!("whsec_{}", STANDARD.encode([7; 23]));
        let mixed = format!("whsk_{}", STANDARD.encode([7; 64]));
        for wrong in ["", "whsec_", "secret", "whsec_%%%", "whpk_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", &short, &mixed] {
            assert_eq!(WebhookSecret::parse(wrong), Err(NotASecret), "{wrong}");
        }
        let secret = WebhookSecret::generate(SignatureKind::Hmac).unwrap();
        assert_eq!(format!("{secret:?}"), "WebhookSecret(hmac-sha256)");
    }
}
