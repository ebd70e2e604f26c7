//! Feeds with credentials: their identity, the key that sealed them, where they may move.

use common::secrets::{Keyring, Login, SecretsConfig};

use super::*;
use crate::{Move, Moved, OldSeal};

const URL: &str = "https://a.org/feed";

pub(super) fn ring(key: u8, old_keys: &[u8]) -> Keyring {
    let text = |byte: u8| base64::Engine::encode(&base64::prelude::BASE64_STANDARD, [byte; 32]);
    Keyring::new(&SecretsConfig { key: text(key), old_keys: old_keys.iter().copied().map(text).collect() })
}

fn login(name: &str) -> Login {
    Login::new(name, "secret").unwrap()
}

pub(super) fn with_login(url: &str, name: &str, ring: &Keyring) -> NewFeed {
    let new = new_feed(url);
    NewFeed { credentials: Some(ring.seal(&login(name), &new.url).unwrap()), category: Category::C, ..new }
}

fn opened(feed: &Feed, ring: &Keyring) -> Option<Login> {
    ring.open(feed.credentials.as_ref()?, &feed.url).ok()
}

async fn added(store: &dyn Store, new: NewFeed) -> Added {
    store.add_feeds(&[new], at(0)).await.unwrap().remove(0)
}

pub(crate) async fn users_of_one_url_have_feeds_of_their_own(backend: &dyn Backend) {
    let (store, ring) = (backend.open().await, ring(1, &[]));
    let everybody = add(&*store, URL).await;
    let batch = ["ann", "bob", "ann"].map(|name| with_login(URL, name, &ring));
    let answers = store.add_feeds(&batch, at(0)).await.unwrap();
    assert_eq!(answers.iter().map(|added| added.new).collect::<Vec<_>>(), [true, true, false]);
    let [ann, bob, again] = [0, 1, 2].map(|number| answers[number].id);
    assert!(ann == again && ann != bob && ![ann, bob].contains(&everybody));
    assert!(
        !added(&*store, with_login(URL, "ann", &ring)).await.new,
        "known, though it is sealed another way each time"
    );
    for (id, name) in [(ann, Some("ann")), (bob, Some("bob")), (everybody, None)] {
        let feed = feed(&*store, id).await;
        assert_eq!(opened(&feed, &ring), name.map(login));
        assert_eq!(feed.is_private(), name.is_some(), "a feed with credentials is nobody else's business");
        let jobs = store.jobs_for(&[id]).await.unwrap();
        assert_eq!(jobs[0].credentials, feed.credentials);
        assert_eq!(store.states_for(&[id]).await.unwrap(), [feed]);
    }
    let found = store.feed(&FeedRef::Url(URL.parse().unwrap())).await.unwrap();
    assert_eq!(found.map(|feed| feed.id), Some(everybody), "whoever knows the URL alone does not see the others");
    let listed = store.feeds(&FeedQuery { limit: 10, ..FeedQuery::default() }).await.unwrap().items;
    assert_eq!(listed.iter().filter(|feed| feed.credentials.is_some()).count(), 2);
}

pub(crate) async fn a_retired_feed_is_revived_by_its_own_login_alone(backend: &dyn Backend) {
    let (store, ring) = (backend.open().await, ring(1, &[]));
    let ann = added(&*store, with_login(URL, "ann", &ring)).await.id;
    let removed = FeedChange { status: Some(Status::Removed), ..FeedChange::default() };
    store.change_feed(ann, &removed, at(1)).await.unwrap();
    for other in [new_feed(URL), with_login(URL, "bob", &ring)] {
        assert!(added(&*store, other).await.new);
    }
    assert_eq!(feed(&*store, ann).await.status, Status::Removed);
    let answer = added(&*store, with_login(URL, "ann", &ring)).await;
    assert_eq!(answer, Added { id: ann, new: false, revived: true });
}

pub(crate) async fn another_login_is_another_version_without_validators(backend: &dyn Backend) {
    let (store, ring) = (backend.open().await, ring(1, &[]));
    let id = add(&*store, URL).await;
    poll(&*store, id, 10, modified(vec![entry("1", "one")])).await;
    let before = feed(&*store, id).await;
    let change = |name: Option<&str>| {
        let credentials = name.map(|name| ring.seal(&login(name), &before.url).unwrap());
        FeedChange { credentials: Some(credentials), ..FeedChange::default() }
    };
    let changed = store.change_feed(id, &change(Some("ann")), at(20)).await.unwrap().unwrap();
    assert_eq!((changed.version, opened(&changed, &ring)), (Version(before.version.0 + 1), Some(login("ann"))));
    assert_eq!((&changed.validators, changed.content_hash), (&Validators::default(), None));
    assert_eq!((changed.entries, changed.next_due), (1, before.next_due));
    let late = verdict_on(&before, 15, unchanged());
    assert_eq!(apply(&*store, &[late], 25).await, [Applied::Stale], "what another login brought");

    let plain = added(&*store, new_feed(URL)).await;
    assert!(plain.new && plain.id != id, "the URL alone is free again");
    let taken = store.change_feed(id, &change(None), at(30)).await.unwrap_err();
    assert!(matches!(taken, StoreError::Taken), "{taken:?}");
    assert_eq!(feed(&*store, id).await, changed);
    assert!(store.erase_feed(plain.id, at(9_000)).await.unwrap());
    let bare = store.change_feed(id, &change(None), at(40)).await.unwrap().unwrap();
    assert_eq!((bare.credentials, bare.version), (None, Version(changed.version.0 + 1)));
    let left = FeedChange { private: Some(true), ..FeedChange::default() };
    assert_eq!(store.change_feed(id, &left, at(50)).await.unwrap().unwrap().version, Version(changed.version.0 + 1));
}

