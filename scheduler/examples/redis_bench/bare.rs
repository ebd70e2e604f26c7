//! The least that a claim can be: one range, one batched ZADD, over the same client library.

use common::time::Timestamp;
use redis::Script;
use redis::aio::MultiplexedConnection;

use crate::{BATCH, FEEDS, LEASE, PAGE, due};

const CLAIM: &str = "
local members = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, ARGV[3])
local entries = {}
for i = 1, #members do
  entries[2 * i - 1] = ARGV[2]
  entries[2 * i] = members[i]
end
if #members > 0 then redis.call('ZADD', KEYS[1], unpack(entries)) end
return members
";
const KEY: &str = "bare";

pub(crate) struct Bare {
    connection: MultiplexedConnection,
    claim: Script,
}

impl Bare {
    /// As many members as the schedule has feeds, with the same names and scores.
    pub(crate) async fn filled(mut connection: MultiplexedConnection, now: Timestamp) -> anyhow::Result<Self> {
        for first in (1..=FEEDS as i64).step_by(PAGE) {
            let mut add = redis::cmd("ZADD");
            add.arg(KEY);
            for member in first..first + PAGE as i64 {
                add.arg(due(now, member).millis()).arg(member);
            }
            let _: i64 = add.query_async(&mut connection).await?;
        }
        Ok(Bare { connection, claim: Script::new(CLAIM) })
    }

    pub(crate) async fn claim(&mut self, now: Timestamp) -> anyhow::Result<usize> {
        let mut call = self.claim.key(KEY);
        call.arg(now.millis()).arg(now.after(LEASE).millis()).arg(BATCH);
        let members: Vec<i64> = call.invoke_async(&mut self.connection).await?;
        Ok(members.len())
    }
}
