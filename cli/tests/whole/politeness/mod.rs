//! The politeness rules as a specification: each rule is tested with the whole program against a scripted origin that
//! records every byte of every request.
//!
//! Each [`Line`] states a promise; its case sets up feeds, waits for polls, and compares what it expected with what
//! happened. All cases share one running fleet, each with its own hosts. At the end the fleet is killed and restarted
//! (P12), and the judge reads the whole log: the score card has a row for each line and one for each rule of the judge,
//! and all are 0.

mod armour;
mod case;
mod certificates;
mod conditions;
mod head;
mod hosts;
mod logins;
mod pace;
mod retry_after;
mod rules;
mod shape;
mod signed;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::pin::Pin;
use std::time::Duration;

use common::time::{Clock, SystemClock, Timestamp};
use futures_util::future::join_all;
use load_tests::{Record, Rules};

use crate::cluster::harness::{Cluster, Kind, Role, Servers, Urls, address, through};
use crate::harness::{Home, OPEN};
use case::{Case, Stage};
use load_tests::proxy::FaultProxy;
use logins::Place;

type Trying<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// A rule: its number, what it promises, and its test.
struct Line {
    number: &'static str,
    promise: &'static str,
    case: for<'a> fn(&'a Case<'a>) -> Trying<'a>,
}

macro_rules! lines {
    ($($number:literal $promise:literal $case:path;)*) => {
        &[$(Line { number: $number, promise: $promise, case: |case| Box::pin($case(case)) },)*]
    };
}

const LINES: &[Line] = lines! {
    "P1"  "only the first fetch is unconditional, a person's refresh included" conditions::p1;
    "P2"  "validators are echoed byte for byte" conditions::p2;
    "P3"  "unsendable and over-long validators are dropped, not repaired" conditions::p3;
    "P4"  "both were received: both are sent" conditions::p4;
    "P5"  "validators of an equal body are stored" conditions::p5;
    "P6"  "each validator is replaced on its own" conditions::p6;
    "P7"  "a validator absent from a new 200 is forgotten" conditions::p7;
    "P8"  "a 304's validators replace the stored ones" conditions::p8;
    "P9"  "validators of errors and of broken answers are never stored" conditions::p9;
    "P13" "validators go to the hop that gave them only" conditions::p13;
    "P15" "salt only adds" pace::p15;
    "P16" "max-age and Expires are kept, whatever the status" pace::p16;
    "P17" "Retry-After is kept in all its spellings" retry_after::p17;
    "P18" "ttl is kept, against a person's interval too" pace::p18;
    "P19" "sy:updatePeriod is kept" pace::p19;
    "P20" "skipHours and skipDays are kept" pace::p20;
    "P21" "feeds that were polled together drift apart" pace::p21;
    "P22" "salt is drawn at each reschedule" pace::p22;
    "P23" "a poll is one request, at the subscription too" pace::p23;
    "P24" "no kind of failure makes us faster" pace::p24;
    "P27" "one request at a time and a gap, at every host; rules change both" hosts::p27;
    "P28" "a throttled feed holds its host, and the release is spread" hosts::p28;
    "P29" "an import takes as many gaps as it has feeds, and slows nobody else" hosts::p29;
    "P30" "redirects and discovery are on their hosts' budgets; nothing else is asked for" hosts::p30;
    "P31" "the User-Agent says who polls for how many" shape::p31;
    "P32" "no cookie, referer, query, fragment or cache buster" shape::p32;
    "P33" "codings and feed types are asked for" shape::p33;
    "P34" "GET only" shape::p34;
    "P36" "the URL is asked as it was given, and http stays http" shape::p36;
    "P37" "at most 5 hops, loops end at once, temporary redirects move nothing" shape::p37;
    "P37b" "permanent redirects move the URL after several sightings over a while" shape::p37_moves;
    "P38" "back-off never shrinks while failing" pace::p38;
    "P40" "a tag marked by its coding is sent with and without its mark" conditions::p40;
    "P41" "a 304 that nobody asked for is an error" conditions::p41;
    "P42" "deltas are asked for with conditions and merged; a 226 that was not asked for is an error" conditions::p42;
    "P43" "the same bytes change nothing" conditions::p43;
    "P44" "HEAD before GET where a rule allows it or downloads were in vain, while it saves bytes" head::p44;
    "P46" "requests and the key directory are signed, and OpenSSL says so" signed::p46;
    "login" "a login goes to its own origin alone, over no redirect and no move to another one" logins::stays;
    "rules" "an operator's rule is in force at once, until it is taken back" rules::live;
    "armour" "every breach is an outcome with its own name, and backs off" armour::breaches;
};

