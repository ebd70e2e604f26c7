//! Which entries of a document are kept where it has more than the limit.
//!
//! Most documents begin with their newest entry: the first entries are kept, and the others are not read. Of a document that
//! begins with its oldest entry the last ones are kept, because what is new is there. The order shows in the dates of the
//! first entries, as many as are kept. They are compared at a distance, so that a pinned entry or the order within one day
//! does not count.
//!
//! Of several revisions of one entry of Atom the newest is kept.

use std::collections::{HashMap, VecDeque};

use common::time::Timestamp;
use url::Url;

use super::draft::DraftEntry;

/// The entries of a document while it is read.
#[derive(Debug)]
pub(super) struct Kept<'a> {
    max: usize,
    entries: VecDeque<DraftEntry<'a>>,
    /// There are as many entries as are kept, and the oldest is the first.
    ascends: bool,
}

impl<'a> Kept<'a> {
    /// Of a document of which this number is kept.
    pub(super) fn new(max: usize) -> Self {
        Kept { max, entries: VecDeque::new(), ascends: false }
    }

    /// Returns whether a further entry would be kept.
    pub(super) fn takes_more(&self) -> bool {
        self.entries.len() < self.max || self.ascends
    }

    /// Adds an entry. It takes the place of the first one if there are enough.
    pub(super) fn push(&mut self, entry: DraftEntry<'a>) {
        if self.entries.len() < self.max {
            self.entries.push_back(entry);
            self.ascends = self.entries.len() == self.max && ascend(&self.entries);
        } else if self.entries.pop_front().is_some() {
            self.entries.push_back(entry);
        }
    }

    /// Returns the entries in the document's order.
    pub(super) fn into_entries(self) -> Vec<DraftEntry<'a>> {
        self.entries.into()
    }
}

/// Leaves out the older revisions of entries of Atom (RFC 4287, section 4.1.1), which have one id and were updated at different
/// times. Some publishers give all entries one id: these have different addresses, or were published at different times, or
/// do not say when.
pub(super) fn newest_revisions(mut entries: Vec<DraftEntry<'_>>) -> Vec<DraftEntry<'_>> {
    let mut newest = are_newest(&entries).into_iter();
    entries.retain(|_| newest.next().unwrap_or(true));
    entries
}

/// Returns for each of the entries whether none is a newer revision of it.
fn are_newest(entries: &[DraftEntry<'_>]) -> Vec<bool> {
    let mut newest: HashMap<Revised<'_>, Timestamp> = HashMap::with_capacity(entries.len());
    for (of, updated) in entries.iter().filter_map(revision) {
        let known = newest.entry(of).or_insert(updated);
        *known = updated.max(*known);
    }
    let revisions = entries.iter().map(revision);
    revisions.map(|one| one.is_none_or(|(of, updated)| newest.get(&of) == Some(&updated))).collect()
}

/// Id, address with its base, and time of publication: what all revisions of an entry have in common.
type Revised<'e> = (&'e str, Option<&'e str>, Option<&'e str>, Timestamp);

/// Returns which entry this one is a revision of, and the time of the revision.
fn revision<'e>(entry: &'e DraftEntry<'_>) -> Option<(Revised<'e>, Timestamp)> {
    let link = entry.link.get();
    let base = link.and_then(|link| link.base.as_deref()).map(Url::as_str);
    let of = (entry.id.get()?.trim(), link.map(|link| link.href.trim()), base, *entry.published.get()?);
    Some((of, *entry.updated.get()?))
}

/// Returns whether most of these entries are newer than the one that is half of them before.
fn ascend(entries: &VecDeque<DraftEntry<'_>>) -> bool {
    let dates: Vec<Timestamp> = entries.iter().filter_map(date).collect();
    let half = (dates.len() / 2).max(1);
    let newer = dates.iter().zip(dates.iter().skip(half)).filter(|(before, after)| before < after).count();
    3 * newer > 2 * dates.len().saturating_sub(half)
}

fn date(entry: &DraftEntry<'_>) -> Option<Timestamp> {
    entry.published.get().or(entry.updated.get()).copied()
}

#[cfg(test)]
mod tests {
    use crate::parse::{ParseError, ParseLimits, ParsedFeed, parse};

    fn read(document: &str, limits: ParseLimits) -> Result<ParsedFeed, ParseError> {
        parse(document.as_bytes(), None, "https://a.example/", &limits)
    }

    fn rss(days: &[u32]) -> String {
        let item =
            |(n, day): (usize, &u32)| format!("<item><guid>{n}</guid><pubDate>{}</pubDate></item>", written(*day));
        let items: String = days.iter().enumerate().map(item).collect();
        format!("<rss><channel><title>t</title>{items}</channel></rss>")
    }

    fn rdf(days: &[u32]) -> String {
        let item =
            |(n, day): (usize, &u32)| format!("<item rdf:about='{n}'><dc:date>{}</dc:date></item>", written(*day));
        let items: String = days.iter().enumerate().map(item).collect();
        format!(
            "<rdf:RDF xmlns:rdf='http://www.w3.org/1999/02/22-rdf-syntax-ns#' xmlns='http://purl.org/rss/1.0/' \
             xmlns:dc='http://purl.org/dc/elements/1.1/'><channel><title>t</title></channel>{items}</rdf:RDF>"
        )
    }

