//! Signals that end the program.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::program::command;

#[test]
fn a_second_signal_skips_the_rest_of_a_shutdown() {
    let folder = tempfile::tempdir().unwrap();
    let origin = TcpListener::bind("127.0.0.1:0").unwrap();
    let feed = format!("http://{}/feed", origin.local_addr().unwrap());
    let open = ["--set", "fetch.allow_networks=[\"127.0.0.0/8\"]", "--set", "fetch.allow_ports=[\"1-65535\"]"];
    let mut run = command(&["run", "--data", folder.path().to_str().unwrap(), "--listen", "127.0.0.1:0"]);
    run.args(open).args(["--set", "policy.hot_minutes=false", &feed]);
    let mut fleet = run.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(fleet.stderr.take().unwrap());
    // A fetch that takes longer than a shutdown waits for it.
    origin.set_nonblocking(true).unwrap();
    let _connection = loop {
        match origin.accept() {
            Ok(connection) => break connection,
            Err(_) => assert_eq!(fleet.try_wait().unwrap(), None, "it ended before it polled"),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let pid = fleet.id().to_string();
    let signal = || assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    signal();
    let mut line = String::new();
    while !line.contains("shutting down") {
        line.clear();
        assert!(log.read_line(&mut line).unwrap() > 0, "it ended at the first signal");
    }
    // The very next moment may be too early to be heard.
    let ended = loop {
        signal();
        std::thread::sleep(Duration::from_millis(20));
        if let Some(ended) = fleet.try_wait().unwrap() {
            break ended;
        }
    };
    let mut rest = String::new();
    log.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("stopped without waiting; unfinished fetches will be repeated"), "{rest}");
    assert_eq!(ended.code(), Some(0));
}
