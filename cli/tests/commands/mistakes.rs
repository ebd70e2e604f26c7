//! User errors, one by one: each leads to one sentence that says what is accepted or what to do, and to the right exit
//! code: 2 for wrong usage, 1 for a failed operation.

use std::fs;
use std::net::TcpListener;
use std::time::Instant;

use load_tests::StallWatch;
use load_tests::origin::Origin;
use load_tests::origin::feed::Feed;
use load_tests::origin::script::Script;
use sqlx::{ConnectOptions, Connection};

use crate::fleet::Fleet;
use crate::program::{Ran, command, run};

/// Checks that the command exits with this code, prints this as its first line of stderr, and nothing on stdout.
fn fails_with(arguments: &[&str], code: i32, sentence: &str) {
    let ran = run(arguments);
    assert_eq!((ran.code, ran.out.as_str()), (Some(code), ""), "{arguments:?}: {}", ran.err);
    assert_eq!(ran.err.lines().next(), Some(sentence), "{arguments:?}");
}

#[test]
fn wrong_flags_say_what_would_be_accepted() {
    let invalid = |value: &str, flag: &str, why: &str| format!("error: invalid value '{value}' for '{flag}': {why}");
    let number = "it must be a whole number, such as 100";
    fails_with(&["run", "--bogus"], 2, "error: unexpected argument '--bogus' found");
    fails_with(&["feed", "ad"], 2, "error: unrecognized subcommand 'ad'");
    let address = "it must be an address and a port, such as 127.0.0.1:7878";
    fails_with(&["run", "--listen", "7878"], 2, &invalid("7878", "--listen <ADDR>", address));
    let folder = "it must be a folder, or :memory: to keep nothing";
    fails_with(&["run", "--data", " "], 2, &invalid(" ", "--data <DIR>", folder));
    fails_with(&["entries", "--after", "x"], 2, &invalid("x", "--after <SEQ>", number));
    fails_with(&["feed", "add", "u", "--subscribers", "-1"], 2, "error: unexpected argument '-1' found");
    fails_with(&["feed", "add", "u", "--subscribers=many"], 2, &invalid("many", "--subscribers <N>", number));
    let duration = "it must be a duration, such as 500ms, 30s or 1h 30m";
    fails_with(&["feed", "add", "u", "--wait", "long"], 2, &invalid("long", "--wait <DURATION>", duration));
    let set = "write KEY=VALUE, such as policy.salt=0.2";
    fails_with(&["run", "--set", "policy.salt"], 2, &invalid("policy.salt", "--set <KEY=VALUE>", set));
    let interval = "it must be a duration, such as 30m or 1h 30m, or none";
    fails_with(&["feed", "set", "1", "--interval", "5"], 2, &invalid("5", "--interval <DURATION>", interval));
    let calm = "it must be a time zone and a number, such as Europe/Paris=3, or none";
    let (paris, flag) = ("Europe/Paris=many", "--calm <ZONE[=N]>");
    fails_with(&["feed", "set", "1", "--calm", paris], 2, &invalid(paris, flag, calm));
    let none = "error: --calm none removes all groups; give it alone, or only time zones";
    fails_with(&["feed", "set", "1", "--calm", "none", "--calm", "Europe/Paris"], 2, none);
    let twice = "error: --calm names Europe/Paris twice; give each time zone once";
    fails_with(&["feed", "add", "u", "--calm", "Europe/Paris=3", "--calm", "Europe/Paris"], 2, twice);
    let nothing = "error: nothing to set; `feedfleet subscription set --help` lists what can be";
    fails_with(&["subscription", "set", "1"], 2, nothing);
    let all = "error: the argument '--all' cannot be used with '--label <LABEL>'";
    fails_with(&["subscription", "set", "1", "--all", "--label", "news"], 2, all);
    fails_with(&["top", "--every", "x"], 2, &invalid("x", "--every <TIME>", "it must be a duration, such as 2s"));
    fails_with(&["demo", "--for", "x"], 2, &invalid("x", "--for <TIME>", "it must be a duration, such as 60s"));
    let long = "a demo keeps every request in memory, so it lasts at most 10m";
    fails_with(&["demo", "--for", "20m"], 2, &invalid("20m", "--for <TIME>", long));
    let kinds = "it must be kinds of entries, such as entry.new; `feedfleet events` prints the other kinds";
    let gone = "entry.new,feed.gone";
    fails_with(&["entries", "--kind", gone], 2, &invalid(gone, "--kind <KINDS>", kinds));
    fails_with(&["export", "--json"], 2, "error: unexpected argument '--json' found");
    let server = "error: --server must be a URL such as http://127.0.0.1:7878, not '127.0.0.1:7878'";
    fails_with(&["feed", "list", "--server", "127.0.0.1:7878"], 2, server);
}

