//! A feed as a file of subscriptions names it.

use serde_json::{Map, Value};

/// A feed in a file.
#[derive(Debug)]
pub(crate) struct Subscription {
    /// Its line, from 1.
    pub(crate) line: usize,
    /// What stands there for its address; may be anything.
    pub(crate) url: String,
    /// Further fields, under the names of the API's; may be anything.
    pub(crate) fields: Map<String, Value>,
}
