//! `amqps:` through a front that ends TLS before the broker of the tests.

use std::path::Path;
use std::process::Command;

use lapin::uri::AMQPUri;
use rcgen::{BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::RootCertStore;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::queue::conformance::report;
use crate::queue::rabbitmq::dial::Dialer;
use crate::report::FetchReport;

const FRONT: &str = "FEEDFLEET_TEST_AMQPS";
const FRONT_CA: &str = "FEEDFLEET_TEST_AMQPS_CA";

/// A private authority.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    fn issue(&self, name: &str) -> (Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        (CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &self.0).unwrap(), key)
    }
}

/// Starts a front with a certificate of `authority`, which requires one of `of_clients` if that is given; returns its
/// URL.
async fn front(authority: &Authority, of_clients: Option<&Authority>) -> String {
    let broker = url().parse::<AMQPUri>().unwrap().authority;
    let behind = tokio::net::lookup_host((broker.host, broker.port)).await.unwrap().next().unwrap();
    let (certificate, key) = authority.issue("localhost");
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let config = match of_clients {
        None => config.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots.add(authority.0.der().clone()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
            config.with_client_cert_verifier(verifier)
        }
    };
    let acceptor = TlsAcceptor::from(Arc::new(config.with_single_cert(vec![certificate.der().clone()], key).unwrap()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut secure) = acceptor.accept(stream).await else { return };
                let mut plain = TcpStream::connect(behind).await.unwrap();
                // The client may leave as it likes.
                let _ = tokio::io::copy_bidirectional(&mut secure, &mut plain).await;
            });
        }
    });
    format!("amqps://guest:guest@localhost:{port}/%2f")
}

/// The system's certificates are read from the environment, so each case runs in a separate process.
async fn in_a_process(system: &Authority, front: &str, ca_file: Option<&Path>) -> String {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), system.pem()).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "queue::rabbitmq::tests::tls::one_item_goes_round", "--ignored", "--nocapture"]);
    command.env("SSL_CERT_FILE", file.path()).env(FRONT, front);
    command.env(FRONT_CA, ca_file.unwrap_or(Path::new("")));
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

#[tokio::test]
async fn amqps_works_with_a_certificate_that_the_system_knows_and_no_other() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let front = front(&authority, None).await;
    let output = in_a_process(&authority, &front, None).await;
    assert!(output.contains("1 passed") && output.contains("went round"), "{output}");
    let output = in_a_process(&stranger, &front, None).await;
    assert!(output.contains("certificate"), "{output}");
}

#[tokio::test]
async fn a_ca_file_takes_the_place_of_the_systems_authorities() {
    let (system, private) = (Authority::new(), Authority::new());
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), private.pem()).unwrap();
    let output = in_a_process(&system, &front(&private, None).await, Some(file.path())).await;
    assert!(output.contains("1 passed") && output.contains("went round"), "{output}");
    let output = in_a_process(&system, &front(&system, None).await, Some(file.path())).await;
    assert!(output.contains("certificate") && !output.contains("went round"), "{output}");
}

#[tokio::test]
#[ignore = "called by the tests above, with what it needs"]
async fn one_item_goes_round() {
    let (namespace, metrics) = (namespace(), Metrics::new());
    let server =
        ServerConfig { ca_file: std::env::var(FRONT_CA).unwrap(), ..ServerConfig::at(&std::env::var(FRONT).unwrap()) };
    let broker = Broker::connect(&server, &namespace, &metrics).unwrap();
    let queue = broker.queue::<FetchReport>(Prefetch::Unacked(1));
    queue.publish(&[report(1)]).await.unwrap();
    queue.receive().await.unwrap().ack().await.unwrap();
    println!("went round");
    TestQueue { broker, namespace, metrics, queue }.end().await;
}

#[tokio::test]
async fn a_client_certificate_is_shown_where_one_is_demanded() {
    let (authority, of_clients) = (Authority::new(), Authority::new());
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: String| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let ca_file = write("ca.pem", authority.pem());
    let front = front(&authority, Some(&of_clients)).await;
    let connect = async |server: &ServerConfig| {
        let addresses = Arc::new(Addresses::of(server).unwrap());
        Dialer::new(addresses, "test".to_owned()).connect().await.map(|_| ())
    };
    let without = ServerConfig { ca_file, ..ServerConfig::at(&front) };
    let reason = connect(&without).await.unwrap_err();
    println!("without a certificate: {reason}");

    let with = |name: &str, authority: &Authority| {
        let (certificate, key) = authority.issue("worker");
        let client_cert = write(&format!("{name}.pem"), certificate.pem());
        let client_key = write(&format!("{name}-key.pem"), key.serialize_pem());
        ServerConfig { client_cert, client_key, ..without.clone() }
    };
    connect(&with("ours", &of_clients)).await.unwrap();
    let reason = connect(&with("strange", &Authority::new())).await.unwrap_err();
    println!("with a stranger's certificate: {reason}");

    // A certificate and another's key, files that are not there.
    let mixed = ServerConfig { client_key: with("other", &of_clients).client_key, ..with("ours", &of_clients) };
    assert!(Addresses::of(&mixed).is_err());
    let missing = ServerConfig { ca_file: "/no/such/file.pem".to_owned(), ..without.clone() };
    let error = Addresses::of(&missing).err().map(|error| crate::causes::causes(&error)).unwrap_or_default();
    assert!(error.contains("ca_file names /no/such/file.pem, which cannot be read"), "{error}");
}

#[tokio::test]
async fn a_renewed_certificate_is_used_without_a_restart() {
    let (old, new) = (Authority::new(), Authority::new());
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), old.pem()).unwrap();
    let server = ServerConfig {
        ca_file: file.path().to_str().unwrap().to_owned(),
        ..ServerConfig::at(&front(&new, None).await)
    };
    let mut dialer = Dialer::new(Arc::new(Addresses::of(&server).unwrap()), "test".to_owned());
    let reason = dialer.connect().await.unwrap_err();
    assert!(reason.contains("certificate"), "{reason}");
    std::fs::write(file.path(), new.pem()).unwrap();
    dialer.connect().await.unwrap();
}
