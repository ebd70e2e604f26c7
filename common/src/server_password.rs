//! Passwords of users at PostgreSQL, Redis and RabbitMQ, and the hashes of them that these servers accept in place of the password:
//! a command with a hash may be logged and listed among processes.

use std::num::NonZeroU32;

use aws_lc_rs::{digest, hmac, pbkdf2};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use rand::RngExt;

/// PostgreSQL's own number of rounds (`scram_iterations`).
const ROUNDS: NonZeroU32 = NonZeroU32::MIN.saturating_add(4095);

/// A password of letters, digits, `-` and `_`, which is the same in a URL.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerPassword(String);

/// Why a text is not accepted as a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a password must be 16 to 200 letters, digits, '-' and '_', so that it can be written in a URL; without one a random one is made"
)]
pub struct PasswordError;

impl std::fmt::Debug for ServerPassword {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ServerPassword(***)")
    }
}

impl ServerPassword {
    /// Returns a random password of 32 bytes.
    pub fn random() -> Self {
        ServerPassword(URL_SAFE_NO_PAD.encode(rand::rng().random::<[u8; 32]>()))
    }

    /// Returns the password in a text.
    pub fn read(text: &str) -> Result<Self, PasswordError> {
        let plain = |character: char| character.is_ascii_alphanumeric() || matches!(character, '-' | '_');
        let fits = (16..=200).contains(&text.len()) && text.chars().all(plain);
        if fits { Ok(ServerPassword(text.to_owned())) } else { Err(PasswordError) }
    }

    /// Returns the password itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Returns what Redis takes after `#` (`ACL SETUSER`): SHA-256 in hexadecimal digits.
    pub fn redis_hash(&self) -> String {
        let hash = digest::digest(&digest::SHA256, self.0.as_bytes());
        hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Returns what RabbitMQ takes as `password_hash` (`rabbit_password_hashing_sha256`).
    pub fn rabbitmq_hash(&self) -> String {
        self.rabbitmq_hash_with(rand::rng().random())
    }

    fn rabbitmq_hash_with(&self, salt: [u8; 4]) -> String {
        let hash = digest::digest(&digest::SHA256, &[&salt[..], self.0.as_bytes()].concat());
        STANDARD.encode([&salt[..], hash.as_ref()].concat())
    }

    /// Returns what PostgreSQL takes as `PASSWORD` and stores as it is (RFC 5803).
    pub fn postgres_verifier(&self) -> String {
        self.postgres_verifier_with(rand::rng().random())
    }

    fn postgres_verifier_with(&self, salt: [u8; 16]) -> String {
        let mut salted = [0; 32];
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, ROUNDS, &salt, self.0.as_bytes(), &mut salted);
        let salted = hmac::Key::new(hmac::HMAC_SHA256, &salted);
        let client_key = hmac::sign(&salted, b"Client Key");
        let stored_key = digest::digest(&digest::SHA256, client_key.as_ref());
        let server_key = hmac::sign(&salted, b"Server Key");
        let [salt, stored, server] =
            [&salt[..], stored_key.as_ref(), server_key.as_ref()].map(|part| STANDARD.encode(part));
        format!("SCRAM-SHA-256${ROUNDS}:{salt}${stored}:{server}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_the_servers_own() {
        let password = ServerPassword::read("correct-horse-battery").unwrap();
        // printf %s correct-horse-battery | sha256sum
        assert_eq!(password.redis_hash(), REDIS);
        assert_eq!(password.rabbitmq_hash_with([1, 2, 3, 4]), RABBITMQ);
        assert_eq!(password.postgres_verifier_with([7; 16]), POSTGRES);
        assert_ne!(password.postgres_verifier(), password.postgres_verifier());
    }

    // Calculated with Python's hashlib, hmac and base64.
    const REDIS: &str = "62249369389075490555a758353aec61500c6218fa597252d52dc4bd0148f12d";
    const RABBITMQ: &str = "AQIDBLAt1wgaEh4WR51SzekNDYULG0/snxtWyLO4HsessDB0";
    const POSTGRES: &str = "SCRAM-SHA-256$4096:BwcHBwcHBwcHBwcHBwcHBw==$qZQPLh1xAQTciyZXFk6czI9Djydc5nxLzAZRDDD+yOU=:6kBAEVFR0JttIk4xGQEOkEeKlVhq3RnNgmxg8frirMg=";

    #[test]
    fn a_password_can_be_written_in_a_url_and_is_not_shown() {
        assert_eq!(ServerPassword::random().reveal().len(), 43);
        assert_ne!(ServerPassword::random(), ServerPassword::random());
        assert_eq!(format!("{:?}", ServerPassword::random()), "ServerPassword(***)");
        for refused in ["short", "with a space in it", "colon:and-slash/and@"] {
            assert_eq!(ServerPassword::read(refused), Err(PasswordError));
        }
    }
}
