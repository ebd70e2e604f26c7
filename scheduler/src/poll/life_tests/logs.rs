//! The log line of a poll, read as an operator reads it.

use std::io::Write;
use std::sync::{Arc, Mutex};

use common::outcome::FailureKind;
use common::report::Outcome;
use tracing_subscriber::fmt::MakeWriter;

use super::{Fleet, Timestamp};

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

#[tokio::test]
async fn each_poll_is_one_debug_line_that_says_how_it_ended_and_holds_no_url() {
    let lines = Lines::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::DEBUG)
        .with_ansi(false)
        .without_time()
        .with_writer(lines.clone())
        .finish();
    let logging = tracing::subscriber::set_default(subscriber);
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

    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let of_polls: Vec<&str> = text.lines().filter(|line| line.contains("poll::log")).collect();
    let [polled, deferred] = of_polls[..] else { panic!("{text}") };
    let next_due = fleet.feed(id).await.next_due.unwrap();
    let job_span = format!("job{{feed.id={id} version={} host=a.example:443}}", job.version.0);
    assert!(polled.starts_with("DEBUG") && polled.contains(&job_span), "{polled}");
    let fields = format!(r#"polled outcome="failed" failure="status" status=503 lag_ms=84 next_due={next_due}"#);
    assert!(polled.ends_with(&fields), "{polled}");
    assert!(deferred.ends_with(&format!(r#"deferred outcome="deferred" next_due={until}"#)), "{deferred}");
    assert!(!of_polls.concat().contains("secret"), "{text}");
}
