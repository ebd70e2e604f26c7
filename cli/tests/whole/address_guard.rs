//! The address guard in a network namespace in which every address is a trap: the fleet never dials an internal
//! address, however its URL is spelled. With the guard switched off the same traps record the connections that it
//! prevented.
//!
//! The test creates the namespace and runs itself again inside it. There, every IPv4 and IPv6 address belongs to the
//! machine, and no interface leads out of it. It needs root (or user namespaces) and `ip`, and fails without them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use load_tests::{Feed, Names, Origin, Script};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::harness::{Fleet, Home, PATIENCE};

/// The only address that may be dialled: public, and in the namespace local like all others.
const PUBLIC: Ipv4Addr = Ipv4Addr::new(93, 184, 216, 34);
const CONTROL_PORT: u16 = 8000;
const TRAP_PORTS: [u16; 3] = [80, 443, 8080];
const NAME_SERVER: &str = "127.0.0.1:5353";
const INSIDE: &str = "address_guard::inside_the_namespace";

#[test]
fn no_spelling_of_an_address_inside_is_ever_dialled() {
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command.args(["--net", "--"]).arg(std::env::current_exe().unwrap());
    let output = command.args(["--exact", INSIDE, "--ignored", "--nocapture"]).env("FEEDFLEET_INSIDE", "1").output();
    let output =
        output.expect("`unshare` is needed to make a network namespace: `dev/install` installs it (util-linux)");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(
        !err.contains("unshare failed") && !err.contains("unshare: "),
        "this test makes a network namespace, which is not possible here; run it as root, or allow user namespaces: {err}"
    );
    println!("{out}");
    assert!(output.status.success() && out.contains("1 passed"), "inside of the namespace:\n{out}\n{err}");
}

/// Makes every address local, and checks that no route leads out.
fn set_up() {
    let ip = |arguments: &[&str]| {
        let output = Command::new("ip").args(arguments).output();
        let output = output.expect("`ip` is needed in the namespace: `dev/install` installs it (iproute2)");
        assert!(output.status.success(), "ip {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    ip(&["link", "set", "lo", "up"]);
    ip(&["route", "add", "local", "0.0.0.0/0", "dev", "lo"]);
    ip(&["-6", "route", "add", "local", "::/0", "dev", "lo"]);
    let up = ip(&["-oneline", "link", "show", "up"]);
    assert!(up.lines().count() == 1 && up.contains(" lo:"), "an interface leads out of the namespace:\n{up}");
}

/// Connections to addresses other than the public one, by address and port.
#[derive(Clone, Default)]
struct Traps(Arc<Mutex<BTreeMap<SocketAddr, usize>>>);

impl Traps {
    async fn set() -> Self {
        let traps = Traps::default();
        for port in TRAP_PORTS {
            // Both families: IPv4 arrives as mapped.
            let listener = TcpListener::bind(("::", port)).await.unwrap();
            let caught = traps.clone();
            tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let local = stream.local_addr().unwrap();
                    if local.ip().to_canonical() != IpAddr::V4(PUBLIC) {
                        *caught.0.lock().unwrap().entry(local).or_default() += 1;
                    }
                }
            });
        }
        traps
    }

    fn caught(&self) -> BTreeMap<SocketAddr, usize> {
        self.0.lock().unwrap().clone()
    }
}

/// Internal addresses of every kind.
const INSIDE_V4: [[u8; 4]; 20] = [
    [127, 0, 0, 1],
    [127, 255, 255, 254],
    [10, 0, 0, 1],
    [10, 255, 255, 254],
    [172, 16, 0, 1],
    [172, 31, 255, 254],
    [192, 168, 0, 1],
    [192, 168, 255, 254],
    [169, 254, 169, 254],
    [169, 254, 170, 2],
    [100, 64, 0, 1],
    [100, 100, 100, 200],
    [168, 63, 129, 16],
    [192, 0, 0, 192],
    [192, 0, 2, 1],
    [198, 18, 0, 1],
    [198, 51, 100, 1],
    [203, 0, 113, 1],
    [0, 0, 0, 0],
    [240, 0, 0, 1],
];

