//! Reads what callers send: query parameters and JSON bodies. An unknown name is refused, with the nearest known one,
//! so that a mistyped field never passes as a default.

use std::fmt::Display;
use std::str::FromStr;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, Uri, header};
use common::suggest::{field_names, nearest};
use common::url::FeedId;
use common::words::plain;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::error::ApiError;

/// The maximum size of a request's body in bytes. A feed's fields are far smaller.
pub(crate) const MAX_BODY_BYTES: usize = 64 * 1024;

/// A body or a query that can say, for each of its fields, what is accepted.
pub(crate) trait Accepts: DeserializeOwned {
    /// Returns what the field must be, to follow "must be".
    fn accepts(field: &str) -> &'static str;

    /// Returns the fields that are read.
    fn fields() -> &'static [&'static str] {
        field_names::<Self>()
    }
}

/// A JSON object, every field of which may be left out as far as serde is concerned.
#[derive(Debug)]
pub(crate) struct Body<T>(pub(crate) T);

impl<S: Send + Sync, T: Accepts> FromRequest<S> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        if media_type(&request) != "application/json" {
            let message = "the Content-Type header must be application/json";
            return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
        }
        let bytes = body_bytes(request, state, MAX_BODY_BYTES).await?;
        fields(object(&bytes)?).map(Body)
    }
}

/// Returns the `Content-Type` without its parameters, in lower case; empty when there is none.
pub(crate) fn media_type(request: &Request) -> String {
    let given = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    given.unwrap_or_default().split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Returns the whole body, within the limit of its route, `most` bytes.
pub(crate) async fn body_bytes<S: Send + Sync>(request: Request, state: &S, most: usize) -> Result<Bytes, ApiError> {
    let refused = |rejection: BytesRejection| {
        let message = match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => format!("the body is too large; it must be at most {most} bytes"),
            _ => "the body broke off before its end".to_owned(),
        };
        ApiError::new(rejection.status(), message)
    };
    Bytes::from_request(request, state).await.map_err(refused)
}

/// Returns a body as a JSON object whose fields are not read yet.
pub(crate) fn object(bytes: &[u8]) -> Result<Map<String, Value>, ApiError> {
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(ApiError::bad("the body must be a JSON object")),
        Err(error) => Err(ApiError::bad(format!("the body is not valid JSON: {error}"))),
    }
}

/// Reads an object's fields strictly.
pub(crate) fn fields<T: Accepts>(object: Map<String, Value>) -> Result<T, ApiError> {
    let known = T::fields();
    for (field, value) in &object {
        refuse_unknown(field, known, "field")?;
        let alone = Map::from_iter([(field.clone(), value.clone())]);
        if serde_json::from_value::<T>(Value::Object(alone)).is_err() {
            return Err(ApiError::bad(format!("{field} must be {}", T::accepts(field))));
        }
    }
    serde_json::from_value(Value::Object(object))
        .map_err(|error| ApiError::bad(format!("the body is not read: {error}")))
}

/// Query parameters; all fields are optional texts.
#[derive(Debug)]
pub(crate) struct Params<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        Params::of(&parts.uri)
    }
}

impl<T: DeserializeOwned> Params<T> {
    /// Reads the query of an address.
    pub(crate) fn of(uri: &Uri) -> Result<Self, ApiError> {
        let unreadable = |_| ApiError::bad("the query string is not readable; write name=value&name=value");
        let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri).map_err(unreadable)?;
        let known = field_names::<T>();
        for (name, _) in &pairs {
            refuse_unknown(name, known, "parameter")?;
        }
        let Query(params) = Query::<T>::try_from_uri(uri)
            .map_err(|_| ApiError::bad("a query parameter is given twice; give each once"))?;
        Ok(Params(params))
    }
}

/// Characters of an unknown name that a refusal repeats.
const NAME: usize = 100;

