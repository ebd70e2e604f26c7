//! Names and headlines for invented feeds: the same in every run, and not those of real publishers.

const OWNERS: [&str; 26] = [
    "Walrus", "Lantern", "Copper", "Moth", "Harbour", "Thistle", "Gravel", "Pepper", "Tin", "Marble", "Orchard",
    "Ferry", "Cobalt", "Biscuit", "Heron", "Velvet", "Quarry", "Nettle", "Pocket", "Juniper", "Sparrow", "Attic",
    "Comet", "Barley", "Otter", "Paper",
];
const PAPERS: [&str; 12] = [
    "Weekly", "Courier", "Notes", "Dispatch", "Review", "Log", "Gazette", "Letters", "Almanac", "Radio", "Diary",
    "Post",
];
const WHO: [&str; 14] = [
    "A lighthouse",
    "The night bus",
    "Our oldest server",
    "A retired pigeon",
    "The town piano",
    "A borrowed ladder",
    "The last fax machine",
    "A quiet committee",
    "My sourdough",
    "The lost umbrella",
    "A rival bakery",
    "The moon",
    "An honest robot",
    "The village clock",
];
const DOES: [&str; 10] = [
    "learns to wait",
    "finds a door",
    "asks for less",
    "counts its friends",
    "is repainted",
    "says sorry",
    "takes the scenic route",
    "keeps a secret",
    "wins by a whisker",
    "changes its mind",
];
const WHEN: [&str; 9] = [
    "at last",
    "again",
    "in the rain",
    "before breakfast",
    "for the third time",
    "on a Tuesday",
    "without a map",
    "by mail",
    "in public",
];
const PLATFORMS: [&str; 4] = ["bigblogs", "podhaus", "quillhub", "newsbarn"];

/// The number of feeds that can have distinct names.
pub(super) const MOST: usize = OWNERS.len() * PAPERS.len();

/// Returns the name of the n-th feed.
pub(super) fn feed(number: usize) -> String {
    // 26 and 12 share the factor two: shifting by one after each round of 156 keeps all 312 pairs distinct.
    let (owner, paper) = (number % OWNERS.len(), (number + number / 156) % PAPERS.len());
    format!("{} {}", OWNERS[owner], PAPERS[paper])
}

/// Returns the name of the n-th host; the first ones are platforms.
pub(super) fn host(number: usize) -> String {
    match PLATFORMS.get(number) {
        Some(platform) => format!("{platform}.example"),
        None => format!("{}{number}.example", OWNERS[number % OWNERS.len()].to_lowercase()),
    }
}

/// Returns headlines for one feed, in that feed's own order.
pub(super) fn headlines(feed: usize) -> impl Iterator<Item = String> {
    (0..60).map(move |turn| {
        let (who, does, when) = (feed + turn * 3, feed / 2 + turn * 7 + turn / 10, feed / 3 + turn * 5 + turn / 9);
        format!("{} {} {}", WHO[who % WHO.len()], DOES[does % DOES.len()], WHEN[when % WHEN.len()])
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_feed_has_a_name_of_its_own() {
        assert_eq!((0..MOST).map(feed).collect::<BTreeSet<_>>().len(), MOST);
    }

    #[test]
    fn a_feed_hardly_repeats_itself() {
        assert!(headlines(7).collect::<BTreeSet<_>>().len() > 50);
    }
}
