//! From a body to what the report carries: decoded, compared, parsed, reduced to what is new, held within its size.
//!
//! Uses the processor only; runs on a thread for blocking work.

use common::document::{ContentHash, Document, Validators};
use common::entry::{Entry, Fingerprint};
use common::known::KnownEntries;
use common::report::Outcome;
use url::Url;

use crate::blocked;
use crate::decode::{Codings, DecodeError, DecodeLimits, decode};
use crate::discover::{self, AnnouncedFeed};
use crate::failure::Failure;
use crate::parse::{self, Lead, PARSER_VERSION, ParseError, ParseLimits, ParsedFeed, parse};

/// A good answer's body, and what it is compared with.
pub(crate) struct Answer {
    pub(crate) wire: Vec<u8>,
    pub(crate) codings: Codings,
    pub(crate) content_type: Option<String>,
    /// Where the body came from, after redirects.
    pub(crate) url: String,
    /// The answer's own.
    pub(crate) validators: Validators,
    /// The job's: of the last answer that was whole.
    pub(crate) stored: Validators,
    /// Of the last accepted body.
    pub(crate) known_hash: Option<ContentHash>,
    /// Of the job.
    pub(crate) known: KnownEntries,
    /// What the head announces: before what the body does.
    pub(crate) announced: HubLinks,
    /// The body holds only what is new since then.
    pub(crate) delta: bool,
}

/// The links of a response's head that name its hub (WebSub, section 4).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HubLinks {
    /// The first `rel=hub`.
    pub(crate) hub: Option<String>,
    /// The first `rel=self`.
    pub(crate) self_link: Option<String>,
}

/// What reading one body may cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadLimits {
    pub(crate) decode: DecodeLimits,
    pub(crate) parse: ParseLimits,
    pub(crate) max_report_bytes: usize,
}

/// The result of reading a body.
pub(crate) struct Read {
    pub(crate) outcome: Outcome,
    /// How many it has after decoding.
    pub(crate) bytes: u64,
    /// When it is a page instead of a feed: the feeds that it announces.
    pub(crate) announced: Vec<AnnouncedFeed>,
    /// When it is neither, but says where its ActivityStreams are.
    pub(crate) lead: Option<Lead>,
    /// It is a page, not a feed.
    pub(crate) is_page: bool,
}

impl Read {
    /// Returns a result without a link to follow.
    pub(crate) fn ended(outcome: Outcome, bytes: u64) -> Self {
        Read { outcome, bytes, announced: Vec::new(), lead: None, is_page: false }
    }
}

