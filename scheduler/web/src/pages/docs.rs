//! `/docs/api`: the API's description as a page, rendered in the browser by RapiDoc, which is compiled in
//! (`third-party/rapidoc`). It loads nothing but `/openapi.json`.

use std::io::Read;

use askama::Template;
use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use flate2::read::GzDecoder;
use tokio::sync::OnceCell;

use super::frame::{Frame, answer};
use crate::error::ApiError;
use crate::state::{Api, State};

const SCRIPT: &[u8] = include_bytes!("../../third-party/rapidoc/rapidoc-min.js.gz");
/// The name of the script among the assets, and its version.
pub(super) const NAME: &str = "rapidoc.js";
const VERSION: &str = "9.3.8";

/// RapiDoc writes styles into its elements. They cannot load or send anything: there is no other source than this server.
const POLICY: &str = "default-src 'none'; style-src 'self' 'unsafe-inline'; script-src 'self'; connect-src 'self'; \
                      img-src 'self' data:; font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

#[derive(Template)]
#[template(path = "pages/docs.html")]
struct DocsPage {
    frame: Frame,
    script: String,
    needs_token: bool,
}

/// `GET /docs/api`
pub(super) async fn page(State(api): State<Api>, frame: Frame) -> Result<Response, ApiError> {
    let script = format!("assets/{NAME}?v={VERSION}");
    let needs_token = api.sessions.needs_token();
    let mut page = answer(StatusCode::OK, &DocsPage { frame: frame.around("docs"), script, needs_token })?;
    page.headers_mut().insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    Ok(page)
}

/// The script: as it is compiled in, and unpacked once somebody wants it so.
#[derive(Default)]
pub(super) struct Script(OnceCell<Bytes>);

impl Script {
    /// Returns the script, compressed for those that accept that: every browser.
    pub(super) async fn answer(&self, asked: &HeaderMap) -> Result<Response, ApiError> {
        let is_javascript = (header::CONTENT_TYPE, HeaderValue::from_static("text/javascript; charset=utf-8"));
        let mut response = if accepts_gzip(asked) {
            ([is_javascript, (header::CONTENT_ENCODING, HeaderValue::from_static("gzip"))], SCRIPT).into_response()
        } else {
            ([is_javascript], self.0.get_or_try_init(unpacked).await?.clone()).into_response()
        };
        response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept-encoding"));
        Ok(response)
    }
}

async fn unpacked() -> Result<Bytes, ApiError> {
    let failed = || ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the script could not be unpacked");
    let unpack = || {
        let mut script = Vec::new();
        GzDecoder::new(SCRIPT).read_to_end(&mut script).map(|_| Bytes::from(script))
    };
    tokio::task::spawn_blocking(unpack).await.map_err(|_| failed())?.map_err(|_| failed())
}

/// Returns whether a client accepts gzip (RFC 9110, section 12.5.3): by its name, or by `*`, and not with a weight of zero.
fn accepts_gzip(asked: &HeaderMap) -> bool {
    let lines = asked.get_all(header::ACCEPT_ENCODING).iter().filter_map(|line| line.to_str().ok());
    let (mut named, mut any) = (None, None);
    for coding in lines.flat_map(|line| line.split(',')) {
        let mut parts = coding.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default().to_ascii_lowercase();
        let weight =
            parts.filter_map(|part| part.split_once('=')).find(|(name, _)| name.trim().eq_ignore_ascii_case("q"));
        let weight = weight.map_or(Ok(1.0), |(_, weight)| weight.trim().parse::<f64>());
        let accepted = weight.is_ok_and(|weight| weight > 0.0);
        match name.as_str() {
            "gzip" | "x-gzip" => named = Some(accepted),
            "*" => any = Some(accepted),
            _ => {}
        }
    }
    named.or(any).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_sent_to_clients_that_accept_it() {
        for (accepted, expected) in [
            ("gzip", true),
            ("br, GZIP;q=0.5", true),
            ("x-gzip", true),
            ("*", true),
            ("gzip;q=0", false),
            ("gzip; q=0.000, br", false),
            ("*;q=0", false),
            ("gzip;q=0, *", false),
            ("gzip;q=high", false),
            ("identity", false),
            ("", false),
        ] {
            let asked = HeaderMap::from_iter([(header::ACCEPT_ENCODING, HeaderValue::from_static(accepted))]);
            assert_eq!(accepts_gzip(&asked), expected, "{accepted}");
        }
        assert!(!accepts_gzip(&HeaderMap::new()));
    }

    #[tokio::test]
    async fn the_script_is_unpacked_once_for_all_who_want_it_so() {
        let script = Script::default();
        let mut bodies = Vec::new();
        for _ in 0..2 {
            let response = script.answer(&HeaderMap::new()).await.unwrap();
            assert!(!response.headers().contains_key(header::CONTENT_ENCODING));
            bodies.push(axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap());
        }
        assert_eq!(bodies[0].as_ptr(), bodies[1].as_ptr(), "both are the same bytes");
        assert!(bodies[0].len() > SCRIPT.len());
    }
}
