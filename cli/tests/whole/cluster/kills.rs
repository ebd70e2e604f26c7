//! kill -9 of a random role every other second, and now and then a role or a server that is frozen for a moment: no feed is lost, no
//! report counts twice, and the politeness rules hold.

use std::time::Duration;

use rand::RngExt;
use rand::seq::SliceRandom;

use super::harness::{Kind, Role, Servers, Urls};
use super::load::{Load, Size, now};

const SHORT: Size = Size {
    feeds: 400,
    hosts: 80,
    interval: Duration::from_secs(6),
    gap: Duration::from_millis(50),
    trouble: Duration::from_secs(24),
    leases: 1,
};
/// A thousand kills and a hundred freezes.
const LONG: Size = Size {
    feeds: 10_000,
    hosts: 500,
    interval: Duration::from_secs(30),
    gap: Duration::from_millis(50),
    trouble: Duration::from_secs(2_400),
    leases: 1,
};
const BETWEEN_KILLS: Duration = Duration::from_secs(2);
/// Every so often a role or a server is frozen instead, for a second or two: less than a fetch may take.
const FREEZE_EVERY: usize = 11;
/// The time until a killed role's successor works.
const REPLACED: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn roles_killed_again_and_again_lose_nothing_and_bother_nobody() {
    let size = Size::pick(SHORT, LONG);
    // In the short form only the roles are frozen: other tests use the servers too.
    let is_long = size.trouble == LONG.trouble;
    let servers = if is_long { Servers::own(true) } else { Servers::shared() };
    let load = Load::new(size, &servers, Urls::of(&servers), "").await;
    let database = sqlx::PgPool::connect(&servers.postgres).await.unwrap();
    load.cluster.watch_versions(&database).await;
    let kinds = [Kind::Scheduler, Kind::Scheduler, Kind::Worker, Kind::Worker, Kind::Worker];
    let mut roles: Vec<Role> = kinds.into_iter().map(|kind| load.cluster.start(kind)).collect();
    load.warm_up().await;

    let mut rng: rand::rngs::StdRng = rand::SeedableRng::seed_from_u64(20_261_120);
    let (mut kills, mut freezes, mut worker_kills, mut order) = (0, 0, Vec::new(), Vec::<usize>::new());
    let end = tokio::time::Instant::now() + size.trouble;
    while tokio::time::Instant::now() < end {
        tokio::time::sleep(BETWEEN_KILLS.mul_f64(rng.random_range(0.5..1.5))).await;
        // Each is killed once before one is killed again; otherwise a short run might never kill a scheduler.
        if order.is_empty() {
            order = (0..roles.len()).collect();
            order.shuffle(&mut rng);
        }
        let place = order.pop().unwrap();
        if (kills + freezes + 1) % FREEZE_EVERY == 0 {
            freezes += 1;
            let lasts = Duration::from_millis(rng.random_range(500..1_800));
            let server = (is_long && freezes % 2 == 0).then(|| ["postgres", "redis", "rabbitmq"][freezes / 2 % 3]);
            let signal =
                |signal| server.map_or_else(|| roles[place].signal(signal), |name| servers.signal(name, signal));
            signal("STOP");
            tokio::time::sleep(lasts).await;
            signal("CONT");
            continue;
        }
        let kind = roles[place].kind;
        roles[place].kill();
        kills += 1;
        if kind == Kind::Worker {
            worker_kills.push(now());
        }
        roles[place] = load.cluster.start(kind);
        if kills % 20 == 0 {
            println!("{kills} kills, {} requests", load.origin.request_count());
        }
    }
    let truth = load.truth();
    tokio::time::sleep(size.worst_gap() + Duration::from_secs(2)).await;
    load.until_known(&truth).await;
    let until = now();
    let log = load.origin.log();
    for role in roles {
        role.stop().await;
    }

    let (lost, doubled) = load.lost_and_doubled(&truth).await;
    let (twice, reports) = load.cluster.versions_reached_twice(&database).await;
    load.cluster.assert_well_counted(&database).await;
    let proof = load.prove(&log, &database, &[], &[]).await;
    let manners = load.manners(&log, proof.undone());
    let silence = load.longest_silence(&log, until);
    let cut_silences = load.cut_silences(&log, until);
    println!("{} silences longer than {:?}: {:?}", cut_silences.len(), size.worst_gap(), cut_silences.first());
    let mut recoveries: Vec<Duration> = Vec::new();
    for kill in &worker_kills {
        for cut in log.iter().filter(|record| {
            record.cut.is_some() && record.wall <= *kill && record.wall.after(size.interval / 3) >= *kill
        }) {
            let again = log.iter().find(|record| record.target() == cut.target() && record.wall > *kill);
            recoveries.extend(again.map(|again| again.wall.since(*kill)));
        }
    }
    recoveries.sort();
    let p99 = recoveries.get(recoveries.len().saturating_sub(1) * 99 / 100);
    println!(
        "{kills} kills, {} of them workers, {freezes} freezes; {} requests, {reports} accepted reports; longest silence of a feed {silence:?}, \
         bound {:?}; {} fetches were cut, their feeds were asked again within {p99:?} (p99)",
        worker_kills.len(),
        log.len(),
        size.longest_gap(),
        recoveries.len(),
    );
    println!("{manners:?}");
    assert_eq!((lost.len(), doubled, twice), (0, 0, 0), "{lost:?}");
    for (silence, cut) in cut_silences {
        let more = size.permit_life() * u32::try_from(cut).unwrap().saturating_sub(1);
        assert!(silence <= size.longest_gap() + REPLACED + more, "{silence:?}, {cut} fetches cut at its host");
    }
    proof.assert_holds();
    manners.assert_clean();
}
