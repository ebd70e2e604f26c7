//! Searches: what an index of trigrams is asked, and whether it is worth asking.
//!
//! An index of trigrams finds a text by the places of each of its trigrams. Its work is the places of the rarest one, times the
//! trigrams to compare: nothing for most names, much where all are in nearly every URL. So a sample tells first how frequent
//! they are.

use std::collections::BTreeSet;

/// Letters of a trigram.
const LETTERS: usize = 3;

/// What the index is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trigrams(Vec<String>);

impl Trigrams {
    /// All trigrams of a text; `None` when it has none.
    pub(super) fn of(text: &str) -> Option<Self> {
        Self::of_runs([text].into_iter())
    }

    /// Those of its words, of letters and digits, as PostgreSQL's index has them; `None` when it has none.
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

    /// Has a search for them in so many feeds at most `most` places to look at, by a sample of the feeds' texts?
    pub(super) fn are_rare(&self, sample: &[String], feeds: u64, most: u64) -> bool {
        let mut hits = vec![0_u64; self.0.len()];
        for text in sample {
            let text: String = text.chars().map(in_lower_case).collect();
            for (hits, trigram) in hits.iter_mut().zip(&self.0) {
                *hits += u64::from(text.contains(trigram));
            }
        }
        let rarest = hits.into_iter().min().unwrap_or(0);
        rarest * feeds / (sample.len() as u64).max(1) * self.0.len() as u64 <= most
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
    fn a_text_is_rare_if_one_of_its_trigrams_is() {
        let sample: Vec<String> = (0..2_000).map(|n| format!("https://h{n}.example/feed")).collect();
        let rare = |text: &str| Trigrams::of(text).unwrap().are_rare(&sample, 1_000_000, 100_000);
        assert!(rare("wombat") && rare("https://wombat"));
        assert!(!rare("https") && !rare("example/feed"));
        assert!(Trigrams::of("https").unwrap().are_rare(&sample, 1_000, 100_000), "in a small fleet anything is");
    }
}
