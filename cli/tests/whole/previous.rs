//! A store of the previous version, polled by this one: nothing that was announced is announced again.
//!
//! previous/previous.db.gz was written by the program of commit da7b9b8, which polled the documents beside it once at
//! [`PLACE`]. Its parser had another version, so every document is read again although it is the same. All its feeds are due in the
//! year 2100, so that they are polled when the test says so and not before.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use load_tests::{Origin, Script};
use serde_json::Value;

use crate::harness::{Fleet, Home, PATIENCE};

/// An address of the loopback network that no other test listens at.
const PLACE: &str = "127.84.18.97:8097";
/// What was stored stays, whatever the date of the test.
const CONFIG: &str = "[host]\ngap = \"10ms\"\n[retention]\nentries = \"0s\"\nevents = \"36500days\"\n";

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/whole/previous").join(name)
}

fn document(name: &str) -> String {
    std::fs::read_to_string(fixture(name)).unwrap()
}

fn unpack(home: &Home) {
    let unpacked = Command::new("gzip").arg("-dc").arg(fixture("previous.db.gz")).output().unwrap();
    assert!(unpacked.status.success(), "{}", String::from_utf8_lossy(&unpacked.stderr));
    std::fs::create_dir(home.path("data")).unwrap();
    std::fs::write(home.path("data").join("feedfleet.db"), unpacked.stdout).unwrap();
}

/// Ids by feed and title.
async fn ids(fleet: &Fleet) -> BTreeMap<(String, String), String> {
    let entries = fleet.get("/api/v1/entries?after=0&limit=1000").await;
    let text = |entry: &Value, name: &str| entry[name].to_string();
    let of = |entry: &Value| ((text(entry, "feed_id"), text(entry, "title")), text(entry, "id"));
    let entries: Vec<_> = entries["items"].as_array().unwrap().iter().map(of).collect();
    let count = entries.len();
    let ids: BTreeMap<_, _> = entries.into_iter().collect();
    assert_eq!(ids.len(), count, "each entry once: {ids:#?}");
    ids
}

/// Returns the events after this one.
async fn events(fleet: &Fleet, after: &Value) -> Vec<Value> {
    let request = fleet.client.get(format!("{}/api/v1/events?after={after}&limit=1000", fleet.api));
    let answer = request.header("accept", "application/json").send().await.unwrap();
    let page: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    page["items"].as_array().unwrap_or_else(|| panic!("{page:#}")).clone()
}

/// Polls every feed once more, and returns the events that followed, as kind and title.
async fn polled_again(fleet: &mut Fleet, origin: &Origin) -> Vec<(String, String)> {
    let last = events(fleet, &Value::from(0)).await.last().unwrap()["seq"].clone();
    let feeds = fleet.get("/api/v1/feeds?limit=100").await;
    for feed in feeds["items"].as_array().unwrap() {
        let (id, path) = (&feed["id"], feed["url"].as_str().unwrap().split(PLACE).nth(1).unwrap());
        let requests = origin.requests(path).len();
        let refreshed = fleet.client.post(format!("{}/api/v1/feeds/{id}/refresh", fleet.api)).send().await.unwrap();
        assert!(refreshed.status().is_success(), "{path}: {}", refreshed.status());
        assert!(origin.wait_for(path, requests + 1, PATIENCE).await.len() > requests, "{path} is not polled");
        let is_stored = async |fleet: &Fleet| {
            let now = fleet.get(&format!("/api/v1/feeds/{id}")).await;
            (now["version"] != feed["version"]).then_some(now)
        };
        let now = fleet.wait_for("the poll", is_stored).await;
        assert_eq!(now["last_outcome"], "modified", "the same document, but read by another parser: {now:#}");
    }
    let kind_and_title =
        |event: &Value| (event["kind"].as_str().unwrap().to_owned(), event["entry"]["title"].to_string());
    events(fleet, &last).await.iter().map(kind_and_title).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_of_the_previous_version_polled_again_announces_nothing_twice() {
    let home = Home::new(CONFIG);
    unpack(&home);
    let origin = Origin::listen(&[PLACE.parse().unwrap()]).await.unwrap();
    for name in ["podcast.xml", "blog.xml", "videos.xml", "shared.xml"] {
        origin.set(&format!("/{name}"), Script::body("application/xml", document(name)));
    }
    let first = document("leaves.xml");
    let (before, after) = (first.find("<item>").unwrap(), first.find("</item>").unwrap() + "</item>".len());
    let left = format!("{}{}", &first[..before], &first[after..]);
    origin.set("/leaves.xml", Script::body("application/xml", left));
    let joined = document("joins.xml").replace(
        "<item>",
        "<item><guid isPermaLink='false'>g</guid><link>https://joins.example/2</link><title>Second</title></item>\n<item>",
    );
    origin.set("/joins.xml", Script::body("application/xml", joined));

    let mut fleet = home.start(&[]);
    let known = ids(&fleet).await;
    assert_eq!(known.len(), 3 + 4 + 2 + 1, "{known:#?}");
    let events = polled_again(&mut fleet, &origin).await;
    assert_eq!(events, [("entry.new".to_owned(), "\"Second\"".to_owned())], "only the one that joined is new");
    let now = ids(&fleet).await;
    for (entry, id) in &known {
        assert_eq!(now.get(entry), Some(id), "{entry:?}");
    }
    fleet.stop();
}
