//! A cluster as users run it: roles as processes with PostgreSQL, Redis and RabbitMQ.

mod clocks;
mod consumers;
mod deliveries;
mod failover;
mod failover_postgres;
mod failover_rabbitmq;
mod failover_redis;
mod forged_gate;
pub(crate) mod harness;
mod imports;
mod kills;
mod load;
mod outages;
mod privileges;
mod readiness;
mod recorded;
mod recovery;
mod relay;
mod reload;
mod replays;
mod requeue;
mod restarts;
mod rules;
mod shape;
mod tls;
mod upgrades;
