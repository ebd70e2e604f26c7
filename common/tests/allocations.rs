//! A decision allocates no memory. In a separate binary, because counting replaces the allocator of the whole process.

use std::hint::black_box;
use std::time::Duration;

use allocation_counter::measure;
use common::config::{PolicyConfig, PolicyMode};
use common::document::{Document, Validators};
use common::entry::Entry;
use common::host::HostKey;
use common::outcome::FailureKind;
use common::policy::{Audience, Draw, Minutes, Policy, Subject, decide};
use common::report::{FetchReport, Outcome};
use common::time::Timestamp;
use common::url::{FeedId, Version};

const MINUTE: Duration = Duration::from_secs(60);

fn reports(at: Timestamp) -> Vec<FetchReport> {
    let dated = |n: u32| Entry { published: Some(at.before(n * 7 * MINUTE)), ..Entry::default() };
    let document = |entries: Vec<Entry>| {
        let new_entries = u32::try_from(entries.len()).unwrap_or(u32::MAX);
        Outcome::Modified(Box::new(Document { entries, new_entries, ..Document::default() }))
    };
    let validators = Validators { etag: Some("\"1\"".to_owned()), ..Validators::default() };
    let overflowed = Document {
        entries: (0..20).map(dated).collect(),
        new_entries: 20,
        all_entries: 20,
        none_known: true,
        ..Document::default()
    };
    let overflowed = Outcome::Modified(Box::new(overflowed));
    let failed = |failure| Outcome::Failed { failure, detail: String::new() };
    let outcomes = [
        Outcome::NotModified { validators },
        document(vec![dated(1)]),
        document((0..15).map(dated).collect()),
        overflowed,
        failed(FailureKind::Timeout),
        failed(FailureKind::NotAFeed),
    ];
    let report = |outcome| FetchReport::of(FeedId(1), Version(1), HostKey::new("example.com:443"), at, outcome);
    outcomes.map(report).into()
}

#[test]
fn no_decision_takes_memory() {
    let defaults = common::config::defaults().policy;
    let start = Timestamp::from_millis(1_790_000_000_000);
    let (mut decisions, mut overflows) = (0, 0);
    let mut minutes = Minutes::default();
    for mode in [PolicyMode::Adaptive, PolicyMode::Classes] {
        let config = PolicyConfig { mode, ..defaults.clone() };
        for subscribers in [1, 7, 100] {
            let audience = Audience { subscribers, active_subscribers: subscribers, ..Audience::default() };
            let mut subject = Subject::new(audience, None);
            for report in reports(start) {
                let policy = Policy { config: &config, load: 0.3, price: config.price };
                let draw = Draw { salt: 0.5, minute: 0.5 };
                let taken = measure(|| {
                    black_box(decide(&subject, &report, start, draw, &policy));
                });
                assert_eq!(taken.count_total, 0, "{:?} of a feed that was never polled", report.outcome);
            }
            for step in 0..100_u32 {
                let at = start.after(step * 97 * MINUTE);
                for report in reports(at) {
                    let draw = Draw { salt: f64::from(step) / 100.0, minute: f64::from(step * 37 % 100) / 100.0 };
                    let policy = Policy { config: &config, load: 0.3, price: config.price };
                    let mut decided = None;
                    let taken = measure(|| decided = Some(decide(&subject, &report, at, draw, &policy)));
                    assert_eq!(taken.count_total, 0, "{:?} at {subscribers} subscribers", report.outcome);
                    let placed = measure(|| {
                        black_box(minutes.decide(&subject, &report, at, [draw; 2], &policy));
                    });
                    assert_eq!(placed.count_total, 0, "{:?} in the emptier minute", report.outcome);
                    decisions += 1;
                    subject.state = decided.unwrap().state;
                    overflows += u32::from(subject.state.overflowing && subject.state.gap_since.is_some());
                }
            }
        }
    }
    assert_eq!(decisions, 3600);
    assert!(overflows >= 600, "{overflows} after the last good poll");
    assert!(measure(|| drop(black_box(vec![0_u8; 100]))).count_total > 0, "what is taken is counted");
}
