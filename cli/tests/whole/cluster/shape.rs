//! The shape of entries: wherever they come out as JSON they are what docs/entry.schema.json says, and the same.
//!
//! The feeds are the ones of worker/tests/it/publishers, as today's publishers write them.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;

use boon::{Compiler, SchemaIndex, Schemas};
use load_tests::{Origin, Script};
use serde_json::Value;

use super::harness::{Cluster, Kind, Servers, Urls};
use crate::harness::{Home, PATIENCE, client};

/// Debian's interpreter, which has pika.
const PYTHON: &str = "/usr/bin/python3";
/// Prints each message of the exchange on a line.
const LISTENS: &str = r##"
import pika, sys
url, exchange = sys.argv[1:]
channel = pika.BlockingConnection(pika.URLParameters(url)).channel()
channel.exchange_declare(exchange, "topic", durable=True)
queue = channel.queue_declare("", exclusive=True).method.queue
channel.queue_bind(queue, exchange, "entry.#")
print("listening", flush=True)
for _, _, body in channel.consume(queue, auto_ack=True):
    print(body.decode(), flush=True)
"##;
const OPEN: [&str; 4] = ["--set", "fetch.allow_networks=127.0.0.0/8", "--set", "fetch.allow_ports=1-65535"];

fn in_tree(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// docs/entry.schema.json.
struct Schema {
    schemas: Schemas,
    index: SchemaIndex,
}

impl Schema {
    fn of_entries() -> Self {
        let text = std::fs::read(in_tree("docs/entry.schema.json")).unwrap();
        let mut schema: Value = serde_json::from_slice(&text).unwrap();
        // a field that the schema does not name is undocumented
        schema["additionalProperties"] = Value::Bool(false);
        for name in STORED.into_iter().chain(["link"]) {
            schema["properties"][name] = Value::Bool(true);
        }
        let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
        compiler.enable_format_assertions();
        compiler.add_resource("entry.json", schema).unwrap();
        let index = compiler.compile("entry.json", &mut schemas).unwrap();
        Schema { schemas, index }
    }

    fn accepts(&self, entry: &Value) {
        if let Err(error) = self.schemas.validate(entry, self.index) {
            panic!("{error:#}\nin {entry:#}");
        }
    }
}

/// What only stored entries have.
const STORED: [&str; 7] = ["seq", "feed_id", "feed_url", "feed_title", "labels", "external_id", "seen"];

/// Returns the entries of one source, by their ids, as far as they should be the same in all.
fn common(schema: &Schema, entries: impl IntoIterator<Item = Value>) -> BTreeMap<String, Value> {
    let of = |mut entry: Value| {
        schema.accepts(&entry);
        let fields = entry.as_object_mut().unwrap();
        // stored ones have numbers and times; those that were only read have their URL twice, and null for the absent
        fields.retain(|name, value| !STORED.contains(&name.as_str()) && name != "link" && !value.is_null());
        (entry["id"].as_str().unwrap().to_owned(), entry)
    };
    entries.into_iter().map(of).collect()
}

fn list(value: &Value, name: &str) -> Vec<Value> {
    value[name].as_array().unwrap_or_else(|| panic!("no {name} in {value:#}")).clone()
}

/// Returns the entries of events.
fn announced(events: impl IntoIterator<Item = Value>) -> impl Iterator<Item = Value> {
    events.into_iter().filter(|event| event["kind"] == "entry.new").map(|event| event["entry"].clone())
}

async fn get(url: &str) -> Value {
    let answer = client().get(url).header("accept", "application/json").send().await.unwrap();
    assert_eq!(answer.status().as_u16(), 200, "{url}");
    serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap()
}

fn run(home: &Home, arguments: &[&str]) -> String {
    let ran = home.command(arguments).output().unwrap();
    assert!(ran.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap()
}

/// A consumer of the exchange; killed when dropped.
struct Listener {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Listener {
    fn of(servers: &Servers, cluster: &Cluster) -> Self {
        let exchange = format!("{}.events", cluster.namespace);
        let mut command = Command::new(PYTHON);
        command.args(["-c", LISTENS, &servers.rabbitmq, &exchange]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "listening", "is python3-pika installed? dev/install does that");
        Listener { child, lines }
    }

    fn messages(&mut self, count: usize) -> Vec<Value> {
        self.lines.by_ref().take(count).map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // It may already have exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_have_one_documented_shape_wherever_they_come_out() {
    let schema = Schema::of_entries();
    let servers = Servers::shared();
    let config = "[host]\ngap = \"0s\"\n[fetch]\nallow_networks = [\"127.0.0.0/8\"]\nallow_ports = [\"1-65535\"]\n";
    let cluster = Cluster::new(&servers, Urls::of(&servers), config).await;
    let mut listener = Listener::of(&servers, &cluster);
    let origin = Origin::start().await.unwrap();
    let mut documents: Vec<PathBuf> = std::fs::read_dir(in_tree("worker/tests/it/publishers"))
        .unwrap()
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "xml"))
        .collect();
    documents.sort();
    assert!(documents.len() >= 9, "{documents:?}");
    let mut scheduler = cluster.start(Kind::Scheduler);
    let worker = cluster.start(Kind::Worker);
    let (server, home) = (scheduler.address(), Home::new(""));
    let mut seen = 0;
    for (n, document) in documents.iter().enumerate() {
        let path = format!("/{n}");
        origin.set(&path, Script::body("application/xml", std::fs::read(document).unwrap()));
        let url = origin.url(&path);

        let read: Value =
            serde_json::from_str(&run(&home, &["parse", document.to_str().unwrap(), "--json", "--base", &url]))
                .unwrap();
        let expected = common(&schema, list(&read, "entries"));
        assert!(!expected.is_empty());
        let fetched = run(&home, &[&["fetch", &url, "--json"], &OPEN[..]].concat());
        let fetched: Value = serde_json::from_str(&fetched).unwrap();
        assert_eq!(common(&schema, list(&fetched["document"], "entries")), expected, "fetch --json");

        let feed = run(&home, &["feed", "add", &url, "--json", "--server", &server]);
        let feed: Value = serde_json::from_str(feed.lines().next().unwrap()).unwrap();
        let (id, after) = (feed["id"].to_string(), format!("after={seen}"));
        let deadline = Instant::now() + PATIENCE;
        let page = loop {
            let page = get(&format!("{server}/api/v1/feeds/{id}/entries?html=sanitised")).await;
            if list(&page, "items").len() == expected.len() {
                break page;
            }
            assert!(Instant::now() < deadline, "{page:#}\n{}", worker.stderr());
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        };
        let mut sanitised = list(&page, "items");
        for entry in &mut sanitised {
            // returned only on request
            entry.as_object_mut().unwrap().retain(|name, _| name != "summary_html" && name != "content_html");
        }
        assert_eq!(common(&schema, sanitised), expected, "GET /feeds/{id}/entries");
        let entries = get(&format!("{server}/api/v1/entries?{after}")).await;
        assert_eq!(common(&schema, list(&entries, "items")), expected, "GET /entries");
        let events = get(&format!("{server}/api/v1/events?{after}")).await;
        assert_eq!(common(&schema, announced(list(&events, "items"))), expected, "GET /events");
        let printed = run(&home, &["entries", "--json", "--feed", &id, "--server", &server]);
        let printed = printed.lines().map(|line| serde_json::from_str(line).unwrap());
        assert_eq!(common(&schema, printed), expected, "entries --json");
        assert_eq!(common(&schema, announced(listener.messages(expected.len()))), expected, "the exchange");
        same_feed(&read, &fetched["document"], &get(&format!("{server}/api/v1/feeds/{id}")).await);
        seen = events["next"].as_i64().unwrap();
    }
    scheduler.stop().await;
    worker.stop().await;
}

/// What the feeds say about themselves is the same too.
fn same_feed(read: &Value, fetched: &Value, feed: &Value) {
    for name in [
        "title",
        "description",
        "image",
        "icon",
        "language",
        "authors",
        "categories",
        "generator",
        "copyright",
        "podcast",
    ] {
        assert_eq!(read[name], feed[name], "{name}");
        assert_eq!(read[name], fetched[name], "{name} of fetch --json");
    }
}
