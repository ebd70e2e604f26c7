//! Batches starts and releases of requests: those that arrive while the server answers an earlier call are sent together, in one script.
//!
//! If no call of its group is in flight, a call is sent at once, alone: no call waits for others to arrive. Each group has at most
//! one call in flight; the items that arrive meanwhile form the next one, up to [`AT_ONCE`] items. When a call fails, each of
//! its items fails, and each may have taken effect, as if it had been a separate call. When the server refuses several
//! items together, each is sent alone, so that one of them does not make the others fail.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ::redis::{Script, ScriptInvocation, ToRedisArgs, Value};
use tokio::sync::oneshot;

use super::group::Group;
use crate::host_gate::{Permit, Release};
use crate::redis::{RedisServer, ServerError};
use crate::time::Timestamp;

/// The maximum number of items in one call: other calls wait about a millisecond for it.
const AT_ONCE: usize = 64;

/// An acquire whose caller gave up takes nothing any more after this time, if the clocks agree: it does not arrive after its release.
const LATE: Duration = Duration::from_secs(2);

/// What one start or release passes to the script.
pub(super) struct Item {
    step: &'static str,
    keys: Vec<String>,
    args: Vec<Vec<u8>>,
}

impl Item {
    pub(super) fn new(step: &'static str) -> Self {
        Item { step, keys: Vec::with_capacity(2), args: Vec::with_capacity(9) }
    }

    pub(super) fn key(mut self, key: String) -> Self {
        self.keys.push(key);
        self
    }

    pub(super) fn arg(mut self, arg: impl ToRedisArgs) -> Self {
        self.args.extend(arg.to_redis_args());
        self
    }

    fn add_to(&self, call: &mut ScriptInvocation<'_>) {
        for key in &self.keys {
            call.key(key);
        }
        call.arg(self.step).arg(self.keys.len()).arg(self.args.len()).arg(&self.args);
    }
}

/// Returns the release of a permit in its host's group.
pub(super) fn release_item(group: &Group, permit: &Permit, release: Release, now: Timestamp) -> Item {
    let in_millis = |time: Option<Duration>| u64::try_from(time.unwrap_or_default().as_millis()).unwrap_or(u64::MAX);
    let item = Item::new("release")
        .key(group.host(&permit.host))
        .arg(&permit.nonce.to_be_bytes()[..])
        .arg(in_millis(release.next_start_in))
        .arg(now.millis());
    let Some(feed) = permit.feed else { return item };
    item.key(group.feed(feed)).arg(permit.version.0).arg(in_millis(release.remembered))
}

/// An item in flight, and the receiver of its answer.
struct Waiting {
    item: Item,
    /// The caller's time, where it counts in place of the server's.
    time: Option<i64>,
    answer: oneshot::Sender<Result<Value, ServerError>>,
}

#[derive(Default)]
struct Line {
    waiting: VecDeque<Waiting>,
    /// A task sends what waits.
    is_served: bool,
}

/// What waits for a server, of each group.
pub(super) struct Batches {
    server: RedisServer,
    groups: Arc<[Group]>,
    lines: Vec<Mutex<Line>>,
    script: Script,
}

impl Batches {
    pub(super) fn new(server: RedisServer, groups: Arc<[Group]>, script: Script) -> Self {
        let lines = groups.iter().map(|_| Mutex::default()).collect();
        Batches { server, groups, lines, script }
    }

    /// Runs an item in a group. Gives up after the server's patience, wherever the item is by then: it may still happen.
    pub(super) async fn run(
        self: &Arc<Self>,
        group: usize,
        time: Option<i64>,
        item: Item,
    ) -> Result<Value, ServerError> {
        let (answer, answered) = oneshot::channel();
        if self.queue(group, Waiting { item, time, answer }) {
            tokio::spawn(Arc::clone(self).serve(group));
        }
        let patience = self.server.patience();
        match tokio::time::timeout(patience, answered).await {
            Ok(Ok(answer)) => answer,
            // The task that had it is gone, or takes too long.
            Ok(Err(_)) | Err(_) => Err(ServerError::Silent(patience)),
        }
    }

    /// Releases a permit whose acquire was not answered, once the server answers again: it may have been granted. Without an answer it
    /// ends at its deadline.
    pub(super) async fn release_unanswered(
        self: Arc<Self>,
        group: usize,
        time: Option<i64>,
        permit: Permit,
        deadline: Timestamp,
        now: Timestamp,
    ) {
        for _ in 0..deadline.since(now).as_secs() / LATE.as_secs() {
            tokio::time::sleep(LATE).await;
            let item = release_item(&self.groups[group], &permit, Release::default(), now);
            if let Ok(answer) = self.run(group, time, item).await {
                if let Value::Int(generation) = answer {
                    self.groups[group].note_generation(generation);
                }
                return;
            }
        }
    }

    /// Returns whether the line needs a caller to serve it.
    fn queue(&self, group: usize, waiting: Waiting) -> bool {
        let mut line = crate::lock(&self.lines[group]);
        line.waiting.push_back(waiting);
        !std::mem::replace(&mut line.is_served, true)
    }

    /// Sends what waits, until nothing does.
    async fn serve(self: Arc<Self>, group: usize) {
        while let Some((time, batch)) = self.next(group) {
            let (items, answers): (Vec<Item>, Vec<_>) =
                batch.into_iter().map(|waiting| (waiting.item, waiting.answer)).unzip();
            let together = self.call(group, time, &items).await;
            let is_refused = matches!(&together, Err(error) if !error.is_away());
            for (place, answer) in answers.into_iter().enumerate() {
                let result = match &together {
                    Err(_) if is_refused && items.len() > 1 => {
                        self.call(group, time, &items[place..=place]).await.map(|mut alone| alone.pop())
                    }
                    Err(error) => Err(error.clone()),
                    Ok(results) => Ok(results.get(place).cloned()),
                };
                // The answer has no receiver if its caller gave up.
                let _ = answer.send(result.map(|value| value.unwrap_or(Value::Nil)));
            }
        }
    }

    /// Takes the next items from a line, all of one time. Those whose callers gave up are dropped: they count as if they had been lost
    /// on the way.
    fn next(&self, group: usize) -> Option<(Option<i64>, Vec<Waiting>)> {
        let mut line = crate::lock(&self.lines[group]);
        line.waiting.retain(|waiting| !waiting.answer.is_closed());
        let Some(first) = line.waiting.front() else {
            line.is_served = false;
            return None;
        };
        let time = first.time;
        let alike = line.waiting.iter().take(AT_ONCE).take_while(|waiting| waiting.time == time).count();
        Some((time, line.waiting.drain(..alike).collect()))
    }

    async fn call(&self, group: usize, time: Option<i64>, items: &[Item]) -> Result<Vec<Value>, ServerError> {
        let group = &self.groups[group];
        let answer = self.server.eval(group.part.slot, &self.script, |call, run| {
            group.begin(call, run, time);
            items.iter().for_each(|item| item.add_to(call));
        });
        answer.await
    }
}
