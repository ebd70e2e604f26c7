//! `amqps:` through a front that ends TLS before the broker of the tests.

use std::net::SocketAddr;
use std::process::Command;

use lapin::uri::AMQPUri;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::queue::conformance::report;
use crate::report::FetchReport;

const FRONT: &str = "FEEDFLEET_TEST_AMQPS";

/// A front with a certificate of an authority of its own; gives its port, and the authority in PEM.
async fn front(behind: SocketAddr) -> (u16, String) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate =
        CertificateParams::new(vec!["localhost".to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
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
    (port, authority.pem())
}

/// The system's certificates are read from the environment, so each case is a process of its own.
async fn in_a_process(certificates: &str, port: u16) -> String {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), certificates).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "queue::rabbitmq::tests::tls::one_item_goes_round", "--ignored", "--nocapture"]);
    command.env("SSL_CERT_FILE", file.path()).env(FRONT, format!("amqps://guest:guest@localhost:{port}/%2f"));
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

#[tokio::test]
async fn amqps_works_with_a_certificate_that_the_system_knows_and_no_other() {
    let broker = url().parse::<AMQPUri>().unwrap().authority;
    let behind = tokio::net::lookup_host((broker.host, broker.port)).await.unwrap().next().unwrap();
    let (port, authority) = front(behind).await;
    let output = in_a_process(&authority, port).await;
    assert!(output.contains("1 passed") && output.contains("went round"), "{output}");
    let (_, stranger) = front(behind).await;
    let output = in_a_process(&stranger, port).await;
    assert!(output.contains("certificate"), "{output}");
}

#[tokio::test]
#[ignore = "called by the test above, with what it needs"]
async fn one_item_goes_round() {
    let (namespace, metrics) = (namespace(), Metrics::new());
    let broker = Broker::connect(&std::env::var(FRONT).unwrap(), &namespace, &metrics).unwrap();
    let queue = broker.queue::<FetchReport>(Prefetch::Unacked(1));
    queue.publish(&[report(1)]).await.unwrap();
    queue.receive().await.unwrap().ack().await.unwrap();
    println!("went round");
    TestQueue { broker, namespace, metrics, queue }.end().await;
}
