//! Targets inside of the network: their listener counts connections, not requests, and gets none.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use load_tests::Names;
use reqwest::StatusCode;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::{CONFIG, busy, operator, refusal};
use crate::harness::{Fleet, Home};

/// A server that counts the connections that it accepts. It closes each after one response.
struct Door {
    address: SocketAddr,
    accepted: Arc<AtomicUsize>,
}

impl Door {
    /// Answers each POST with this head, and the hub's questions with their challenge.
    fn open(listener: TcpListener, head: String) -> Self {
        let address = listener.local_addr().unwrap();
        let accepted = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&accepted);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(answer(stream, head.clone()));
            }
        });
        Door { address, accepted }
    }

    fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

async fn answer(mut stream: TcpStream, head: String) -> Option<()> {
    let mut request = Vec::new();
    let (line, left) = loop {
        stream.read_buf(&mut request).await.ok().filter(|read| *read > 0)?;
        let Some(end) = request.windows(4).position(|bytes| bytes == b"\r\n\r\n") else { continue };
        let text = String::from_utf8_lossy(&request[..end]).to_lowercase();
        let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.map_or(0, |length| length.trim().parse().unwrap());
        break (text.lines().next()?.to_owned(), (end + 4 + length).saturating_sub(request.len()));
    };
    let mut rest = vec![0; left];
    stream.read_exact(&mut rest).await.ok()?;
    let challenge = line.split(['&', ' ', '?']).find_map(|field| field.strip_prefix("hub.challenge="));
    let response = match challenge {
        Some(text) => format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{text}", text.len()),
        None => format!("{head}connection: close\r\ncontent-length: 0\r\n\r\n"),
    };
    stream.write_all(response.as_bytes()).await.ok()
}

/// Two listeners on one port: of the network that stays open, and of the one that is closed.
async fn pair() -> (TcpListener, TcpListener) {
    loop {
        let inside = TcpListener::bind("127.0.0.2:0").await.unwrap();
        let port = inside.local_addr().unwrap().port();
        if let Ok(outside) = TcpListener::bind(("127.0.0.1", port)).await {
            return (outside, inside);
        }
    }
}

/// Subscribes at the hub; returns the status.
async fn ask(fleet: &Fleet, topic: &str, callback: &str) -> StatusCode {
    let fields = [("hub.mode", "subscribe"), ("hub.topic", topic), ("hub.callback", callback)];
    let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
    let request = fleet.client.post(format!("{}/hub", fleet.api));
    let request = request.header("content-type", "application/x-www-form-urlencoded").body(body);
    request.send().await.unwrap().status()
}

/// Returns the subscription with this target.
async fn with_target(fleet: &Fleet, target: &str) -> Option<Value> {
    let all = fleet.get("/api/v1/subscriptions").await;
    all["items"].as_array().unwrap().iter().find(|it| it["target"] == target).cloned()
}

/// Waits until the last request to this target ended so.
async fn last(fleet: &mut Fleet, target: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    fleet
        .wait_for(&format!("a request to {target}"), async |fleet| {
            with_target(fleet, target).await.filter(|it| is_so(&it["last"]))
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn targets_inside_of_the_network_get_no_connection() {
    let (outside, inside) = pair().await;
    let closed = Door::open(inside, "HTTP/1.1 204 No Content\r\n".to_owned());
    let to_closed = format!("HTTP/1.1 307 Temporary Redirect\r\nlocation: {}\r\n", closed.url("/redirected"));
    let moving = Door::open(TcpListener::bind("127.0.0.1:0").await.unwrap(), to_closed);
    let open = Door::open(outside, "HTTP/1.1 204 No Content\r\n".to_owned());
    let port = open.address.port();
    let names = Names::default();
    let [before, after] = [open.address.ip(), closed.address.ip()];
    for name in ["hook.test", "callback.test"] {
        names.set(name, &[before]);
    }
    names.set("inside.test", &[after]);
    let name_server = names.serve("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let [hook, callback, inside] =
        ["hook.test", "callback.test", "inside.test"].map(|name| format!("http://{name}:{port}/"));
    let [direct, mapped] = [closed.url("/direct"), format!("http://[::ffff:7f00:2]:{port}/mapped")];

    let hub = "hub = \"open\"\n[api]\npublic_url = \"http://hub.example\"";
    let home =
        Home::with_fetch(&format!("{CONFIG}\n[delivery]\n{hub}"), &format!("name_servers = [\"{name_server}\"]\n"));
    let (_origin, urls) = busy(1).await;
    let topic = &urls[0];
    // While all of loopback is open, these reach the listener.
    let mut fleet = home.start(&[topic]);
    for target in [&direct, &mapped] {
        operator(&home, &fleet, &["subscription", "add", target, "--after", "0"]);
    }
    assert_eq!(ask(&fleet, topic, &closed.url("/callback")).await, StatusCode::ACCEPTED);
    for target in [&direct, &mapped, &closed.url("/callback")] {
        last(&mut fleet, target, |last| last["outcome"] == "delivered" && last["events"] != 0).await;
    }
    assert!(closed.accepted() >= 3, "the listener counts");
    fleet.stop();

    let config = std::fs::read_to_string(home.path("config.toml")).unwrap();
    let narrow = config.replace("allow_networks = [\"127.0.0.0/8\"]", "allow_networks = [\"127.0.0.1/32\"]");
    assert_ne!(config, narrow);
    std::fs::write(home.path("config.toml"), narrow).unwrap();
    let until_then = closed.accepted();
    let mut fleet = home.start(&[]);
    // New ones are refused when they are added; a redirect and a name are only known later.
    for target in [&direct, &mapped] {
        let error = refusal(&home, &fleet, &["subscription", "add", target]);
        assert!(error.contains("is not a public address") && error.contains("fetch.allow_networks"), "{error}");
    }
    for wrong in ["ftp://example.com/", "http://ann:s3cret@example.com/", "example.com"] {
        let error = refusal(&home, &fleet, &["subscription", "add", wrong]);
        assert!(error.contains("cannot send to") && !error.contains("s3cret"), "{error}");
    }
    assert_eq!(ask(&fleet, topic, &format!("http://127.0.0.2:{port}/further")).await, StatusCode::BAD_REQUEST);
    for target in [&moving.url("/"), &hook, &inside] {
        operator(&home, &fleet, &["subscription", "add", target, "--after", "0"]);
    }
    let question = format!("{inside}callback");
    for callback in [&callback, &question] {
        assert_eq!(ask(&fleet, topic, callback).await, StatusCode::ACCEPTED);
    }
    // Those that were stored before, and names that lead inside.
    for target in [&direct, &mapped, &closed.url("/callback"), &inside] {
        last(&mut fleet, target, |last| last["outcome"] == "refused").await;
    }
    let is_dropped = async |fleet: &Fleet| with_target(fleet, &question).await.is_none().then_some(());
    fleet.wait_for("the end of a request that cannot be confirmed", is_dropped).await;
    last(&mut fleet, &moving.url("/"), |last| last["status"] == 307).await;
    // Names whose address changes after the first deliveries.
    for target in [&hook, &callback] {
        last(&mut fleet, target, |last| last["outcome"] == "delivered" && last["events"] != 0).await;
    }
    for name in ["hook.test", "callback.test"] {
        names.set(name, &[after]);
    }
    for target in [&hook, &callback] {
        last(&mut fleet, target, |last| last["outcome"] == "refused").await;
    }
    assert!(open.accepted() >= 2 && moving.accepted() >= 1, "the others get theirs");
    assert_eq!(closed.accepted(), until_then, "connections since the network is closed");
    fleet.stop();
}
