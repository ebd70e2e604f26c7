//! Messages as they are in queues: those of every version that was ever written must be understood for as long as it is
//! read, and a new version is written only when every process reads it (docs/decisions/0036-message-versions.md).

use std::time::Duration;

use super::{MESSAGE_VERSION, Message, NEWEST_READABLE, QueueError, decode, encode};
use crate::document::{ContentHash, Document, FeedHints, Onward, Validators};
use crate::entry::{Enclosure, Entry, Fingerprint};
use crate::host::HostKey;
use crate::host_gate::Ticket;
use crate::job::FetchJob;
use crate::job_mac::JobMac;
use crate::known::KnownEntries;
use crate::outcome::FailureKind;
use crate::report::{FetchReport, Outcome};
use crate::time::Timestamp;
use crate::url::{FeedId, Version};

const JOBS: &str = include_str!("golden/jobs.v1.json");
const REPORTS: &str = include_str!("golden/reports.v1.json");

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(1_790_000_000_000 + seconds * 1000)
}

fn validators() -> Validators {
    Validators {
        etag: Some("W/\"5f-1\"".into()),
        last_modified: Some("Mon, 21 Sep 2026 14:13:20 GMT".into()),
        ..Validators::default()
    }
}

fn jobs() -> Vec<FetchJob> {
    let full = FetchJob {
        credentials: None,
        feed: FeedId(7),
        version: Version(3),
        url: "https://example.com/feed.xml?a=b".parse().unwrap(),
        host: HostKey::new("example.com:443"),
        ticket: Ticket(99),
        expires: at(60),
        validators: validators(),
        content_hash: Some(ContentHash(0x1234)),
        known: KnownEntries::default().after_document([Fingerprint(1), Fingerprint(u64::MAX)]),
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
        mac: Some(JobMac { key: 1, issued: at(0), expires: at(60), code: "code".into() }),
    };
    let bare = FetchJob {
        validators: Validators::default(),
        content_hash: None,
        known: KnownEntries::default(),
        feed: FeedId(8),
        ..full.clone()
    };
    vec![full, bare]
}

fn document() -> Document {
    Document {
        none_known: false,
        known_before: crate::known::KnownEntries::default(),
        title: Some("Example".into()),
        link: Some("https://example.com/".into()),
        validators: validators(),
        content_hash: Some(ContentHash(0x1234)),
        hints: FeedHints {
            ttl: Some(Duration::from_secs(3600)),
            update_period: Some(Duration::from_secs(1800)),
            skip_hours: 1 << 3,
            skip_days: 1 << 6,
        },
        hub: Some("https://hub.example/".into()),
        self_link: Some("https://example.com/feed.xml".into()),
        cloud: Some("cloud.example:80/RPC2 xml-rpc".into()),
        onward: Onward {
            next: Some("https://example.com/feed.xml?page=2".into()),
            prev_archive: Some("https://example.com/2025.xml".into()),
            new_feed_url: Some("https://example.net/feed.xml".into()),
            expired: true,
            about: None,
        },
        repaired: true,
        entries: vec![Entry {
            id: "tag:1".into(),
            url: Some("https://example.com/1".into()),
            title: Some("One".into()),
            published: Some(at(-60)),
            updated: Some(at(-30)),
            author: Some("Ann".into()),
            summary: Some("short".into()),
            content: Some("<p>long</p>".into()),
            enclosures: vec![Enclosure {
                url: "https://example.com/1.mp3".into(),
                media_type: Some("audio/mpeg".into()),
                length: Some(5),
                ..Enclosure::default()
            }],
            categories: vec!["news".into()],
            language: Some("en".into()),
            links: vec!["https://example.org/".into()],
            first_words: Some("One two".into()),
            cut: true,
            details: None,
        }],
        stripped: KnownEntries::default(),
        new_entries: 1,
        all_entries: 2,
        known: KnownEntries::default().after_document([Fingerprint(1)]),
    }
}

fn reports() -> Vec<FetchReport> {
    let outcomes = [
        Outcome::Modified(Box::new(document())),
        Outcome::NotModified { validators: validators() },
        Outcome::Throttled { retry_after: Some(at(600)) },
        Outcome::Throttled { retry_after: None },
        Outcome::Failed { failure: FailureKind::Status, detail: "404 Not Found".into() },
        Outcome::Gone,
        Outcome::Deferred { until: at(5) },
    ];
    let report = |outcome| FetchReport {
        feed: FeedId(7),
        version: Version(3),
        host: HostKey::new("example.com:443"),
        started: at(0),
        duration: Duration::from_millis(120),
        outcome,
        http_status: Some(200),
        conditional: true,
        wire_bytes: 1000,
        body_bytes: 4000,
        fresh_for: Some(Duration::from_secs(300)),
        answers_wake: None,
        answered_by: None,
        moved_to: Some("https://example.org/feed.xml".parse().unwrap()),
        announced: Vec::new(),
        probe: None,
        retry_after: None,
        limited_until: None,
        blocked_by: None,
        detour: None,
        unusable_delta: false,
        wants_signature: false,
        permanent_url: None,
        pushed: false,
        page: false,
        mac: Some(JobMac { key: 1, issued: at(0), expires: at(60), code: "code".into() }),
    };
    outcomes.into_iter().map(report).collect()
}

