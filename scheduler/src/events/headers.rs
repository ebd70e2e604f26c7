//! Describes an event in the headers of its message, so that a consumer's headers exchange can filter as the API does.
//!
//! A broker can only compare whole values. A property with several values (labels), or one that is matched by its prefix
//! (languages), therefore has a separate header for each value. A broker cannot search texts either, so this module searches for the
//! texts of `delivery.exchange_texts`.

use store::{Event, EventFilter, Lowered, Part};

/// Up to this number of parts, each message says in which one its feed is.
const MOST_PARTS: u32 = 16;
/// The value of a header that only has to be there.
const YES: &str = "yes";
/// A language that is longer is not one.
const LONGEST_LANGUAGE: usize = 35;
/// The maximum length of a header's name at a broker, in bytes. The length of labels is limited in characters.
const LONGEST_NAME: usize = 255;

/// The texts for which messages say whether their entries contain them.
pub(super) struct Texts(Vec<EventFilter>);

impl Texts {
    pub(super) fn new(texts: &[String]) -> Self {
        let filter = |text: &String| EventFilter { text: Some(text.to_lowercase()), ..EventFilter::default() };
        Texts(texts.iter().map(filter).collect())
    }

    /// Returns those that the event's entry contains, in lower case.
    fn of<'a>(&'a self, event: &'a Event) -> impl Iterator<Item = &'a str> {
        let lowered = Lowered::default();
        let found = self.0.iter().filter(move |filter| filter.matches_lowered(event, &lowered));
        found.filter_map(|filter| filter.text.as_deref())
    }
}

/// Returns the headers of an event's message, without those whose name is too long for a broker.
pub(super) fn of(event: &Event, texts: &Texts) -> Vec<(String, String)> {
    let mut headers = vec![("kind".to_owned(), event.kind.clone()), ("feed".to_owned(), event.feed_id.to_string())];
    headers.extend(event.host.clone().map(|host| ("host".to_owned(), host)));
    headers.extend(event.category.map(|category| ("category".to_owned(), category.to_string())));
    headers.extend(event.feed.marks.labels.iter().map(|label| yes(format!("label.{label}"))));
    let language = event.entry.as_ref().and_then(|stored| stored.entry.language.as_deref());
    headers.extend(language.into_iter().flat_map(beginnings).map(|language| yes(format!("language.{language}"))));
    headers.extend(texts.of(event).map(|text| yes(format!("text.{text}"))));
    headers.extend((2..=MOST_PARTS).filter_map(|of| {
        let number = (1..=of).find(|number| Part { number: *number, of }.has(event.feed_id))?;
        Some(yes(format!("part.{number}/{of}")))
    }));
    headers.retain(|(name, _)| name.len() <= LONGEST_NAME);
    headers
}

fn yes(name: String) -> (String, String) {
    (name, YES.to_owned())
}

/// Returns a language and what it is a variant of: `en-gb` and `en`.
fn beginnings(language: &str) -> Vec<&str> {
    let is_one = language.len() <= LONGEST_LANGUAGE && language.is_ascii();
    let ends =
        language.char_indices().filter(|(_, c)| matches!(c, '-' | '_')).map(|(at, _)| at).chain([language.len()]);
    ends.filter(|end| is_one && *end > 0).map(|end| &language[..end]).collect()
}

#[cfg(test)]
mod tests {
    use common::entry::Entry;
    use common::host::HostKey;
    use common::labels::{LONGEST_LABEL, Marks, read_labels};
    use common::policy::Category;
    use common::time::Timestamp;
    use common::url::FeedId;
    use store::{EntryFeed, EventFilter, StoredEntry};

    use super::*;