/// Rules that need a separate process.
const ALONE: &[Line] = lines! {
    "P45" "gentle: 4 at once, 1 a second, burst 4; and a missing info URL is logged" hosts::p45;
};

const AFTER: Line = Line {
    number: "P12",
    promise: "a kill and a new start lose no validator and cause no early poll",
    case: |case| Box::pin(conditions::p12(case)),
};

/// The number of hosts that all cases need together.
const HOSTS: u16 = 330;
const INTERVAL: Duration = Duration::from_secs(2);
const GAP: Duration = Duration::from_secs(1);
/// The gap of a rule for `slow.test`.
const SLOW_GAP: Duration = Duration::from_secs(8);
/// The prefix of the paths that HEAD requests are allowed for.
const HEADS: &str = "/P44/";
/// The run's `policy.penalty.throttled`: how long a feed waits when its server does not say.
const THROTTLED: Duration = Duration::from_secs(2);

/// The run's `policy.move_after`.
const MOVE_AFTER: Duration = Duration::from_secs(5);

/// A day in seconds. `transient_first` is deliberately shorter than the minimum interval: it must not apply (P24).
const CONFIG: &str = r#"
[policy]
mode = "classes"
min_interval = "2s"
move_after = "5s"
hot_minutes = false
no_validator_factor = 1.0
[policy.category.b]
interval = "2s"
[policy.category.c]
interval = "2s"
interval_max = "2s"
[policy.category.d]
interval = "2s"
interval_max = "2s"
[policy.penalty]
transient_first = "300ms"
box_after = 3
box = "1s"
server_error = "1500ms"
not_found = "1500ms"
client_error = "1500ms"
bad_feed = "1s"
throttled = "2s"
ceiling = "4s"
[host]
gap = "1s"
[[host_rule]]
match = "burst.test"
gap = "2s"
burst = 4
parallel = 4
[[host_rule]]
match = "shared.test"
shared = true
gap = "1500ms"
[[host_rule]]
match = "slow.test"
gap = "8s"
[[host_rule]]
match = "head.test"
head_first = true
[scheduler]
queue_lease = "10s"
fetch_lease = "10s"
[api]
public_url = "https://fleet.example"
[secrets]
key = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="
[log]
level = "info,worker=debug,scheduler=debug,common=debug"
"#;

/// Returns the section `fetch`.
fn fetch(stage: &Stage) -> String {
    format!(
        r#"
user_agent_url = "https://fleet.example/bot"
name_servers = ["{}"]
signature_key = "{}"
timeout = "4s"
connect_timeout = "2s"
idle_timeout = "1500ms"
max_wire_bytes = 300_000
max_body_bytes = 2_000_000
"#,
        stage.name_server,
        stage.keys.private().display()
    )
}

/// The result of one rule.
struct Row {
    number: &'static str,
    promise: &'static str,
    requests: usize,
    breaches: Vec<String>,
}

async fn play(stage: &Stage, lines: &[Line]) -> Vec<Row> {
    join_all(lines.iter().map(|line| async {
        let case = Case::new(stage, line.number);
        (line.case)(&case).await;
        let prefix = format!("/{}/", line.number);
        let requests = stage.origin.log().iter().filter(|request| request.path.starts_with(&prefix)).count();
        Row { number: line.number, promise: line.promise, requests, breaches: case.into_breaches() }
    }))
    .await
}

/// Prints the rows of the rules and of the judge, over the whole log; fails unless all are 0.
fn settle(who: &str, stage: &Stage, rows: &[Row], kills: Vec<Timestamp>) {
    let log = stage.origin.log();
    let mut table = format!("politeness of {who}\n");
    for row in rows {
        let count = row.breaches.len();
        writeln!(table, "  {:<7}{:<88}{:>5} requests{count:>5}", row.number, row.promise, row.requests).unwrap();
        for breach in &row.breaches {
            writeln!(table, "      {breach}").unwrap();
        }
    }
    let judged: Vec<_> = log.into_iter().filter(|request| !request.path.contains(OWN_RULES)).collect();
    // Paths that were refreshed manually, and targets of redirects.
    let without_floor = hosts::HOPS.into_iter().chain([conditions::REFRESHED, logins::MOVED]);
    let floors: HashMap<String, Duration> = without_floor.map(|path| (path.to_owned(), Duration::ZERO)).collect();
    let heads = judged.iter().map(|request| request.path.to_string()).filter(|path| path.starts_with(HEADS)).collect();
    let rules = Rules { floor: INTERVAL, floors, heads, gap: GAP, kills, ..Rules::default() };
    let card = stage.judge(&judged, &rules);
    println!("{table}{card}seen late by at most {:?}", stage.noise());
    card.violations.iter().for_each(|violation| println!("{}", history(&judged, violation.request)));
    let breaches: usize = rows.iter().map(|row| row.breaches.len()).sum();
    assert!(breaches == 0 && card.is_clean(), "{breaches} breaches of lines, {} of rules", card.violations.len());
}

