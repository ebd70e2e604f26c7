//! Events on their way to consumers: followed in the store, relayed to the exchange.

pub mod follow;
mod headers;
pub mod relay;
