//! `/feeds/add`: adds feeds by their addresses, or those of an OPML file.

use askama::Template;
use axum::Extension;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::form::{Fields, object};
use super::frame::{Frame, answer, see_other};
use super::words;
use crate::api::audit::Subject;
use crate::api::bulk;
use crate::api::feeds::{self, FeedBody};
use crate::error::ApiError;
use crate::opml;
use crate::request::{Body, fields};
use crate::state::{Api, State};

/// Addresses in one form: each is stored before the next one.
const MOST_ADDRESSES: usize = 50;
/// Bytes of an OPML file: more feeds than one import may have fit in.
pub(super) const MAX_FILE: usize = 8 << 20;
/// Refused lines that are shown.
const MOST_REFUSED: usize = 20;

#[derive(Template)]
#[template(path = "pages/add.html")]
struct AddPage {
    frame: Frame,
    addresses: String,
    labels: String,
    /// What was refused, with the reason.
    refused: Vec<(String, String)>,
    more_refused: usize,
    summary: String,
    /// How long first polls are spread.
    spread: String,
}

impl AddPage {
    fn of(api: &Api, frame: Frame) -> Self {
        AddPage {
            frame: frame.around("feeds"),
            addresses: String::new(),
            labels: String::new(),
            refused: Vec::new(),
            more_refused: 0,
            summary: String::new(),
            spread: words::duration(api.ops.condition.config.get().policy.import_spread),
        }
    }
}

/// `GET /feeds/add`
pub(super) async fn page(State(api): State<Api>, frame: Frame) -> Result<Response, ApiError> {
    answer(StatusCode::OK, &AddPage::of(&api, frame))
}

/// `POST /feeds/add`: an address a line. One feed leads to its page.
pub(super) async fn add(State(api): State<Api>, frame: Frame, sent: Fields) -> Result<Response, ApiError> {
    let addresses: Vec<&str> =
        sent.get("url").unwrap_or_default().lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if addresses.is_empty() {
        return Err(ApiError::bad("url is missing; write the address of a feed, or several, one per line"));
    }
    if addresses.len() > MOST_ADDRESSES {
        let message = format!("at most {MOST_ADDRESSES} addresses at once; import an OPML file for more");
        return Err(ApiError::bad(message));
    }
    let labels: Vec<&str> = sent.get("labels").unwrap_or_default().split(',').map(str::trim).collect();
    let labels: Vec<&str> = labels.into_iter().filter(|label| !label.is_empty()).collect();
    let (mut added, mut refused) = (Vec::new(), Vec::new());
    for address in &addresses {
        let body: FeedBody = fields(object([("url", Some(json!(address))), ("add_labels", Some(json!(labels)))]))?;
        match feeds::add(State(api.clone()), Body(body)).await {
            Ok((_, Extension(subject), axum::Json(view))) => added.push((subject, view)),
            // What was added is said; the rest is left in the form.
            Err(error) if error.status().is_server_error() && !added.is_empty() => {
                let left = addresses.iter().skip(added.len() + refused.len());
                refused.extend(left.map(|address| ((*address).to_owned(), error.to_string())));
                break;
            }
            Err(error) if error.status().is_server_error() => return Err(error),
            Err(error) => refused.push(((*address).to_owned(), error.to_string())),
        }
    }
    if let ([(subject, view)], []) = (&added[..], &refused[..]) {
        let done = if view.new || view.revived { "added" } else { "known" };
        return Ok((Extension(Subject(subject.0.clone())), see_other(&format!("./{}?done={done}", view.feed.id)))
            .into_response());
    }
    let new = added.iter().filter(|(_, view)| view.new).count();
    let summary = tally(new, added.len() - new, refused.len());
    let status = if added.is_empty() { StatusCode::BAD_REQUEST } else { StatusCode::OK };
    let left = refused.iter().map(|(address, _)| format!("{address}\n")).collect();
    let page = AddPage { summary, addresses: left, labels: labels.join(", "), refused, ..AddPage::of(&api, frame) };
    let subject: Vec<String> = added.iter().map(|(_, view)| view.feed.id.to_string()).collect();
    let subject = Extension(Subject(format!("feeds/{}", subject.join(","))));
    let page = answer(status, &page)?;
    Ok(if added.is_empty() { page } else { (subject, page).into_response() })
}

fn tally(new: usize, known: usize, refused: usize) -> String {
    let counted = |number: usize, what: &str| format!("{} {what}", words::count(number as u64));
    format!("{}, {}, {}.", counted(new, "added"), counted(known, "known already"), counted(refused, "refused"))
}

/// `POST /feeds/import`: a file as browsers send it.
pub(super) async fn import(State(api): State<Api>, frame: Frame, request: Request) -> Result<Response, ApiError> {
    let upload = upload(request).await?;
    let failed = |_| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the file could not be read");
    // Megabytes of XML: processor time, which the threads that accept connections must not spend.
    let found = tokio::task::spawn_blocking(move || upload.lines()).await.map_err(failed)??;
    let lines: Vec<(usize, &[u8])> = found.iter().map(|line| (line.number, line.json.as_bytes())).collect();
    let answers = bulk::settled(&api, &lines).await?;
    let (mut new, mut known, mut refused) = (0, 0, Vec::new());
    for (line, answer) in found.iter().zip(answers) {
        match answer.error {
            Some(error) => refused.push((format!("line {}: {}", line.number, line.url), error)),
            None if answer.new => new += 1,
            None => known += 1,
        }
    }
    let summary = tally(new, known, refused.len());
    let more_refused = refused.len().saturating_sub(MOST_REFUSED);
    refused.truncate(MOST_REFUSED);
    answer(StatusCode::OK, &AddPage { summary, refused, more_refused, ..AddPage::of(&api, frame) })
}

