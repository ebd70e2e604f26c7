//! The exchange: in order, to every bound queue, and nothing is left out after an error.

use lapin::options::{
    BasicGetOptions, ExchangeBindOptions, ExchangeDeclareOptions, ExchangeDeleteOptions, QueueBindOptions,
    QueueDeclareOptions, QueueDeleteOptions,
};
use lapin::types::{AMQPValue, FieldTable};

use super::own_broker::Lines;
use super::*;
use crate::queue::conformance::report;
use crate::queue::{Announce, Announcement};
use crate::report::FetchReport;

fn messages(keys: &[&str]) -> Vec<Announcement> {
    let message = |(number, key): (usize, &&str)| Announcement {
        key: (*key).to_owned(),
        kind: key.rsplit_once('.').unwrap().0.to_owned(),
        id: format!("e-{number}"),
        headers: Vec::new(),
        body: number.to_string().into_bytes(),
    };
    keys.iter().enumerate().map(message).collect()
}

/// An exchange in a separate namespace, with a queue that wants some of it.
struct Bound {
    broker: Broker,
    exchange: Exchange,
    channel: Channel,
    name: String,
    _connection: Connection,
}

impl Bound {
    async fn make(key: &str, arguments: FieldTable) -> Self {
        let namespace = namespace();
        let broker = connected(&namespace, &Metrics::new()).await;
        let mut exchange = broker.events();
        // Without a listener: that is fine, and there is an exchange afterwards.
        let published = exchange.publish(&messages(&["entry.new.1"; 300])).await;
        assert_eq!((published.confirmed, published.trouble.is_none()), (300, true), "{:?}", published.trouble);
        let (connection, channel) = bare().await;
        let name = format!("{namespace}.events");
        channel.queue_declare(name.as_str().into(), QueueDeclareOptions::durable(), arguments).await.unwrap();
        let bound = Bound { broker, exchange, channel, name, _connection: connection };
        bound.bind(key).await;
        bound
    }

    async fn bind(&self, key: &str) {
        let name = || self.name.as_str().into();
        let bind =
            self.channel.queue_bind(name(), name(), key.into(), QueueBindOptions::default(), FieldTable::default());
        bind.await.unwrap();
    }

    /// Returns what is in the queue: routing key, type, id and body of each message.
    async fn arrived(&self) -> Vec<[String; 4]> {
        let mut arrived = Vec::new();
        while let Some(got) =
            self.channel.basic_get(self.name.as_str().into(), BasicGetOptions { no_ack: true }).await.unwrap()
        {
            let text = |of: &Option<lapin::types::ShortString>| of.as_ref().unwrap().to_string();
            assert_eq!(*got.properties.delivery_mode(), Some(publisher::PERSISTENT));
            arrived.push([
                got.routing_key.to_string(),
                text(got.properties.kind()),
                text(got.properties.message_id()),
                String::from_utf8(got.data.clone()).unwrap(),
            ]);
        }
        arrived
    }

    async fn end(self) {
        self.broker.close().await;
        self.channel.queue_delete(self.name.as_str().into(), QueueDeleteOptions::default()).await.unwrap();
        self.channel.exchange_delete(self.name.as_str().into(), ExchangeDeleteOptions::default()).await.unwrap();
    }
}

#[tokio::test]
async fn a_bound_queue_gets_what_it_wants_in_order() {
    let mut bound = Bound::make("entry.*.7", FieldTable::default()).await;
    let keys = ["entry.new.7", "entry.new.8", "feed.gone.7", "entry.updated.7"].repeat(50);
    assert_eq!(bound.exchange.publish(&messages(&keys)).await.confirmed, 200);
    let arrived = bound.arrived().await;
    assert_eq!(arrived[1], ["entry.updated.7", "entry.updated", "e-3", "3"]);
    let numbers: Vec<usize> = arrived.iter().map(|[.., body]| body.parse().unwrap()).collect();
    assert_eq!(numbers, (0..200).filter(|number| matches!(number % 4, 0 | 3)).collect::<Vec<_>>());
    bound.end().await;
}

