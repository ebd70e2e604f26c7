//! The operator's commands against a running fleet.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use load_tests::origin::feed::Feed;
use load_tests::origin::script::Script;
use serde_json::Value;

use crate::fleet::{Fleet, PATIENCE};
use crate::program::{Ran, command, run};

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(json).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_feed_is_added_polled_shown_changed_and_removed() {
    let fleet = Fleet::start(&[]).await;
    fleet.origin.set("/harbour", Script::feed(Feed::rss().title("Harbour news").initial(2)));
    let url = fleet.origin.url("/harbour");
    assert_eq!(fleet.done(&["feed", "add", &url]), format!("added 1 {url}\n1 read: Harbour news, 2 entries\n"));
    assert_eq!(fleet.done(&["feed", "add", &url]), format!("known 1 {url}\n"));

    fleet.until(&["feed", "show", &url, "--json"], |out| json(out)["last_outcome"] == "modified");
    let shown = fleet.done(&["feed", "show", "1"]);
    let lines: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
    for line in ["title Harbour news", "status active", "outcome new content (200 OK)", "entries 2"] {
        assert!(lines.iter().any(|words| words.join(" ") == line), "{line} is missing in\n{shown}");
    }
    let list = fleet.done(&["feed", "list", "--search", "harbour"]);
    assert!(list.starts_with("ID  CAT  STATUS") && list.contains(&url), "{list}");
    assert_eq!(json_lines(&fleet.done(&["feed", "list", "--json"])).len(), 1);
    assert_eq!(fleet.done(&["feed", "list", "--status", "gone"]), "no feeds\n");

    let explained = fleet.done(&["feed", "explain", "1"]);
    assert!(explained.contains("category D") && explained.contains("salt "), "{explained}");
    assert!(json(&fleet.done(&["feed", "explain", "1", "--json"]))["terms"].as_array().unwrap().len() > 1);
    let history = fleet.done(&["feed", "history", "1"]);
    assert!(history.lines().count() == 2 && history.contains("new content"), "{history}");

    assert_eq!(fleet.done(&["feed", "set", "1", "--important"]), format!("set 1 {url}: category B\n"));
    assert_eq!(fleet.done(&["feed", "refresh", "1"]), format!("refreshing 1 {url}\n"));
    let polled = fleet.origin.wait_for("/harbour", 2, PATIENCE).await;
    assert!(polled[1].is_conditional(), "as every poll");
    assert_eq!(fleet.done(&["feed", "pause", "1"]), format!("paused 1 {url}\n"));
    let refused = fleet.run(&["feed", "refresh", "1"]);
    assert_eq!(
        (refused.code, refused.err.as_str()),
        (Some(1), "error: feed 1 is paused and is not polled; resume it first\n")
    );
    assert!(fleet.done(&["feed", "explain", "1"]).contains("note: it is paused and not polled"));
    assert_eq!(fleet.done(&["feed", "resume", "1"]), format!("resumed 1 {url}\n"));
    assert_eq!(fleet.done(&["feed", "remove", "1"]), "removed 1\n");
    let gone = fleet.run(&["feed", "show", "1"]);
    assert_eq!((gone.code, gone.out.as_str()), (Some(1), ""));
    assert!(gone.err.starts_with("error: there is no feed 1"), "{}", gone.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_page_its_feed_is_taken_and_that_is_said() {
    let fleet = Fleet::start(&[]).await;
    let page = "<!doctype html><link rel=alternate type=application/rss+xml href=/harbour.xml>\
        <link rel=alternate type=application/atom+xml href=/atom.xml>";
    for path in ["/", "/about"] {
        fleet.origin.set(path, Script::body("text/html", page));
    }
    fleet.origin.set("/plain", Script::body("text/html", "<!doctype html><p>nothing"));
    // Not at one of the well-known paths, which are tried for a page that announces nothing.
    fleet.origin.set("/harbour.xml", Script::feed(Feed::rss().title("Harbour news").initial(2)));
    let [home, about, plain, feed] = ["/", "/about", "/plain", "/harbour.xml"].map(|path| fleet.origin.url(path));
    let also = format!("  the page also announces {}\n", fleet.origin.url("/atom.xml"));
    let expected = format!("added 1 {home}\n1 is a page; took {feed}, read: Harbour news, 2 entries\n{also}");
    assert_eq!(fleet.done(&["feed", "add", &home]), expected);
    let shown = json(&fleet.done(&["feed", "show", &feed, "--json"]));
    assert_eq!((&shown["id"], shown["moved_from"].as_str()), (&Value::from(1), Some(home.as_str())));
    assert_eq!((fleet.origin.requests("/").len(), fleet.origin.requests("/harbour.xml").len()), (1, 1));

    let known = format!("its feed is {feed}, which is known as feed 1; nothing was added");
    let expected = format!("added 2 {about}\n2 is a page; {known}\n{also}");
    assert_eq!(fleet.done(&["feed", "add", &about]), expected);
    let left = json_lines(&fleet.done(&["feed", "list", "--json"]));
    let left: Vec<_> = left.iter().map(|feed| (feed["id"].as_i64(), feed["subscribers"].as_i64())).collect();
    assert_eq!(left, [(Some(1), Some(1))], "no row of the page stays, and none of its readers");

    let none = fleet.run(&["feed", "add", &plain]);
    assert_eq!((none.code, none.out), (Some(1), format!("added 3 {plain}\n")));
    let errors: Vec<&str> = none.err.lines().collect();
    assert!(
        errors[0].starts_with(&format!("error: {plain}: not a feed: ")) && errors[0].ends_with("announces none"),
        "{errors:?}"
    );
    assert!(errors[1].contains("feedfleet discover") && errors[2] == "  it was not added", "{errors:?}");
    assert_eq!(fleet.run(&["feed", "show", "3"]).code, Some(1));
    let tried: Vec<String> = fleet.origin.log().iter().map(|record| record.target().to_owned()).collect();
    assert!(tried.contains(&"/feed".to_owned()), "where feeds usually are: {tried:?}");
    let view = json(&fleet.done(&["feed", "add", &feed, "--json", "--wait", "1s"]));
    assert_eq!((&view["new"], &view["id"]), (&Value::from(false), &Value::from(1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_of_a_known_feed_are_not_dropped_in_silence() {
    let fleet = Fleet::start(&[]).await;
    let page = "<!doctype html><link rel=alternate type=application/rss+xml href=/harbour.xml>";
    fleet.origin.set("/", Script::body("text/html", page));
    fleet.origin.set("/harbour.xml", Script::feed(Feed::rss().title("Harbour news").initial(1)));
    let [home, feed] = ["/", "/harbour.xml"].map(|path| fleet.origin.url(path));
    fleet.done(&["feed", "add", &feed, "--label", "news", "--calm", "Europe/Berlin=5"]);
    let shown = fleet.done(&["feed", "show", "1"]);
    assert!(shown.lines().any(|line| line.starts_with("calm ") && line.ends_with(" 5 at midnight in Europe/Berlin")));

    let unchanged = "error: feed 1 is already known; its settings were not changed (use `feedfleet feed set 1` and \
                     `feedfleet feed label 1`)\n";
    let known = fleet.run(&["feed", "add", &feed, "--label", "daily", "--external-id", "harbour"]);
    assert_eq!((known.code, known.out, known.err.as_str()), (Some(1), format!("known 1 {feed}\n"), unchanged));
    let of_page = fleet.run(&["feed", "add", &home, "--label", "daily"]);
    assert_eq!((of_page.code, of_page.err.as_str()), (Some(1), unchanged), "{}", of_page.out);
    assert!(of_page.out.contains("is known as feed 1; nothing was added"), "{}", of_page.out);
    let left = json(&fleet.done(&["feed", "show", "1", "--json"]));
    assert_eq!((&left["labels"], &left["external_id"]), (&Value::from(vec!["news"]), &Value::Null));
    assert_eq!(fleet.done(&["feed", "add", &feed]), format!("known 1 {feed}\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_document_is_read_and_said_to_be_broken() {
    let fleet = Fleet::start(&[]).await;
    let broken =
        "<rss version=\"2.0\"><channel><title>Harbour</title><item><title>Crane</title><guid>1</guid></item><item>";
    fleet.origin.set("/broken", Script::body("application/rss+xml", broken));
    let added = fleet.done(&["feed", "add", &fleet.origin.url("/broken")]);
    assert!(added.ends_with("1 entry; the document is broken, and was repaired before parsing\n"), "{added}");
    assert!(fleet.done(&["feed", "show", "1"]).contains("repaired"));
    assert_eq!(json(&fleet.done(&["feed", "show", "1", "--json"]))["repaired"], Value::from(true));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_feed_that_cannot_be_read_at_once_is_added_and_that_is_said() {
    let fleet = Fleet::start(&[]).await;
    fleet.origin.set("/later", Script::status(500));
    let failed = fleet.run(&["feed", "add", &fleet.origin.url("/later")]);
    assert_eq!(failed.code, Some(0));
    assert!(failed.err.starts_with("1: its first poll failed: the server answered 500 "), "{}", failed.err);
    fleet.done(&["fleet", "pause"]);
    let [other, third, fourth] = ["/other", "/third", "/fourth"].map(|path| fleet.origin.url(path));
    let waiting = fleet.run(&["feed", "add", &other, &third, "--wait", "100ms"]);
    assert_eq!(waiting.code, Some(0));
    let said = [2, 3].map(|id| format!("{id}: all polling is paused; see `feedfleet feed explain {id}`\n"));
    assert_eq!(waiting.err, said.concat(), "one that is looked at after the deadline too");
    assert_eq!(fleet.done(&["feed", "add", &fourth, "--wait", "0s"]), format!("added 4 {fourth}\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refresh_that_has_to_wait_says_for_what() {
    let fleet = Fleet::start(&[]).await;
    fleet.origin.set("/a", Script::feed(Feed::rss().initial(1)));
    fleet.done(&["feed", "add", &fleet.origin.url("/a")]);
    let host = fleet.origin.address(0).to_string();
    fleet.done(&["host", "block", &host, "--for", "1h"]);
    let ran = fleet.run(&["feed", "refresh", "1"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.err.starts_with(&format!("note: an operator blocked its host {host} until ")), "{}", ran.err);
    assert!(fleet.done(&["feed", "explain", "1"]).contains("note: an operator blocked its host"));
    assert_eq!(fleet.origin.requests("/a").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_are_printed_in_order_and_from_a_seq_on() {
    let fleet = Fleet::start(&[]).await;
    fleet.origin.set("/a", Script::feed(Feed::rss().initial(3)));
    fleet.done(&["feed", "add", &fleet.origin.url("/a")]);
    let all = fleet.until(&["entries", "--json"], |out| out.lines().count() == 3);
    let seqs: Vec<i64> = json_lines(&all).iter().map(|entry| entry["seq"].as_i64().unwrap()).collect();
    assert!(seqs.is_sorted());
    let after = seqs[0].to_string();
    assert_eq!(json_lines(&fleet.done(&["entries", "--json", "--after", &after])).len(), 2);
    assert_eq!(json_lines(&fleet.done(&["entries", "--json", "--limit", "1", "--feed", "1"])).len(), 1);
    let text = fleet.done(&["entries", "--limit", "1"]);
    assert!(text.contains("A scripted feed") && text.contains("https://"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn following_prints_what_comes_later() {
    let fleet = Fleet::start(&[]).await;
    fleet.origin.set("/a", Script::feed(Feed::rss().initial(1)));
    let mut follower =
        command(&["entries", "--follow", "--json", "--server", &fleet.server]).stdout(Stdio::piped()).spawn().unwrap();
    fleet.done(&["feed", "add", &fleet.origin.url("/a")]);
    let mut line = String::new();
    BufReader::new(follower.stdout.take().unwrap()).read_line(&mut line).unwrap();
    follower.kill().unwrap();
    follower.wait().unwrap();
    assert_eq!(json(&line)["feed_id"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tail_whose_command_fails_says_where_to_continue() {
    let fleet = Fleet::start(&[]).await;
    fleet.origin.set("/a", Script::feed(Feed::rss().initial(1)));
    fleet.done(&["feed", "add", &fleet.origin.url("/a")]);
    let seq = json(&fleet.done(&["events", "--kind", "entry.new", "--json"]))["seq"].as_i64().unwrap();
    let unwritten = fleet.run(&["tail", "--after", "0", "--cursor", "/nowhere/cursor", "--exec", "echo ran"]);
    assert_eq!((unwritten.code, unwritten.out.as_str()), (Some(1), ""), "{}", unwritten.err);
    assert!(unwritten.err.contains("cannot write /nowhere/cursor"), "{}", unwritten.err);
    // Neither waits for that number, nor runs the command for all that is stored.
    for newer in [&["tail", "--after", "1000", "--exec", "echo ran"][..], &["entries", "--after", "1000", "--follow"]] {
        let ran = fleet.run(newer);
        assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{newer:?}: {}", ran.err);
        assert!(ran.err.starts_with("error: after=1000 is newer than anything here"), "{newer:?}: {}", ran.err);
    }
    let tail = ["tail", "--after", "0", "--kind", "entry.new", "--exec", "exit 1"];
    let failed = format!("error: the command failed for event {seq} (exit status: 1); ");
    let ran = fleet.run(&tail);
    let next = format!("continue with --after {}, or use --cursor FILE", seq - 1);
    assert_eq!((ran.code, ran.err), (Some(1), format!("{failed}{next}\n")));
    let folder = tempfile::tempdir().unwrap();
    let cursor = folder.path().join("cursor");
    let ran = fleet.run(&[&tail[..], &["--cursor", cursor.to_str().unwrap()]].concat());
    assert_eq!((ran.code, ran.err), (Some(1), format!("{failed}the event is repeated at the next start\n")));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_bad_url_among_several_fails_and_the_others_are_added() {
    let fleet = Fleet::start(&[]).await;
    let ran = fleet.run(&["feed", "add", "ftp://a.example/", "http://127.0.0.1:9/", "--json"]);
    assert_eq!(ran.code, Some(1));
    assert_eq!(json(&ran.out)["new"], true);
    assert!(ran.err.contains("url: 'ftp://a.example/' has the scheme ftp"), "{}", ran.err);
    assert_eq!(fleet.run(&["feed", "add", "ftp://a.example/"]).code, Some(2));
    assert_eq!(fleet.run(&["feed", "list", "--category", "X"]).code, Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_fleet_is_paused_and_resumed_and_says_so() {
    let fleet = Fleet::start(&[]).await;
    assert_eq!(fleet.done(&["fleet", "pause"]), "polling is paused\n");
    assert_eq!(json(&fleet.done(&["stats", "--json"]))["paused"], true);
    assert!(fleet.done(&["stats"]).starts_with("polling             paused"));
    assert_eq!(fleet.done(&["fleet", "resume"]), "polling resumed\n");
    assert_eq!(json(&fleet.done(&["stats", "--json"]))["paused"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_tokens_the_commands_need_one() {
    let mut config = tempfile::NamedTempFile::new().unwrap();
    let token = "0123456789abcdef";
    writeln!(config, "[[api.tokens]]\nname = \"look\"\ntoken = \"{token}\"\nrole = \"read\"").unwrap();
    let fleet = Fleet::start(&["--config", config.path().to_str().unwrap()]).await;
    let refused = fleet.run(&["stats"]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.err.contains("FEEDFLEET_TOKEN"), "{}", refused.err);
    let with_token = |token: &str, arguments: &[&str]| -> Ran {
        let mut command = command(arguments);
        command.env("FEEDFLEET_SERVER", &fleet.server).env("FEEDFLEET_TOKEN", token).output().unwrap().into()
    };
    assert_eq!(with_token(token, &["stats"]).code, Some(0));
    let wrong = with_token("guessed", &["stats"]);
    let rejected = "rejected the token in FEEDFLEET_TOKEN: it is not one of api.tokens";
    assert_eq!((wrong.code, wrong.err), (Some(1), format!("error: {} {rejected}\n", fleet.server)));
    let read_only = with_token(token, &["fleet", "pause"]);
    assert!(read_only.code == Some(1) && read_only.err.contains("may only read"), "{}", read_only.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_token_for_labels_feeds_are_added_and_imported() {
    let (news, all) = ("0123456789abcdef", "fedcba9876543210");
    let tokens = format!(
        r#"api.tokens=[{{name = "news", role = "write", token = "{news}", labels = ["news"]}}, {{name = "all", role = "write", token = "{all}"}}]"#
    );
    let fleet = Fleet::start(&["--set", &tokens]).await;
    let run_with = |token: &str, arguments: &[&str]| -> Ran {
        let mut command = command(arguments);
        command.env("FEEDFLEET_SERVER", &fleet.server).env("FEEDFLEET_TOKEN", token).output().unwrap().into()
    };
    // So that no poll comes before the questions below.
    assert_eq!(run_with(all, &["fleet", "pause"]).code, Some(0));
    let run = |arguments: &[&str]| run_with(news, arguments);
    let mut list = tempfile::NamedTempFile::new().unwrap();
    let feed = r#"<outline type="rss" xmlUrl="http://127.0.0.1:9/a"/>"#;
    writeln!(list, r#"<opml version="2.0"><body><outline text="news">{feed}</outline></body></opml>"#).unwrap();
    let imported = run(&["import", list.path().to_str().unwrap()]);
    assert_eq!(imported.code, Some(0), "{}{}", imported.out, imported.err);
    assert!(imported.out.contains("first polls are spread over policy.import_spread"), "{}", imported.out);
    let added = run(&["feed", "add", "http://127.0.0.1:9/c", "--label", "news", "--wait", "200ms"]);
    assert_eq!(added.code, Some(0), "{}{}", added.out, added.err);
    assert!(added.err.contains("it is not read yet"), "{}", added.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_tokens_are_counted_and_logged_once() {
    let tokens = r#"api.tokens=[{name = "look", role = "read", token = "0123456789abcdef"}]"#;
    let fleet = Fleet::start(&["--set", tokens]).await;
    let client = reqwest::Client::new();
    let get = |path: &str, token| client.get(format!("{}{path}", fleet.server)).bearer_auth(token).send();
    for _ in 0..100 {
        assert_eq!(get("/api/v1/feeds", "guessed").await.unwrap().status(), 401);
    }
    let metrics = get("/metrics", "0123456789abcdef").await.unwrap().text().await.unwrap();
    assert!(metrics.contains("\nfeedfleet_rejected_tokens_total 100\n"), "{metrics}");
    let log = fleet.stderr();
    assert_eq!(log.matches("missing or wrong token").count(), 1, "{log}");
    assert!(!log.contains("guessed"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn run_once_polls_prints_and_ends() {
    let origin = load_tests::origin::Origin::start().await.unwrap();
    origin.set("/a", Script::feed(Feed::atom().initial(2)));
    let data = tempfile::tempdir().unwrap();
    let data = data.path().join("deep/er");
    let settings = ["--set", "fetch.allow_networks=127.0.0.0/8", "--set", "fetch.allow_ports=1-65535"];
    let place = ["--data", data.to_str().unwrap(), "--listen", "127.0.0.1:0"];
    let once = [&["run", "--once"], &settings[..], &place[..]].concat();
    let url = origin.url("/a");
    let first = run(&[&once[..], &[&url]].concat());
    assert_eq!((first.code, first.out.lines().count()), (Some(0), 2), "{}", first.err);
    let second = run(&once);
    assert_eq!((second.code, second.out.as_str()), (Some(0), ""), "{}", second.err);
    assert_eq!(origin.requests("/a").len(), 1);
    let migrated = run(&["migrate", "--data", data.to_str().unwrap()]);
    assert_eq!((migrated.code, migrated.err.as_str()), (Some(0), ""));
    let restored = run(&["migrate", "--restored", "--data", data.to_str().unwrap()]);
    assert_eq!(restored.code, Some(0), "{}", restored.err);
    assert!(restored.out.lines().last().unwrap().starts_with("it is restored: its epoch is "), "{}", restored.out);
}

#[test]
fn a_folder_with_a_question_mark_is_named_in_full() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("q?d").to_str().unwrap().to_owned();
    let ran = run(&["run", "--once", "--data", &data, "--listen", "127.0.0.1:0"]);
    let said = format!(", data in {data}, which is new and empty\n");
    assert!(ran.code == Some(0) && ran.err.contains(&said), "{}", ran.err);
}

#[test]
fn run_refuses_what_is_no_source_and_what_cannot_be_configured() {
    let refused = [
        (&["run", "feed.xml", "--data", ":memory:"][..], "'feed.xml' is neither a URL"),
        (&["run", "ftp://a.example/", "--data", ":memory:"], "has the scheme ftp"),
        (&["run", "--listen", "0.0.0.0:7878"], "api.listen"),
        (&["run", "--set", "policy.slat=1"], "did you mean policy.salt?"),
        (&["run", "--config", "/no/such/file"], "/no/such/file"),
        (&["migrate", "--set", "store.url=mysql://a"], "store.url"),
    ];
    for (arguments, expected) in refused {
        let ran = run(arguments);
        assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{arguments:?}: {}", ran.err);
        assert!(ran.err.contains(expected), "{}", ran.err);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refresh_that_is_waited_for_shows_its_outcome() {
    let fleet = Fleet::start(&[]).await;
    fleet.origin.set("/feed", Script::feed(Feed::rss().initial(2)));
    let url = fleet.origin.url("/feed");
    fleet.done(&["feed", "add", &url]);
    fleet.origin.publish("/feed", 3);
    let out = fleet.done(&["feed", "refresh", "1", "--wait=2m"]);
    assert!(out.contains("1 read, 3 new entries; next poll in "), "{out}");
    let out = fleet.done(&["feed", "refresh", "1", "--wait=2m"]);
    assert!(out.contains("1 not modified; next poll in "), "{out}");
    fleet.origin.set("/feed", Script::status(404));
    let failed = fleet.run(&["feed", "refresh", "1", "--wait=2m"]);
    assert_eq!(failed.code, Some(1));
    assert!(failed.err.contains("1: the server answered 404 Not Found; next poll in "), "{}", failed.err);
    fleet.done(&["fleet", "pause"]);
    let waits = fleet.run(&["feed", "refresh", "1", "--wait=1s"]);
    assert_eq!(waits.code, Some(1));
    assert!(waits.err.contains("all polling is paused") && waits.err.contains("it is not polled yet"), "{}", waits.err);
}
