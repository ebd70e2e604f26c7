//! TLS: one provider, verified certificates, and a name for each way in which a handshake fails.

use std::io;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};

use crate::sessions::Sessions;

/// A failed handshake, by its class.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("TLS: {class}{}{detail}", if detail.is_empty() { "" } else { ": " })]
pub(crate) struct TlsFailure {
    class: &'static str,
    detail: String,
}

impl TlsFailure {
    /// No certificate can be made out for such a name.
    pub(crate) fn name(host: &str) -> Self {
        TlsFailure { class: "not a name for a certificate", detail: host.to_owned() }
    }
}

/// Returns the client's side of TLS 1.2 and 1.3 with the machine's root certificates and `extra_roots`. The sessions of
/// `servers` are remembered, so that the next poll of each needs no whole handshake.
pub(crate) fn client_config(extra_roots: &[CertificateDer<'static>], servers: usize) -> Result<ClientConfig, Error> {
    let mut roots = RootCertStore::empty();
    let native = rustls_native_certs::load_native_certs();
    let (found, _) = roots.add_parsable_certificates(native.certs);
    if found == 0 {
        let reason = native.errors.first().map_or_else(|| "the store is empty".to_owned(), ToString::to_string);
        tracing::warn!(reason, "no root certificates on this machine: every https feed will fail until there are some");
    }
    for certificate in extra_roots {
        roots.add(certificate.clone())?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let roots = Arc::new(roots);
    let mut config = match WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), provider).build() {
        Ok(verifier) => builder.dangerous().with_custom_certificate_verifier(Arc::new(Naming(verifier))),
        // Without a root nothing is verified, and every handshake fails.
        Err(_) => builder.with_root_certificates(roots),
    }
    .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config.resumption = Resumption::store(Arc::new(Sessions::of(servers)));
    Ok(config)
}

/// rustls' own verifier, which decides everything. A certificate that it refused is looked at once more, for the name
/// of the failure alone: a self-signed certificate is another mistake than one of an unknown authority.
#[derive(Debug)]
struct Naming(Arc<WebPkiServerVerifier>);

/// Rejected, and self-signed.
#[derive(Debug, thiserror::Error)]
#[error("it names itself as its issuer")]
struct SelfSigned;

impl ServerCertVerifier for Naming {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.0.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now).map_err(|error| {
            let unknown = matches!(error, Error::InvalidCertificate(CertificateError::UnknownIssuer));
            let certificate = webpki::EndEntityCert::try_from(end_entity);
            match certificate.is_ok_and(|certificate| unknown && certificate.issuer() == certificate.subject()) {
                true => Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(SelfSigned)))),
                false => error,
            }
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// Names a handshake's failure.
pub(crate) fn classify(error: &io::Error) -> TlsFailure {
    let Some(cause) = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) else {
        return TlsFailure { class: "connection lost in the handshake", detail: error.to_string() };
    };
    let class = match cause {
        Error::InvalidCertificate(certificate) => certificate_class(certificate),
        Error::InvalidMessage(_) | Error::InappropriateMessage { .. } => "the server does not speak TLS",
        Error::AlertReceived(_) => "the server refused the handshake",
        Error::PeerIncompatible(_) | Error::NoApplicationProtocol => "no common protocol version",
        Error::NoCertificatesPresented => "no certificate",
        _ => "handshake failed",
    };
    TlsFailure { class, detail: cause.to_string() }
}

fn certificate_class(error: &CertificateError) -> &'static str {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "certificate expired",
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => "certificate not valid yet",
        CertificateError::UnknownIssuer => "certificate of an unknown issuer",
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "certificate of another name"
        }
        CertificateError::Other(OtherError(cause)) if cause.is::<SelfSigned>() => "self-signed certificate",
        CertificateError::Revoked => "certificate revoked",
        CertificateError::BadSignature => "certificate with a wrong signature",
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "certificate for another purpose"
        }
        _ => "certificate refused",
    }
}