const INSIDE_V6: [&str; 18] = [
    "::",
    "::1",
    "0:0:0:0:0:0:0:1",
    "0000:0000:0000:0000:0000:0000:0000:0001",
    "fe80::1",
    "febf::1",
    "fec0::1",
    "fc00::1",
    "fd00:ec2::254",
    "FD20:CE::254",
    "100::1",
    "2001:db8::1",
    "2001:2::1",
    "2001:20::1",
    "3fff::1",
    "5f00::1",
    "4000::1",
    "ff02::1",
];

/// Returns the spellings of an IPv4 address as the host of a URL, including those inside IPv6.
fn spellings(of: [u8; 4]) -> Vec<String> {
    let [a, b, c, d] = of;
    let address = Ipv4Addr::from(of);
    let number = u32::from(address);
    let (high, low) = (number >> 16, number & 0xffff);
    let (server_high, server_low) = (u32::from(PUBLIC) >> 16, u32::from(PUBLIC) & 0xffff);
    let dotted = address.to_string();
    let by = |change: &dyn Fn(char) -> String| dotted.chars().map(change).collect::<String>();
    let wide = |c: char| char::from_u32(u32::from(c) + 0xfee0).unwrap_or(c);
    vec![
        dotted.clone(),
        format!("{dotted}."),
        number.to_string(),
        format!("{number}."),
        format!("0x{number:x}"),
        format!("0X{number:X}"),
        format!("0x{number:020x}"),
        format!("0{number:o}"),
        format!("000000{number:o}"),
        format!("0x{a:x}.0x{b:x}.0x{c:x}.0x{d:x}"),
        format!("0x{a:x}.0x{b:x}.0x{c:x}.0x{d:x}."),
        format!("0{a:o}.0{b:o}.0{c:o}.0{d:o}"),
        format!("0x{a:x}.{b}.0{c:o}.{d}"),
        format!("{a}.{b}.{}", low),
        format!("{a}.{}", number & 0x00ff_ffff),
        format!("0x{a:x}.0{:o}", number & 0x00ff_ffff),
        by(&|c| format!("%{:02x}", u32::from(c))),
        by(&|c| if c == '.' { "%2e".to_owned() } else { c.to_string() }),
        by(&|c| if c == '.' { c.to_string() } else { wide(c).to_string() }),
        by(&|c| if c == '.' { '\u{3002}'.to_string() } else { c.to_string() }),
        by(&|c| if c == '.' { '\u{ff0e}'.to_string() } else { c.to_string() }),
        format!("name:word@{dotted}"),
        format!("{PUBLIC}@{dotted}"),
        format!("{PUBLIC}%40{PUBLIC}:80@{number}"),
        format!("[::ffff:{dotted}]"),
        format!("[::ffff:{high:x}:{low:x}]"),
        format!("[::FFFF:{high:04X}:{low:04X}]"),
        format!("[0:0:0:0:0:ffff:{high:x}:{low:x}]"),
        format!("[::{dotted}]"),
        format!("[::ffff:0:{dotted}]"),
        format!("[64:ff9b::{dotted}]"),
        format!("[64:ff9b::{high:x}:{low:x}]"),
        format!("[64:ff9b:1::{dotted}]"),
        format!("[2002:{high:x}:{low:x}::]"),
        format!("[2002:{high:x}:{low:x}::1]"),
        format!("[2001:0:{server_high:x}:{server_low:x}:0:0:{:x}:{:x}]", !high & 0xffff, !low & 0xffff),
        format!("[2001:0:{high:x}:{low:x}::1]"),
        format!("[fe80::5efe:{dotted}]"),
    ]
}

/// Returns every literal once.
fn literals() -> Vec<String> {
    let v6 = INSIDE_V6.iter().map(|address| format!("[{address}]"));
    INSIDE_V4.iter().flat_map(|address| spellings(*address)).chain(v6).collect()
}

