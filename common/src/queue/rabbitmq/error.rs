//! What goes wrong between us and the broker, in words for the person who reads the log.

use lapin::ErrorKind;
use lapin::protocol::{AMQPErrorKind, AMQPSoftError};

use super::super::QueueError;

/// The source of a [`QueueError::Backend`] of this implementation.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum BrokerError {
    #[error("RabbitMQ cannot be reached: {0}")]
    Unreachable(String),
    #[error(
        "RabbitMQ accepts no messages at present: {0}; `rabbitmq-diagnostics alarms` shows which of its nodes says so"
    )]
    Blocked(String),
    #[error("RabbitMQ did not confirm in time; the message may or may not have been accepted")]
    Unconfirmed,
    #[error("RabbitMQ did not answer in time")]
    Silent,
    #[error("the connection is full of messages that wait for their confirmation")]
    WindowFull,
    #[error("the queue {0} is gone; it is declared again")]
    Unroutable(String),
    #[error("RabbitMQ refused the message")]
    Refused,
    #[error(
        "the queue {queue} exists with other settings than this program's ({reason}); let it run empty and delete it, or \
         choose another namespace"
    )]
    OtherSettings { queue: String, reason: String },
    #[error(
        "RabbitMQ has no queue or exchange {0} that this user may use; a scheduler declares it: start one of this version, and \
         check this user's rights (feedfleet setup rabbitmq --role worker)"
    )]
    Undeclared(String),
    #[error("its connection is gone; the message comes again")]
    ReceiptGone,
    #[error(transparent)]
    Client(#[from] lapin::Error),
    #[error("the message of {0} bytes is larger than RabbitMQ takes (max_message_size)")]
    TooLarge(usize),
    #[error("closed")]
    Closed,
}

impl BrokerError {
    /// Returns whether the user may not do this.
    pub(super) fn is_missing_right(&self) -> bool {
        match self {
            BrokerError::Client(error) => soft_error(error) == Some(AMQPSoftError::ACCESSREFUSED),
            BrokerError::Undeclared(_) => true,
            _ => false,
        }
    }

    /// As the seam's error, with what was being attempted.
    pub(super) fn while_doing(self, action: &'static str) -> QueueError {
        match self {
            BrokerError::Closed => QueueError::Closed,
            BrokerError::TooLarge(bytes) => QueueError::TooLarge { bytes },
            trouble => QueueError::backend(action, trouble),
        }
    }
}

/// Returns what the broker closed the channel for.
pub(super) fn soft_error(error: &lapin::Error) -> Option<AMQPSoftError> {
    match error.kind() {
        ErrorKind::ProtocolError(refusal) => match refusal.kind() {
            AMQPErrorKind::Soft(soft) => Some(soft.clone()),
            AMQPErrorKind::Hard(_) => None,
        },
        _ => None,
    }
}
