//! T6: jobs a second through a quorum queue and back, beside a bare lapin loop over a queue of the same settings, with
//! the same bytes. The bare side neither encodes nor decodes them.
//!
//! Called by dev/bench, which says where the broker is.

mod bare;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use common::config::ServerConfig;
use common::document::{ContentHash, Validators};
use common::host::HostKey;
use common::host_gate::Ticket;
use common::job::FetchJob;
use common::known::KnownEntries;
use common::metrics::Metrics;
use common::queue::rabbitmq::{Broker, Prefetch, RabbitQueue};
use common::queue::{Queue, decode, encode};
use common::time::Timestamp;
use common::url::{FeedId, Version};

use crate::bare::Bare;

/// Jobs in a message.
const BATCH: usize = 16;
/// Messages in a round.
const MESSAGES: usize = 10_000;
const ROUNDS: usize = 7;
/// Messages in flight to the broker, unconfirmed, and from it, unacked.
const WINDOW: usize = 256;
const PREFETCH: u16 = 256;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let url = std::env::var("FEEDFLEET_TEST_RABBITMQ").context("no RabbitMQ; run dev/bench queue")?;
    let namespace = format!("bench-{}", std::process::id());
    let metrics = Metrics::new();
    let broker = Broker::connect(&ServerConfig::at(&url), &namespace, &metrics)?;
    let twin = Broker::connect(&ServerConfig::at(&url), &format!("{namespace}-bare"), &metrics)?;
    let jobs: Arc<Vec<FetchJob>> = Arc::new((0..BATCH).map(job).collect::<Result<_, _>>()?);
    let bytes = encode(&jobs)?;

    let ours = Arc::new(broker.queue::<FetchJob>(Prefetch::Unacked(PREFETCH)));
    declared(&ours).await?;
    declared(&twin.queue::<FetchJob>(Prefetch::Unacked(1))).await?;
    let bare = Bare::open(&url, &format!("{namespace}-bare.jobs")).await?;

    println!("{MESSAGES} messages of {BATCH} jobs, {} bytes each; jobs/s, CPU us a job of this process", bytes.len());
    println!("{:>5}  {:>9} {:>5}  {:>9} {:>5}  {:>5}", "round", "feedfleet", "CPU", "bare", "CPU", "ratio");
    let mut ratios = Vec::new();
    // The first round is the warm-up.
    for round in 0..=ROUNDS {
        let our_figures = measure(through_ours(&ours, &jobs)).await?;
        let bare_figures = measure(bare.round(&bytes)).await?;
        if round > 0 {
            let ratio = our_figures.0 / bare_figures.0;
            println!(
                "{round:>5}  {:>9.0} {:>5.2}  {:>9.0} {:>5.2}  {ratio:>5.2}",
                our_figures.0, our_figures.1, bare_figures.0, bare_figures.1
            );
            ratios.push(ratio);
        }
    }
    ratios.sort_by(f64::total_cmp);
    println!("of feedfleet's CPU, JSON both ways: {:.2} us a job", json(&jobs)?);
    println!("T6 jobs/s over bare lapin's: {:.2} (floor 0.6, stretch 0.8)", ratios[ROUNDS / 2]);
    broker.close().await;
    twin.close().await;
    bare.delete(&[&namespace, &format!("{namespace}-bare")]).await
}

/// Waits until the queue is there.
async fn declared(queue: &RabbitQueue<FetchJob>) -> anyhow::Result<()> {
    let patience = Instant::now() + Duration::from_secs(10);
    while let Err(error) = queue.check().await {
        if Instant::now() > patience {
            return Err(error.into());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// Publishes and receives a round at the same time.
async fn through_ours(queue: &Arc<RabbitQueue<FetchJob>>, jobs: &Arc<Vec<FetchJob>>) -> anyhow::Result<()> {
    let publishers: Vec<_> = (0..WINDOW)
        .map(|lane| {
            let (queue, jobs) = (Arc::clone(queue), Arc::clone(jobs));
            tokio::spawn(async move {
                for _ in (lane..MESSAGES).step_by(WINDOW) {
                    queue.publish(&jobs).await?;
                }
                anyhow::Ok(())
            })
        })
        .collect();
    let receiver = {
        let queue = Arc::clone(queue);
        tokio::spawn(async move {
            for _ in 0..MESSAGES {
                queue.receive().await?.ack().await?;
            }
            anyhow::Ok(())
        })
    };
    for publisher in publishers {
        publisher.await??;
    }
    receiver.await?
}

/// Jobs a second, and microseconds of CPU a job.
async fn measure(round: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<(f64, f64)> {
    let jobs = (MESSAGES * BATCH) as f64;
    let (begun, cpu) = (Instant::now(), cpu()?);
    round.await?;
    Ok((jobs / begun.elapsed().as_secs_f64(), (self::cpu()? - cpu) * 1e6 / jobs))
}

/// Microseconds of CPU that a job is encoded and decoded in.
fn json(jobs: &[FetchJob]) -> anyhow::Result<f64> {
    let begun = cpu()?;
    for _ in 0..MESSAGES {
        std::hint::black_box(decode::<FetchJob>(&encode(std::hint::black_box(jobs))?)?);
    }
    Ok((cpu()? - begun) * 1e6 / (MESSAGES * BATCH) as f64)
}

/// Seconds of CPU of this process so far.
fn cpu() -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").context("no /proc")?;
    // Fields 14 and 15, in hundredths; the second field, the name, is in parentheses and may hold spaces.
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = after_name.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<f64>().ok());
    Ok(ticks.sum::<f64>() / 100.0)
}

/// Returns a job of a feed with two validators and twenty known entries.
fn job(n: usize) -> anyhow::Result<FetchJob> {
    let known = (0..20).map(|entry| common::entry::Fingerprint(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(entry + 1)));
    Ok(FetchJob {
        credentials: None,
        feed: FeedId(1_000_000 + i64::try_from(n)?),
        version: Version(17),
        url: format!("https://blog{n}.example.com/feeds/posts/default?alt=rss").parse()?,
        host: HostKey::new(&format!("blog{n}.example.com:443")),
        ticket: Ticket(1 << 40),
        expires: Timestamp::from_millis(1_790_000_000_000),
        validators: Validators {
            etag: Some("W/\"8f2c1b7a6d5e4f3a2b1c0d9e8f7a6b5c\"".into()),
            last_modified: Some("Mon, 21 Sep 2026 14:13:20 GMT".into()),
            ..Validators::default()
        },
        content_hash: Some(ContentHash(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef)),
        known: KnownEntries::default().after_document(known),
        wake_at: None,
        head_first: None,
        without_delta: false,
        epochs: 0,
        signed: false,
        detour: None,
        search: false,
        subscribers: 12,
        pushed: None,
        page: false,
        mac: None,
    })
}