/// Returns the last requests of a path until this one, one line each.
fn history(log: &[Record], last: usize) -> String {
    let path = log.iter().find(|record| record.number == last).map(|record| &record.path);
    let polls = log.iter().filter(|record| record.number <= last && Some(&record.path) == path);
    let line = |record: &Record| {
        let (number, start, end, method) = (record.number, record.start, record.end, record.method());
        let cut = record.cut.map_or(String::new(), |cut| format!(", cut: {cut:?}"));
        format!(
            "{number} {method} {start:.3?}..{end:.3?} -> {:?}, connection {}{cut}",
            record.status, record.connection
        )
    };
    polls.map(line).collect::<Vec<_>>().iter().rev().take(6).rev().cloned().collect::<Vec<_>>().join("\n")
}

/// Marks the paths at hosts with their own rules, which are judged by their cases.
const OWN_RULES: &str = "/own/";

fn now() -> Timestamp {
    SystemClock.now()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_process_keeps_every_line_of_the_manners() {
    let stage = Stage::open(HOSTS).await;
    let mut home = Home::with_fetch(CONFIG, &fetch(&stage));
    // A fleet that used them would reach no host.
    for name in ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"] {
        home.set(name, "http://127.0.0.1:9");
    }
    let fleet = home.start(&[]);
    stage.play_before(&fleet.api).await;
    let alone = Stage::open(16).await;
    let (mut rows, gentle) = tokio::join!(play(&stage, LINES), play(&alone, ALONE));
    let before = now();
    let mut log = fleet.stderr();
    fleet.kill();
    let fleet = home.start(&[]);
    let kills = vec![before, now()];
    stage.play_before(&fleet.api).await;
    rows.extend(play(&stage, &[AFTER]).await);
    rows.extend(gentle);
    log.push_str(&fleet.stderr());
    fleet.stop();
    rows.push(logins::kept(&[Place::text("the log", &log), Place::folder(&home.path("data"))]));
    settle("one process", &stage, &rows, kills);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_of_four_workers_keeps_every_line_of_the_manners() {
    let stage = Stage::open(HOSTS).await;
    let servers = Servers::shared();
    let config = format!("{CONFIG}\n[fetch]\n{OPEN}{}", fetch(&stage));
    let queue = FaultProxy::listening(address(&servers.rabbitmq)).await.unwrap();
    let urls = Urls { queue: through(&servers.rabbitmq, &queue), ..Urls::of(&servers) };
    let cluster = Cluster::new(&servers, urls, &config).await;
    let start = || {
        let kinds = [Kind::Scheduler, Kind::Worker, Kind::Worker, Kind::Worker, Kind::Worker];
        kinds.map(|kind| cluster.start(kind))
    };
    let mut roles: [Role; 5] = start();
    stage.play_before(&roles[0].address()).await;
    roles[1..].iter_mut().for_each(|worker| stage.watch(&worker.address()));
    let mut rows = play(&stage, LINES).await;
    let before = now();
    let mut log: String = roles.iter().map(Role::stderr).collect();
    roles.iter_mut().for_each(Role::kill);
    let mut roles = start();
    let kills = vec![before, now()];
    stage.play_before(&roles[0].address()).await;
    roles[1..].iter_mut().for_each(|worker| stage.watch(&worker.address()));
    rows.extend(play(&stage, &[AFTER]).await);
    log.extend(roles.iter().map(Role::stderr));
    for role in roles {
        role.stop().await;
    }
    let places = [
        Place::text("the roles' logs", &log),
        Place::wire("the queue's wire", &queue),
        Place::rows(&servers.postgres, &cluster.namespace).await,
    ];
    rows.push(logins::kept(&places));
    settle("a cluster of four workers", &stage, &rows, kills);
}