#[tokio::test]
async fn a_headers_exchange_that_is_bound_to_it_chooses_by_what_messages_are_about() {
    let mut bound = Bound::make("none", FieldTable::default()).await;
    // A consumer declares it, and binds its queue to it.
    let chosen = format!("{}.chosen", bound.name);
    let table = |fields: &[(&str, &str)]| {
        let mut table = FieldTable::default();
        for (name, value) in fields {
            table.insert((*name).into(), AMQPValue::LongString((*value).into()));
        }
        table
    };
    let kind = lapin::ExchangeKind::Headers;
    let declared =
        bound.channel.exchange_declare(chosen.as_str().into(), kind, ExchangeDeclareOptions::default(), table(&[]));
    declared.await.unwrap();
    let (to, from) = (chosen.as_str().into(), bound.name.as_str().into());
    bound.channel.exchange_bind(to, from, "entry.#".into(), ExchangeBindOptions::default(), table(&[])).await.unwrap();
    let wanted = table(&[("x-match", "all"), ("category", "B"), ("label.news", "yes")]);
    let (queue, from) = (bound.name.as_str().into(), chosen.as_str().into());
    bound.channel.queue_bind(queue, from, "".into(), QueueBindOptions::default(), wanted).await.unwrap();
    let about = [
        [("category", "B"), ("label.news", "yes")],
        [("category", "C"), ("label.news", "yes")],
        [("category", "B"), ("label.sport", "yes")],
        [("category", "B"), ("label.news", "yes")],
    ];
    let mut sent = messages(&["entry.new.7", "entry.new.7", "entry.new.8", "feed.gone.7"]);
    for (message, about) in sent.iter_mut().zip(about) {
        message.headers = about.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    }
    assert_eq!(bound.exchange.publish(&sent).await.confirmed, 4);
    let bodies: Vec<String> = bound.arrived().await.into_iter().map(|[.., body]| body).collect();
    assert_eq!(bodies, ["0"], "the others differ in their category, their label and their key");
    bound.channel.exchange_delete(chosen.as_str().into(), ExchangeDeleteOptions::default()).await.unwrap();
    bound.end().await;
}

#[tokio::test]
async fn a_header_whose_name_is_too_long_for_amqp_is_left_out() {
    let mut bound = Bound::make("#", FieldTable::default()).await;
    let mut sent = messages(&["entry.new.7"]);
    let long = format!("label.{}", "😀".repeat(64));
    sent[0].headers = vec![(long, "yes".to_owned()), ("label.news".to_owned(), "yes".to_owned())];
    let published = bound.exchange.publish(&sent).await;
    assert_eq!(published.confirmed, 1, "{:?}", published.trouble);
    let got = bound.channel.basic_get(bound.name.as_str().into(), BasicGetOptions { no_ack: true }).await.unwrap();
    let headers = got.unwrap().properties.headers().clone().unwrap();
    let names: Vec<String> = headers.inner().keys().map(ToString::to_string).collect();
    assert_eq!(names, ["label.news"]);
    bound.end().await;
}

#[tokio::test]
async fn an_exchange_that_was_deleted_is_there_again_with_the_next_try() {
    let mut bound = Bound::make("#", FieldTable::default()).await;
    bound.channel.exchange_delete(bound.name.as_str().into(), ExchangeDeleteOptions::default()).await.unwrap();
    let published = bound.exchange.publish(&messages(&["entry.new.1"])).await;
    assert!(published.confirmed == 0 && published.trouble.is_some());
    assert_eq!(bound.exchange.publish(&messages(&["entry.new.2"])).await.confirmed, 1);
    bound.bind("#").await;
    assert_eq!(bound.exchange.publish(&messages(&["entry.new.3"])).await.confirmed, 1);
    assert_eq!(bound.arrived().await.len(), 1);
    bound.end().await;
}

#[tokio::test]
async fn what_a_queue_refuses_is_not_confirmed() {
    let mut arguments = FieldTable::default();
    arguments.insert("x-max-length".into(), AMQPValue::LongLongInt(2));
    arguments.insert("x-overflow".into(), AMQPValue::LongString("reject-publish".into()));
    let mut bound = Bound::make("#", arguments).await;
    let published = bound.exchange.publish(&messages(&["entry.new.1"; 50])).await;
    assert!(published.confirmed < 50 && published.trouble.is_some(), "{published:?}");
    assert!(!bound.arrived().await.is_empty());
    assert_eq!(bound.exchange.publish(&messages(&["entry.new.1"; 2])).await.confirmed, 2);
    bound.end().await;
}

#[tokio::test]
async fn an_exchange_that_somebody_declared_otherwise_disturbs_no_queue() {
    let queue = TestQueue::<FetchReport>::make().await;
    let (_connection, channel) = bare().await;
    let name = format!("{}.events", queue.namespace);
    let declared = channel.exchange_declare(
        name.as_str().into(),
        lapin::ExchangeKind::Fanout,
        Default::default(),
        FieldTable::default(),
    );
    declared.await.unwrap();
    let lines = Lines::heard();
    let before = queue.broker.links.publishing.view().live().unwrap().number();
    let mut exchange = queue.broker.events();
    for n in 0..20 {
        let published = exchange.publish(&messages(&["entry.new.1"])).await;
        assert!(published.confirmed == 0 && published.trouble.is_some());
        queue.publish(&[report(n)]).await.unwrap();
    }
    assert_eq!(queue.broker.links.publishing.view().live().unwrap().number(), before);
    assert!(!lines.levels().contains(&tracing::Level::WARN), "{:?}", lines.levels());
    channel.exchange_delete(name.as_str().into(), ExchangeDeleteOptions::default()).await.unwrap();
    // What was wrong with the exchange was its channel's trouble, not its connection's.
    assert_eq!(exchange.publish(&messages(&["entry.new.1"])).await.confirmed, 1);
    channel.exchange_delete(name.as_str().into(), ExchangeDeleteOptions::default()).await.unwrap();
    queue.end().await;
}
