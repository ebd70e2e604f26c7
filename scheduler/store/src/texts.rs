//! Searches: what an index of trigrams is searched for, and whether it is worth searching.
//!
//! An index of trigrams finds a text by the places of each of its trigrams. Its work is the places of the rarest one,
//! each looked for among those of the others: nothing for most names, much where all are in nearly every URL. So a
//! sample shows first how frequent they are, and only the rarest are searched for: what they find is compared with the
//! whole text anyway.

use std::collections::BTreeSet;

/// Letters of a trigram.
const LETTERS: usize = 3;
/// The maximum number of trigrams to search the index for; a further one would leave out little more.
const MOST_ASKED: usize = 6;
/// Hits in a sample that say nothing.
const CHANCE: u64 = 4;

/// What to search the index for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trigrams(Vec<String>);

impl Trigrams {
    /// Returns all trigrams of a text; `None` when it has none.
    pub(super) fn of(text: &str) -> Option<Self> {
        Self::of_runs([text].into_iter())
    }

    /// Returns those of its words, of letters and digits, as PostgreSQL's index has them; `None` when it has none.
    pub(super) fn of_words(text: &str) -> Option<Self> {
        Self::of_runs(text.split(|letter: char| !letter.is_alphanumeric()))
    }

    fn of_runs<'t>(runs: impl Iterator<Item = &'t str>) -> Option<Self> {
        let of_run = |run: &str| {
            let letters: Vec<char> = run.chars().map(in_lower_case).collect();
            let whole = letters.windows(LETTERS).filter(|letters| !letters.contains(&'\0'));
            whole.map(String::from_iter).collect::<Vec<_>>()
        };
        let trigrams: BTreeSet<String> = runs.flat_map(of_run).collect();
        (!trigrams.is_empty()).then(|| Trigrams(trigrams.into_iter().collect()))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Returns the few of them by which a search is quick, by a sample of the feeds' texts; `None` when even the rarest
    /// has more than `most` positions in that many feeds.
    pub(super) fn rare(&self, sample: &[String], feeds: u64, most: u64) -> Option<Self> {
        let mut hits: Vec<(u64, &String)> = self.0.iter().map(|trigram| (0, trigram)).collect();
        for text in sample {
            let text: String = text.chars().map(in_lower_case).collect();
            for (hits, trigram) in &mut hits {
                *hits += u64::from(text.contains(*trigram));
            }
        }
        hits.sort_unstable();
        let rarest = hits.first()?.0;
        if rarest * feeds / (sample.len() as u64).max(1) > most {
            return None;
        }
        let alike = hits.into_iter().filter(|(hits, _)| *hits <= 2 * rarest + CHANCE);
        Some(Trigrams(alike.take(MOST_ASKED).map(|(_, trigram)| trigram.clone()).collect()))
    }
}

/// Letter by letter, as the indexes see it.
fn in_lower_case(letter: char) -> char {
    let mut lower = letter.to_lowercase();
    lower.next().filter(|_| lower.next().is_none()).unwrap_or(letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_each_of_its_trigrams_once_and_words_have_their_own() {
        let list = |trigrams: Option<Trigrams>| trigrams.map(|trigrams| trigrams.0.join(" "));
        assert_eq!(list(Trigrams::of("AbabA b")).as_deref(), Some("a b aba ba  bab"));
        assert_eq!(list(Trigrams::of("ab")), None);
        assert_eq!(list(Trigrams::of_words("www.de/rss")).as_deref(), Some("rss www"));
        assert_eq!(list(Trigrams::of_words("a.b/c-de")), None);
    }

    #[test]
    fn a_text_is_asked_for_by_its_rarest_trigrams_if_they_are_rare() {
        let sample: Vec<String> = (0..2_000).map(|n| format!("https://h{n}.example/feed")).collect();
        let rare = |text: &str, feeds| Trigrams::of(text).unwrap().rare(&sample, feeds, 100_000);
        assert_eq!(rare("wombat", 1_000_000), Trigrams::of("wombat"));
        assert_eq!(rare("https://wombat", 1_000_000).unwrap().0.len(), MOST_ASKED);
        assert!(!rare("https://wombat", 1_000_000).unwrap().iter().any(|trigram| "https://".contains(trigram)));
        assert_eq!((rare("https", 1_000_000), rare("example/feed", 1_000_000)), (None, None));
        assert_eq!(rare("https", 1_000), Trigrams::of("https"), "in a small fleet anything is rare");
    }
}
