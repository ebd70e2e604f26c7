//! Operator commands when no fleet is running.

use common::testing::Port;

use crate::fleet::Fleet;
use crate::program::{Ran, command, run};

#[test]
fn no_fleet_is_a_failure_that_says_how_to_get_one() {
    let nobody = Port::reserved();
    let server = format!("http://{}", nobody.address());
    for arguments in
        [&["stats"][..], &["feed", "list"], &["feed", "add", "http://a.example/"], &["entries"], &["health"]]
    {
        let ran: Ran = command(arguments).env("FEEDFLEET_SERVER", &server).output().unwrap().into();
        assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{arguments:?}");
        let expected =
            format!("error: no fleet answers at {server}; start one with `feedfleet run` or name it with --server\n");
        assert_eq!(ran.err, expected);
    }
}

#[test]
fn an_export_from_no_fleet_writes_nothing() {
    let nobody = Port::reserved();
    let server = format!("http://{}", nobody.address());
    let ran = run(&["export", "--server", &server]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{}", ran.err);
}

#[test]
fn the_password_of_a_server_is_not_printed() {
    let nobody = Port::reserved();
    let address = nobody.address();
    let ran = run(&["health", "--server", &format!("http://user:hunter2@{address}")]);
    assert!(ran.err.starts_with(&format!("error: no fleet answers at http://{address}; ")), "{}", ran.err);
    let wrong = run(&["health", "--server", &format!("ftp://user:hunter2@{address}")]);
    assert!(wrong.code == Some(2) && !wrong.err.contains("hunter2"), "{}", wrong.err);
}

#[test]
fn wrong_usage_has_an_exit_code_of_its_own() {
    let usages: [&[&str]; 6] = [
        &[],
        &["nonsense"],
        &["feed", "add"],
        &["stats", "--server", "ftp://a"],
        &["feed", "set", "1"],
        &["stats", "-x"],
    ];
    for arguments in usages {
        let ran = run(arguments);
        assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{arguments:?}: {}", ran.err);
        assert!(!ran.err.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_without_root_certificates_reaches_a_fleet_over_http() {
    let fleet = Fleet::start(&[]).await;
    let mut list = command(&["feed", "list", "--server", &fleet.server]);
    let ran: Ran =
        list.env("SSL_CERT_FILE", "/nonexistent").env("SSL_CERT_DIR", "/nonexistent").output().unwrap().into();
    assert_eq!(ran.code, Some(0), "{}", ran.err);
}
