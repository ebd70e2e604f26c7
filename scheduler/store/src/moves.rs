//! Feeds that turn out to be elsewhere, and back.

use common::host::HostKey;
use common::policy::{Category, PollState};
use common::url::{FeedId, FeedUrl};

/// Where a feed turns out to be.
#[derive(Clone, Debug)]
pub struct Move {
    /// Its new URL.
    pub url: FeedUrl,
    /// What requests to it are charged to.
    pub host: HostKey,
    /// The category that the feed has there.
    pub category: Category,
    /// What else the page announces that the feed is taken from.
    pub others: Vec<FeedUrl>,
    /// It is the same document under another URL: all that is known of it stays, and it is due as before. Otherwise it starts
    /// from scratch.
    pub same: bool,
}

/// How a move is taken back.
#[derive(Clone, Debug)]
pub struct Unmove {
    /// What requests to the old URL are charged to.
    pub host: HostKey,
    /// The category that the feed has there.
    pub category: Category,
    /// What is to be remembered of the feed.
    pub state: PollState,
}

/// The outcome of an [`Unmove`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmoved {
    /// Another version, or it never moved: nothing changed.
    Stale,
    /// Another feed has the old URL: nothing changed.
    Taken(FeedId),
    /// It has its old URL again and is due as before.
    Back,
    /// It is no longer merged into that one, which returns its readers; it is due at once.
    Apart(FeedId),
}

/// The maximum number of other feeds of a page that are kept, and the maximum length of their URLs.
const OTHERS: usize = 5;
const LONGEST_OTHER: usize = 500;

impl Move {
    /// Returns the page's other feeds as they are stored; none are NULL.
    pub(crate) fn packed_others(&self) -> Option<String> {
        let urls = self.others.iter().map(FeedUrl::as_str).filter(|url| url.len() <= LONGEST_OTHER);
        let others: Vec<&str> = urls.take(OTHERS).collect();
        if others.is_empty() { None } else { serde_json::to_string(&others).ok() }
    }

    /// Credentials are sealed for an origin: a feed that has some (their name is not empty) does not leave it.
    pub(crate) fn is_allowed(&self, from: &str, credentials: &[u8]) -> bool {
        credentials.is_empty() || from.parse().is_ok_and(|from| self.url.has_origin_of(&from))
    }
}

/// The outcome of a [`Move`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// Another version, not live, or not to be moved there: nothing changed.
    Stale,
    /// The feed has the new URL; it is due at once if it starts from scratch.
    Here,
    /// Another feed has that URL, or took in the one that has it: this one is merged into it, and its readers are added there.
    Into(FeedId),
}

/// The maximum number of earlier merges that a move follows from the feed that has its URL.
pub(crate) const MOST_MERGES: i32 = 5;

/// Reads which feed $1 was merged into, and which feeds were merged into it, over others too.
pub(crate) const MERGED_WITH: &str = "WITH RECURSIVE merged (id) AS ( \
     SELECT id FROM feeds WHERE merged_into = $1 AND status = 'merged' \
     UNION SELECT feeds.id FROM feeds JOIN merged ON feeds.merged_into = merged.id WHERE feeds.status = 'merged') \
     SELECT merged_into FROM feeds WHERE id = $1 AND merged_into IS NOT NULL UNION SELECT id FROM merged";

/// Removes the feeds that were merged into feed $1, over others too. It is about to be erased: no feed is polled in their place any more.
pub(crate) const REMOVE_MERGED: &str = "WITH RECURSIVE merged (id) AS ( \
     SELECT id FROM feeds WHERE merged_into = $1 AND status = 'merged' \
     UNION SELECT feeds.id FROM feeds JOIN merged ON feeds.merged_into = merged.id WHERE feeds.status = 'merged') \
     UPDATE feeds SET status = 'removed', version = version + 1, merged_into = NULL WHERE id IN (SELECT id FROM merged)";

