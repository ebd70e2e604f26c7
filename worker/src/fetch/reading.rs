//! Reads a body on a separate thread: decodes and parses it, within limits.

use std::sync::Arc;
use std::time::Duration;

use common::outcome::FailureKind;
use common::url::FeedId;
use tokio::time::{Instant, timeout_at};

use super::shared::Shared;
use crate::document::{Answer, Read, read};
use crate::failure::Failure;

/// After this time decoding and parsing end, and the document is refused as too large. No honest document takes a tenth of it, even on a busy machine.
const PARSE_DEADLINE: Duration = Duration::from_secs(10);
/// A parse that takes longer is logged and counted: 20 MB take about a second.
const SLOW_PARSE: Duration = Duration::from_secs(2);

/// Decodes and parses on a separate thread, one of a few: that bounds memory and leaves the network its share. Returns
/// also whether it took longer than it should; `None` if no thread was free by `longest_wait`, which is never the
/// feed's fault.
pub(super) async fn read_apart(
    shared: &Shared,
    feed: FeedId,
    answer: Answer,
    longest_wait: Instant,
) -> Option<(Read, bool)> {
    let mut limits = shared.limits;
    let place = timeout_at(longest_wait, Arc::clone(&shared.parsers).acquire_owned()).await.ok()?;
    let work = tokio::task::spawn_blocking(move || {
        let begun = std::time::Instant::now();
        limits.parse.deadline = Some(begun + PARSE_DEADLINE);
        limits.decode.deadline = limits.parse.deadline;
        let result = read(answer, &limits);
        drop(place);
        (result, begun.elapsed())
    });
    Some(match work.await {
        Ok((read, took)) => {
            let is_slow = took > SLOW_PARSE;
            if is_slow {
                tracing::warn!(%feed, ?took, bytes = read.bytes, "slow parse");
            }
            (read, is_slow)
        }
        Err(error) => {
            tracing::error!(%feed, %error, "reading this feed panicked");
            let detail = "our reader panicked over the body; please report it";
            (Read::ended(Failure::new(FailureKind::Malformed, detail).into(), 0), false)
        }
    })
}
