//! `feedfleet export --histories`: when the feeds of a fleet posted, for `feedfleet simulate --histories`.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use common::policy::Audience;
use common::time::Timestamp;
use common::url::FeedId;
use load_tests::simulate::histories::{self, Series};
use scheduler::wire::FeedView;
use serde::Deserialize;

use crate::client::Client;
use crate::entries::{PAGE, Reading};

/// What is read of an entry.
#[derive(Debug, Deserialize)]
struct Posted {
    feed_id: FeedId,
    #[serde(default)]
    published: Option<Timestamp>,
    #[serde(default)]
    updated: Option<Timestamp>,
    seen: Timestamp,
}

/// When feeds posted, by their numbers; the latest times last.
#[derive(Debug, Default)]
struct Posts(BTreeMap<FeedId, Vec<f64>>);

impl Posts {
    /// Adds an entry: at its date, or when it was seen if it has none, or one in the future.
    fn add(&mut self, entry: &Posted) {
        let at = entry.published.or(entry.updated).filter(|at| *at <= entry.seen).unwrap_or(entry.seen);
        self.0.entry(entry.feed_id).or_default().push(at.millis().div_euclid(1000) as f64);
    }

    /// Returns the history of a feed; `None` if it has no entries.
    fn take(&mut self, feed: FeedId, url: &str, audience: Audience) -> Option<Series> {
        let mut times = self.0.remove(&feed)?;
        times.sort_by(f64::total_cmp);
        // A tab would end the name.
        let name = url.replace(char::is_whitespace, "%20");
        Some(Series { name, kind: "auto".to_owned(), days_only: false, times, audience })
    }
}

/// The histories of a fleet, with the audiences of its feeds. Entries that retention deleted are missing.
pub(crate) struct Histories {
    posts: Posts,
}

impl Histories {
    /// Reads when the entries of all feeds were published.
    pub(crate) async fn read(client: Client) -> anyhow::Result<Self> {
        let mut reading = Reading::new(client, "/entries", Vec::new());
        let (mut posts, mut epoch) = (Posts::default(), None);
        loop {
            let (entries, more) = reading.next::<Posted>(PAGE).await?;
            if epoch.is_some() && epoch != reading.epoch() {
                // Another store: it is read from its beginning.
                posts = Posts::default();
            }
            epoch = reading.epoch();
            entries.iter().for_each(|entry| posts.add(entry));
            if !more {
                return Ok(Histories { posts });
            }
        }
    }

    /// Writes the line of a feed; false if it has no entries.
    pub(crate) fn write(&mut self, feed: &FeedView, out: &mut impl Write) -> std::io::Result<bool> {
        let audience = Audience {
            subscribers: feed.subscribers,
            active_subscribers: feed.active_subscribers,
            sla: feed.sla,
            important: feed.important,
            interval: feed.interval.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
        };
        match self.posts.take(feed.id, &feed.url, audience) {
            Some(series) => out.write_all(histories::write(&[series]).as_bytes()).map(|()| true),
            None => Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_simulator_reads_what_is_written() {
        let at = |seconds: i64| Timestamp::from_millis(1000 * seconds + 7);
        let posted = |feed: i64, published: Option<i64>, seen: i64| Posted {
            feed_id: FeedId(feed),
            published: published.map(at),
            updated: None,
            seen: at(seen),
        };
        let mut posts = Posts::default();
        for entry in [posted(1, Some(50), 90), posted(2, None, 95), posted(1, Some(40), 90), posted(1, Some(900), 100)]
        {
            posts.add(&entry);
        }
        let audience = Audience { subscribers: 7, interval: Some(Duration::from_secs(90)), ..Audience::default() };
        let all = [
            posts.take(FeedId(1), "http://a.example/feed", audience).unwrap(),
            posts.take(FeedId(2), "http://b.example/a\tb", Audience::default()).unwrap(),
        ];
        assert!(posts.take(FeedId(3), "http://c.example/", audience).is_none());
        let read = histories::read(&histories::write(&all)).unwrap();
        assert_eq!(read, all);
        assert_eq!((&read[0].times, &read[1].times), (&vec![40.0, 50.0, 100.0], &vec![95.0]));
        assert_eq!(read[1].name, "http://b.example/a%20b");
    }
}
