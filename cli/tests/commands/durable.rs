//! What has to do with a store that outlives its fleet: followers across a restart, retention, backups.

use std::io::{BufRead, BufReader, Lines};
use std::net::TcpListener;
use std::process::{Child, ChildStderr, ChildStdout, Stdio};

use load_tests::origin::Origin;
use load_tests::origin::feed::Feed;
use load_tests::origin::script::Script;
use serde_json::Value;

use crate::fleet::Fleet;
use crate::program::{command, run};

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

    fn told(&mut self) -> String {
        self.err.next().unwrap().unwrap()
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
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
    let ((_folder, data), listen) = (folder(), free_address());
    let fleet = Fleet::start_at(&data, &listen, &[&origin.url("/a")]).await;
    let mut follower = Follower::of(&fleet.server, &[]);
    let first = [follower.seq(), follower.seq()];
    fleet.stop();
    assert!(follower.told().ends_with("waiting for it"));
    let _fleet = Fleet::start_at(&data, &listen, &[&origin.url("/b")]).await;
    let third = follower.seq();
    assert!(first[0] < first[1] && first[1] < third, "{first:?} {third}");
    assert_eq!(follower.told(), format!("the fleet answers again; going on after {}", first[1]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_of_another_store_begins_anew() {
    let origin = Origin::start().await.unwrap();
    origin.set("/a", Script::feed(Feed::rss().initial(2)));
    origin.set("/b", Script::feed(Feed::rss().initial(1)));
    let listen = free_address();
    let fleet = Fleet::start_at(":memory:", &listen, &[&origin.url("/a")]).await;
    let mut follower = Follower::of(&fleet.server, &[]);
    let first = [follower.seq(), follower.seq()];
    fleet.stop();
    assert!(follower.told().ends_with("waiting for it"));
    let _fleet = Fleet::start_at(":memory:", &listen, &[&origin.url("/b")]).await;
    assert_eq!(follower.seq(), first[0], "numbers are given out again");
    assert!(follower.told().starts_with("the fleet answers again"));
    assert!(follower.told().ends_with("beginning anew"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_does_not_wait_for_a_fleet_that_never_answered() {
    let server = format!("http://{}", free_address());
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