    fn event(feed: i64) -> Event {
        let labels = vec!["news".to_owned(), "a b".to_owned()];
        let title = Some("Ärger over Rust 2.0".into());
        let entry = Entry { id: "1".into(), title, language: Some("en-gb".into()), ..Entry::default() };
        Event {
            seq: 1,
            kind: "entry.new".into(),
            feed_id: FeedId(feed),
            subscription: None,
            limited_to: Vec::new(),
            at: Timestamp::EPOCH,
            feed: EntryFeed { marks: Marks { labels, ..Marks::default() }, ..EntryFeed::default() },
            category: Some(Category::B),
            host: Some("a.example:443".into()),
            merged_into: None,
            changed: Vec::new(),
            since: None,
            error: None,
            entry: Some(StoredEntry {
                seq: 1,
                feed_id: FeedId(feed),
                feed: EntryFeed::default(),
                seen: Timestamp::EPOCH,
                stored: Timestamp::EPOCH,
                entry,
            }),
        }
    }

    fn has(event: &Event, name: &str, value: &str) -> bool {
        let texts = Texts::new(&["rust 2".into(), "ÄRGER".into(), "go".into()]);
        of(event, &texts).contains(&(name.to_owned(), value.to_owned()))
    }

    #[test]
    fn headers_say_what_the_filters_of_the_api_compare() {
        let event = event(7);
        let filter = |set: fn(&mut EventFilter)| {
            let mut filter = EventFilter::default();
            set(&mut filter);
            filter.matches(&event)
        };
        let compared = [
            (has(&event, "kind", "entry.new"), filter(|filter| filter.kinds = vec!["entry.new".into()])),
            (has(&event, "feed", "7"), filter(|filter| filter.feed = Some(FeedId(7)))),
            (has(&event, "host", "a.example:443"), filter(|filter| filter.host = Some(HostKey::new("a.example:443")))),
            (has(&event, "category", "B"), filter(|filter| filter.category = Some(Category::B))),
            (has(&event, "label.a b", YES), filter(|filter| filter.label = Some("a b".into()))),
            (has(&event, "language.en", YES), filter(|filter| filter.language = Some("en".into()))),
            (has(&event, "language.en-gb", YES), filter(|filter| filter.language = Some("en-gb".into()))),
            (has(&event, "text.rust 2", YES), filter(|filter| filter.text = Some("rust 2".into()))),
            (has(&event, "text.ärger", YES), filter(|filter| filter.text = Some("ÄRGER".into()))),
        ];
        assert!(compared.into_iter().all(|(one, other)| one && other), "{compared:?} {event:?}");
        assert!(!has(&event, "language.e", YES) && !has(&event, "label.sport", YES) && !has(&event, "text.go", YES));
        assert!(!has(&Event { entry: None, ..event }, "text.rust 2", YES), "an event without an entry has no text");
    }

    #[test]
    fn a_feed_is_in_one_part_of_each_number_of_parts_as_in_the_api() {
        for feed in 1..50 {
            let event = event(feed);
            for of in 2..=MOST_PARTS {
                for number in 1..=of {
                    let expected = Part { number, of }.has(FeedId(feed));
                    assert_eq!(has(&event, &format!("part.{number}/{of}"), YES), expected, "{feed} {number}/{of}");
                }
            }
        }
    }

    #[test]
    fn a_label_whose_header_would_have_too_long_a_name_has_none() {
        let [short, long] = [62, LONGEST_LABEL].map(|length| "😀".repeat(length));
        let mut event = event(7);
        event.feed.marks.labels = read_labels(&[short.clone(), long]).unwrap();
        let headers = of(&event, &Texts::new(&[]));
        assert!(headers.iter().all(|(name, _)| name.len() <= 255), "{headers:?}");
        let labels: Vec<&str> = headers.iter().filter_map(|(name, _)| name.strip_prefix("label.")).collect();
        assert_eq!(labels, [short]);
    }

    #[test]
    fn what_a_publisher_writes_for_a_language_makes_no_long_names() {
        assert_eq!(beginnings("zh-hant-tw"), ["zh", "zh-hant", "zh-hant-tw"]);
        assert_eq!(beginnings("pt_br"), ["pt", "pt_br"]);
        for wrong in ["", &"x".repeat(300), "日本語"] {
            assert_eq!(beginnings(wrong), Vec::<&str>::new(), "{wrong}");
        }
        assert_eq!(beginnings("-x"), ["-x"]);
    }
}