/// The readers of feed $1, which is merged, are not added to those of the other feed ($2), and not taken out when it leaves.
pub(crate) const UNCOUNTED: &str = "UPDATE feeds SET uncounted = $2 WHERE id = $1";

/// Defines what carries a move out, over a connection of either database; the statements and the news are those beside the caller.
macro_rules! carry_out {
    ($connection:ty) => {
        /// Gives the feed its new URL, or merges it into the feed that has it. `merge` marks feed $1 as merged into feed $2.
        async fn carry_out(
            on: &mut $connection,
            id: FeedId,
            to: &Move,
            (known, merge): (Option<i64>, &'static str),
            now: Timestamp,
        ) -> Result<Moved, sqlx::Error> {
            let mut survivors = Vec::new();
            match known {
                Some(survivor) => {
                    let joins = has_its_labels(on, survivor, id).await?;
                    if to.same && !joins {
                        return Ok(Moved::Stale);
                    }
                    survivors = news::known(on, &[survivor]).await?;
                    if joins {
                        let add =
                            sqlx::query(include_str!("move_into.sql")).bind(id.0).bind(survivor).bind(now.millis());
                        add.execute(&mut *on).await?;
                    }
                    sqlx::query(UNCOUNTED).bind(id.0).bind(!joins).execute(&mut *on).await?;
                    sqlx::query(merge).bind(id.0).bind(survivor).execute(&mut *on).await?;
                    if !to.same {
                        let sql = "INSERT INTO known_pages (feed_id, at) VALUES ($1, $2) \
                                   ON CONFLICT (feed_id) DO UPDATE SET at = excluded.at";
                        sqlx::query(sql).bind(id.0).bind(now.millis()).execute(&mut *on).await?;
                    }
                    // The readers of a feed that another caller added are among those of the survivor: the hub must not
                    // release it.
                    let sql = "DELETE FROM hub_feeds WHERE feed_id = $2 \
                               AND NOT EXISTS (SELECT 1 FROM hub_feeds WHERE feed_id = $1)";
                    sqlx::query(sql).bind(id.0).bind(survivor).execute(&mut *on).await?;
                }
                None => {
                    let sql = if to.same { include_str!("move_same.sql") } else { include_str!("move_here.sql") };
                    let here = sqlx::query(sql).bind(id.0).bind(to.url.as_str()).bind(to.host.as_str());
                    let here = here.bind(to.category.as_str());
                    let here = if to.same { here } else { here.bind(now.millis()).bind(added_terms(now)) };
                    here.execute(&mut *on).await?;
                }
            }
            if let Some(others) = to.packed_others() {
                let keep = sqlx::query("UPDATE feeds SET also_announced = $2 WHERE id = $1").bind(id.0).bind(others);
                keep.execute(&mut *on).await?;
            }
            news::tell_changes(on, vec![has_moved(id)], &survivors, now).await?;
            Ok(known.map_or(Moved::Here, |survivor| Moved::Into(FeedId(survivor))))
        }

        /// Returns whether a feed has all labels of another: callers that are limited to one would lose the other one's entries, and could
        /// change a feed of others through a page that announces it.
        async fn has_its_labels(on: &mut $connection, survivor: i64, id: FeedId) -> Result<bool, sqlx::Error> {
            let look = sqlx::query_scalar("SELECT labels FROM feeds WHERE id = $1 OR id = $2 ORDER BY id = $1");
            let labels: Vec<Option<String>> = look.bind(id.0).bind(survivor).fetch_all(on).await?;
            let [there, here] = &labels[..] else { return Ok(false) };
            let marks = |labels: &Option<String>| read_marks(labels.as_deref(), None);
            Ok(marks(here).may_become(&marks(there)))
        }

        fn has_moved(id: FeedId) -> News {
            News::of("feed.moved", id.0)
        }
    };
}
pub(crate) use carry_out;
