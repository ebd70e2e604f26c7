//! Independent verification of signatures: the `openssl` program creates keys and verifies messages, following RFC
//! 9421.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

/// An Ed25519 key in a folder.
#[derive(Debug)]
pub struct Keys {
    folder: PathBuf,
    messages: AtomicUsize,
}

/// The length of an Ed25519 public key, which is the end of its DER form (RFC 8410).
const PUBLIC_BYTES: usize = 32;

impl Keys {
    /// Creates a key in this folder.
    ///
    /// # Errors
    /// If `openssl` is missing (`dev/install` installs it), or the folder cannot be written.
    pub fn make(folder: &Path) -> io::Result<Self> {
        let keys = Keys { folder: folder.to_owned(), messages: AtomicUsize::new(0) };
        keys.openssl(&["genpkey", "-algorithm", "ed25519", "-out", "key.pem"])?;
        keys.openssl(&["pkey", "-in", "key.pem", "-pubout", "-out", "public.pem"])?;
        Ok(keys)
    }

    /// Returns the path of the private key, as PEM.
    pub fn private(&self) -> PathBuf {
        self.folder.join("key.pem")
    }

    /// Returns the public key as in a JSON web key (RFC 8037): base64url without padding.
    ///
    /// # Errors
    /// Those of [`Keys::make`].
    pub fn jwk_x(&self) -> io::Result<String> {
        let der = self.openssl(&["pkey", "-in", "key.pem", "-pubout", "-outform", "DER"])?;
        std::fs::write(self.folder.join("public.raw"), &der[der.len().saturating_sub(PUBLIC_BYTES)..])?;
        let text = self.openssl(&["base64", "-A", "-in", "public.raw"])?;
        let url = |byte: u8| match byte {
            b'+' => '-',
            b'/' => '_',
            byte => char::from(byte),
        };
        Ok(text.into_iter().filter(|byte| *byte != b'=').map(url).collect())
    }

    /// Returns whether `signature` is the key's signature `sig1` over these components (names as they are listed,
    /// including quotes and flags) and the parameters in `input` (RFC 9421, sections 2.5 and 3.2).
    ///
    /// # Errors
    /// Those of [`Keys::make`].
    pub fn verifies(&self, components: &[(&str, &str)], input: &str, signature: &str) -> io::Result<bool> {
        let (Some(parameters), Some(signature)) = (
            input.strip_prefix("sig1="),
            signature.strip_prefix("sig1=:").and_then(|signature| signature.strip_suffix(':')),
        ) else {
            return Ok(false);
        };
        let names: Vec<&str> = components.iter().map(|(name, _)| *name).collect();
        if !parameters.starts_with(&format!("({})", names.join(" "))) {
            return Ok(false);
        }
        let lines: String = components.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
        let number = self.messages.fetch_add(1, Ordering::Relaxed);
        let [base, encoded, raw] = ["base", "signature.b64", "signature"].map(|name| format!("{number}.{name}"));
        std::fs::write(self.folder.join(&base), format!("{lines}\"@signature-params\": {parameters}"))?;
        std::fs::write(self.folder.join(&encoded), signature)?;
        self.openssl(&["base64", "-d", "-A", "-in", &encoded, "-out", &raw])?;
        let verify = ["pkeyutl", "-verify", "-pubin", "-inkey", "public.pem", "-rawin", "-in", &base, "-sigfile", &raw];
        Ok(self.run(&verify)?.status.success())
    }

    fn openssl(&self, arguments: &[&str]) -> io::Result<Vec<u8>> {
        let output = self.run(arguments)?;
        let failed = || io::Error::other(format!("openssl: {}", String::from_utf8_lossy(&output.stderr)));
        if output.status.success() { Ok(output.stdout) } else { Err(failed()) }
    }

    fn run(&self, arguments: &[&str]) -> io::Result<std::process::Output> {
        Command::new("openssl").args(arguments).current_dir(&self.folder).output()
    }
}
