//! TLS with an authority of one's own, and certificates of clients.

use std::path::{Path, PathBuf};

use common::causes::causes;
use common::config::ServerConfig;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use sqlx::Executor;

use super::own::{FIRST, Own};
use crate::Upkeep;
use crate::postgres::PostgresStore;

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Writes a certificate for these names, with its key, as files in the folder.
fn certificate(folder: &Path, file: &str, of: &Authority, names: &[&str], common_name: &str) -> [PathBuf; 2] {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap();
    params.distinguished_name.push(DnType::CommonName, common_name);
    let certificate = params.signed_by(&key, of).unwrap();
    let [cert, secret] = ["crt", "key"].map(|kind| folder.join(format!("{file}.{kind}")));
    std::fs::write(&cert, certificate.pem()).unwrap();
    std::fs::write(&secret, key.serialize_pem()).unwrap();
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&secret, private).unwrap();
    [cert, secret]
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

async fn used(server: &ServerConfig) -> Result<(), String> {
    let store = PostgresStore::open(server, "test").await.map_err(|error| causes(&error))?;
    let secure = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    let mut on = store.acquire("test").await.map_err(|error| causes(&error))?;
    let secure: bool = sqlx::query_scalar(secure).fetch_one(&mut *on).await.unwrap();
    assert!(secure, "the connection is in plain text");
    drop(on);
    store.close().await;
    Ok(())
}

#[tokio::test]
async fn the_servers_certificate_is_checked_with_ca_file_and_a_clients_is_shown() {
    let own = Own::start();
    let data = own.data(FIRST);
    let owner = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(&data).unwrap());
    let (ours, strangers) = (authority(), authority());
    let folder = tempfile::tempdir().unwrap();
    let [ca_file, wrong_file] = ["ca.pem", "wrong.pem"].map(|name| folder.path().join(name));
    std::fs::write(&ca_file, ours.pem()).unwrap();
    std::fs::write(&wrong_file, strangers.pem()).unwrap();
    let files = certificate(&data, "server", &ours, &["127.0.0.1"], "server");
    std::fs::write(data.join("ca.crt"), ours.pem()).unwrap();
    for file in files.iter().chain([&data.join("ca.crt")]) {
        std::os::unix::fs::chown(file, Some(owner), None).unwrap();
    }
    let plain = ServerConfig { ca_file: text(&ca_file), ..ServerConfig::at(&own.url(&[FIRST])) };
    let error = used(&plain).await.unwrap_err();
    assert!(error.contains("does not support TLS"), "with ca_file there is no connection without TLS: {error}");
    let mut admin = own.on(FIRST).await;
    own.set(
        FIRST,
        "SET ssl_cert_file = 'server.crt';SET ssl_key_file = 'server.key';SET ssl_ca_file = 'ca.crt';SET ssl = on",
    )
    .await;
    own.until(FIRST, "SELECT setting = 'on' FROM pg_settings WHERE name = 'ssl'").await;

    let at = |url: &str, ca_file: &Path| ServerConfig { ca_file: text(ca_file), ..ServerConfig::at(url) };
    let url = own.url(&[FIRST]);
    used(&at(&url, &ca_file)).await.unwrap();
    used(&at(&format!("{url}?sslmode=verify-ca"), &ca_file)).await.unwrap();
    for (what, server) in [
        ("another authority", at(&url, &wrong_file)),
        ("the public authorities", ServerConfig::at(&format!("{url}?sslmode=verify-full"))),
    ] {
        let error = used(&server).await.unwrap_err();
        assert!(error.contains("UnknownIssuer") || error.contains("BadSignature"), "{what}: {error}");
    }
    let other_name = url.replace("127.0.0.1", "localhost");
    let error = used(&at(&other_name, &ca_file)).await.unwrap_err();
    assert!(error.contains("not valid for"), "the name is checked too: {error}");
    used(&at(&format!("{other_name}?sslmode=verify-ca"), &ca_file)).await.unwrap();

    // Each host of several is connected to with the same files.
    let several = url.replace("@127.0.0.1", "@127.0.0.1:1,127.0.0.1");
    used(&at(&several, &ca_file)).await.unwrap();

    std::fs::write(data.join("pg_hba.conf"), "local all all trust\nhostssl all all 127.0.0.1/32 cert\n").unwrap();
    admin.execute("SELECT pg_reload_conf()").await.unwrap();
    let client = |of: &Authority, file: &str, user: &str| {
        let [cert, key] = certificate(folder.path(), file, of, &[], user);
        ServerConfig { client_cert: text(&cert), client_key: text(&key), ..at(&url, &ca_file) }
    };
    let begun = std::time::Instant::now();
    let error = loop {
        // The server reads the file again in a moment.
        match used(&at(&url, &ca_file)).await {
            Err(error) => break error,
            Ok(()) => assert!(begun.elapsed() < super::own::PATIENCE),
        }
    };
    assert!(error.contains("valid client certificate"), "{error}");
    used(&client(&ours, "ours", "postgres")).await.unwrap();
    used(&client(&ours, "other-user", "somebody")).await.unwrap_err();
    used(&client(&strangers, "strangers", "postgres")).await.unwrap_err();
}