#[test]
fn a_configuration_key_that_nobody_reads_is_told_with_the_nearest_one() {
    let sentence = "error: unknown key host.gaps in the command line; did you mean host.gap?";
    for command in [&["run"][..], &["fetch", "http://a.example/"], &["migrate"], &["backup", "x"], &["config", "check"]]
    {
        fails_with(&[command, &["--set", "host.gaps=1s"]].concat(), 2, sentence);
    }
}

/// Checks that a command in this environment exits with this code, and that its only line of stderr has these words and no password.
fn refuses(arguments: &[&str], (key, value): (&str, &str), words: &[&str]) {
    let ran: Ran = command(arguments).env(key, value).output().unwrap().into();
    assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{}", ran.err);
    assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
    assert!(words.iter().all(|word| ran.err.contains(word)), "{}", ran.err);
    assert!(!ran.err.contains("hunter2"), "{}", ran.err);
}

#[test]
fn a_password_with_reserved_characters_is_refused_with_the_remedy() {
    let urls = [
        ("FEEDFLEET_STORE__URL", "postgres://u:hunter2/x@h/x"),
        ("FEEDFLEET_SCHEDULE__URL", "redis://:hunter2#heim@h/"),
        ("FEEDFLEET_QUEUE__URL", "amqp://u:hunter2/ss@h"),
    ];
    for url in urls {
        refuses(&["config", "check"], url, &["%23 for #"]);
    }
}

#[test]
fn the_backup_of_a_postgresql_names_its_tool_and_no_password() {
    let url = ("FEEDFLEET_STORE__URL", "postgres://u:hunter2@127.0.0.1:9/db");
    refuses(&["backup", "x.db"], url, &["pg_dump -Fc", "docs/operations.md"]);
}

#[test]
fn a_token_that_cannot_be_sent_is_refused_with_the_reason() {
    refuses(&["stats"], ("FEEDFLEET_TOKEN", "secret\n"), &["FEEDFLEET_TOKEN contains a line break", "printf"]);
}

#[test]
fn a_folder_that_cannot_be_used_is_told_by_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("file"), "mine").unwrap();
    let unusable = |path: &str, why: &str| {
        format!("error: the store cannot use {path}; it needs a folder that it may write to: {why}")
    };
    fails_with(&["run", "--data", &path("file")], 1, &unusable(&path("file"), "File exists (os error 17)"));
    let below = path("file/below");
    fails_with(&["run", "--data", &below], 1, &unusable(&below, "Not a directory (os error 20)"));
    fs::create_dir_all(path("odd/feedfleet.db")).unwrap();
    fails_with(&["run", "--data", &path("odd")], 1, &unusable(&path("odd/feedfleet.db"), "is a directory"));
    fs::create_dir(path("other")).unwrap();
    fs::write(path("other/feedfleet.db"), "something else altogether, and longer than a page's head").unwrap();
    let foreign = "is not a feedfleet database; move it away, or use another folder";
    fails_with(&["run", "--data", &path("other")], 1, &format!("error: {} {foreign}", path("other/feedfleet.db")));
    assert_eq!(fs::read_to_string(path("file")).unwrap(), "mine");
    fs::create_dir(path("empty")).unwrap();
    fs::write(path("empty/feedfleet.db"), "").unwrap();
    let empty = format!(
        "error: {} is empty, so it is not a store; if it comes from an interrupted copy, put the backup there again, or \
         remove the file to start without feeds",
        path("empty/feedfleet.db")
    );
    fails_with(&["run", "--once", "--data", &path("empty"), "--listen", "127.0.0.1:0"], 1, &empty);
}