/// Refuses a name that is not known, and names the nearest one.
pub(crate) fn refuse_unknown(name: &str, known: &[&str], what: &str) -> Result<(), ApiError> {
    if known.contains(&name) {
        return Ok(());
    }
    let near = nearest(name, known.iter().copied());
    // One character more than is repeated, however many bytes each has: then it shows that there is more.
    let name = plain(&name[..name.floor_char_boundary(4 * (NAME + 1))], NAME);
    Err(ApiError::bad(match (near, known.is_empty()) {
        (Some(near), _) => format!("unknown {what} {name}; did you mean {near}?"),
        (None, true) => format!("unknown {what} {name}; none is read here"),
        (None, false) => format!("unknown {what} {name}; one of {}", known.join(", ")),
    })
    .coded(if what == "field" { "unknown_field" } else { "unknown_parameter" }))
}

/// Returns a query parameter as its type, or a refusal that says what it must be.
pub(crate) fn parsed<T: FromStr>(name: &str, text: Option<&str>, accepted: &str) -> Result<Option<T>, ApiError> {
    let parse = |text: &str| text.parse().map_err(|_| ApiError::bad(format!("{name} must be {accepted}")));
    text.map(parse).transpose()
}

/// Returns a number of items from 1 to `most`.
pub(crate) fn limit(text: Option<&str>, default: u32, most: u32) -> Result<u32, ApiError> {
    let accepted = format!("a whole number from 1 to {most}");
    let limit = parsed("limit", text, &accepted)?.unwrap_or(default);
    if (1..=most).contains(&limit) { Ok(limit) } else { Err(ApiError::bad(format!("limit must be {accepted}"))) }
}

/// The `{id}` of the path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathId(pub(crate) FeedId);

impl<S: Send + Sync> FromRequestParts<S> for PathId {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let not_a_number = || ApiError::bad("a feed's id must be a whole number; /api/v1/feeds/lookup?url= finds it");
        let Path(id) = Path::<i64>::from_request_parts(parts, state).await.map_err(|_| not_a_number())?;
        Ok(PathId(FeedId(id)))
    }
}

/// A value that its own error explains.
pub(crate) fn explained<T: FromStr<Err: Display>>(name: &str, text: &str) -> Result<T, ApiError> {
    text.parse().map_err(|error| ApiError::bad(format!("{name}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    struct Sample {
        #[serde(default)]
        subscribers: Option<u32>,
    }

    impl Accepts for Sample {
        fn accepts(_: &str) -> &'static str {
            "a whole number"
        }
    }

    fn message(body: &str) -> String {
        object(body.as_bytes()).and_then(fields::<Sample>).unwrap_err().to_string()
    }

    #[test]
    fn a_body_is_read_strictly_and_refusals_name_the_field() {
        assert_eq!(fields::<Sample>(object(b"{\"subscribers\": 3}").unwrap()).unwrap().subscribers, Some(3));
        assert_eq!(message("{\"subscriber\": 3}"), "unknown field subscriber; did you mean subscribers?");
        assert_eq!(message("{\"colour\": 3}"), "unknown field colour; one of subscribers");
        assert_eq!(message("{\"subscribers\": -1}"), "subscribers must be a whole number");
        assert_eq!(message("[]"), "the body must be a JSON object");
        assert!(message("{").starts_with("the body is not valid JSON"));
    }

    #[test]
    fn a_name_of_megabytes_is_refused_at_once_and_not_repeated() {
        for letter in ["s", "\u{1f300}"] {
            let begun = std::time::Instant::now();
            let refused = message(&format!("{{\"{}\": 3}}", letter.repeat(1 << 20)));
            assert_eq!(refused, format!("unknown field {}…; one of subscribers", letter.repeat(NAME)));
            assert!(begun.elapsed() < std::time::Duration::from_secs(10), "{:?}", begun.elapsed());
        }
    }

    #[test]
    fn a_limit_stays_in_its_bounds() {
        assert_eq!(limit(None, 100, 1000).unwrap(), 100);
        assert_eq!(limit(Some("1000"), 100, 1000).unwrap(), 1000);
        for wrong in ["0", "1001", "-1", "many", ""] {
            let message = limit(Some(wrong), 100, 1000).unwrap_err().to_string();
            assert_eq!(message, "limit must be a whole number from 1 to 1000");
        }
    }
}
