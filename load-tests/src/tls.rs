//! Valid and invalid certificates, and a server that terminates TLS in front of a plain one.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rcgen::{BasicConstraints, CertifiedIssuer, DnType, IsCa, KeyPair};
pub use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, date_time_ymd};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::NoServerSessionStorage;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::origin::{Wire, Wrap};

/// Why a certificate or a TLS server could not be created.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The certificate.
    #[error("making a certificate")]
    Certificate(#[from] rcgen::Error),
    /// The server's configuration.
    #[error("setting up TLS")]
    Setup(#[from] rustls::Error),
}

/// A certificate authority, and its certificate chain without the root.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    chain: Vec<CertificateDer<'static>>,
}

impl Authority {
    /// Creates a root authority with its own key.
    ///
    /// # Errors
    /// Only if the library itself fails.
    pub fn new(name: &str) -> Result<Self, TlsError> {
        let issuer = CertifiedIssuer::self_signed(authority_params(name)?, KeyPair::generate()?)?;
        Ok(Authority { issuer, chain: Vec::new() })
    }

    /// Creates an intermediate authority signed by this one.
    ///
    /// # Errors
    /// Only if the library itself fails.
    pub fn intermediate(&self, name: &str) -> Result<Self, TlsError> {
        let issuer = CertifiedIssuer::signed_by(authority_params(name)?, KeyPair::generate()?, &self.issuer)?;
        let mut chain = vec![issuer.der().clone()];
        chain.extend(self.chain.iter().cloned());
        Ok(Authority { issuer, chain })
    }

    /// Returns its certificate, for clients that trust it.
    pub fn certificate(&self) -> CertificateDer<'static> {
        self.issuer.der().clone()
    }

    /// Returns its certificate as PEM.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// Creates a certificate for a name, or an address, that says it belongs to `owner`. Returns it and its key, as PEM.
    ///
    /// # Errors
    /// Only if the library itself fails.
    pub fn issue(&self, name: &str, owner: &str) -> Result<[String; 2], TlsError> {
        let mut params = CertificateParams::new(vec![name.to_owned()])?;
        params.distinguished_name.push(DnType::CommonName, owner);
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok([certificate.pem(), key.serialize_pem()])
    }

    /// Creates a server with a certificate of this authority for a name, after `change` has modified it.
    ///
    /// # Errors
    /// If the modified certificate cannot be created.
    pub fn server(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> Result<ServerConfig, TlsError> {
        let mut params = CertificateParams::new(vec![name.to_owned()])?;
        change(&mut params);
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        let mut certificates = vec![certificate.der().clone()];
        certificates.extend(self.chain.iter().cloned());
        server(certificates, &key)
    }
}

fn authority_params(name: &str) -> Result<CertificateParams, TlsError> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    Ok(params)
}

/// Disables session resumption, so that every connection costs a full handshake.
fn without_sessions(mut config: ServerConfig) -> ServerConfig {
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config
}

/// Creates https hosts for an origin, each with a certificate for its address from an intermediate of `root`. `full`
/// disables session resumption.
///
/// # Errors
/// Only if the library itself fails.
pub fn secure_hosts(
    root: &Authority,
    addresses: &[SocketAddr],
    full: bool,
) -> Result<Vec<(SocketAddr, Wrap)>, TlsError> {
    let intermediate = root.intermediate("Intermediate")?;
    let host = |address: &SocketAddr| {
        let config = intermediate.server(&address.ip().to_string(), |_| {})?;
        Ok((*address, wrap(if full { without_sessions(config) } else { config })))
    };
    addresses.iter().map(host).collect()
}

/// Adds TLS with these settings to an origin's connections.
fn wrap(config: ServerConfig) -> Wrap {
    let acceptor = TlsAcceptor::from(Arc::new(config));
    Arc::new(move |stream| {
        let accepting = acceptor.accept(stream);
        Box::pin(async move { Ok(Box::new(accepting.await?) as Box<dyn Wire>) })
    })
}

/// Creates a server with a self-signed certificate for a name.
///
/// # Errors
/// Only if the library itself fails.
pub fn self_signed_server(name: &str) -> Result<ServerConfig, TlsError> {
    let mut params = CertificateParams::new(vec![name.to_owned()])?;
    params.distinguished_name.push(DnType::CommonName, name);
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    server(vec![certificate.der().clone()], &key)
}

fn server(certificates: Vec<CertificateDer<'static>>, key: &KeyPair) -> Result<ServerConfig, TlsError> {
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(config.with_no_client_auth().with_single_cert(certificates, key)?)
}

/// Terminates TLS in front of a plain server, as long as the runtime exists.
#[derive(Clone, Debug)]
pub struct Front {
    /// The port on 127.0.0.1.
    pub port: u16,
    connections: Arc<AtomicUsize>,
    accepted: Arc<AtomicUsize>,
    plain: Arc<AtomicUsize>,
}

/// The first byte of a TLS handshake.
const HANDSHAKE: u8 = 0x16;

impl Front {
    /// Starts it.
    ///
    /// # Errors
    /// If no port is free.
    pub async fn start(config: ServerConfig, behind: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let front = Front { port, connections: Arc::default(), accepted: Arc::default(), plain: Arc::default() };
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let serving = front.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                serving.connections.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(serving.clone().serve(stream, acceptor.clone(), behind));
            }
        });
        Ok(front)
    }

    async fn serve(self, stream: TcpStream, acceptor: TlsAcceptor, behind: SocketAddr) {
        let mut first = [0];
        if stream.peek(&mut first).await.is_ok_and(|read| read == 1) && first[0] != HANDSHAKE {
            self.plain.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let Ok(mut secure) = acceptor.accept(stream).await else { return };
        self.accepted.fetch_add(1, Ordering::Relaxed);
        if let Ok(mut plain) = TcpStream::connect(behind).await {
            // The client may disconnect at any time.
            let _ = tokio::io::copy_bidirectional(&mut secure, &mut plain).await;
        }
    }

    /// Returns the number of connections so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Returns the number of finished handshakes, in which the client accepted the certificate.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Returns the number of connections that did not start with a handshake: the client tried plain HTTP.
    pub fn plain(&self) -> usize {
        self.plain.load(Ordering::Relaxed)
    }
}
