//! Tests of a store that outlives its fleet: followers across a restart, retention, backups.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};

use common::testing::Port;
use load_tests::origin::Origin;
use load_tests::origin::feed::Feed;
use load_tests::origin::script::{Gate, Script};
use serde_json::Value;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode};
use sqlx::{ConnectOptions, Connection};

use crate::fleet::{Fleet, PATIENCE};
use crate::program::{Ran, command, run};

/// `entries --follow`; killed when dropped.
struct Follower {
    child: Child,
    out: Lines<BufReader<ChildStdout>>,
    err: Lines<BufReader<ChildStderr>>,
}

impl Follower {
    fn of(server: &str, arguments: &[&str]) -> Self {
        let mut child = command(&[&["entries", "--follow", "--json", "--server", server], arguments].concat())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        Follower { child, out: BufReader::new(out).lines(), err: BufReader::new(err).lines() }
    }

    fn seq(&mut self) -> i64 {
        let line = self.out.next().unwrap().unwrap();
        serde_json::from_str::<Value>(&line).unwrap()["seq"].as_i64().unwrap()
    }

    fn message(&mut self) -> String {
        self.err.next().unwrap().unwrap()
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        // It may already have exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn json_line(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn folder() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data").to_str().unwrap().to_owned();
    (folder, data)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_goes_on_where_it_was_when_the_fleet_comes_back() {
    let origin = Origin::start().await.unwrap();
    origin.set("/a", Script::feed(Feed::rss().initial(2)));
    origin.set("/b", Script::feed(Feed::rss().initial(1)));
    let ((_folder, data), port) = (folder(), Port::reserved());
    let listen = port.address();
    let fleet = Fleet::start_at(&data, &listen, &[&origin.url("/a")]).await;
    let mut follower = Follower::of(&fleet.server, &[]);
    let first = [follower.seq(), follower.seq()];
    fleet.stop();
    assert!(follower.message().ends_with("waiting for it"));
    let _fleet = Fleet::start_at(&data, &listen, &[&origin.url("/b")]).await;
    let third = follower.seq();
    assert!(first[0] < first[1] && first[1] < third, "{first:?} {third}");
    assert_eq!(follower.message(), format!("the fleet answers again; continuing after {}", first[1]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_of_another_store_begins_anew() {
    let origin = Origin::start().await.unwrap();
    origin.set("/a", Script::feed(Feed::rss().initial(2)));
    origin.set("/b", Script::feed(Feed::rss().initial(1)));
    let port = Port::reserved();
    let listen = port.address();
    let fleet = Fleet::start_at(":memory:", &listen, &[&origin.url("/a")]).await;
    let mut follower = Follower::of(&fleet.server, &[]);
    let first = [follower.seq(), follower.seq()];
    fleet.stop();
    assert!(follower.message().ends_with("waiting for it"));
    let _fleet = Fleet::start_at(":memory:", &listen, &[&origin.url("/b")]).await;
    assert_eq!(follower.seq(), first[0], "numbers are given out again");
    assert!(follower.message().starts_with("the fleet answers again"));
    assert!(follower.message().ends_with("starting from the beginning"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_does_not_wait_for_a_fleet_that_never_answered() {
    let nobody = Port::reserved();
    let server = format!("http://{}", nobody.address());
    let ran = run(&["entries", "--follow", "--server", &server]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("no fleet answers at"), "{}", ran.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_of_a_running_fleet_is_a_fleet_of_its_own() {
    let origin = Origin::start().await.unwrap();
    origin.set("/a", Script::feed(Feed::rss().initial(2)));
    let (folder, data) = folder();
    let fleet = Fleet::start_at(&data, "127.0.0.1:0", &[&origin.url("/a")]).await;
    fleet.until(&["entries", "--json"], |out| out.lines().count() == 2);
    let restored = folder.path().join("restored");
    std::fs::create_dir(&restored).unwrap();
    let copy = restored.join("feedfleet.db").to_str().unwrap().to_owned();
    let done = run(&["backup", &copy, "--data", &data]);
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""));
    assert!(done.out.starts_with(&format!("{copy} holds 1 feed and 2 entries (")), "{}", done.out);
    let again = run(&["backup", &copy, "--data", &data]);
    assert_eq!((again.code, again.out.as_str()), (Some(1), ""));
    assert_eq!(again.err, format!("error: {copy} exists; name a file that does not exist yet\n"));

    let second = Fleet::start_at(restored.to_str().unwrap(), "127.0.0.1:0", &[]).await;
    assert_eq!(second.done(&["entries", "--json"]).lines().count(), 2);
    assert_eq!(origin.requests("/a").len(), 1, "its next poll is where it was");

    let nothing = run(&["backup", &copy, "--data", "no-such-folder"]);
    assert_eq!(nothing.code, Some(1));
    assert!(nothing.err.contains("there is no store at no-such-folder/feedfleet.db"), "{}", nothing.err);
}

#[test]
fn a_first_start_that_could_write_nothing_does_not_prevent_the_next_one() {
    for command in [&["run", "--once", "--listen", "127.0.0.1:0"][..], &["migrate"]] {
        let (folder, data) = folder();
        let start = [command, &["--data", &data]].concat();
        let mut full = Command::new("sh");
        full.args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_feedfleet")]).args(&start);
        assert_eq!(Ran::from(full.output().unwrap()).code, Some(1));
        let again = run(&["run", "--once", "--listen", "127.0.0.1:0", "--data", &data]);
        assert_eq!(again.code, Some(0), "{}", again.err);
        drop(folder);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_takes_long_ends_at_a_signal() {
    let (_folder, data) = folder();
    assert_eq!(run(&["migrate", "--data", &data]).code, Some(0));
    let database = SqliteConnectOptions::new().filename(format!("{data}/feedfleet.db"));
    let mut busy = database.journal_mode(SqliteJournalMode::Delete).connect().await.unwrap();
    sqlx::query("BEGIN EXCLUSIVE").execute(&mut busy).await.unwrap();
    let lock = std::path::Path::new(&data).join("feedfleet.lock");
    std::fs::remove_file(&lock).unwrap();
    let mut fleet = command(&["run", "--data", &data, "--listen", "127.0.0.1:0"]);
    let mut fleet = fleet.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // It waits for this transaction then.
    while !lock.exists() {
        assert_eq!(fleet.try_wait().unwrap(), None, "it ended before it began");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(Command::new("kill").args(["-TERM", &fleet.id().to_string()]).status().unwrap().success());
    let ran = Ran::from(fleet.wait_with_output().unwrap());
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.err.contains("stopped before everything was open"), "{}", ran.err);
    busy.close().await.unwrap();
}

#[test]
fn what_is_written_is_readable_by_its_user_alone() {
    use std::os::unix::fs::PermissionsExt;
    let (folder, data) = folder();
    let (inner, copy) = (format!("{data}/inner"), folder.path().join("copy.db"));
    assert_eq!(run(&["migrate", "--data", &inner]).code, Some(0));
    let backup = run(&["backup", copy.to_str().unwrap(), "--data", &inner]);
    assert_eq!(backup.code, Some(0), "{}", backup.err);
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(inner.as_ref()), mode(&copy)), (0o700, 0o600));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_that_is_interrupted_leaves_nothing_behind() {
    let (folder, data) = folder();
    assert_eq!(run(&["migrate", "--data", &data]).code, Some(0));
    // It waits for this transaction, and is interrupted meanwhile.
    let database = SqliteConnectOptions::new().filename(format!("{data}/feedfleet.db"));
    let mut busy = database.journal_mode(SqliteJournalMode::Delete).connect().await.unwrap();
    sqlx::query("BEGIN EXCLUSIVE").execute(&mut busy).await.unwrap();
    for signal in ["-INT", "-TERM"] {
        let copies = folder.path().join(format!("copies{signal}"));
        std::fs::create_dir(&copies).unwrap();
        let files = || std::fs::read_dir(&copies).unwrap().count();
        let copy = copies.join("copy.db");
        let mut backup = command(&["backup", copy.to_str().unwrap(), "--data", &data]);
        let mut backup = backup.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        while files() == 0 {
            assert_eq!(backup.try_wait().unwrap(), None, "it ended before it began");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert!(!copy.exists(), "an unfinished copy must not have the name of a backup");
        assert!(Command::new("kill").args([signal, &backup.id().to_string()]).status().unwrap().success());
        let ran = Ran::from(backup.wait_with_output().unwrap());
        assert_eq!((ran.code, ran.err), (Some(1), format!("error: interrupted; {} was not written\n", copy.display())));
        assert_eq!(files(), 0);
    }
    busy.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_retention_took_is_told_and_a_follower_goes_on_with_the_rest() {
    // Long enough for a command on a busy machine to see what was stored.
    let retention = ["--set", "retention.entries=20s", "--set", "retention.events=20s"];
    let fleet = Fleet::start(&retention).await;
    fleet.origin.set("/a", Script::feed(Feed::rss().initial(3)));
    fleet.origin.set("/b", Script::feed(Feed::rss().initial(1)));
    fleet.done(&["feed", "add", &fleet.origin.url("/a")]);
    assert_eq!(fleet.done(&["entries", "--json"]).lines().count(), 3);
    fleet.until(&["entries", "--json"], str::is_empty);
    let gone = fleet.run(&["entries", "--after", "1"]);
    assert_eq!((gone.code, gone.out.as_str()), (Some(1), ""));
    let error = "error: after=1 is older than what is kept; continue after 4\n";
    assert_eq!(gone.err, error);

    let mut follower = Follower::of(&fleet.server, &["--after", "1"]);
    assert_eq!(follower.message(), error.trim_end().replace("error", "warning"));
    fleet.done(&["feed", "add", &fleet.origin.url("/b")]);
    assert!(follower.seq() > 4);
    assert_eq!(json_line(&fleet.done(&["stats", "--json"]))["feeds"], 2);
    let again = fleet.run(&["feed", "show", "1", "--json"]);
    assert_eq!(json_line(&again.out)["last_outcome"], "modified");
}

async fn readiness(fleet: &Fleet) -> (u16, String) {
    let answer = reqwest::get(format!("{}/readyz", fleet.server)).await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_full_disk_nothing_is_half_written_and_all_goes_on_when_there_is_room() {
    let origin = Origin::start().await.unwrap();
    let gate = Gate::closed();
    let urls: Vec<String> = (0..5).map(|number| format!("/{number}")).collect();
    for path in &urls {
        origin.set(path, Script::feed(Feed::rss().initial(4)).gate(&gate));
    }
    let urls: Vec<String> = urls.iter().map(|path| origin.url(path)).collect();
    let sources: Vec<&str> = urls.iter().map(String::as_str).collect();
    let (folder, data) = folder();
    let many = ["--set", "host.parallel=5"];
    let fleet = Fleet::start_limitable(&data, &[&sources[..], &many].concat()).await;
    for number in 0..5 {
        assert_eq!(origin.wait_for_start(&format!("/{number}"), 1, PATIENCE).await.len(), 1);
    }
    assert_eq!(readiness(&fleet).await.0, 200);

    fleet.limit_files("0");
    gate.open();
    let deadline = std::time::Instant::now() + PATIENCE;
    let why = loop {
        match readiness(&fleet).await {
            (503, why) => break why,
            (status, _) => assert!(std::time::Instant::now() < deadline, "still {status}"),
        }
    };
    assert!(why.contains("reports cannot be stored"), "{why}");
    let refused = fleet.run(&["feed", "add", "http://127.0.0.1:9/"]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.err.starts_with("error: the store could not"), "{}", refused.err);
    assert_eq!(fleet.done(&["entries", "--json"]), "", "reading goes on");

    fleet.limit_files("unlimited");
    fleet.until(&["entries", "--json"], |out| out.lines().count() == 20);
    while readiness(&fleet).await.0 != 200 {
        assert!(std::time::Instant::now() < deadline, "it is not ready again");
    }
    assert_eq!(origin.request_count(), 5, "nothing was asked twice");
    fleet.stop();
    let copy = folder.path().join("copy.db");
    assert_eq!(run(&["backup", copy.to_str().unwrap(), "--data", &data]).code, Some(0), "the store is sound");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_simulator_reads_the_histories_of_a_fleet() {
    let origin = Origin::start().await.unwrap();
    origin.set("/a", Script::feed(Feed::rss().initial(3)));
    let (folder, data) = folder();
    let fleet = Fleet::start_at(&data, "127.0.0.1:0", &[&origin.url("/a")]).await;
    fleet.until(&["entries", "--json"], |out| out.lines().count() == 3);
    let path = folder.path().join("posts.tsv");
    let path = path.to_str().unwrap();
    let ran = fleet.run(&["export", "--histories", path]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), "1 feed exported\n"));
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.starts_with(&format!("{}\tauto:s\t", origin.url("/a"))), "{text}");
    assert_eq!(text.split('\t').nth(2).unwrap().split_whitespace().count(), 3);
    let watched: Value =
        serde_json::from_str(&run(&["simulate", "--histories", path, "--watched", "--json"]).out).unwrap();
    assert_eq!(watched["feeds"], 1);
    let own = run(&["simulate", "--histories", path, "--own", "--set", "policy.price=9", "--json"]);
    let own: Value = serde_json::from_str(&own.out).unwrap();
    assert_eq!((&own["now"]["feeds"], &own["changed"]["feeds"]), (&1.into(), &1.into()));
    assert_eq!(own["now"]["hosts"][0]["host"], "127.0.0.1");
    let table = run(&["simulate", "--histories", path, "--own"]).out;
    assert!(table.starts_with("1 feed, the last ") && !table.contains("with --set"), "{table}");
}