#[tokio::test]
async fn a_database_of_a_newer_version_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    assert_eq!(run(&["migrate", "--data", data]).code, Some(0));
    let database = folder.path().join("feedfleet.db");
    let mut connection = sqlx::sqlite::SqliteConnectOptions::new().filename(&database).connect().await.unwrap();
    let newer =
        "UPDATE _sqlx_migrations SET version = 9000 WHERE version = (SELECT max(version) FROM _sqlx_migrations)";
    sqlx::query(newer).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    for command in ["run", "migrate"] {
        let ran = run(&[command, "--data", data]);
        assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "systemd does not start it again");
        let is_newer = ran.err.starts_with("error: the database has schema version 9000, this program knows up to");
        assert!(is_newer && ran.err.ends_with("run a newer feedfleet\n"), "{}", ran.err);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_or_a_folder_that_is_in_use_is_told() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let busy = format!(
        "error: cannot listen on {address} (Address already in use (os error 98)); name another address with --listen, \
         such as 127.0.0.1:0"
    );
    fails_with(&["run", "--data", ":memory:", "--listen", &address], 1, &busy);

    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let _fleet = Fleet::start_at(data, "127.0.0.1:0", &[]).await;
    let in_use =
        format!("error: {data}/feedfleet.db is in use by another feedfleet; stop that one, or take another folder");
    fails_with(&["run", "--data", data, "--listen", "127.0.0.1:0"], 1, &in_use);
    fails_with(&["migrate", "--data", data], 1, &in_use);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_url_is_told() {
    let fleet = Fleet::start(&[]).await;
    let server = ["--server", &fleet.server];
    let against = |arguments: &[&str], code, sentence: &str| {
        fails_with(&[arguments, &server].concat(), code, sentence);
    };
    let whole = "write it whole, such as https://example.com/feed.xml";
    against(&["feed", "add", "blog"], 2, &format!("error: url: 'blog' is not a URL; {whole}"));
    let neither = "error: 'blog' is neither a feed's id nor a URL such as https://example.com/feed.xml";
    against(&["feed", "show", "blog"], 2, neither);
    let scheme = "error: url: 'ftp://a.example/' has the scheme ftp; feeds are read over http and https";
    against(&["feed", "add", "ftp://a.example/"], 2, scheme);
    let neither = "error: 'blog' is neither a URL such as https://example.com/feed.xml nor an OPML file";
    fails_with(&["run", "blog", "--data", ":memory:"], 2, neither);
    fails_with(&["fetch", "blog"], 2, &format!("error: 'blog' is not a URL; {whole}"));
    against(&["feed", "show", "7"], 1, "error: there is no feed 7; `feedfleet feed list` lists them");
    let subscription = "error: there is no subscription 1; `feedfleet subscription list` lists them";
    against(&["subscription", "show", "1"], 1, subscription);
    let part = "error: part: it must be K/N with K from 1 to N and N at most 1024, such as 1/4";
    against(&["entries", "--part", "5/4"], 2, part);
}

#[tokio::test(flavor = "multi_thread")]
async fn gentle_is_four_at_once_and_one_a_second() {
    let origin = Origin::listen(&load_tests::loopback(8, 0)).await.unwrap();
    let urls: Vec<String> = (0..8).map(|host| origin.url_on(host, &format!("/{host}"))).collect();
    for host in 0..8 {
        origin.set(&format!("/{host}"), Script::feed(Feed::rss()));
    }
    let sources: Vec<&str> = urls.iter().map(String::as_str).collect();
    let stalls = StallWatch::since(Instant::now() - origin.elapsed());
    tokio::spawn(stalls.clone().watch_runtime());
    let fleet = Fleet::start_at(":memory:", "127.0.0.1:0", &[&sources[..], &["--gentle"]].concat()).await;
    tokio::spawn(stalls.clone().watch_process(reqwest::Client::new(), fleet.server.clone()));
    assert!(origin.wait_for_total(8, crate::fleet::PATIENCE).await);
    let mut starts: Vec<_> = origin.log().iter().map(|request| request.start).collect();
    starts.sort();
    let after = |number: usize| (starts[number] - starts[0]).as_secs_f64();
    // The bucket refills from the start of the first poll's round, which is a moment before its arrival, and more after a stall.
    let late = stalls.seen().longest().as_secs_f64();
    for (number, least) in [(4, 0.5), (5, 1.5), (6, 2.5), (7, 3.5)] {
        assert!(after(number) + late >= least, "request {number} came after {} s, stalls of {late} s", after(number));
    }
    assert!(after(3) < 0.9 + late, "four at once: the fourth came after {} s, stalls of {late} s", after(3));
}

#[test]
fn messages_that_nobody_reads_are_no_failure() {
    for (arguments, code) in
        [(&["fetch", "http://127.0.0.1:9/"][..], 1), (&["parse", "no such file"], 1), (&["feed", "list"], 1)]
    {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let status = command(arguments).env("FEEDFLEET_SERVER", "http://127.0.0.1:9").stderr(writer).status().unwrap();
        assert_eq!(status.code(), Some(code), "{arguments:?}");
    }
}
