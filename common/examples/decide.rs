//! What a decision costs: `cargo run --release -p common --example decide`.
//!
//! Feeds of many rates, profiles and audiences, each decided on a 304 in adaptive mode with everything on. Prints the median
//! and the 99th percentile over batches, a batch being timed as a whole: a clock costs more than a tenth of a decision.

use std::hint::black_box;
use std::time::{Duration, Instant};

use common::document::{Document, Validators};
use common::entry::Entry;
use common::host::HostKey;
use common::policy::{Audience, Draw, Minutes, Policy, Subject, decide};
use common::report::{FetchReport, Outcome};
use common::time::Timestamp;
use common::url::{FeedId, Version};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const FEEDS: usize = 10_000;
const BATCH: usize = 100;
const ROUNDS: usize = 20;

fn main() {
    let config = common::config::defaults().policy;
    let policy = Policy { config: &config, load: 0.0, price: config.price };
    let mut random = StdRng::seed_from_u64(1);
    let start = Timestamp::from_millis(1_790_000_000_000);
    let report = |outcome, at| FetchReport {
        http_status: Some(304),
        conditional: true,
        ..FetchReport::of(FeedId(1), Version(1), HostKey::new("example.com:443"), at, outcome)
    };
    let subjects: Vec<Subject<'_>> = (0..FEEDS)
        .map(|_| {
            let subscribers = random.random_range(1..100);
            let audience = Audience { subscribers, active_subscribers: subscribers, ..Audience::default() };
            let days = 300.0_f64.powf(random.random());
            let dated = |_| Entry {
                published: Some(start.before(Duration::from_secs_f64(86_400.0 * days * random.random::<f64>()))),
                ..Entry::default()
            };
            let entries: Vec<Entry> = (0..15).map(dated).collect();
            let document = Document { entries, new_entries: 15, ..Document::default() };
            let first = report(Outcome::Modified(Box::new(document)), start);
            let subject = Subject::new(audience, None);
            let state = decide(&subject, &first, start, Draw { salt: 0.0, minute: 0.0 }, &policy).state;
            Subject { state, ..subject }
        })
        .collect();
    let validators = Validators { etag: Some("\"1\"".to_owned()), ..Validators::default() };
    let unchanged = report(Outcome::NotModified { validators }, start.after(Duration::from_secs(5000)));
    let mut draw = || Draw { salt: random.random(), minute: random.random() };
    let decided = |subject: &Subject<'_>, draw| decide(subject, &unchanged, unchanged.started, draw, &policy);
    measure("a decision", &subjects, &mut draw, |subject, draw| {
        black_box(decided(subject, draw));
    });
    let mut minutes = Minutes::default();
    let mut evened =
        |subject: &Subject<'_>, draws| minutes.decide(subject, &unchanged, unchanged.started, draws, &policy);
    let draws = || [draw(), draw()];
    measure("the better of two", &subjects, draws, |subject, draws| {
        black_box(evened(subject, draws));
    });
}

/// Prints what one costs.
fn measure<'a, T: Copy>(
    what: &str,
    subjects: &[Subject<'a>],
    mut draw: impl FnMut() -> T,
    mut decide: impl FnMut(&Subject<'a>, T),
) {
    let mut nanoseconds: Vec<u128> = Vec::new();
    for _ in 0..ROUNDS {
        for batch in subjects.chunks(BATCH) {
            let draw = draw();
            let began = Instant::now();
            batch.iter().for_each(|subject| decide(black_box(subject), draw));
            nanoseconds.push(began.elapsed().as_nanos() / BATCH as u128);
        }
    }
    nanoseconds.sort_unstable();
    let at = |share: usize| nanoseconds[nanoseconds.len() * share / 100];
    println!("{what}: median {} ns, 99 % under {} ns", at(50), at(99));
}