/// Registers names that resolve to internal addresses: always, among others, sometimes, and the machine's own names.
fn set_names(names: &Names) -> Vec<String> {
    let mut set = Vec::new();
    let mut name = |kind: &str, turns: Vec<Vec<IpAddr>>| {
        let name = format!("{kind}{}.trap.test", set.len());
        names.set_turns(&name, turns);
        set.push(name);
    };
    let public = IpAddr::V4(PUBLIC);
    for address in INSIDE_V4 {
        let inside = IpAddr::from(address);
        let mapped = IpAddr::V6(Ipv4Addr::from(address).to_ipv6_mapped());
        name("plain", vec![vec![inside]]);
        name("mapped", vec![vec![mapped]]);
        name("among", vec![vec![public, inside]]);
        name("flips", (0..64).map(|turn| vec![if turn % 2 == 0 { public } else { inside }]).collect());
        name("turns", (0..64).map(|turn| vec![if turn % 2 == 0 { inside } else { public }]).collect());
    }
    for address in INSIDE_V6 {
        name("six", vec![vec![address.parse().unwrap()]]);
        name("sixth", vec![vec![public, address.parse().unwrap()]]);
    }
    set.extend(
        ["localhost", "localhost.", "LOCALHOST", "a.localhost", "ip6-localhost", "127.0.0.1.trap.test"]
            .map(str::to_owned),
    );
    set
}

/// Returns URLs that lead to the traps, by how they lead there.
fn urls(origin: &Origin, names: &Names) -> Vec<(&'static str, String)> {
    let mut urls = Vec::new();
    let at = |host: &str, number: usize| match number % 3 {
        0 => format!("http://{host}/{number}"),
        1 => format!("https://{host}/{number}"),
        _ => format!("http://{host}:8080/{number}"),
    };
    let literals = literals();
    urls.extend(literals.iter().enumerate().map(|(number, host)| ("literal", at(host, number))));
    for (number, host) in literals.iter().step_by(7).enumerate() {
        let status = [301, 302, 303, 307, 308][number % 5];
        let path = format!("/redirect/{number}");
        origin.set(&path, Script::redirect(status, at(host, number)));
        urls.push(("redirect", origin.url(&path)));
    }
    for (number, name) in set_names(names).iter().enumerate() {
        // The port is also a trap's port where a public address may answer.
        urls.push(("name", at(name, number)));
        if number % 3 == 0 {
            let path = format!("/to-name/{number}");
            origin.set(&path, Script::redirect(302, at(name, number)));
            urls.push(("redirect to a name", origin.url(&path)));
        }
    }
    urls
}

fn config(opened: bool) -> String {
    let networks = if opened { "allow_networks = [\"0.0.0.0/0\", \"::/0\"]" } else { "" };
    format!(
        r#"
[policy]
mode = "classes"
min_interval = "500ms"
salt = 0.0
hot_minutes = false
[policy.category.d]
interval = "5s"
interval_max = "5s"
[policy.penalty]
transient_first = "5s"
box_after = 1000
bad_feed = "5s"
[host]
gap = "1ms"
parallel = 16
[fetch]
{networks}
name_servers = ["{NAME_SERVER}"]
user_agent_url = "https://fleet.example/bot"
timeout = "5s"
connect_timeout = "3s"
"#
    )
}