/// Reads a body.
pub(crate) fn read(answer: Answer, limits: &ReadLimits) -> Read {
    let body = match decode(answer.wire, &answer.codings.known, limits.decode) {
        Ok(body) => body,
        Err(error) => return Read::ended(Failure::from(error).into(), 0),
    };
    let bytes = body.len() as u64;
    let hash = ContentHash::of(&body, PARSER_VERSION);
    if answer.known_hash == Some(hash) && !answer.delta {
        return Read::ended(Outcome::NotModified { validators: answer.validators }, bytes);
    }
    let (mut announced, mut lead, mut is_page) = (Vec::new(), None, false);
    let content_type = answer.content_type.as_deref();
    let parsed = parse(&body, content_type, &answer.url, &limits.parse);
    let parsed =
        parsed.or_else(|error| known_page(&body, content_type, &answer.url, &answer.known, &limits.parse).ok_or(error));
    let outcome = match parsed {
        Ok(feed) => {
            let truncated = feed.truncated;
            let mut document = document(feed, &answer.known);
            // A delta leaves out what is known.
            if answer.delta {
                (document.none_known, document.known_before) = (false, KnownEntries::default());
                let own = usize::try_from(document.all_entries).unwrap_or(usize::MAX);
                document.known = answer.known.after_delta(document.known.iter().take(own));
            }
            let linked = answer.announced;
            document.hub = linked.hub.or(document.hub);
            document.self_link = linked.self_link.or(document.self_link);
            let whole = hold_within(&mut document, &answer.known, limits.max_report_bytes);
            document.entries.reverse();
            // the new validators of a document that ends too early, or of one of which the next poll reads more, would hide the
            // rest of it behind 304
            (document.validators, document.content_hash) = match whole && !truncated {
                // the whole document that these validators belong to was never seen
                true => (answer.validators, Some(hash).filter(|_| !answer.delta)),
                false => (answer.stored, answer.known_hash),
            };
            Outcome::Modified(Box::new(document))
        }
        // What else it may be was not looked for.
        Err(_) if limits.parse.is_late() => Failure::from(ParseError::late()).into(),
        Err(error) => {
            announced = announced_by(&body, content_type, &answer.url, &limits.parse);
            // Any author can publish a page with such a mark: with a good status it says nothing of the host, and of a
            // page that announces feeds nothing at all.
            let by = if announced.is_empty() { blocked::by_page(&body) } else { None };
            if let Some(by) = by {
                return Read::ended(Failure::looks_blocked(by).into(), bytes);
            }
            lead = lead_of(&body, &announced, &limits.parse);
            is_page = discover::is_page(&body, content_type);
            match answer.codings.unknown {
                // An unreadable body must not be mistaken for something else.
                Some(unknown) if !is_page => Failure::from(DecodeError::Unknown(unknown)).into(),
                _ => Failure::from(error).into(),
            }
        }
    };
    Read { outcome, bytes, announced, lead, is_page }
}

/// A page that was read as a feed before: it stays one when it begins to announce another, because readers were not redirected.
fn known_page(
    body: &[u8],
    content_type: Option<&str>,
    url: &str,
    known: &KnownEntries,
    limits: &ParseLimits,
) -> Option<ParsedFeed> {
    let lookup = known.lookup();
    let is_known = |entry: &Entry| lookup.knows_identity(entry.fingerprint());
    let page = || parse::page(body, content_type, url, limits);
    if known.is_empty() { None } else { page().filter(|feed| feed.entries.iter().any(is_known)) }
}

/// A page's own feeds go before its author's actor.
fn lead_of(body: &[u8], announced: &[AnnouncedFeed], limits: &ParseLimits) -> Option<Lead> {
    match announced.first() {
        Some(actor) if actor.is_actor() => Some(Lead { url: actor.url.to_string(), ..Lead::default() }),
        Some(_) => None,
        None => parse::lead(body, limits),
    }
}

fn announced_by(body: &[u8], content_type: Option<&str>, url: &str, limits: &ParseLimits) -> Vec<AnnouncedFeed> {
    match Url::parse(url) {
        Ok(url) if discover::is_page(body, content_type) => {
            discover::announced_by(body, content_type, &url, limits.deadline)
        }
        _ => Vec::new(),
    }
}

fn document(feed: ParsedFeed, known: &KnownEntries) -> Document {
    let ParsedFeed { title, link, hints, hub, self_link, cloud, onward, repaired, mut entries, .. } = feed;
    let mut document = Document { title, link, hints, hub, self_link, cloud, onward, repaired, ..Document::default() };
    parse::steady(&mut entries, known);
    document.keep_news(entries, known);
    document
}

/// Bytes that an entry takes in a message beside its texts: names, quotes, times.
const ENTRY_OVERHEAD: usize = 200;
/// Bytes that a text of a list takes beside itself.
const QUOTES: usize = 3;

/// How an entry comes into a report that would be too large with all of them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Share {
    Whole,
    WithoutTexts,
    Nothing,
}

/// An entry of such a report.
struct Place {
    fingerprint: Fingerprint,
    /// The job did not know its identity.
    is_new: bool,
    weight: usize,
    share: Share,
}

