//! The log line of a poll, read as an operator reads it.

use std::io::Write;
use std::sync::{Arc, Mutex};

use common::document::Document;
use common::entry::Entry;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::MakeWriter;

use super::*;
use crate::ops::backfill;

/// Log lines in memory.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Lines {
    type Writer = Lines;

    fn make_writer(&self) -> Lines {
        self.clone()
    }
}

impl Lines {
    /// Returns the lines about polls.
    fn of_polls(&self) -> Vec<String> {
        self.with("poll::log")
    }

    /// Returns the lines that contain a text.
    fn with(&self, part: &str) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().filter(|line| line.contains(part)).map(str::to_owned).collect()
    }
}

/// Has this thread log into memory until the guard is dropped.
fn log_into(lines: &Lines) -> DefaultGuard {
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::DEBUG)
        .with_ansi(false)
        .without_time()
        .with_writer(lines.clone())
        .finish();
    tracing::subscriber::set_default(subscriber)
}

#[tokio::test]
async fn each_poll_is_one_debug_line_that_says_how_it_ended_and_holds_no_url() {
    let lines = Lines::default();
    let logging = log_into(&lines);
    let fleet = Fleet::new().await;
    let id = fleet.add("http://a.example/feed?token=secret").await;
    let job = fleet.dispatched().await.remove(0);
    let failed = Outcome::Failed { failure: FailureKind::Status, detail: "HTTP 503".to_owned() };
    let mut report = fleet.work(&job, failed).await;
    report.http_status = Some(503);
    report.started = report.started.after(std::time::Duration::from_millis(84));
    fleet.settle(report.clone()).await;
    report.version = fleet.feed(id).await.version;
    let until: Timestamp = report.started.after(std::time::Duration::from_secs(5));
    report.outcome = Outcome::Deferred { until };
    fleet.settle(report).await;
    drop(logging);

    let of_polls = lines.of_polls();
    let [polled, deferred] = &of_polls[..] else { panic!("{of_polls:?}") };
    let next_due = fleet.feed(id).await.next_due.unwrap();
    let job_span = format!("job{{feed.id={id} version={} host=a.example:443}}", job.version.0);
    assert!(polled.starts_with("DEBUG") && polled.contains(&job_span), "{polled}");
    let fields = format!(r#"polled outcome="failed" failure="status" status=503 lag_ms=84 next_due={next_due}"#);
    assert!(polled.ends_with(&fields), "{polled}");
    assert!(deferred.ends_with(&format!(r#"deferred outcome="deferred" next_due={until}"#)), "{deferred}");
    assert!(!of_polls.concat().contains("secret"), "{of_polls:?}");
}

#[tokio::test]
async fn each_page_of_older_entries_is_a_separate_debug_line() {
    let lines = Lines::default();
    let fleet = Fleet::new().await;
    let id = fleet.add("http://a.example/feed").await;
    let page = |number: u64, job: &FetchJob| {
        let published = fleet.clock.now().before(Duration::from_secs(3_600 * number));
        let entry = Entry { id: number.to_string(), published: Some(published), ..Entry::default() };
        let mut document = Document::default();
        document.onward.next = Some(format!("http://a.example/feed?token=secret&paged={}", number + 1));
        document.keep_news(vec![entry], &job.known);
        Outcome::Modified(Box::new(document))
    };
    let job = fleet.dispatched().await.remove(0);
    let report = fleet.work(&job, page(1, &job)).await;
    fleet.settle(report).await;
    let since = fleet.clock.now().before(Duration::from_secs(3_600 * 100));
    backfill::backfill(&fleet.ops, id, since).await.unwrap();
    fleet.clock.advance(Duration::from_secs(60));
    let job = fleet.dispatched().await.remove(0);
    assert!(job.page);
    let report = FetchReport { page: true, http_status: Some(200), ..fleet.work(&job, page(2, &job)).await };
    let logging = log_into(&lines);
    fleet.settle(report).await;
    drop(logging);

    let of_polls = lines.of_polls();
    let [polled] = &of_polls[..] else { panic!("{of_polls:?}") };
    let next_due = fleet.feed(id).await.next_due.unwrap();
    let job_span = format!("job{{feed.id={id} version={} host=a.example:443}}", job.version.0);
    assert!(polled.starts_with("DEBUG") && polled.contains(&job_span), "{polled}");
    let fields =
        format!(r#"polled a page of older entries outcome="modified" status=200 new_entries=1 next_due={next_due}"#);
    assert!(polled.ends_with(&fields), "{polled}");
    assert!(!polled.contains("secret"), "{polled}");
}

#[tokio::test]
async fn a_new_feed_that_is_a_page_is_a_warning_only_if_the_page_announces_no_feed() {
    let feed: common::url::FeedUrl = "http://a.example/feed".parse().unwrap();
    for (announced, warnings) in [(vec![feed], 0), (Vec::new(), 1)] {
        let lines = Lines::default();
        let fleet = Fleet::new().await;
        fleet.add("http://a.example/").await;
        let job = fleet.dispatched().await.remove(0);
        let detail = "not a feed: the first element is <html>".to_owned();
        let page = Outcome::Failed { failure: FailureKind::NotAFeed, detail };
        let report = FetchReport { announced, ..fleet.work(&job, page).await };
        let logging = log_into(&lines);
        fleet.settle(report).await;
        drop(logging);
        let warned = lines.with("a new feed cannot be read");
        assert_eq!(warned.len(), warnings, "{warned:?}");
    }
}
