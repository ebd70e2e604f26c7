//! What RabbitMQ has to permit each role: patterns of names of queues and exchanges, as `rabbitmqctl set_permissions` takes them.
//!
//! Where a name is both a queue's and an exchange's, one pattern covers both. What each permission is needed for:
//! - configure: to declare;
//! - write: to publish to an exchange, to bind a queue, and, for the name `amq.default`, to declare queues whose dead letters go
//!   through the default exchange;
//! - read: to consume, to bind to an exchange, and to declare a queue with dead letters.

/// The three patterns of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    /// What it may declare and delete.
    pub configure: String,
    /// What it may publish to.
    pub write: String,
    /// What it may consume.
    pub read: String,
}

impl Rights {
    /// Schedulers declare the queues, publish jobs and events, and receive reports. With `amq.default` they may publish to any queue
    /// of the virtual host: give feedfleet a separate one.
    pub fn of_scheduler(namespace: &str) -> Self {
        let ours = format!(r"{namespace}\.((jobs|jobs\.logins|reports)(\.dead)?|events)");
        Rights {
            configure: format!("^{ours}$"),
            write: format!(r"^({ours}|amq\.default)$"),
            read: format!(r"^{namespace}\.(jobs|jobs\.logins|reports)(\.dead)?$"),
        }
    }

    /// Workers receive jobs, publish reports, and declare nothing. Those with the key to feeds' `logins` receive the jobs that need one
    /// as well.
    pub fn of_worker(namespace: &str, logins: bool) -> Self {
        let logins = if logins { r"(\.logins)?" } else { "" };
        Rights {
            configure: "^$".into(),
            write: format!(r"^{namespace}\.reports$"),
            read: format!(r"^{namespace}\.jobs{logins}$"),
        }
    }
}
