//! `config check` and `config print`: messages about a configuration, and the source of each value.

use std::io::Write;

use serde_json::{Value, json};

use crate::program::{Ran, command, run};

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

#[test]
fn the_defaults_are_accepted_with_a_warning_that_says_who_polls() {
    let ran = run(&["config", "check"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "the configuration is accepted\n"));
    assert!(ran.err.contains("fetch.user_agent_url"), "{}", ran.err);
    let quiet = run(&["config", "check", "--set", "fetch.user_agent_url=https://example.com/about"]);
    assert_eq!((quiet.code, quiet.err.as_str()), (Some(0), ""));
}

#[test]
fn a_schedule_of_one_shard_on_a_redis_cluster_is_accepted_with_a_warning() {
    for (shards, warned) in [("1", true), ("16", false)] {
        let url = "schedule.url=redis-cluster://10.0.0.1:6379,10.0.0.2:6379";
        let shards = format!("schedule.shards={shards}");
        let ran = run(&["config", "check", "--set", url, "--set", &shards]);
        assert_eq!((ran.code, ran.err.contains("schedule.shards is 1")), (Some(0), warned), "{}", ran.err);
    }
}

#[test]
fn every_mistake_is_told_at_once_with_its_place_and_the_nearest_name() {
    let file = file("[policy]\nslat = 0.2\n\n[worker]\nconcurrency = \"many\"\n");
    let path = file.path().to_str().unwrap();
    let ran: Ran =
        command(&["config", "check", "--config", path]).env("FEEDFLEET_FETCH__TIMOUT", "1s").output().unwrap().into();
    assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""));
    let error = ran.err.replace(path, "FILE");
    insta::assert_snapshot!(error, @r#"
    error: unknown key policy.slat in line 2 of FILE; did you mean policy.salt?
    error: worker.concurrency in line 5 of FILE must be a whole number, such as 256
    error: unknown key FEEDFLEET_FETCH__TIMOUT in the environment; did you mean FEEDFLEET_FETCH__TIMEOUT?
    "#);
}

#[test]
fn a_broken_promise_is_refused_by_key() {
    let ran = run(&["config", "check", "--set", "scheduler.fetch_lease=10s"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.err.starts_with("error: scheduler.fetch_lease in the command line must be longer than"), "{}", ran.err);
    let ran = run(&["config", "check", "--set", "log.level=loud=very"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.err.contains("log.level"), "{}", ran.err);
}

#[test]
fn files_for_tls_that_cannot_be_used_are_named_with_their_keys() {
    let server = ["--set", "queue.url=amqps://h1:5671,h2:5671/%2f"];
    let file = file("hello");
    let path = file.path().to_str().unwrap();
    let ca_file = format!("queue.ca_file={path}");
    for role in [&["config", "check"][..], &["worker", "--set", "gate.url=redis://127.0.0.1:1/"]] {
        let ran = run(&[role, &server, &["--set", &ca_file]].concat());
        assert_eq!(ran.code, Some(2));
        let error = ran.err.replace(path, "FILE");
        insta::allow_duplicates! {
            insta::assert_snapshot!(error, @"error: queue.ca_file in the command line names FILE, which does not contain a certificate in PEM");
        }
    }
}

#[test]
fn print_says_of_each_key_where_it_came_from() {
    let file = file("[policy]\nsalt = 0.2\n[[host_rule]]\nmatch = \"example.com\"\ngap = \"5s\"\n");
    let path = file.path().to_str().unwrap();
    let ran: Ran = command(&["config", "print", "--json", "--config", path, "--set", "host.gap=2s"])
        .env("FEEDFLEET_POLICY__MODE", "classes")
        .output()
        .unwrap()
        .into();
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let settings: Vec<Value> = ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let setting = |key: &str| settings.iter().find(|setting| setting["key"] == key).unwrap();
    let expected = [
        ("policy.salt", json!(0.2), json!({ "kind": "file", "name": path, "line": 2 })),
        ("policy.mode", json!("classes"), json!({ "kind": "environment", "name": "FEEDFLEET_POLICY__MODE" })),
        ("host.gap", json!("2s"), json!({ "kind": "flag", "name": "host.gap" })),
        ("fetch.timeout", json!("30s"), json!({ "kind": "default" })),
        ("host_rule.\"example.com\"", json!({ "gap": "5s" }), json!({ "kind": "file", "name": path, "line": 3 })),
    ];
    for (key, value, source) in expected {
        assert_eq!((&setting(key)["value"], &setting(key)["source"]), (&value, &source), "{key}");
    }
}

#[test]
fn print_masks_tokens() {
    let file = file("[[api.tokens]]\nname = \"ops\"\ntoken = \"correct-horse-battery\"\nrole = \"write\"\n");
    for format in [&["config", "print"][..], &["config", "print", "--json"]] {
        let ran = run(&[format, &["--config", file.path().to_str().unwrap()]].concat());
        assert!(ran.out.contains("ops") && !ran.out.contains("battery"), "{}", ran.out);
    }
}

#[test]
fn a_reader_that_stops_reading_is_no_failure() {
    let mut child = command(&["config", "print"]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}
