//! An answer that is cached for a moment: frequent callers cost the servers behind it one request a second.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

/// How long an answer is given again.
const KEPT: Duration = Duration::from_secs(1);

/// The last answer, and when it was given.
pub(crate) struct Recent<T>(Mutex<Option<(Instant, T)>>);

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Recent(Mutex::default())
    }
}

impl<T: Clone> Recent<T> {
    /// Returns the answer of the last second, or calls `ask`; callers that come meanwhile wait for the same answer.
    pub(crate) async fn get(&self, ask: impl AsyncFnOnce() -> T) -> T {
        // Held during the request, so that all callers share one request.
        let mut last = self.0.lock().await;
        if let Some((at, answer)) = &*last
            && at.elapsed() < KEPT
        {
            return answer.clone();
        }
        let answer = ask().await;
        *last = Some((Instant::now(), answer.clone()));
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn many_who_ask_cost_one_question_a_second() {
        let (recent, asked) = (Recent::default(), AtomicUsize::new(0));
        let ask = async || {
            tokio::time::sleep(Duration::from_millis(10)).await;
            asked.fetch_add(1, Ordering::SeqCst)
        };
        let answers = futures_util::future::join_all((0..50).map(|_| recent.get(ask))).await;
        assert_eq!(answers, vec![0; 50]);
        tokio::time::sleep(KEPT).await;
        assert_eq!(recent.get(ask).await, 1);
    }
}
