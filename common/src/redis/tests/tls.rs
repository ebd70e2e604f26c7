//! TLS with private authorities and client certificates, to servers, to sentinels, and to the nodes of a cluster.

use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

use super::*;
use crate::redis::testing::cluster::Clustered;

/// An authority, and a folder with its own certificate and one that it issued.
struct Authority {
    folder: tempfile::TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // OpenSSL takes a certificate that names itself as its issuer for one without an authority.
        params.distinguished_name.push(DnType::CommonName, "authority");
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let authority = Authority { folder: tempfile::tempdir().unwrap(), issuer };
        std::fs::write(authority.folder.path().join("ca.pem"), authority.issuer.pem()).unwrap();
        authority.issue(authority.folder.path());
        authority
    }

    /// Writes a certificate for this machine, and its key.
    fn issue(&self, folder: &Path) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        std::fs::write(folder.join("certificate.pem"), certificate.pem()).unwrap();
        std::fs::write(folder.join("key.pem"), key.serialize_pem()).unwrap();
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// Returns a server with the certificate, which demands one of its clients or does not.
    fn server(&self, demands: &str, arguments: &[&str]) -> PrivateServer {
        let (certificate, key, ca) = (self.file("certificate.pem"), self.file("key.pem"), self.file("ca.pem"));
        let own = [
            ["--tls-cert-file", &certificate],
            ["--tls-key-file", &key],
            ["--tls-ca-cert-file", &ca],
            ["--port", "0"],
            ["--tls-auth-clients", demands],
        ];
        let mut server = PrivateServer::stopped(&[own.as_flattened(), arguments].concat());
        server.tls = true;
        server.start();
        server
    }

    /// Returns the configuration of a client that trusts it, and shows its certificate or none.
    fn client(&self, url: &str, certified: bool) -> ServerConfig {
        let mut config = ServerConfig { ca_file: self.file("ca.pem"), ..ServerConfig::at(url) };
        if certified {
            config.client_cert = self.file("certificate.pem");
            config.client_key = self.file("key.pem");
        }
        config
    }
}

async fn outcome(config: &ServerConfig) -> Result<String, String> {
    let limits = Limits { call: Duration::from_secs(60), connect: Duration::from_secs(30) };
    let server = RedisServer::connect_within(limits, config, "tls").unwrap();
    let answer = server.eval::<String>(Slot::default(), &ping(), |_, _| {}).await;
    answer.map_err(|error| format!("{:?}", sources(&error)))
}

#[tokio::test]
async fn a_private_authority_is_trusted_where_it_is_named_and_no_other_is() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let server = authority.server("no", &[]);
    for host in ["localhost", "127.0.0.1"] {
        let url = format!("rediss://{host}:{}/", server.port);
        assert_eq!(outcome(&authority.client(&url, false)).await.unwrap(), "pong");
        for config in [stranger.client(&url, false), ServerConfig::at(&url)] {
            let refused = outcome(&config).await.unwrap_err();
            assert!(refused.to_lowercase().contains("certificate"), "{refused}");
        }
    }
}

#[tokio::test]
async fn a_client_certificate_is_shown_where_one_is_named_and_read_again_when_it_was_renewed() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let server = authority.server("yes", &[]);
    let url = format!("rediss://localhost:{}/", server.port);
    assert_eq!(outcome(&authority.client(&url, true)).await.unwrap(), "pong");
    outcome(&authority.client(&url, false)).await.unwrap_err();

    let folder = tempfile::tempdir().unwrap();
    stranger.issue(folder.path());
    let name = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let config = ServerConfig {
        client_cert: name("certificate.pem"),
        client_key: name("key.pem"),
        ..authority.client(&url, false)
    };
    let client = RedisServer::connect(&config, "renewed").unwrap();
    assert!(!answers(&client).await, "a certificate of another authority was accepted");
    authority.issue(folder.path());
    back(&client).await;
}

#[tokio::test]
async fn a_missing_file_is_an_error_at_the_start_and_names_the_file() {
    let config = ServerConfig { ca_file: "/nowhere/ca.pem".into(), ..ServerConfig::at("rediss://localhost/") };
    let refused = RedisServer::connect(&config, "missing").err().unwrap().to_string();
    assert!(refused.contains("/nowhere/ca.pem"), "{refused}");
}

#[tokio::test]
async fn sentinels_and_their_master_are_checked_with_the_same_files() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let master = authority.server("yes", &["--tls-replication", "yes"]);
    let lines = format!(
        "port 0\ntls-port PORT\ntls-cert-file {}\ntls-key-file {}\ntls-ca-cert-file {}\ntls-auth-clients yes\n\
         tls-replication yes\nsentinel monitor main 127.0.0.1 {} 1\n",
        authority.file("certificate.pem"),
        authority.file("key.pem"),
        authority.file("ca.pem"),
        master.port
    );
    let sentinel = PrivateServer::sentinel(&lines);
    let url = format!("rediss-sentinel://127.0.0.1:{}/?sentinelServiceName=main", sentinel.port);
    assert_eq!(outcome(&authority.client(&url, true)).await.unwrap(), "pong");
    outcome(&authority.client(&url, false)).await.unwrap_err();
    let refused = outcome(&stranger.client(&url, true)).await.unwrap_err();
    assert!(refused.to_lowercase().contains("certificate"), "{refused}");
}

#[tokio::test]
async fn every_node_of_a_cluster_is_checked_with_the_same_files() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let tls = ["--tls-cluster", "yes"];
    let cluster = Clustered::of(2, false, |arguments| authority.server("no", &[arguments, &tls[..]].concat()));
    let url = cluster.url();
    assert!(url.starts_with("rediss-cluster://"));
    let limits = Limits { call: Duration::from_secs(60), connect: Duration::from_secs(30) };
    let of = |config: &ServerConfig| RedisServer::connect_within(limits, config, "tls").unwrap();
    let server = of(&authority.client(&url, false));
    let parts = server.parts(16);
    let mut owners: Vec<usize> = parts.iter().map(|part| cluster.owner(part.slot)).collect();
    let script = ping();
    for part in &parts {
        let answer = server.eval::<String>(part.slot, &script, |call, _| {
            call.key(&part.tag);
        });
        assert_eq!(answer.await.unwrap(), "pong");
    }
    owners.sort_unstable();
    owners.dedup();
    assert_eq!(owners, [0, 1], "both were asked");
    let suspicious = of(&stranger.client(&url, false));
    let refused = suspicious.eval::<String>(parts[0].slot, &ping(), |_, _| {}).await;
    let refused = format!("{:?}", sources(&refused.unwrap_err()));
    assert!(refused.to_lowercase().contains("certificate"), "{refused}");
}
