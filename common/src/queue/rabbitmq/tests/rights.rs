//! What the roles' users may do at a broker, and what a worker's may not.

use lapin::options::{
    BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions, ExchangeDeclareOptions, ExchangeDeleteOptions,
    QueueBindOptions, QueueDeclareOptions, QueueDeleteOptions, QueuePurgeOptions,
};
use lapin::types::FieldTable;
use lapin::{BasicProperties, ExchangeKind};

use super::own_broker::OwnBroker;
use super::*;
use crate::job::FetchJob;
use crate::queue::{Announce, conformance};
use crate::report::FetchReport;

const PREFETCH: Prefetch = Prefetch::Unacked(50);

async fn permitted(broker: &OwnBroker, user: &str, rights: &Rights) {
    broker.control(&["add_user", user, user]).await;
    broker.control(&["set_permissions", "-p", "/", user, &rights.configure, &rights.write, &rights.read]).await;
}

fn as_user(broker: &OwnBroker, user: &str) -> String {
    broker.url().replace("guest:guest", &format!("{user}:{user}"))
}

async fn refusal(url: &str, act: impl AsyncFnOnce(&Channel) -> Result<(), lapin::Error>) -> String {
    let connection = Connection::connect(url, ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    match act(&channel).await {
        Ok(()) => "done".into(),
        Err(error) => error.to_string(),
    }
}

async fn published(channel: &Channel, exchange: &str, key: &str) -> Result<(), lapin::Error> {
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    let (options, properties) = (BasicPublishOptions::default(), BasicProperties::default());
    channel.basic_publish(exchange.into(), key.into(), options, b"{}", properties).await?.await.map(drop)
}

#[tokio::test]
async fn the_roles_work_with_their_rights_alone_and_a_worker_can_do_nothing_else() {
    let own = OwnBroker::start().await;
    permitted(&own, "s", &Rights::of_scheduler("fleet")).await;
    permitted(&own, "w", &Rights::of_worker("fleet", false)).await;
    permitted(&own, "other", &Rights::of_scheduler("another")).await;
    let (scheduler_url, worker_url) = (as_user(&own, "s"), as_user(&own, "w"));
    let metrics = Metrics::new();

    // A worker that is there first waits, and says for what.
    let workers = Broker::connect(&ServerConfig::at(&worker_url), "fleet", &metrics).unwrap().declaring_nothing();
    let (jobs, reports) = (workers.queue::<FetchJob>(PREFETCH), workers.queue::<FetchReport>(PREFETCH));
    workers.links.consuming.view().up().await.unwrap();
    workers.links.publishing.view().up().await.unwrap();
    for refused in [jobs.check().await, reports.publish(&[conformance::report(1)]).await] {
        let text = crate::causes::causes(&refused.unwrap_err());
        assert!(text.contains("a scheduler declares it"), "{text}");
    }
    let waiting = async { jobs.receive().await.unwrap() };
    let schedulers = patient(&scheduler_url, "fleet", &metrics);
    let (to_workers, from_workers) =
        (schedulers.queue::<FetchJob>(PREFETCH), schedulers.queue::<FetchReport>(PREFETCH));
    let sending = async { to_workers.publish(&[conformance::job(1)]).await.unwrap() };
    let (delivery, ()) = tokio::join!(waiting, sending);
    assert_eq!(delivery.items, [conformance::job(1)]);
    delivery.ack().await.unwrap();
    let receiving = async { from_workers.receive().await.unwrap() };
    let reporting = async {
        while reports.publish(&[conformance::report(1)]).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let (delivery, ()) = tokio::join!(receiving, reporting);
    assert_eq!(delivery.items, [conformance::report(1)]);
    delivery.ack().await.unwrap();
    for ready in [jobs.check().await, reports.check().await, to_workers.check().await, from_workers.check().await] {
        ready.unwrap();
    }
    assert_eq!(jobs.dead_letters().await.unwrap(), 0);
    // Jobs with logins have a separate queue, which this worker may not read.
    schedulers.queue_of_logins(PREFETCH).depth().await.unwrap();
    // Its events have an exchange that only schedulers publish to.
    let announced = schedulers.events().publish(&[]).await;
    assert!(announced.trouble.is_none(), "{:?}", announced.trouble);
    // Another namespace of the same virtual host.
    let others = patient(&as_user(&own, "other"), "another", &metrics);
    others.queue::<FetchJob>(PREFETCH).publish(&[conformance::job(2)]).await.unwrap();

    let none = FieldTable::default;
    let mut tried = Vec::new();
    for name in ["fleet.jobs", "fleet.reports", "fleet.jobs.dead", "another.jobs"] {
        let delete = async |on: &Channel| on.queue_delete(name.into(), QueueDeleteOptions::default()).await.map(drop);
        tried.push((format!("delete {name}"), refusal(&worker_url, delete).await));
        let direct = async |on: &Channel| published(on, "", name).await;
        tried.push((format!("publish to {name} directly"), refusal(&worker_url, direct).await));
    }
    for name in ["fleet.reports", "fleet.reports.dead", "fleet.jobs.dead", "fleet.jobs.logins", "another.jobs"] {
        let get = async |on: &Channel| on.basic_get(name.into(), BasicGetOptions::default()).await.map(drop);
        tried.push((format!("read {name}"), refusal(&worker_url, get).await));
        let purge = async |on: &Channel| on.queue_purge(name.into(), QueuePurgeOptions::default()).await.map(drop);
        tried.push((format!("purge {name}"), refusal(&worker_url, purge).await));
    }
    for name in ["fleet.more", "fleet.jobs", ""] {
        let declare =
            async |on: &Channel| on.queue_declare(name.into(), QueueDeclareOptions::durable(), none()).await.map(drop);
        tried.push((format!("declare queue '{name}'"), refusal(&worker_url, declare).await));
    }
    for name in ["fleet.events", "amq.topic", "amq.fanout", "another.reports"] {
        let publish = async |on: &Channel| published(on, name, "entry.new.1").await;
        tried.push((format!("publish to exchange {name}"), refusal(&worker_url, publish).await));
    }
    let exchange = async |on: &Channel| {
        on.exchange_declare("fleet.x".into(), ExchangeKind::Direct, ExchangeDeclareOptions::default(), none()).await
    };
    tried.push(("declare an exchange".into(), refusal(&worker_url, exchange).await));
    let delete =
        async |on: &Channel| on.exchange_delete("fleet.reports".into(), ExchangeDeleteOptions::default()).await;
    tried.push(("delete an exchange".into(), refusal(&worker_url, delete).await));
    for (queue, from) in
        [("fleet.jobs", "fleet.reports"), ("fleet.reports", "fleet.events"), ("fleet.reports", "amq.topic")]
    {
        let bind = async |on: &Channel| {
            on.queue_bind(queue.into(), from.into(), "#".into(), QueueBindOptions::default(), none()).await
        };
        tried.push((format!("bind {queue} to {from}"), refusal(&worker_url, bind).await));
    }
    for (what, became) in &tried {
        assert!(became.contains("ACCESS_REFUSED") || became.contains("ACCESS-REFUSED"), "{what}: {became}");
    }
    assert_eq!(tried.len(), 30);
    for broker in [workers, schedulers, others] {
        broker.close().await;
    }
}

#[tokio::test]
async fn a_right_that_is_missing_is_reported_until_it_is_there() {
    let own = OwnBroker::start().await;
    permitted(&own, "s", &Rights::of_scheduler("fleet")).await;
    let none = Rights { write: "^$".into(), read: "^$".into(), ..Rights::of_worker("fleet", false) };
    permitted(&own, "w", &none).await;
    let metrics = Metrics::new();
    let schedulers = patient(&as_user(&own, "s"), "fleet", &metrics);
    schedulers.queue::<FetchJob>(PREFETCH).publish(&[conformance::job(1)]).await.unwrap();
    schedulers.queue::<FetchReport>(PREFETCH).depth().await.unwrap();
    let worker = patient(&as_user(&own, "w"), "fleet", &metrics).declaring_nothing();
    let (jobs, reports) = (worker.queue::<FetchJob>(PREFETCH), worker.queue::<FetchReport>(PREFETCH));
    worker.links.consuming.view().up().await.unwrap();
    worker.links.publishing.view().up().await.unwrap();
    for ready in [jobs.check().await, reports.check().await] {
        ready.unwrap();
    }
    reports.publish(&[conformance::report(1)]).await.unwrap_err();
    let granted = async {
        while jobs.check().await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        for refusal in [jobs.check().await, reports.check().await] {
            let why = crate::causes::causes(&refusal.unwrap_err());
            assert!(why.contains("this user's rights") && why.contains("fleet."), "{why}");
        }
        let all = Rights::of_worker("fleet", false);
        own.control(&["set_permissions", "-p", "/", "w", &all.configure, &all.write, &all.read]).await;
    };
    let both = async { tokio::join!(async { jobs.receive().await.unwrap() }, granted) };
    let (delivery, ()) = tokio::time::timeout(Duration::from_secs(120), both).await.expect("it is reported");
    assert_eq!(delivery.items, [conformance::job(1)]);
    delivery.ack().await.unwrap();
    while reports.publish(&[conformance::report(1)]).await.is_err() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for ready in [jobs.check().await, reports.check().await] {
        ready.unwrap();
    }
    for broker in [worker, schedulers] {
        broker.close().await;
    }
}

#[tokio::test]
async fn a_worker_publishes_as_before_while_only_schedulers_of_an_earlier_version_declare() {
    let earlier = TestQueue::<FetchReport>::make().await;
    // As the version before declares them: both queues, and no exchange.
    earlier.publish(&[conformance::report(1)]).await.unwrap();
    let (_connection, channel) = bare().await;
    let name = format!("{}.reports", earlier.namespace);
    channel.exchange_delete(name.as_str().into(), ExchangeDeleteOptions::default()).await.unwrap();
    let worker = patient(&url(), &earlier.namespace, &earlier.metrics).declaring_nothing();
    let reports = worker.queue::<FetchReport>(PREFETCH);
    reports.publish(&[conformance::report(2)]).await.unwrap();
    let gone = channel.exchange_declare(
        name.as_str().into(),
        ExchangeKind::Direct,
        ExchangeDeclareOptions { passive: true, ..ExchangeDeclareOptions::default() },
        FieldTable::default(),
    );
    assert!(gone.await.is_err(), "it declared an exchange");
    for number in [1, 2] {
        let delivery = earlier.receive().await.unwrap();
        assert_eq!(delivery.items, [conformance::report(number)]);
        delivery.ack().await.unwrap();
    }
    worker.close().await;
    // For the end of the queue of jobs.
    earlier.broker.queue::<FetchJob>(PREFETCH).depth().await.unwrap();
    earlier.end().await;
}