/// Set `REWRITE_GOLDEN` to write the files again, which is right only for an addition: queues still hold old bytes.
fn check<T: Message + PartialEq + std::fmt::Debug>(name: &str, golden: &str, items: &[T]) {
    let ours = String::from_utf8(encode(items).unwrap()).unwrap();
    if std::env::var_os("REWRITE_GOLDEN").is_some() {
        let path = format!("{}/src/queue/golden/{name}", env!("CARGO_MANIFEST_DIR"));
        std::fs::write(path, format!("{ours}\n")).unwrap();
        return;
    }
    assert_eq!(golden.trim_end(), ours, "the bytes of version 1 changed");
    assert_eq!(decode::<T>(golden.as_bytes()).unwrap(), items);
}

/// Every object of the message with a field that a newer program might have added.
fn with_newer_fields(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Object(fields) => {
            fields.values_mut().for_each(with_newer_fields);
            fields.insert("field_of_tomorrow".into(), serde_json::json!({ "x": [1] }));
        }
        serde_json::Value::Array(items) => items.iter_mut().for_each(with_newer_fields),
        _ => {}
    }
}

fn check_newer<T: Message + PartialEq + std::fmt::Debug>(golden: &str, items: &[T]) {
    let mut newer = serde_json::from_str(golden).unwrap();
    with_newer_fields(&mut newer);
    assert_eq!(decode::<T>(newer.to_string().as_bytes()).unwrap(), items);
}

#[test]
fn jobs_of_version_1_are_understood_and_written_alike() {
    check("jobs.v1.json", JOBS, &jobs());
}

#[test]
fn reports_of_version_1_are_understood_and_written_alike() {
    check("reports.v1.json", REPORTS, &reports());
}

#[test]
fn a_newer_field_is_ignored() {
    check_newer(JOBS, &jobs());
    check_newer(REPORTS, &reports());
}

/// A release: its version, the version of the messages that it writes, and the newest one that it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Release {
    name: &'static str,
    writes: u32,
    reads: u32,
}

/// Every release, the oldest first. A release is added here when it gets its heading in the changelog.
const RELEASES: &[Release] = &[Release { name: "0.2.0", writes: 1, reads: 1 }];

/// What the code is now.
const NOW: Release = Release { name: "Unreleased", writes: MESSAGE_VERSION, reads: NEWEST_READABLE };

/// Returns why processes of two consecutive releases could not work side by side, if they could not.
fn breaks_upgrades(releases: &[Release]) -> Option<String> {
    releases.windows(2).find_map(|pair| {
        let (before, after) = (pair[0], pair[1]);
        if after.writes > before.reads {
            return Some(format!("{} writes version {}, which {} cannot read", after.name, after.writes, before.name));
        }
        // What the release before wrote may still be in a queue.
        (after.reads < before.writes.max(after.writes))
            .then(|| format!("{} reads up to version {}, which is too old", after.name, after.reads))
    })
}

#[test]
fn a_release_writes_only_what_the_release_before_it_reads() {
    let releases: Vec<Release> = RELEASES.iter().copied().chain([NOW]).collect();
    assert_eq!(breaks_upgrades(&releases), None);
    let changelog = include_str!("../../../CHANGELOG.md");
    let headings = changelog.lines().filter_map(|line| line.strip_prefix("## ")?.split_once(" - "));
    let mut released: Vec<&str> = headings.map(|(name, _)| name).collect();
    released.reverse();
    let known: Vec<&str> = RELEASES.iter().map(|release| release.name).collect();
    assert_eq!(known, released, "add the new release to RELEASES, with what it writes and reads");
}

#[test]
fn a_version_that_is_written_too_early_or_no_longer_read_is_noticed() {
    let release = |name, writes, reads| Release { name, writes, reads };
    let in_two_steps = [release("a", 1, 1), release("b", 1, 2), release("c", 2, 2)];
    assert_eq!(breaks_upgrades(&in_two_steps), None);
    let at_once = [release("a", 1, 1), release("b", 2, 2)];
    assert_eq!(breaks_upgrades(&at_once).unwrap(), "b writes version 2, which a cannot read");
    let forgotten = [release("a", 2, 2), release("b", 1, 1)];
    assert_eq!(breaks_upgrades(&forgotten).unwrap(), "b reads up to version 1, which is too old");
}

#[test]
fn every_version_that_is_read_has_golden_messages_that_are_understood() {
    for version in 1..=NEWEST_READABLE {
        let golden = |queue: &str| {
            let path = format!("{}/src/queue/golden/{queue}.v{version}.json", env!("CARGO_MANIFEST_DIR"));
            std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
        };
        assert_eq!(decode::<FetchJob>(&golden("jobs")).unwrap(), jobs(), "version {version}");
        assert_eq!(decode::<FetchReport>(&golden("reports")).unwrap(), reports(), "version {version}");
    }
}

#[test]
fn a_newer_message_is_recognised_whatever_is_in_it() {
    let newer = NEWEST_READABLE + 1;
    for items in ["[]", "[{\"no\": \"job\"}]", "{\"compressed\": \"..\"}"] {
        let message = format!("{{\"v\":{newer},\"items\":{items}}}");
        let error = decode::<FetchJob>(message.as_bytes()).unwrap_err();
        assert!(matches!(error, QueueError::TooNew { found } if found == newer), "{message}: {error}");
    }
    let broken = decode::<FetchJob>(b"{\"v\":1,\"items\":{}}").unwrap_err();
    assert!(matches!(broken, QueueError::Backend { .. }), "{broken}");
}