    fn atom(days: &[u32]) -> String {
        let entry =
            |(n, day): (usize, &u32)| format!("<entry><id>{n}</id><updated>{}</updated></entry>", written(*day));
        let entries: String = days.iter().enumerate().map(entry).collect();
        format!("<feed xmlns='http://www.w3.org/2005/Atom'><title>t</title>{entries}</feed>")
    }

    fn json(days: &[u32]) -> String {
        let item = |(n, day): (usize, &u32)| format!(r#"{{"id":"{n}","date_published":"{}"}}"#, written(*day));
        let items: Vec<String> = days.iter().enumerate().map(item).collect();
        format!(r#"{{"version":"https://jsonfeed.org/version/1.1","items":[{}]}}"#, items.join(","))
    }

    /// A day of one month; 0 for no date.
    fn written(day: u32) -> String {
        if day == 0 { String::new() } else { format!("2026-01-{day:02}T00:00:00Z") }
    }

    /// Reads documents of each kind with entries of these days. Returns the numbers of those that are kept.
    fn kept(days: &[u32], max_entries: usize) -> String {
        let limits = ParseLimits { max_entries, ..ParseLimits::default() };
        let numbers = [rss, rdf, atom, json].map(|kind: fn(&[u32]) -> String| {
            let feed = read(&kind(days), limits).unwrap();
            feed.entries.into_iter().map(|entry| entry.id).collect::<String>()
        });
        assert!(numbers.iter().all(|kind| *kind == numbers[0]), "{days:?}: {numbers:?}");
        numbers[0].clone()
    }

    #[test]
    fn the_last_entries_are_kept_where_dates_ascend_and_the_first_of_all_others() {
        let table = [
            ([1, 2, 3], "12"),
            ([3, 2, 1], "01"),
            ([0, 0, 0], "01"),
            ([1, 1, 1], "01"),
            // the order of those that are kept is unknown
            ([0, 1, 2], "01"),
            ([1, 0, 2], "01"),
            ([1, 2, 0], "12"),
        ];
        for (days, numbers) in table {
            assert_eq!(kept(&days, 2), numbers, "{days:?}");
        }
        assert_eq!(kept(&[1, 2, 3, 4, 5, 6, 7, 8, 9], 4), "5678");
        assert_eq!(kept(&[1, 2, 3], 3), "012");
        assert_eq!(kept(&[1, 2, 3], 4), "012");
    }

    #[test]
    fn a_few_entries_out_of_order_do_not_count() {
        assert_eq!(kept(&[1, 9, 8, 7, 6, 5, 4, 3], 6), "012345", "an old entry is pinned");
        assert_eq!(kept(&[9, 1, 2, 3, 4, 5, 6, 7, 8], 8), "12345678", "a new entry is pinned");
        assert_eq!(kept(&[3, 2, 1, 6, 5, 4, 9, 8, 7], 8), "12345678", "each three begin with the newest");
        assert_eq!(kept(&[7, 8, 9, 4, 5, 6, 1, 2, 3], 8), "01234567", "each three begin with the oldest");
        assert_eq!(kept(&[4, 8, 1, 6, 5, 2, 7, 3, 9], 8), "01234567", "no order");
    }

    #[test]
    fn of_several_revisions_of_an_entry_of_atom_the_newest_is_kept() {
        let entry = |id: &str, path: &str, published: &str, updated: &str, title: &str| {
            let dates = [("published", published), ("updated", updated)].into_iter().filter(|(_, day)| !day.is_empty());
            let dates: String = dates.map(|(name, day)| format!("<{name}>2026-01-{day}</{name}>")).collect();
            format!("<entry><id>{id}</id><link href='{path}'/>{dates}<title>{title}</title></entry>")
        };
        let titles = |entries: &[String]| {
            let feed = format!("<feed xmlns='http://www.w3.org/2005/Atom'>{}</feed>", entries.concat());
            let entries = read(&feed, ParseLimits::default()).unwrap().entries.into_iter();
            entries.map(|entry| (entry.id, entry.title.unwrap_or_default())).collect::<Vec<_>>()
        };
        let [one, two, three] = ["01", "02", "03"].map(|day| entry("x", "/1", "01", day, day));
        let other = entry("y", "/2", "01", "01", "other");
        for entries in [[&one, &three, &other, &two], [&three, &two, &other, &one]] {
            let found = titles(&entries.map(String::clone));
            assert_eq!(found.len(), 2, "{found:?}");
            assert!(found.contains(&("x".to_owned(), "03".to_owned())), "{found:?}");
        }
        for different in
            [entry("x", "/3", "01", "02", "a"), entry("x", "/1", "02", "02", "a"), entry("x", "/1", "01", "", "a")]
        {
            assert_eq!(titles(&[one.clone(), different]).len(), 2, "one id for different entries");
        }
        let undated = ["01", "02", "03"].map(|day| entry("x", "/", "", day, day));
        assert_eq!(titles(&undated).len(), 3, "one id and one address for all entries");
    }

    #[test]
    fn entries_that_were_replaced_count_against_the_limits() {
        let limits = ParseLimits { max_entries: 2, max_elements: 20, ..ParseLimits::default() };
        let ascending: Vec<u32> = (1..=10).collect();
        let descending: Vec<u32> = (1..=10).rev().collect();
        assert!(matches!(read(&rss(&ascending), limits), Err(ParseError::TooLarge(_))));
        assert!(read(&rss(&descending), limits).is_ok(), "what is left out does not count");
    }
}
