//! Refuses parameters and bodies where none is read: who sends one means something else than would be done. Which operations read
//! what is in the description of the API, which the tests compare with the handlers.

use std::collections::HashSet;
use std::sync::LazyLock;

use axum::extract::{MatchedPath, Request};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::api::openapi;
use crate::error::ApiError;
use crate::request::{self, MAX_BODY_BYTES, Params};

/// The operations that read parameters, and those that read a body: method and path.
struct Reading {
    parameters: HashSet<(String, String)>,
    bodies: HashSet<(String, String)>,
}

static READING: LazyLock<Reading> = LazyLock::new(|| {
    let document = openapi::written();
    let shared = &document["components"]["parameters"];
    let is_query = |parameter: &Value| {
        let name = parameter["$ref"].as_str().and_then(|reference| reference.rsplit('/').next());
        name.map_or(parameter, |name| &shared[name])["in"] == "query"
    };
    let paths = document["paths"].as_object().into_iter().flatten();
    let operations = paths.flat_map(|(path, item)| {
        let item = item.as_object().into_iter().flatten();
        item.map(move |(method, operation)| ((method.to_ascii_uppercase(), path.clone()), operation))
    });
    let mut reading = Reading { parameters: HashSet::new(), bodies: HashSet::new() };
    for (operation, described) in operations {
        if described["parameters"].as_array().into_iter().flatten().any(is_query) {
            reading.parameters.insert(operation.clone());
        }
        if described.get("requestBody").is_some() {
            reading.bodies.insert(operation);
        }
    }
    reading
});

/// What has no fields.
#[derive(Deserialize)]
struct Nothing {}

/// Refuses what the operation does not read. `{}` and `null` mean no body: some clients always send one of them.
pub(super) async fn refuse(path: MatchedPath, request: Request, next: Next) -> Result<Response, ApiError> {
    let method = if *request.method() == Method::HEAD { Method::GET } else { request.method().clone() };
    let operation = (method.to_string(), path.as_str().to_owned());
    if !READING.parameters.contains(&operation) {
        let Params(Nothing {}) = Params::of(request.uri())?;
    }
    if method == Method::GET || READING.bodies.contains(&operation) {
        return Ok(next.run(request).await);
    }
    let (parts, body) = request.into_parts();
    let bytes = request::body_bytes(Request::new(body), &(), MAX_BODY_BYTES).await?;
    let fields = if matches!(bytes.trim_ascii(), b"" | b"null") { Map::new() } else { request::object(&bytes)? };
    if let Some(field) = fields.keys().next() {
        request::refuse_unknown(field, &[], "field")?;
    }
    Ok(next.run(Request::from_parts(parts, axum::body::Body::empty())).await)
}