pub(crate) async fn a_feed_with_credentials_stays_at_its_origin(backend: &dyn Backend) {
    let (store, ring) = (backend.open().await, ring(1, &[]));
    let id = added(&*store, with_login(URL, "ann", &ring)).await.id;
    let to = |url: &str| {
        let NewFeed { url, host, .. } = new_feed(url);
        Move { url, host, category: Category::C, same: false, others: Vec::new() }
    };
    let before = feed(&*store, id).await;
    for away in ["https://b.org/feed", "http://a.org/feed", "https://a.org:8443/feed"] {
        assert_eq!(store.move_feed(id, before.version, &to(away), at(20)).await.unwrap(), Moved::Stale, "{away}");
    }
    assert_eq!(feed(&*store, id).await, before);
    add(&*store, "https://a.org/new").await;
    let moved = store.move_feed(id, before.version, &to("https://a.org/new"), at(20)).await.unwrap();
    assert_eq!(moved, Moved::Here, "another's feed there, without these credentials, is another feed");
    let after = feed(&*store, id).await;
    assert_eq!(opened(&after, &ring), Some(login("ann")), "sealed for the origin, it need not be sealed anew");
}

pub(crate) async fn logins_of_an_old_key_are_found_and_sealed_anew(backend: &dyn Backend) {
    let (store, old) = (backend.open().await, ring(1, &[]));
    add(&*store, URL).await;
    let ids = ["ann", "bob", "cay"].map(|name| with_login(URL, name, &old));
    let ids: Vec<FeedId> = store.add_feeds(&ids, at(0)).await.unwrap().iter().map(|added| added.id).collect();
    let new = ring(2, &[1]);
    let answer = added(&*store, with_login(URL, "bob", &new)).await;
    assert_eq!((answer.id, answer.new), (ids[1], false), "known under the old key's name, and renamed");
    let current = new.current().unwrap();
    assert!(store.old_seals(&old.current().unwrap(), FeedId(0), 10).await.unwrap().len() == 1);

    let page = store.old_seals(&current, FeedId(0), 1).await.unwrap();
    let rest = store.old_seals(&current, page[0].id, 10).await.unwrap();
    assert_eq!([&page[..], &rest[..]].concat().iter().map(|old| old.id).collect::<Vec<_>>(), [ids[0], ids[2]]);
    let before = feed(&*store, ids[0]).await;
    let sealed = |old: &OldSeal| new.seal(&new.open(&old.sealed, &old.url).unwrap(), &old.url).unwrap();
    assert!(store.reseal(&page[0], &sealed(&page[0])).await.unwrap());
    assert!(!store.reseal(&page[0], &sealed(&page[0])).await.unwrap(), "it is not what it was any more");
    let after = feed(&*store, ids[0]).await;
    assert_eq!(after.version, before.version, "the login is the same: a fetch under way is not in vain");
    assert_eq!(opened(&after, &ring(2, &[])), Some(login("ann")), "the old key is not needed any more");
    let renamed = added(&*store, with_login(URL, "ann", &ring(2, &[]))).await;
    assert_eq!((renamed.id, renamed.new), (ids[0], false));
    assert_eq!(store.old_seals(&current, FeedId(0), 10).await.unwrap().len(), 1);
}

pub(crate) async fn a_login_that_two_feeds_have_is_sealed_anew_in_both(backend: &dyn Backend) {
    let store = backend.open().await;
    let one = added(&*store, with_login(URL, "ann", &ring(1, &[]))).await;
    // added by a scheduler without the old key
    let two = added(&*store, with_login(URL, "ann", &ring(2, &[]))).await;
    assert!(one.new && two.new);
    let new = ring(2, &[1]);
    assert_eq!(added(&*store, with_login(URL, "ann", &new)).await.id, two.id);
    let old = store.old_seals(&new.current().unwrap(), FeedId(0), 10).await.unwrap();
    let sealed = new.seal(&login("ann"), &old[0].url).unwrap();
    assert!(old.len() == 1 && store.reseal(&old[0], &sealed).await.unwrap());
    for id in [one.id, two.id] {
        assert_eq!(opened(&feed(&*store, id).await, &ring(2, &[])), Some(login("ann")));
    }
}