/// Keeps the entries' size in a message under the limit. Entries that the store has already give way to new ones, and come as a
/// whole or not at all. Of new ones content is left out first, then summaries, from the document's end on; entries only when
/// that does not help. A new entry that was left out is not known either, so that it is new in the next document that holds it.
/// One that came without its texts, or is to wait, is known by its identity alone, so that it is new again in the next document.
/// False when the next poll is to read the document again, even if it does not change.
fn hold_within(document: &mut Document, known: &KnownEntries, max_bytes: usize) -> bool {
    let weights: Vec<usize> = document.entries.iter().map(weight).collect();
    if weights.iter().sum::<usize>() <= max_bytes {
        return true;
    }
    let known = known.polled().lookup();
    let place = |(entry, weight): (&Entry, usize)| {
        let fingerprint = entry.fingerprint();
        Place { fingerprint, is_new: !known.knows_identity(fingerprint), weight, share: Share::Whole }
    };
    // made before anything is left out: the fingerprints stand for the entries as the document has them
    let mut places: Vec<Place> = document.entries.iter().zip(weights).map(place).collect();
    let new_bytes: usize = places.iter().filter(|place| place.is_new).map(|place| place.weight).sum();
    let mut room = max_bytes.saturating_sub(new_bytes);
    for place in places.iter_mut().filter(|place| !place.is_new) {
        match room.checked_sub(place.weight) {
            Some(left) => room = left,
            None => place.share = Share::Nothing,
        }
    }
    shorten_new(&mut document.entries, &mut places, new_bytes, max_bytes);
    leave_out(document, &places)
}

/// Leaves out texts of new entries, and entries, until the rest of the new ones fits.
fn shorten_new(entries: &mut [Entry], places: &mut [Place], mut bytes: usize, max_bytes: usize) {
    for field in [|entry: &mut Entry| entry.content.take(), |entry: &mut Entry| entry.summary.take()] {
        let all = entries.iter_mut().zip(places.iter_mut()).rev();
        for (entry, place) in all.filter(|(_, place)| place.is_new) {
            if bytes <= max_bytes {
                return;
            }
            if let Some(text) = field(entry) {
                let taken = escaped_len(&text);
                (bytes, place.weight) = (bytes - taken, place.weight - taken);
                (entry.cut, place.share) = (true, Share::WithoutTexts);
            }
        }
    }
    for place in places.iter_mut().rev().filter(|place| place.is_new) {
        if bytes <= max_bytes {
            return;
        }
        bytes -= place.weight;
        place.share = Share::Nothing;
    }
}

/// Takes out the entries that get no place, and notes what is known of each. False if the next poll is to read the document
/// again: for new entries in any case, for known ones as long as each report brings some of them. Texts of new entries wait for
/// the next change of the document.
fn leave_out(document: &mut Document, places: &[Place]) -> bool {
    let those = |share: Share, is_new: bool| -> Vec<Fingerprint> {
        let alike = places.iter().filter(|place| place.share == share && place.is_new == is_new);
        alike.map(|place| place.fingerprint).collect()
    };
    let (missing, stripped) = (those(Share::Nothing, true), those(Share::WithoutTexts, true));
    let (waiting, brought) = (those(Share::Nothing, false), those(Share::Whole, false));
    let mut shares = places.iter().map(|place| place.share);
    document.entries.retain(|_| shares.next() != Some(Share::Nothing));
    document.new_entries = document.new_entries.saturating_sub(u32::try_from(missing.len()).unwrap_or(u32::MAX));
    let reduced = [&stripped[..], &waiting[..]].concat();
    document.known = document.known.without(&missing).by_identity_alone(&reduced);
    let identities = stripped.into_iter().map(Fingerprint::identity_alone);
    document.stripped = KnownEntries::default().after_document(identities);
    missing.is_empty() && (waiting.is_empty() || brought.is_empty())
}

