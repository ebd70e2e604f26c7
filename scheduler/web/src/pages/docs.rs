//! `/docs/api`: the API's description as a page, rendered in the browser by RapiDoc, which is compiled in
//! (`third-party/rapidoc`). It loads nothing but `/openapi.json`.

use std::io::Read;

use askama::Template;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use flate2::read::GzDecoder;

use super::frame::{Frame, answer};
use crate::error::ApiError;
use crate::state::Api;

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

/// The script, compressed for those that take it so: every browser.
pub(super) fn script(asked: &HeaderMap) -> Result<Response, ApiError> {
    let accepted = asked.get(header::ACCEPT_ENCODING).and_then(|codings| codings.to_str().ok()).unwrap_or_default();
    let is_javascript = (header::CONTENT_TYPE, HeaderValue::from_static("text/javascript; charset=utf-8"));
    let mut response = if accepted.contains("gzip") {
        ([is_javascript, (header::CONTENT_ENCODING, HeaderValue::from_static("gzip"))], SCRIPT).into_response()
    } else {
        let mut script = Vec::new();
        let failed = |_| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the script could not be unpacked");
        GzDecoder::new(SCRIPT).read_to_end(&mut script).map_err(failed)?;
        ([is_javascript], script).into_response()
    };
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    Ok(response)
}
