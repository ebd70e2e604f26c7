//! `feedfleet health`, as a container image uses it to check its role.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::Stdio;
use std::time::{Duration, Instant};

use load_tests::origin::Origin;
use load_tests::origin::script::Script;

use crate::fleet::Fleet;
use crate::program::{command, run};

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_is_alive_and_ready_for_anybody_who_asks() {
    let tokens = r#"api.tokens=[{name = "look", role = "read", token = "0123456789abcdef"}]"#;
    let fleet = Fleet::start(&["--set", tokens]).await;
    assert_eq!(fleet.done(&["health"]), "alive\n");
    assert_eq!(fleet.done(&["health", "--ready", "--json"]), "{\"ready\":true}\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_program_is_said_to_be_one_without_its_page() {
    let origin = Origin::start().await.unwrap();
    origin.set("/healthz", Script::status(404));
    let server = origin.url("");
    let ran = run(&["health", "--server", &server]);
    let expected = format!("error: {server} is not a feedfleet process: it answered 404 Not Found\n");
    assert_eq!((ran.code, ran.out.as_str(), ran.err), (Some(1), "", expected));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_starts_is_waited_for() {
    let origin = Origin::start().await.unwrap();
    origin.set("/readyz", Script::status(503).then(Script::status(503)).then(Script::status(200)));
    let server = origin.url("");
    let waits = |time| run(&["health", "--ready", time, "--server", &server]);
    let (ran, asked) = (waits("--wait=60s"), origin.requests("/readyz").len());
    assert_eq!((ran.code, ran.out.as_str(), asked), (Some(0), "ready\n", 3), "{}", ran.err);
    origin.set("/readyz", Script::status(503));
    let ran = waits("--wait=1s");
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{}", ran.err);
}

/// The system accepts the connections, and no program reads them. Other commands wait 60 s.
#[test]
fn a_process_that_never_answers_is_given_up_after_seconds_or_when_the_wait_ends() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("http://{}", silent.local_addr().unwrap());
    let cases: [(&[&str], u64, u64); 3] =
        [(&["health"], 5, 15), (&["health", "--wait=1s"], 1, 4), (&["health", "--ready", "--wait=1s"], 1, 4)];
    for (arguments, least, most) in cases {
        let started = Instant::now();
        let ran = run(&[arguments, &["--server", server.as_str()][..]].concat());
        let took = started.elapsed();
        assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{arguments:?}");
        assert!(ran.err.starts_with(&format!("error: {server} did not answer")), "{arguments:?}: {}", ran.err);
        let expected = Duration::from_secs(least)..Duration::from_secs(most);
        assert!(expected.contains(&took), "{arguments:?} took {took:?}");
    }
}

#[test]
fn a_worker_needs_no_token_to_be_asked_from_elsewhere_and_is_not_ready_without_its_servers() {
    let mut worker = command(&["worker", "--listen", "0.0.0.0:0"]);
    worker.env("FEEDFLEET_GATE__URL", "redis://127.0.0.1:9/").env("FEEDFLEET_QUEUE__URL", "amqp://127.0.0.1:9/%2f");
    let mut worker = worker.stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(worker.stderr.take().unwrap());
    let mut line = String::new();
    log.read_line(&mut line).unwrap();
    let port = line.trim().rsplit(':').next().unwrap();
    let server = format!("http://127.0.0.1:{port}");

    let alive = run(&["health", "--server", &server]);
    let ready = run(&["health", "--ready", "--server", &server]);
    // Its log names the cause too.
    let said = log.lines().map(Result::unwrap).find(|line| line.contains("this worker is not ready")).unwrap();
    worker.kill().unwrap();
    worker.wait().unwrap();
    assert!(said.contains("Connection refused"), "{said}");
    assert_eq!((alive.code, alive.out.as_str()), (Some(0), "alive\n"), "{line}{}", alive.err);
    assert_eq!(ready.code, Some(1));
    assert!(ready.err.starts_with("error: it answered 503 Service Unavailable: "), "{}", ready.err);
}