/// The results of the URLs.
struct Tried {
    /// Rejected when added, by kind.
    refused: BTreeMap<&'static str, usize>,
    /// Outcomes of polls, by kind.
    ended: BTreeMap<(&'static str, String), usize>,
    /// Status codes of the control feed's polls.
    control: BTreeSet<u64>,
    control_polls: usize,
}

async fn post(fleet: &Fleet, url: &str) -> Option<i64> {
    let request = fleet.client.post(format!("{}/api/v1/feeds", fleet.api));
    let answer = request.header("Content-Type", "application/json").body(json!({"url": url}).to_string()).send().await;
    let answer: Value = serde_json::from_str(&answer.unwrap().text().await.unwrap()).unwrap();
    answer["id"].as_i64()
}

/// Adds all URLs to a fleet, and waits until it has polled each `times` times.
async fn try_all(origin: &Origin, urls: &[(&'static str, String)], opened: bool, times: u64) -> Tried {
    let home = Home::written(&config(opened));
    let mut fleet = home.start(&[]);
    let control = post(&fleet, &origin.url("/control")).await.unwrap();
    let (mut refused, mut ids) = (BTreeMap::new(), BTreeMap::new());
    for (kind, url) in urls {
        match post(&fleet, url).await {
            Some(id) => drop(ids.insert(id, *kind)),
            None => *refused.entry(*kind).or_default() += 1,
        }
    }
    let feeds = async |fleet: &Fleet| {
        let (mut feeds, mut after) = (Vec::new(), String::new());
        loop {
            let page = fleet.get(&format!("/api/v1/feeds?limit=1000{after}")).await;
            feeds.extend(page["items"].as_array().unwrap().clone());
            match page["next"].as_str() {
                Some(next) => after = format!("&after={next}"),
                None => return feeds,
            }
        }
    };
    let all = fleet.wait_within(PATIENCE * 5, "every poll", async |fleet| {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let feeds = feeds(fleet).await;
        let version = |feed: &Value| feed["version"].as_u64().unwrap_or(0);
        feeds.iter().all(|feed| version(feed) > times).then_some(feeds)
    });
    let mut ended: BTreeMap<(&str, String), usize> = BTreeMap::new();
    for feed in all.await {
        let Some(kind) = ids.get(&feed["id"].as_i64().unwrap()) else { continue };
        let history = fleet.get(&format!("/api/v1/feeds/{}/history", feed["id"])).await;
        for poll in history["items"].as_array().unwrap() {
            let name = poll["failure"].as_str().or(poll["outcome"].as_str()).unwrap_or_default();
            *ended.entry((*kind, name.to_owned())).or_default() += 1;
        }
    }
    let history = fleet.get(&format!("/api/v1/feeds/{control}/history")).await;
    let polls = history["items"].as_array().unwrap();
    let control = polls.iter().map(|poll| poll["status"].as_u64().unwrap_or(0)).collect();
    fleet.stop();
    Tried { refused, ended, control, control_polls: polls.len() }
}

impl Tried {
    fn text(&self) -> String {
        let mut text = format!("  refused when added: {:?}\n", self.refused);
        for ((kind, name), polls) in &self.ended {
            writeln!(text, "  {kind}: {polls} polls ended as {name}").unwrap();
        }
        write!(text, "  control feed: {} polls, statuses {:?}", self.control_polls, self.control).unwrap();
        text
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "runs inside of the namespace that no_spelling_of_an_address_inside_is_ever_dialled makes"]
async fn inside_the_namespace() {
    assert!(std::env::var_os("FEEDFLEET_INSIDE").is_some(), "this is started by the test that makes the namespace");
    set_up();
    let traps = Traps::set().await;
    let names = Names::default();
    names.serve(NAME_SERVER.parse().unwrap()).await.unwrap();
    let origin = Origin::listen(&[SocketAddr::from((PUBLIC, CONTROL_PORT))]).await.unwrap();
    origin.set("/control", Script::feed(Feed::rss()));

    let closed_urls = urls(&origin, &names);
    let closed = try_all(&origin, &closed_urls, false, 2).await;
    let caught = traps.caught();
    println!(
        "{} ways inside, guard closed: {} connections at traps\n{}",
        closed_urls.len(),
        caught.len(),
        closed.text()
    );
    assert!(closed_urls.len() >= 500, "only {} spellings", closed_urls.len());
    assert!(caught.is_empty(), "dialled: {caught:?}");
    assert!(closed.control_polls >= 3 && closed.control.is_subset(&BTreeSet::from([200, 304])), "{}", closed.text());
    let wrong: Vec<_> = closed.ended.keys().filter(|(_, name)| name == "modified" || name == "not_modified").collect();
    assert!(wrong.is_empty(), "{wrong:?}");

    // Names start their sequences again.
    let open_urls = urls(&origin, &names);
    let opened = try_all(&origin, &open_urls, true, 1).await;
    let caught = traps.caught();
    let connections: usize = caught.values().sum();
    println!("the same, guard opened: {connections} connections at {} addresses\n{}", caught.len(), opened.text());
    assert!(connections >= 300, "the traps do not work: {caught:?}");
    assert!(caught.keys().any(|trap| trap.ip().to_canonical() == IpAddr::from([169, 254, 169, 254])), "{caught:?}");
}
