//! From a body to what the report carries: decoded, compared, parsed, reduced to what is new, held within its size.
//!
//! Uses the processor only; runs on a thread for blocking work.

use common::entry::Entry;
use common::feed::{ContentHash, Validators};
use common::known::KnownEntries;
use common::report::{Document, Outcome};

use crate::decode::{Coding, DecodeLimits, decode};
use crate::failure::Failure;
use crate::parse::{PARSER_VERSION, ParseLimits, ParsedFeed, parse};

/// A good answer's body, and what it is compared with.
pub(crate) struct Answer {
    pub(crate) wire: Vec<u8>,
    pub(crate) codings: Vec<Coding>,
    pub(crate) content_type: Option<String>,
    /// Where the body came from, after redirects.
    pub(crate) url: String,
    /// The answer's own.
    pub(crate) validators: Validators,
    /// Of the last accepted body.
    pub(crate) known_hash: Option<ContentHash>,
    /// Of the job.
    pub(crate) known: KnownEntries,
}

/// What reading one body may cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadLimits {
    pub(crate) decode: DecodeLimits,
    pub(crate) parse: ParseLimits,
    pub(crate) max_report_bytes: usize,
}

/// What a body came to, and how many bytes it had after decoding.
pub(crate) fn read(answer: Answer, limits: &ReadLimits) -> (Outcome, u64) {
    let body = match decode(answer.wire, &answer.codings, limits.decode) {
        Ok(body) => body,
        Err(error) => return (Failure::from(error).into(), 0),
    };
    let bytes = body.len() as u64;
    let hash = ContentHash::of(&body, PARSER_VERSION);
    if answer.known_hash == Some(hash) {
        return (Outcome::NotModified { validators: answer.validators }, bytes);
    }
    let outcome = match parse(&body, answer.content_type.as_deref(), &answer.url, &limits.parse) {
        Ok(feed) => {
            let mut document = document(feed, &answer.known);
            document.validators = answer.validators;
            document.content_hash = Some(hash);
            hold_within(&mut document, &answer.known, limits.max_report_bytes);
            Outcome::Modified(Box::new(document))
        }
        Err(error) => Failure::from(error).into(),
    };
    (outcome, bytes)
}

fn document(feed: ParsedFeed, known: &KnownEntries) -> Document {
    let ParsedFeed { title, link, hints, hub, self_link, cloud, entries, .. } = feed;
    let mut document = Document { title, link, hints, hub, self_link, cloud, ..Document::default() };
    document.keep_news(entries, known);
    document
}

/// Bytes that an entry takes in a message beside its texts: names, quotes, times.
const ENTRY_OVERHEAD: usize = 200;

/// Keeps the entries' size in a message under the limit: content is left out first, then summaries, from the document's
/// end on; entries only when that does not help. An entry that was left out is not known either, so that the next
/// document that holds it brings it.
fn hold_within(document: &mut Document, known: &KnownEntries, max_bytes: usize) {
    let mut total: usize = document.entries.iter().map(weight).sum();
    for field in [|entry: &mut Entry| entry.content.take(), |entry: &mut Entry| entry.summary.take()] {
        for entry in document.entries.iter_mut().rev() {
            if total <= max_bytes {
                return;
            }
            if let Some(text) = field(entry) {
                total -= escaped_len(&text);
                entry.cut = true;
            }
        }
    }
    let mut left_out = Vec::new();
    while total > max_bytes {
        let Some(entry) = document.entries.pop() else { break };
        total -= weight(&entry);
        left_out.push(entry);
    }
    if !left_out.is_empty() {
        forget(document, known, &left_out);
    }
}

fn forget(document: &mut Document, known: &KnownEntries, left_out: &[Entry]) {
    let gone: Vec<_> = left_out.iter().map(Entry::fingerprint).collect();
    document.known = document.known.without(&gone);
    let new = gone.iter().filter(|fingerprint| !known.knows_identity(**fingerprint)).count();
    document.new_entries = document.new_entries.saturating_sub(u32::try_from(new).unwrap_or(u32::MAX));
}

/// About the bytes of an entry as JSON.
fn weight(entry: &Entry) -> usize {
    let texts = [&entry.url, &entry.title, &entry.author, &entry.summary, &entry.content];
    let enclosures = entry.enclosures.iter().map(|enclosure| escaped_len(&enclosure.url) + ENTRY_OVERHEAD);
    ENTRY_OVERHEAD
        + escaped_len(&entry.id)
        + texts.into_iter().flatten().map(|text| escaped_len(text)).sum::<usize>()
        + enclosures.sum::<usize>()
}

/// A text's length as a JSON string.
fn escaped_len(text: &str) -> usize {
    let escaped = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' => 2,
        0..0x20 => 6,
        _ => 1,
    };
    text.bytes().map(escaped).sum()
}
