//! Rolling upgrades: an older build of the program and this one share the work for a while, in both orders, and processes of both
//! are killed meanwhile.

use std::path::{Path, PathBuf};
use std::time::Duration;

use common::time::Timestamp;
use load_tests::Record;

use super::harness::{Kind, Role, Servers, Urls};
use super::load::{Load, Size, now};
use crate::harness::PATIENCE;

const SIZE: Size = Size {
    feeds: 1_000,
    hosts: 200,
    interval: Duration::from_secs(6),
    gap: Duration::from_millis(50),
    trouble: Duration::ZERO,
    leases: 1,
};
const KINDS: [Kind; 5] = [Kind::Worker, Kind::Worker, Kind::Worker, Kind::Scheduler, Kind::Scheduler];
/// A fetch that a kill cut ended, for the origin, at about that time.
const CUT_BY_A_KILL: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "dev/soak upgrades builds the older program and names it"]
async fn an_older_program_and_this_one_share_the_work_in_both_orders() {
    let older = std::env::var_os("FEEDFLEET_TEST_OLDER").expect("FEEDFLEET_TEST_OLDER names no program");
    let older = PathBuf::from(older);
    let rounds = std::env::var("SOAK_ROUNDS").map_or(10, |rounds| rounds.parse().unwrap());
    for round in 0..rounds {
        upgrade(&older, round).await;
    }
}

/// Replaces all processes, workers or schedulers first, and kills all of them when half are replaced. A new fleet each time, which the
/// older program begins: it does not start on a newer schema, so that an older scheduler that is killed late has a newer successor.
async fn upgrade(older: &Path, round: usize) {
    let newer = Path::new(env!("CARGO_BIN_EXE_feedfleet"));
    let servers = Servers::shared();
    let spread = format!("import_spread = \"{}s\"", SIZE.interval.as_secs());
    let (mut load, feeds) = Load::without_feeds(SIZE, &servers, Urls::of(&servers), &spread).await;
    let mut roles: Vec<(Role, &Path)> =
        KINDS.into_iter().map(|kind| (load.cluster.start_as(kind, older), older)).collect();
    let address = roles[KINDS.len() - 1].0.address();
    add(&address, &feeds).await;
    let database = sqlx::PgPool::connect(&servers.postgres).await.unwrap();
    load.cluster.watch_versions(&database).await;
    if !round.is_multiple_of(2) {
        roles.reverse();
    }
    load.warm_up().await;
    let mut kills: Vec<Timestamp> = Vec::new();
    for replaced in 0..KINDS.len() {
        let (old, _) = roles.remove(0);
        let mut new = load.cluster.start_as(old.kind, newer);
        new.address();
        roles.push((new, newer));
        old.stop().await;
        tokio::time::sleep(SIZE.interval / 4).await;
        if replaced == KINDS.len() / 2 {
            let is_migrated = roles.iter().any(|(role, program)| role.kind == Kind::Scheduler && *program == newer);
            for (role, program) in &mut roles {
                kills.push(now());
                role.kill();
                if role.kind == Kind::Scheduler && is_migrated {
                    *program = newer;
                }
                *role = load.cluster.start_as(role.kind, program);
                kills.push(now());
                tokio::time::sleep(SIZE.interval / 4).await;
            }
        }
    }
    load.cluster.open_store(&servers).await;
    let truth = load.truth();
    tokio::time::sleep(SIZE.worst_gap()).await;
    load.until_known(&truth).await;
    let (until, log) = (now(), load.origin.log());
    let mut dead_letters = 0.0;
    for (role, _) in &mut roles {
        let (_, text) = role.get("/metrics").await;
        let lines = text.lines().filter(|line| line.starts_with("feedfleet_dead_letters_total"));
        dead_letters += lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>();
    }
    for (role, _) in roles {
        role.stop().await;
    }
    let by_a_kill = |record: &&Record| {
        let end = record.wall.after(record.end.unwrap_or(record.start).saturating_sub(record.start));
        kills.chunks(2).any(|kill| end >= kill[0] && end <= kill[1].after(CUT_BY_A_KILL))
    };
    let cut: Vec<&Record> = log.iter().filter(|record| record.cut.is_some()).collect();
    let aborted = cut.len() - cut.iter().copied().filter(by_a_kill).count();
    let (lost, doubled) = load.lost_and_doubled(&truth).await;
    let (twice, _) = load.cluster.versions_reached_twice(&database).await;
    let silence = load.longest_silence(&log, until);
    let manners = load.manners_near_kills(&log, kills.clone());
    let first = if round.is_multiple_of(2) { "workers" } else { "schedulers" };
    println!(
        "round {}, {first} first: {} requests, {aborted} fetches aborted besides those of {} kills, {dead_letters} dead letters, \
         {} feeds with lost entries, {doubled} doubled, {twice} versions twice, longest silence {silence:?}; {manners:?}",
        round + 1,
        log.len(),
        kills.len() / 2,
        lost.len(),
    );
    assert_eq!((aborted, lost.len(), doubled, twice), (0, 0, 0, 0), "{lost:?}");
    assert!(dead_letters == 0.0, "{dead_letters} dead letters");
    manners.assert_clean();
}

/// Adds feeds through the API of a scheduler, once it is ready.
async fn add(address: &str, feeds: &[String]) {
    let lines: Vec<String> = feeds.iter().map(|url| serde_json::json!({ "url": url }).to_string()).collect();
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let request = reqwest::Client::new().post(format!("{address}/api/v1/feeds/bulk"));
        let answer = request.header("Content-Type", "application/x-ndjson").body(lines.join("\n")).send().await;
        match answer {
            Ok(answer) if answer.status().is_success() => return,
            _ if tokio::time::Instant::now() < deadline => tokio::time::sleep(Duration::from_millis(200)).await,
            other => panic!("feeds could not be added: {other:?}"),
        }
    }
}
