//! P46: signed requests, verified with OpenSSL by the text of RFC 9421, not from our own code.

use std::sync::Arc;

use common::bot_auth::BotKey;
use common::time::{Clock, SystemClock};
use load_tests::signed::Keys;
use load_tests::{Feed, Record, Script};
use worker::fetch::Fetcher;
use worker::setup::FetchSetup;

use super::bench::{Bench, document};

const AGENT: &str = "\"https://fleet.example\"";

async fn bench(keys: &Keys) -> Bench {
    let pem = std::fs::read_to_string(keys.private()).unwrap();
    let mut bench = Bench::start().await;
    let bot_key = BotKey::from_pem(&pem, "https://fleet.example/").map(Arc::new);
    assert!(bot_key.is_some());
    let setup = FetchSetup { bot_key, ..FetchSetup::default() };
    bench.fetcher = Fetcher::with_setup(&bench.config, &bench.rules, &setup).unwrap();
    bench
}

fn verifies(keys: &Keys, request: &Record, authority: &str) -> bool {
    let field = |name: &str| request.header(name).unwrap();
    let input = field("signature-input");
    assert!(input.ends_with(";alg=\"ed25519\";tag=\"web-bot-auth\""), "{input}");
    let components = [("\"@authority\"", authority), ("\"signature-agent\"", &field("signature-agent"))];
    keys.verifies(&components, &input, &field("signature")).unwrap()
}

#[tokio::test]
async fn p46_every_request_is_signed_for_the_host_that_is_asked() {
    let folder = tempfile::tempdir().unwrap();
    let keys = Keys::make(folder.path()).unwrap();
    let bench = bench(&keys).await;
    bench.origin.set("/feed", Script::feed(Feed::rss()));
    let mut job = bench.feed("/old", Script::redirect(302, bench.origin.url_on(1, "/feed")));
    assert_eq!(document(&bench.poll(&mut job).await).entries.len(), 3);
    for (path, host) in [("/old", 0), ("/feed", 1)] {
        let request = bench.requests(path, 1).await.remove(0);
        let authority = bench.origin.address(host).to_string();
        assert_eq!(request.header("host").as_deref(), Some(&*authority));
        assert_eq!(request.header("signature-agent").as_deref(), Some(AGENT));
        assert!(verifies(&keys, &request, &authority), "{path}");
        assert!(!verifies(&keys, &request, "other.example"), "it is good for no other host");
        let input = request.header("signature-input").unwrap();
        let number = |name: &str| {
            let rest = input.split_once(&format!(";{name}=")).unwrap().1;
            rest.split(';').next().unwrap().parse::<i64>().unwrap()
        };
        let now = SystemClock.now().unix_seconds();
        assert!((now - 60..=now).contains(&number("created")) && number("expires") == number("created") + 300);
    }
}

#[tokio::test]
async fn p46_without_a_key_nothing_is_signed() {
    let bench = Bench::start().await;
    let mut job = bench.feed("/feed", Script::feed(Feed::rss()));
    bench.poll(&mut job).await;
    let request = bench.requests("/feed", 1).await.remove(0);
    assert!(["signature", "signature-input", "signature-agent"].iter().all(|name| request.header(name).is_none()));
}
