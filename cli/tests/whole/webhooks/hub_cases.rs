//! Further cases of the PubSubHubbub project's suite: what a publisher causes, which requests are refused, and what the answers to
//! verification requests mean.

use axum::http::Method;
use load_tests::{Feed, Origin, Script, loopback};
use serde_json::Value;

use super::hub::{OPEN_HUB, Says, Subscriber, ask, hub_home, settled, wish};
use super::{CONFIG, busy};
use crate::harness::Home;

#[tokio::test(flavor = "multi_thread")]
async fn what_a_publisher_announces_is_fetched_at_once_and_its_subscribers_are_notified() {
    // Feeds are polled once an hour, but for pings.
    let often = "interval = \"1s\"\ninterval_max = \"1s\"";
    let config = CONFIG.replace(often, "interval = \"1h\"\ninterval_max = \"1h\"");
    assert_ne!(config, CONFIG);
    let config = config.replace("[policy]\n", "[policy]\nping_spread = \"1s\"\nping_quiet = \"100ms\"\n");
    let home = Home::new(&format!("{config}\n[delivery]\n{OPEN_HUB}"));
    let (origin, subscriber) = (Origin::listen(&loopback(1, 0)).await.unwrap(), Subscriber::listen().await);
    origin.set("/feed", Script::feed(Feed::atom().initial(1)));
    let topic = origin.url("/feed");
    let mut fleet = home.start(&[]);
    assert_eq!(ask(&fleet, &wish("subscribe", &topic, &subscriber.url("/s"))).await, 202);
    let first = subscriber.notified(&mut fleet, "/s", 1).await.remove(0);
    let polls = origin.requests("/feed").len();
    for number in 1..=2 {
        let item = origin.publish("/feed", 1).remove(0);
        assert_eq!(ask(&fleet, &[("hub.mode", "publish"), ("hub.url", topic.as_str())]).await, 204);
        let got = subscriber.notified(&mut fleet, "/s", 1 + number).await.remove(number);
        assert_eq!(origin.requests("/feed").len(), polls + number, "one poll for each");
        // Entries keep their ids, and the document has its topic's.
        let text = String::from_utf8(got.body.to_vec()).unwrap();
        let ids: Vec<&str> = text.split("<id>").skip(1).filter_map(|part| part.split("</id>").next()).collect();
        assert_eq!(ids, [topic.as_str(), item.id.as_str()], "{text}");
        assert_ne!(got.body, first.body);
    }
    fleet.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn urls_with_fragments_are_refused_and_a_callback_with_a_challenge_of_its_own_is_asked_with_ours() {
    let (home, subscriber) = (hub_home(), Subscriber::listen().await);
    let (_origin, urls) = busy(1).await;
    let topic = &urls[0];
    let mut fleet = home.start(&[]);
    let callback = subscriber.url("/callback");
    let [topic_part, callback_part] = [topic, &callback].map(|url| format!("{url}#part"));
    for mode in ["subscribe", "unsubscribe"] {
        assert_eq!(ask(&fleet, &wish(mode, &topic_part, &callback)).await, 400);
        assert_eq!(ask(&fleet, &wish(mode, topic, &callback_part)).await, 400);
    }
    for fields in
        [&wish("subscribe", topic, &callback)[1..], &wish("subscribe", topic, "")[..], &wish("x", topic, &callback)[..]]
    {
        assert_eq!(ask(&fleet, fields).await, 400);
    }
    assert_eq!(settled(&home, &mut fleet).await, Vec::<Value>::new());
    assert!(subscriber.got(&Method::GET, "/callback").is_empty(), "nobody is asked");

    let callback = subscriber.url("/own?hub.challenge=mine&hub.mode=unsubscribe&key=1");
    assert_eq!(ask(&fleet, &wish("subscribe", topic, &callback)).await, 202);
    let got = subscriber.notified(&mut fleet, "/own", 1).await.remove(0);
    assert_eq!(
        (got.asks("hub.challenge"), got.asks("key")),
        ("mine", "1"),
        "notifications go to the callback as it was"
    );
    let asked = subscriber.got(&Method::GET, "/own").remove(0);
    let last = |name: &str| asked.asks(name);
    assert_eq!((last("hub.mode"), last("key")), ("subscribe", "1"));
    assert_ne!(last("hub.challenge"), "mine");
    fleet.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_status_of_a_verification_confirms_refuses_or_is_asked_again() {
    let (home, subscriber) = (hub_home(), Subscriber::listen().await);
    let (_origin, urls) = busy(1).await;
    let topic = &urls[0];
    let mut fleet = home.start(&[]);
    // Each answers with the challenge, which counts with a good status only.
    let good = [200, 201, 202, 203];
    let refusing = [204, 300, 301, 302, 303, 304, 307, 308, 400, 401, 403, 404, 405, 406, 409, 410, 418, 451];
    let failing = [429, 500, 502, 503, 504];
    for status in good.into_iter().chain(refusing).chain(failing) {
        let path = format!("/{status}");
        subscriber.say(&path, Says::Status(status));
        assert_eq!(ask(&fleet, &wish("subscribe", topic, &subscriber.url(&path))).await, 202);
    }
    for status in failing {
        let path = format!("/{status}");
        subscriber.asked(&mut fleet, &path, 1).await;
        subscriber.say(&path, Says::Challenge);
    }
    let all = settled(&home, &mut fleet).await;
    let mut confirmed: Vec<&str> = all.iter().map(|it| it["target"].as_str().unwrap()).collect();
    confirmed.sort_unstable();
    let mut expected: Vec<String> =
        good.into_iter().chain(failing).map(|status| subscriber.url(&format!("/{status}"))).collect();
    expected.sort_unstable();
    assert_eq!(confirmed, expected);
    for status in good.into_iter().chain(refusing) {
        assert_eq!(subscriber.got(&Method::GET, &format!("/{status}")).len(), 1, "{status} is an answer");
    }
    for status in failing {
        assert!(subscriber.got(&Method::GET, &format!("/{status}")).len() >= 2, "{status} is asked again");
    }
    fleet.stop();
}
