//! File descriptors: a fleet that could run out of them raises its limit, uses fewer, or reports why it does not start.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::program::Ran;

/// Returns the program with these limits, soft and hard.
fn limited(soft: u32, hard: u32, arguments: &[&str]) -> Command {
    let mut command = Command::new("prlimit");
    command.arg(format!("--nofile={soft}:{hard}")).arg(env!("CARGO_BIN_EXE_feedfleet"));
    command.args(["run", "--data", ":memory:", "--listen", "127.0.0.1:0"]).args(arguments).env_clear();
    command
}

#[test]
fn a_soft_limit_that_is_too_low_is_raised_as_far_as_needed() {
    let mut child = limited(256, 8192, &[]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let lines: Vec<String> = BufReader::new(child.stderr.take().unwrap())
        .lines()
        .map(Result::unwrap)
        .take_while(|line| !line.starts_with("page, API"))
        .collect();
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", child.id())).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let open_files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    // 256, twice 256 fetches, 4,096 idle connections, and 960 of the API and 1,200 requests to subscribers beside the 64 and the 80
    // that are among the 256.
    assert_eq!(open_files.split_whitespace().nth(3), Some("7024"), "{open_files}");
    assert!(!lines.iter().any(|line| line.contains("file descriptors")), "{lines:?}");
}

#[test]
fn with_a_low_hard_limit_fewer_connections_are_kept() {
    let ran: Ran = limited(256, 1000, &["--once"]).output().unwrap().into();
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let expected = "1000 file descriptors are allowed, 7024 would serve: the maximum is 116 idle connections, not 4096 \
                (fetch.idle_connections), 180 of the API, not 1024 (api.max_connections), and 16 requests to subscribers \
                (delivery.concurrency)";
    assert!(ran.err.contains(expected), "{}", ran.err);
}

#[test]
fn fetches_that_can_never_have_their_descriptors_are_refused_with_what_would_do() {
    let ran: Ran = limited(256, 700, &["--once"]).output().unwrap().into();
    assert_eq!(ran.code, Some(2), "{}", ran.err);
    let expected = "worker.concurrency = 256 needs 768 file descriptors and 700 are allowed";
    assert!(ran.err.contains(expected) && ran.err.contains("set worker.concurrency to 222 or less"), "{}", ran.err);
    let ran: Ran = limited(256, 700, &["--once", "--set", "worker.concurrency=222"]).output().unwrap().into();
    assert_eq!(ran.code, Some(0), "{}", ran.err);
}