/// A file as the form sends it.
#[derive(Default)]
struct Upload {
    file: Vec<u8>,
    /// Also sets what the file says in this program's own attributes: subscribers, an SLA and the like. A file from somebody else
    /// must not.
    with_settings: bool,
}

/// A feed of a file.
struct Line {
    number: usize,
    url: String,
    /// As a bulk request takes it.
    json: String,
}

impl Upload {
    /// Returns the file's feeds, or why it is refused.
    fn lines(&self) -> Result<Vec<Line>, ApiError> {
        let refused = |error| ApiError::bad(format!("the file was not imported: {error}"));
        let found = opml::read_at_most(&text_of(&self.file), bulk::MAX_LINES).map_err(refused)?;
        let line = |mut feed: opml::Subscription| {
            if !self.with_settings {
                feed.fields.clear();
            }
            Line { number: feed.line, json: feed.to_json().to_string(), url: feed.url }
        };
        Ok(found.into_iter().map(line).collect())
    }
}

/// Reads the form.
async fn upload(request: Request) -> Result<Upload, ApiError> {
    let unreadable =
        |_| ApiError::bad("the form could not be read; send it from the page, with a file of at most 8 MB");
    let media_type = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let boundary = multer::parse_boundary(media_type.unwrap_or_default()).map_err(unreadable)?;
    let limits = multer::SizeLimit::new().whole_stream(MAX_FILE as u64).per_field(MAX_FILE as u64);
    let constraints = multer::Constraints::new().allowed_fields(vec!["file", "settings"]).size_limit(limits);
    let stream = request.into_body().into_data_stream();
    let mut form = multer::Multipart::with_constraints(stream, boundary, constraints);
    let mut upload = Upload::default();
    while let Some(field) = form.next_field().await.map_err(unreadable)? {
        match field.name() {
            Some("settings") => upload.with_settings = true,
            _ => upload.file = field.bytes().await.map_err(unreadable)?.to_vec(),
        }
    }
    match upload.file.is_empty() {
        true => Err(ApiError::bad("file is missing; choose an OPML file")),
        false => Ok(upload),
    }
}

/// The text of a file: in Unicode where it says or looks so, else in the encoding that it declares, else in that of old Windows.
fn text_of(bytes: &[u8]) -> String {
    match bytes {
        [0xFF, 0xFE, 0, 0, text @ ..] => return utf32(text, u32::from_le_bytes),
        [0, 0, 0xFE, 0xFF, text @ ..] => return utf32(text, u32::from_be_bytes),
        // Without a byte order mark.
        [b'<', 0, 0, 0, ..] => return utf32(bytes, u32::from_le_bytes),
        [0, 0, 0, b'<', ..] => return utf32(bytes, u32::from_be_bytes),
        [b'<', 0, ..] => return encoding_rs::UTF_16LE.decode(bytes).0.into_owned(),
        [0, b'<', ..] => return encoding_rs::UTF_16BE.decode(bytes).0.into_owned(),
        _ => {}
    }
    if let (Some((encoding, _)), _) | (None, Some(encoding)) =
        (encoding_rs::Encoding::for_bom(bytes), std::str::from_utf8(bytes).is_ok().then_some(encoding_rs::UTF_8))
    {
        return encoding.decode(bytes).0.into_owned();
    }
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
    let label = head.split_once("encoding=").map(|(_, rest)| rest.trim_start_matches(['"', '\'']));
    let label = label.and_then(|rest| rest.split(['"', '\'']).next()).unwrap_or_default();
    let encoding = encoding_rs::Encoding::for_label(label.as_bytes()).unwrap_or(encoding_rs::WINDOWS_1252);
    encoding.decode(bytes).0.into_owned()
}

/// [`encoding_rs`] does not know it.
fn utf32(bytes: &[u8], number: fn([u8; 4]) -> u32) -> String {
    let (characters, _) = bytes.as_chunks::<4>();
    characters.iter().map(|four| char::from_u32(number(*four)).unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_in_any_width_with_and_without_a_byte_order_mark() {
        let document =
            "<?xml version='1.0' encoding='utf-16'?>\n<opml><outline xmlUrl='https://a.example/caf\u{e9}'/></opml>";
        for mark in ["", "\u{feff}"] {
            let text = format!("{mark}{document}");
            let wide: Vec<u16> = text.encode_utf16().collect();
            let wider: Vec<u32> = text.chars().map(u32::from).collect();
            let files = [
                text.clone().into_bytes(),
                wide.iter().flat_map(|unit| unit.to_le_bytes()).collect(),
                wide.iter().flat_map(|unit| unit.to_be_bytes()).collect(),
                wider.iter().flat_map(|unit| unit.to_le_bytes()).collect(),
                wider.iter().flat_map(|unit| unit.to_be_bytes()).collect(),
            ];
            for file in files {
                let lines = Upload { file, with_settings: false }.lines().unwrap();
                let urls: Vec<&str> = lines.iter().map(|line| line.url.as_str()).collect();
                assert_eq!(urls, ["https://a.example/caf\u{e9}"]);
            }
        }
    }
}
