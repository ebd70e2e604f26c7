//! What went over the wire in one fetch, for people who want to see it. The fleet itself keeps none of this.

use std::time::Duration;

use common::url::FeedUrl;
use http::header::HeaderMap;
use http::{Response, Version};

/// One request and its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// The requested URL.
    pub url: FeedUrl,
    /// The request's fields, in the order in which they were made; `Host` is added on the way.
    pub request: Vec<Field>,
    /// The answer's head; `None` when none came.
    pub answer: Option<ResponseHead>,
    /// From the fetch's start to this request: waiting for the host, and the hops before.
    pub after: Duration,
    /// From the request to the end of the answer's head, dialling included.
    pub took: Duration,
}

/// The head of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseHead {
    /// Its status.
    pub status: u16,
    /// The protocol, such as `HTTP/1.1`.
    pub protocol: &'static str,
    /// Its fields as they came; bytes beyond ASCII as far as they can be shown.
    pub fields: Vec<Field>,
}

/// A header field: name, value.
pub type Field = (String, String);

/// Fields as text; what is secret is not shown.
pub(crate) fn fields(headers: &HeaderMap) -> Vec<Field> {
    let text = |value: &http::HeaderValue| match value.is_sensitive() {
        true => "***".to_owned(),
        false => String::from_utf8_lossy(value.as_bytes()).into_owned(),
    };
    headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect()
}

impl ResponseHead {
    /// An answer's.
    pub(crate) fn of<B>(response: &Response<B>) -> Self {
        let protocol = match response.version() {
            Version::HTTP_10 => "HTTP/1.0",
            Version::HTTP_2 => "HTTP/2",
            _ => "HTTP/1.1",
        };
        ResponseHead { status: response.status().as_u16(), protocol, fields: fields(response.headers()) }
    }
}
