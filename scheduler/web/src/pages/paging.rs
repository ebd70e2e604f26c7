//! Links between the pages of a list that the store reads in one direction only.

use super::query::encoded;

/// The links to the first, the previous and the next page, where there are such pages.
pub(super) struct Paging {
    pub(super) first: Option<String>,
    pub(super) previous: Option<String>,
    pub(super) next: Option<String>,
}

impl Paging {
    /// `conditions` is the encoded query string that says what is listed. `earlier` is the value of that parameter in this page's
    /// address, `after` this page's cursor, and `next` the next page's.
    pub(super) fn new(
        path: &str,
        conditions: &str,
        earlier: Option<&str>,
        after: Option<&str>,
        next: Option<&str>,
    ) -> Self {
        let trail = Trail::of(earlier.unwrap_or_default());
        let link = |cursor: Option<&str>, trail: &Trail| {
            let cursor = cursor.map(|cursor| format!("after={}", encoded(cursor)));
            let parts = [Some(conditions.to_owned()).filter(|text| !text.is_empty()), cursor, trail.part()];
            let query = parts.into_iter().flatten().collect::<Vec<_>>().join("&");
            if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
        };
        Paging {
            first: after.map(|_| link(None, &Trail::default())),
            previous: trail.previous().map(|(cursor, trail)| link(cursor, &trail)),
            next: next.map(|next| link(Some(next), &trail.behind(after))),
        }
    }

    pub(super) fn is_needed(&self) -> bool {
        self.first.is_some() || self.previous.is_some() || self.next.is_some()
    }
}

/// The cursors of the pages before this one, oldest first.
#[derive(Default)]
struct Trail(Vec<String>);

impl Trail {
    /// Stands for the first page, which has no cursor.
    const FIRST: &str = "-";
    /// Between two cursors, none of which contains it.
    const BETWEEN: char = '~';
    /// Pages that are remembered, and bytes of their cursors, so that they fit into an address.
    const MOST: usize = 40;
    const MOST_BYTES: usize = 2000;

    fn of(text: &str) -> Self {
        Trail(text.split(Self::BETWEEN).filter(|cursor| !cursor.is_empty()).map(str::to_owned).collect()).cut()
    }

    /// The trail of the page behind the one with this cursor.
    fn behind(&self, cursor: Option<&str>) -> Trail {
        let mut cursors = self.0.clone();
        cursors.push(cursor.unwrap_or(Self::FIRST).to_owned());
        Trail(cursors).cut()
    }

    /// Forgets the pages that are farthest back.
    fn cut(mut self) -> Self {
        let mut bytes = 0;
        let fits = |cursor: &&String| {
            bytes += cursor.len() + 1;
            bytes <= Self::MOST_BYTES
        };
        let kept = self.0.iter().rev().take(Self::MOST).take_while(fits).count();
        Trail(self.0.split_off(self.0.len() - kept))
    }

    /// The cursor of the page before, and its trail.
    fn previous(&self) -> Option<(Option<&str>, Trail)> {
        let (last, rest) = self.0.split_last()?;
        Some((Some(last.as_str()).filter(|cursor| *cursor != Self::FIRST), Trail(rest.to_vec())))
    }

    /// This trail as a part of a query string.
    fn part(&self) -> Option<String> {
        let cursors: Vec<String> = self.0.iter().map(|cursor| encoded(cursor)).collect();
        (!cursors.is_empty()).then(|| format!("earlier={}", cursors.join(&Self::BETWEEN.to_string())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_back_page_by_page() {
        let paging = Paging::new("hosts", "", None, None, Some("a.example:443"));
        assert_eq!((paging.first, paging.previous), (None, None));
        assert_eq!(paging.next.as_deref(), Some("hosts?after=a.example%3A443&earlier=-"));
        let paging = Paging::new("hosts", "", Some("-"), Some("a.example:443"), Some("b.example:443"));
        assert_eq!((paging.first.as_deref(), paging.previous.as_deref()), (Some("hosts"), Some("hosts")));
        assert_eq!(paging.next.as_deref(), Some("hosts?after=b.example%3A443&earlier=-~a.example%3A443"));
        let paging = Paging::new("feeds", "q=a", Some("-~one"), Some("two"), None);
        assert_eq!(paging.previous.as_deref(), Some("feeds?q=a&after=one&earlier=-"));
        assert!(paging.next.is_none() && paging.is_needed());
        assert!(!Paging::new("feeds", "q=a", None, None, None).is_needed());
    }

    #[test]
    fn a_trail_is_bounded_and_encoded() {
        let long = (0..99).fold(Trail::default(), |trail, number| trail.behind(Some(&number.to_string())));
        assert!(long.0.len() == Trail::MOST && long.0[0] == "59");
        let wide = (0..99).fold(Trail::default(), |trail, _| trail.behind(Some(&"x".repeat(300))));
        assert_eq!(wide.0.len(), 6);
        let odd = Paging::new("feeds", "", Some("<b>\"~"), Some("two"), None);
        assert_eq!(odd.previous.as_deref(), Some("feeds?after=%3Cb%3E%22"));
    }
}
