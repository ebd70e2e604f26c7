//! A feed as a file of subscriptions names it.

use common::labels::MOST_LABELS;
use serde_json::{Map, Value, json};

/// A feed in a file.
#[derive(Debug)]
pub(crate) struct Subscription {
    /// Its line, from 1.
    pub(crate) line: usize,
    /// What stands there for its address; may be anything.
    pub(crate) url: String,
    /// What the file calls it.
    pub(crate) title: Option<String>,
    /// The folders that it is in, and its categories there, as labels.
    pub(crate) labels: Vec<String>,
    /// Further fields, under the names of the API's; may be anything.
    pub(crate) fields: Map<String, Value>,
}

impl Subscription {
    /// A feed of which the file says nothing but its address.
    pub(crate) fn of(line: usize, url: &str) -> Self {
        Subscription { line, url: url.to_owned(), title: None, labels: Vec::new(), fields: Map::new() }
    }

    /// Returns the line of a bulk request that adds it. Labels are added to those that a known feed has, unless the file has our
    /// own list of them.
    pub(crate) fn to_json(&self) -> Value {
        let mut object = self.fields.clone();
        object.insert("url".to_owned(), self.url.as_str().into());
        if let Some(title) = &self.title {
            object.insert("title".to_owned(), title.as_str().into());
        }
        if !self.labels.is_empty() && !object.contains_key("labels") {
            let labels = &self.labels[..self.labels.len().min(MOST_LABELS)];
            object.insert("add_labels".to_owned(), json!(labels));
        }
        Value::Object(object)
    }
}
