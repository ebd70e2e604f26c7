//! The files that a server's section names for TLS: its authorities, and a certificate with its key for us to show.

use std::io;

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use super::{ConfigError, Loaded, Problem, ServerConfig, Source};

/// What the files of one server contain.
pub struct TlsFiles {
    /// The only authorities that the server's certificate is checked with; `None`: the system's.
    pub authorities: Option<Vec<CertificateDer<'static>>>,
    /// The certificate that is shown to the server, with those that lead to its authority, and its key.
    pub identity: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
}

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{key} {reason}")]
pub struct TlsFileError {
    /// The key that names the file, inside its section.
    pub key: &'static str,
    /// What is wrong, with the file's name.
    pub reason: String,
}

impl TlsFiles {
    /// Reads the files that a server's section names.
    pub fn of(server: &ServerConfig) -> Result<Self, TlsFileError> {
        let authorities = match server.ca_file.as_str() {
            "" => None,
            path => Some(certificates("ca_file", path)?),
        };
        let identity = match server.client_cert.as_str() {
            "" => None,
            path => Some((certificates("client_cert", path)?, private_key(&server.client_key)?)),
        };
        Ok(TlsFiles { authorities, identity })
    }
}

impl Loaded {
    /// Reads every file for TLS that a section names; fails with all that cannot be used. [`super::load()`] does not
    /// read them: the caller of a command that only connects to a running fleet may not have access to its files.
    pub fn check_tls_files(&self) -> Result<(), ConfigError> {
        let config = &self.config;
        let schedule = config.schedule.server();
        let sections =
            [("store", &config.store), ("schedule", &schedule), ("gate", &config.gate), ("queue", &config.queue)];
        let problem = |(section, server): (&str, &ServerConfig)| {
            let TlsFileError { key, reason } = TlsFiles::of(server).err()?;
            let key = format!("{section}.{key}");
            let setting = self.settings.iter().find(|setting| setting.key == key);
            let from = setting.map_or(Source::Default, |setting| setting.source.clone());
            Some(Problem::Refused { key, from, reason })
        };
        let problems: Vec<_> = sections.into_iter().filter_map(problem).collect();
        if problems.is_empty() { Ok(()) } else { Err(ConfigError { problems }) }
    }
}

fn certificates(key: &'static str, path: &str) -> Result<Vec<CertificateDer<'static>>, TlsFileError> {
    let text = read(key, path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    found.ok().filter(|found| !found.is_empty()).ok_or_else(|| unusable(key, path, "a certificate"))
}

fn private_key(path: &str) -> Result<PrivateKeyDer<'static>, TlsFileError> {
    let key = "client_key";
    PrivateKeyDer::from_pem_slice(&read(key, path)?).map_err(|_| unusable(key, path, "a private key"))
}

fn read(key: &'static str, path: &str) -> Result<Vec<u8>, TlsFileError> {
    std::fs::read(path).map_err(|error: io::Error| TlsFileError {
        key,
        reason: format!("names {path}, which cannot be read: {error}"),
    })
}

fn unusable(key: &'static str, path: &str, what: &str) -> TlsFileError {
    TlsFileError { key, reason: format!("names {path}, which does not contain {what} in PEM") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_used_is_named_with_its_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let rcgen::CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(Vec::new()).unwrap();
        std::fs::write(path("cert.pem"), cert.pem()).unwrap();
        std::fs::write(path("key.pem"), signing_key.serialize_pem()).unwrap();
        std::fs::write(path("text"), "hello").unwrap();
        let reason = |ca: &str, cert: &str, key: &str| {
            let name = |name: &str| if name.is_empty() { String::new() } else { path(name) };
            let server = ServerConfig {
                ca_file: name(ca),
                client_cert: name(cert),
                client_key: name(key),
                ..ServerConfig::at("amqps://h/%2f")
            };
            TlsFiles::of(&server).err().map_or(String::new(), |error| error.to_string())
        };
        assert_eq!(reason("", "", ""), "");
        assert_eq!(reason("cert.pem", "cert.pem", "key.pem"), "");
        assert!(reason("none", "", "").starts_with(&format!("ca_file names {}, which cannot be read: ", path("none"))));
        assert_eq!(
            reason("text", "", ""),
            format!("ca_file names {}, which does not contain a certificate in PEM", path("text"))
        );
        assert_eq!(
            reason("", "key.pem", "key.pem"),
            format!("client_cert names {}, which does not contain a certificate in PEM", path("key.pem"))
        );
        assert_eq!(
            reason("", "cert.pem", "cert.pem"),
            format!("client_key names {}, which does not contain a private key in PEM", path("cert.pem"))
        );
    }

    #[test]
    fn the_key_is_named_with_its_section() {
        let flags = [("queue.url", "amqps://h/%2f".into()), ("queue.ca_file", "/no/such/file.pem".into())];
        let loaded = super::super::load(None, std::iter::empty(), &flags).unwrap();
        let error = loaded.check_tls_files().unwrap_err().to_string();
        assert!(
            error.starts_with("queue.ca_file") && error.contains("names /no/such/file.pem, which cannot be read"),
            "{error}"
        );
    }
}
