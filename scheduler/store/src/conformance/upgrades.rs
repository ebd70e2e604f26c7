//! A new program on an earlier program's store, and an earlier program next to a new one.

use common::host::HostKey;
use common::job_keys::JobKey;
use common::policy::Status;
use common::time::Timestamp;
use common::url::Version;

use super::{Backend, at, entry, modified, new_entries, new_feed, poll, published};
use crate::FeedRef;
use crate::columns::entry_identity;

const URL: &str = "https://a.org/feed";

/// Returns the statements with which the program of the first schema would have stored a feed that was polled once, and
/// its entry. `blob` is the prefix of a byte string in hex in the server's dialect, `more` a further column of feeds
/// and its value.
pub(crate) fn rows_of_the_first_program(blob: &str, more: [&str; 2]) -> String {
    let known = entry("1", "one");
    let (now, due) = (at(10).millis(), at(20).millis());
    let identity: String = entry_identity(&known).iter().map(|byte| format!("{byte:02x}")).collect();
    let (identity, fingerprint) = (format!("{blob}{identity}'"), known.fingerprint().0.cast_signed());
    let [column, value] = more;
    format!(
        "INSERT INTO feeds (url{column}, host, added, status, subscribers, active_subscribers, sla, important, audience_at,
             private, category, version, next_due, etag, title, entries)
         VALUES ('{URL}'{value}, 'a.org:443', {now}, 'active', 3, 1, FALSE, FALSE, {now},
             FALSE, 'C', 2, {due}, '\"1\"', 'a title', 1);
         INSERT INTO events (seq, at, kind, feed_id, identity) VALUES (1, {now}, 'entry.new', 1, {identity});
         INSERT INTO entry_identities (feed_id, identity, seq, fingerprint) VALUES (1, {identity}, 1, {fingerprint});
         INSERT INTO entries (seq, feed_id, identity, seen, stored, cut, id, title)
         VALUES (1, 1, {identity}, {now}, {now}, FALSE, '1', 'one');
         UPDATE store SET entries = 1;"
    )
}

/// The last iteration inserts the rows into the current schema, as when an earlier program is still running.
pub(crate) async fn what_any_earlier_program_left_is_brought_up_to_date_and_goes_on(backend: &dyn Backend) {
    let mut version = 0;
    // For each version, whether its fleet may have workers that do not sign.
    let mut unsigned = Vec::new();
    loop {
        version += 1;
        let old = backend.another();
        if !old.is_left_by(version).await {
            break;
        }
        let store = old.open().await;
        let found = store.feed(&FeedRef::Url(URL.parse().unwrap())).await.unwrap().unwrap();
        assert_eq!((found.version, found.audience.subscribers, found.entries), (Version(2), 3, 1));
        assert_eq!((found.title.as_deref(), found.validators.etag.as_deref()), (Some("a title"), Some("\"1\"")));
        let entries = store.entries(None, 0, 10).await.unwrap().items;
        assert_eq!(entries.iter().map(|item| (item.seq, &item.entry)).collect::<Vec<_>>(), [(1, &entry("1", "one"))]);
        let grown = modified(vec![entry("1", "one"), entry("2", "two")]);
        assert_eq!(new_entries(&poll(&*store, found.id, 30, grown).await), (1, 0), "from schema {version}");
        let both = ["one", "two"].map(|title| ("entry.new".to_owned(), Some(title.to_owned())));
        assert_eq!(published(&*store).await, both);
        let audit = old.audit().await;
        assert_eq!(audit.kept, audit.right, "from schema {version}");
        unsigned.push(store.job_keys(&[], &JobKey::fresh(at(40))).await.unwrap().unsigned_since.is_some());
        store.close().await;
    }
    assert!(version > 5, "there were more schemas than {version}");
    assert!(unsigned[0] && !unsigned[unsigned.len() - 1] && unsigned.is_sorted_by_key(|may| !may), "{unsigned:?}");
}

/// Two branches that each add a migration may give both the same number.
#[test]
fn each_migration_has_a_number_of_its_own() {
    for migrations in [sqlx_macros::migrate!("migrations/sqlite"), sqlx_macros::migrate!("migrations/postgres")] {
        let versions: Vec<i64> = migrations.iter().map(|migration| migration.version).collect();
        assert!(versions.is_sorted_by(|one, next| one < next), "{versions:?}");
    }
}

/// What a program wrote that took ports 80 and 443 of a name for two hosts.
pub(crate) const ROWS_OF_PORT_80: &str = "
    UPDATE feeds SET host = 'a.org:80';
    INSERT INTO host_blocks (host, blocked_until) VALUES ('a.org:80', 500), ('a.org:443', 0), ('b.org:80', 700);
    INSERT INTO host_holds (host, held_until, feed_id) VALUES ('a.org:80', 800, 1), ('a.org:443', 900, 1), ('b.org:80', 950, 1);";
/// The last schema of such a program, in SQLite and in PostgreSQL.
pub(crate) const SCHEMAS_OF_PORT_80: [i64; 2] = [11, 10];

/// `old` was left by such a program, with [`ROWS_OF_PORT_80`].
pub(crate) async fn ports_80_and_443_become_one_host(old: &dyn Backend) {
    let store = old.open().await;
    let found = store.feed(&FeedRef::Url(URL.parse().unwrap())).await.unwrap().unwrap();
    assert_eq!(found.host.as_str(), "a.org:443");
    let audit = old.audit().await;
    assert_eq!(audit.kept, audit.right);
    let named = |rows: Vec<(HostKey, Timestamp)>| {
        let mut rows: Vec<_> =
            rows.into_iter().map(|(host, until)| (host.as_str().to_owned(), until.millis())).collect();
        rows.sort();
        rows
    };
    let expected = |a, b| vec![("a.org:443".to_owned(), a), ("b.org:443".to_owned(), b)];
    assert_eq!(named(store.host_orders(None).await.unwrap().unwrap().blocks), expected(500, 700));
    assert_eq!(named(store.holds(Timestamp::EPOCH).await.unwrap()), expected(900, 950));
    store.block_hosts(&[HostKey::new("b.org:443")], None).await.unwrap();
    let after = named(store.host_orders(None).await.unwrap().unwrap().blocks);
    assert_eq!(after, expected(500, 0), "nothing shadows what is said later");
    store.close().await;
}

/// What a program left of a feed whose survivor it erased.
pub(crate) const ROWS_OF_AN_ERASED_SURVIVOR: &str = "UPDATE feeds SET status = 'merged', next_due = NULL";
/// The last schema of such a program.
pub(crate) const SCHEMA_OF_AN_ERASED_SURVIVOR: i64 = 30;

/// `old` was left by such a program, with [`ROWS_OF_AN_ERASED_SURVIVOR`].
pub(crate) async fn a_feed_without_its_survivor_can_be_added_again(old: &dyn Backend) {
    let store = old.open().await;
    let found = store.feed(&FeedRef::Url(URL.parse().unwrap())).await.unwrap().unwrap();
    assert_eq!((found.status, found.version), (Status::Removed, Version(3)));
    let audit = old.audit().await;
    assert_eq!(audit.kept, audit.right);
    assert!(store.add_feeds(&[new_feed(URL)], at(40)).await.unwrap()[0].revived);
    store.close().await;
}
