//! What is logged, and what never is.

use std::process::{Command, Stdio};

use load_tests::origin::Origin;
use load_tests::origin::feed::Feed;
use load_tests::origin::script::Script;
use serde_json::Value;

use crate::fleet::PATIENCE;
use crate::program::{Ran, command, run};

const SECRET: &str = "Hunter2InAQuery";

#[tokio::test(flavor = "multi_thread")]
async fn no_log_line_has_the_query_of_a_url() {
    let origin = Origin::start().await.unwrap();
    origin.set("/good", Script::feed(Feed::rss().initial(2)));
    let urls: Vec<String> =
        ["/good", "/missing"].iter().map(|path| origin.url(&format!("{path}?auth={SECRET}"))).collect();
    let refused = format!("http://127.0.0.1:9/feed?auth={SECRET}");
    let settings = [
        "fetch.allow_networks=127.0.0.0/8",
        "fetch.allow_ports=1-65535",
        "log.level=info,scheduler=debug,worker=debug,web=debug,store=debug,common=debug",
    ];
    let mut arguments = vec!["run", "--data", ":memory:", "--listen", "127.0.0.1:0", "--once"];
    arguments.extend(settings.iter().flat_map(|setting| ["--set", setting]));
    arguments.extend(urls.iter().map(String::as_str).chain([refused.as_str()]));
    let ran = run(&arguments);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.err.contains("a new feed cannot be read"), "the failures are logged: {}", ran.err);
    assert!(!ran.err.contains(SECRET), "{}", ran.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_workers_and_the_schedulers_half_of_a_poll_are_one_debug_line_each_in_spans_of_the_same_job() {
    let origin = Origin::start().await.unwrap();
    origin.set("/good", Script::feed(Feed::rss().initial(2)));
    let url = origin.url(&format!("/good?auth={SECRET}"));
    let settings = [
        "fetch.allow_networks=127.0.0.0/8",
        "fetch.allow_ports=1-65535",
        "log.level=info,scheduler::poll::log=debug,worker::log=debug",
    ];
    let mut arguments = vec!["run", "--data", ":memory:", "--listen", "127.0.0.1:0", "--once"];
    arguments.extend(settings.iter().flat_map(|setting| ["--set", setting]));
    arguments.push(&url);
    let ran = run(&arguments);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let halves = ran.err.lines().filter_map(|line| line.split_once("job{feed.id=1 version=")?.1.split_once("}: "));
    let halves: Vec<(&str, &str)> = halves.collect();
    let [(fetched_in, fetched), (polled_in, polled)] = halves[..] else { panic!("{}", ran.err) };
    assert!(fetched_in.ends_with(&format!(" host={}", origin.address(0))), "{fetched_in}");
    assert_eq!(fetched_in, polled_in, "the version and the host");
    let start = r#"worker::log: fetched outcome="modified" status=200 duration_ms="#;
    assert!(fetched.starts_with(start) && fetched.contains(" wire_bytes="), "{fetched}");
    assert!(polled.starts_with(r#"scheduler::poll::log: polled outcome="modified" status=200 "#), "{polled}");
    assert!(!ran.err.contains(SECRET), "{}", ran.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_json_format_a_run_writes_only_json_from_its_start_to_its_stop() {
    let origin = Origin::start().await.unwrap();
    origin.set("/good", Script::feed(Feed::rss().initial(2)));
    let url = origin.url("/good");
    let settings = [
        "fetch.allow_networks=127.0.0.0/8",
        "fetch.allow_ports=1-65535",
        "policy.hot_minutes=false",
        "log.format=json",
    ];
    let mut arguments = vec!["run", "--data", ":memory:", "--listen", "127.0.0.1:0"];
    arguments.extend(settings.iter().flat_map(|setting| ["--set", setting]));
    arguments.push(&url);
    let fleet = command(&arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    // A fleet that polls has started.
    let polls = origin.wait_for("/good", 1, PATIENCE).await.len();
    let pid = fleet.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let ran: Ran = fleet.wait_with_output().unwrap().into();
    assert!(ran.code == Some(0) && polls > 0, "{polls} polls, {:?}: {}", ran.code, ran.err);

    let parsed = |line: &str| -> Value { serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")) };
    let events: Vec<Value> = ran.err.lines().map(parsed).collect();
    let messages: Vec<&str> = events.iter().filter_map(|event| event["message"].as_str()).collect();
    for start in ["1 feed added", "page, API and metrics at http://127.0.0.1:", "shutting down: "] {
        assert!(messages.iter().any(|message| message.starts_with(start)), "{start}: {}", ran.err);
    }
}