/// About the bytes of an entry as JSON.
fn weight(entry: &Entry) -> usize {
    let thumbnails = entry.enclosures.iter().map(|enclosure| enclosure.thumbnails.len()).sum::<usize>();
    let listed = (entry.links.len() + entry.categories.len() + thumbnails) * QUOTES;
    let listed = listed + entry.enclosures.len() * ENTRY_OVERHEAD;
    ENTRY_OVERHEAD
        + listed
        + entry.details.as_ref().map_or(0, |details| details.json_bytes())
        + entry.texts().map(escaped_len).sum::<usize>()
}

/// Returns a text's length as a JSON string.
fn escaped_len(text: &str) -> usize {
    let escaped = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' => 2,
        0..0x20 => 6,
        _ => 1,
    };
    text.bytes().map(escaped).sum()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::time::Instant;

    use common::outcome::FailureKind;

    use super::*;

    fn entry(number: usize) -> Entry {
        Entry {
            id: format!("id-{number}"),
            title: Some(format!("Entry {number}")),
            summary: Some("s".repeat(1000)),
            content: Some("c".repeat(5000)),
            ..Entry::default()
        }
    }

    fn held(entries: usize, known: &KnownEntries, max_bytes: usize) -> Document {
        let mut document = Document::default();
        document.keep_news((0..entries).map(entry).collect(), known);
        hold_within(&mut document, known, max_bytes);
        document
    }

    #[test]
    fn what_fits_is_left_alone() {
        let document = held(10, &KnownEntries::default(), 1_000_000);
        assert_eq!(document.entries, (0..10).map(entry).collect::<Vec<_>>());
    }

    #[test]
    fn content_goes_before_summaries_and_these_before_entries_from_the_end_on() {
        let document = held(10, &KnownEntries::default(), 40_000);
        let with = |field: fn(&Entry) -> bool| document.entries.iter().map(field).collect::<Vec<_>>();
        let content = with(|entry| entry.content.is_some());
        assert!(content[0] && !content[9] && content.is_sorted_by(|a, b| a >= b), "{content:?}");
        assert!(document.entries.iter().all(|entry| entry.summary.is_some()));
        assert!(document.entries.iter().all(|entry| entry.cut == entry.content.is_none()));

        let tighter = held(10, &KnownEntries::default(), 8000);
        assert!(tighter.entries.iter().all(|entry| entry.content.is_none() && entry.cut));
        assert_eq!((tighter.entries.len(), tighter.new_entries), (10, 10));
        let summaries = tighter.entries.iter().filter(|entry| entry.summary.is_some()).count();
        assert!(summaries > 0 && summaries < 10, "{summaries}");
    }

    #[test]
    fn an_entry_that_was_left_out_is_not_known() {
        let before = KnownEntries::default();
        let document = held(100, &before, 5000);
        let kept = document.entries.len();
        assert!(kept > 0 && kept < 100);
        assert_eq!((document.new_entries as usize, document.known.len()), (kept, kept));
        let mut next = Document::default();
        next.keep_news((0..100).map(entry).collect(), &document.known);
        assert_eq!(next.new_entries as usize, 100 - kept, "the next document brings the rest");
    }

    /// The next document of a feed, which ends with the entry 0, held within a number of bytes; and whether it was all read.
    fn next(entries: usize, known: &KnownEntries, max_bytes: usize) -> (Document, bool) {
        let mut document = Document::default();
        document.keep_news((0..entries).rev().map(entry).collect(), known);
        let is_whole = hold_within(&mut document, known, max_bytes);
        (document, is_whole)
    }

    #[test]
    fn texts_that_did_not_fit_come_with_later_documents_and_nothing_comes_twice() {
        let (mut known, mut brought) = (KnownEntries::default(), HashSet::new());
        for (entries, new, reads_all) in [(1_500, 1_500, true), (1_501, 1, false), (1_501, 0, true), (1_502, 1, true)] {
            let (document, is_whole) = next(entries, &known, 4_000_000);
            assert_eq!((document.new_entries, is_whole), (new, reads_all));
            let stripped = document.stripped.lookup();
            for reported in &document.entries {
                let number: usize = reported.id["id-".len()..].parse().unwrap();
                if stripped.contains(Fingerprint::of_identity(&reported.id)) {
                    assert!(reported.content.is_none() && reported.cut && !brought.contains(&number));
                } else {
                    assert_eq!(reported, &entry(number));
                    assert!(brought.insert(number), "{number} comes a second time");
                }
            }
            known = document.known;
        }
        assert_eq!(brought.len(), 1_502);
        assert!(next(1_502, &known, 4_000_000).0.entries.is_empty());
    }

    #[test]
    fn new_entries_go_before_known_ones_which_wait_for_the_next_poll() {
        let before = KnownEntries::default().after_document((0..20).map(|n| entry(n).fingerprint().identity_alone()));
        // Five fit, two of which are new.
        let (document, is_whole) = next(22, &before, 33_000);
        let ids: Vec<&str> = document.entries.iter().map(|entry| entry.id.as_str()).collect();
        assert_eq!(ids, ["id-21", "id-20", "id-19", "id-18", "id-17"]);
        assert!(document.entries.iter().all(|entry| entry.content.is_some()));
        assert_eq!((document.new_entries, document.stripped.len(), is_whole), (2, 0, false));
        let (again, _) = next(22, &document.known, 33_000);
        assert_eq!((again.new_entries, again.entries[0].id.as_str()), (0, "id-16"));
        // What does not even fit alone waits for a change of the document. Otherwise each poll would read all of it.
        let (never, is_whole) = next(20, &before, 5_000);
        assert_eq!((never.entries.len(), never.new_entries, is_whole), (0, 0, true));
        assert!((0..20).all(|n| never.known.lookup().knows_identity(entry(n).fingerprint())));
        // And it does not hold up smaller ones.
        let mut mixed = Document::default();
        let large = Entry { content: Some("c".repeat(50_000)), ..entry(0) };
        mixed.keep_news([large].into_iter().chain((1..10).map(entry)).collect(), &before);
        assert!(!hold_within(&mut mixed, &before, 33_000));
        assert_eq!((mixed.entries.len(), mixed.entries[0].id.as_str()), (5, "id-1"));
    }

    #[test]
    fn the_limit_holds_for_the_message_itself() {
        for max_bytes in [3000, 20_000, 60_000] {
            let mut document = Document::default();
            let odd = |number| Entry { content: Some("\u{1}\"\\\n\u{20ac}".repeat(500)), ..entry(number) };
            document.keep_news((0..20).map(odd).collect(), &KnownEntries::default());
            hold_within(&mut document, &KnownEntries::default(), max_bytes);
            let json = serde_json::to_string(&document.entries).unwrap();
            assert!(json.len() <= max_bytes, "{} of {max_bytes}", json.len());
        }
    }

    #[test]
    fn the_limit_holds_for_documents_full_of_details() {
        let url = |n: usize| format!("https://a.example/{n}/{}", "u".repeat(2_000));
        let lists: String = (0..64)
            .map(|n| {
                let url = url(n);
                format!(
                    "<p:person href='{url}' img='{url}'>\"{n}\"</p:person><p:transcript url='{url}' type='x'/>\
                     <p:soundbite startTime='{n}' duration='1'>{n}</p:soundbite><media:content url='{url}' width='{n}' height='1'>\
                     <media:thumbnail url='{url}'/></media:content><author>{n}@a.example (\"{n}\")</author><category>{n}</category>\
                     <p:alternateEnclosure><p:source uri='{url}'/></p:alternateEnclosure><x:y{n} z='\"'/>"
                )
            })
            .collect();
        let item = |n: usize| format!("<item><guid>{n}</guid>{lists}</item>");
        let items: String = (0..20).map(item).collect();
        let feed = format!(
            "<rss xmlns:p='https://podcastindex.org/namespace/1.0'><channel><title>t</title>{lists}{items}</channel></rss>"
        );
        let feed = parse(feed.as_bytes(), None, "https://a.example/", &ParseLimits::default()).unwrap();
        let about = serde_json::to_string(&feed.onward).unwrap().len();
        assert!(about < 64 * 1024, "{about}");
        let known = KnownEntries::default();
        for max_bytes in [500_000, 1_000_000, 4_000_000] {
            let mut document = document(feed.clone(), &known);
            hold_within(&mut document, &known, max_bytes);
            let json = serde_json::to_string(&document.entries).unwrap();
            assert!(!document.entries.is_empty() && json.len() <= max_bytes, "{} of {max_bytes}", json.len());
        }
        let most = feed.entries.iter().map(|entry| entry.details.as_ref().unwrap().json_bytes()).max();
        assert!(most.is_some_and(|most| most < 64 * 1024), "{most:?}");
    }

    fn answer(wire: &[u8]) -> Answer {
        Answer {
            delta: false,
            wire: wire.to_vec(),
            codings: Codings::default(),
            content_type: None,
            url: "http://example.com/".to_owned(),
            validators: Validators { etag: Some("\"new\"".to_owned()), ..Validators::default() },
            stored: Validators { etag: Some("\"old\"".to_owned()), ..Validators::default() },
            known_hash: None,
            known: KnownEntries::default(),
            announced: HubLinks::default(),
        }
    }

    const LIMITS: ReadLimits = ReadLimits {
        decode: DecodeLimits { max_bytes: 1000, max_ratio: 200, deadline: None },
        parse: ParseLimits {
            max_entries: 10,
            max_text_bytes: 1000,
            max_depth: 10,
            max_elements: 100,
            max_attributes: 10,
            deadline: None,
        },
        max_report_bytes: 10_000,
    };

    #[test]
    fn p9_a_document_that_ends_too_early_keeps_the_old_validators() {
        let feed = "<rss version=\"2.0\"><channel><title>T</title><item><guid>1</guid><title>One</title></item>";
        let etag = |wire: String, known_hash| {
            let outcome = read(Answer { known_hash, ..answer(wire.as_bytes()) }, &LIMITS).outcome;
            let Outcome::Modified(document) = outcome else { panic!("{outcome:?}") };
            assert_eq!(document.entries.len(), 1);
            (document.validators.etag, document.content_hash)
        };
        let old_hash = Some(ContentHash(7));
        assert_eq!(etag(format!("{feed}<item><title>Tw"), old_hash), (Some("\"old\"".to_owned()), old_hash));
        let (whole, hash) = etag(format!("{feed}</channel></rss>"), old_hash);
        assert!(whole == Some("\"new\"".to_owned()) && hash.is_some() && hash != old_hash);
    }

    #[test]
    fn a_page_that_was_a_feed_stays_one_when_it_announces_another() {
        let page = |head: &str, notes: [u8; 2]| {
            let note = |n| format!("<p class=h-entry><a class=u-url href=/{n}>note {n}</a></p>");
            let html = format!("<!DOCTYPE html>{head}<main class=h-feed>{}{}</main>", note(notes[0]), note(notes[1]));
            Answer { content_type: Some("text/html".to_owned()), ..answer(html.as_bytes()) }
        };
        let announcing = "<link rel=alternate type=application/rss+xml href=/rss>";
        let known = |answer| match read(answer, &LIMITS).outcome {
            Outcome::Modified(document) => document.known,
            outcome => panic!("{outcome:?}"),
        };
        let before = known(page("", [2, 1]));
        let now = known(Answer { known: before.clone(), ..page(announcing, [3, 2]) });
        assert_eq!(now.len(), before.len() + 1);
        let other = read(Answer { known: before, ..page(announcing, [8, 9]) }, &LIMITS);
        assert!(
            matches!(other.outcome, Outcome::Failed { .. }) && other.announced.len() == 1,
            "another page altogether"
        );
    }

    #[test]
    fn a_delta_that_brings_only_what_is_new_is_no_overflow() {
        let feed = |id: u32| format!("<rss version='2.0'><channel><item><guid>{id}</guid></item></channel></rss>");
        let read_as =
            |id, known, delta| match read(Answer { known, delta, ..answer(feed(id).as_bytes()) }, &LIMITS).outcome {
                Outcome::Modified(document) => document,
                outcome => panic!("{outcome:?}"),
            };
        let known = read_as(1, KnownEntries::default(), false).known;
        assert!(read_as(2, known.clone(), false).none_known);
        let delta = read_as(2, known, true);
        assert_eq!((delta.none_known, delta.new_entries, delta.known_before.len()), (false, 1, 0));
        let long = KnownEntries::default().after_document((0..600).map(|number| entry(number).fingerprint()));
        assert_eq!(read_as(3, long, true).known.len(), 600, "the next whole document has the rest");
    }

    #[test]
    fn a_document_that_is_not_read_in_time_is_too_costly_and_nothing_else_is_looked_for() {
        let page = "<!DOCTYPE html><link rel=alternate type=application/rss+xml href=/a><p class=h-entry>x";
        let feed = "<rss version='2.0'><channel><title>t</title><item><guid>1</guid></item></channel></rss>";
        let broken = "<rss><channel><title>a & b</title><item><guid>1</guid></item></channel></rss>";
        let json = r#"{"version":"https://jsonfeed.org/version/1","title":"t","items":[{"id":"1"}]}"#;
        let outbox =
            r#"{"@context":"https://www.w3.org/ns/activitystreams","type":"Person","outbox":"https://a.example/o"}"#;
        let gzipped = zstd::encode_all(feed.as_bytes(), 3).unwrap();
        let mut limits = ReadLimits { parse: ParseLimits { deadline: Some(Instant::now()), ..LIMITS.parse }, ..LIMITS };
        let too_costly = |answer: Answer, limits: &ReadLimits| {
            let read = read(answer, limits);
            assert!(read.announced.is_empty() && read.lead.is_none());
            match read.outcome {
                Outcome::Failed { failure, detail } => (failure, detail),
                outcome => panic!("{outcome:?}"),
            }
        };
        for wire in [page, feed, broken, json, outbox, "hello"] {
            let (failure, detail) = too_costly(answer(wire.as_bytes()), &limits);
            assert_eq!(failure, FailureKind::TooLarge, "{wire}: {detail}");
            let known = KnownEntries::default().after_document([entry(1).fingerprint()]);
            assert_eq!(too_costly(Answer { known, ..answer(wire.as_bytes()) }, &limits).0, FailureKind::TooLarge);
        }
        limits.decode.deadline = limits.parse.deadline;
        let codings = Codings { known: vec![crate::decode::Coding::Zstd], unknown: None };
        let (failure, detail) = too_costly(Answer { codings, ..answer(&gzipped) }, &limits);
        assert_eq!((failure, detail.as_str()), (FailureKind::TooLarge, "decoding the body takes too long"));
    }

    #[test]
    fn p43_a_known_body_is_not_parsed() {
        let not_even_a_feed = b"hello";
        let known_hash = Some(ContentHash::of(not_even_a_feed, PARSER_VERSION));
        let Read { outcome, bytes, .. } = read(Answer { known_hash, ..answer(not_even_a_feed) }, &LIMITS);
        let Outcome::NotModified { validators } = outcome else { panic!("{outcome:?}") };
        assert_eq!((validators.etag.as_deref(), bytes), (Some("\"new\""), 5));
        let known_hash = Some(ContentHash::of(not_even_a_feed, PARSER_VERSION + 1));
        let outcome = read(Answer { known_hash, ..answer(not_even_a_feed) }, &LIMITS).outcome;
        assert!(matches!(outcome, Outcome::Failed { .. }), "another parser reads it again: {outcome:?}");
    }
}
