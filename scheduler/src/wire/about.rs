//! What a feed says about itself, as lines for people: the command line and the pages show the same.

use common::document::{FeedAbout, FeedPodcast};
use common::entry::Author;

/// Returns a name and a value for each thing that the feed says. The values are the publisher's: callers shorten and
/// escape them.
pub fn lines(about: &FeedAbout) -> Vec<(&'static str, String)> {
    let podcast = about.podcast.clone().unwrap_or_default();
    let FeedPodcast { guid, locked, funding, medium, update_frequency } = podcast;
    let list = |items: Vec<String>| Some(items.join(", ")).filter(|list| !list.is_empty());
    let funding = funding.into_iter().map(|funding| match funding.title {
        Some(title) => format!("{title} ({})", funding.url),
        None => funding.url,
    });
    let all = [
        ("description", about.description.clone()),
        ("authors", list(about.authors.iter().map(author).collect())),
        ("categories", list(about.categories.clone())),
        ("language", about.language.clone()),
        ("image", about.image.clone()),
        ("icon", about.icon.clone()),
        ("generator", about.generator.clone()),
        ("copyright", about.copyright.clone()),
        ("podcast guid", guid),
        ("medium", medium),
        ("appears", update_frequency),
        ("funding", list(funding.collect())),
        ("locked", locked.map(|locked| if locked { "yes" } else { "no" }.to_owned())),
    ];
    all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// `Ann <ann@example.org>`
fn author(author: &Author) -> String {
    let more = author.email.as_ref().or(author.url.as_ref()).filter(|more| **more != author.name);
    more.map_or_else(|| author.name.clone(), |more| format!("{} <{more}>", author.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::document::Funding;

    #[test]
    fn everything_that_a_feed_says_about_itself_is_shown() {
        assert_eq!(lines(&FeedAbout::default()), []);
        let text = |text: &str| Some(text.to_owned());
        let ann = Author { name: "Ann".into(), email: text("ann@a.example"), ..Author::default() };
        let ben = Author { name: "Ben".into(), url: text("https://ben.example/"), ..Author::default() };
        let give = Funding { url: "https://give.example/".into(), title: text("Give") };
        let about = FeedAbout {
            description: text("d"),
            image: text("i"),
            icon: text("c"),
            language: text("en"),
            authors: vec![ann, ben, Author { name: "Cy".into(), ..Author::default() }],
            categories: vec!["fog".into(), "sea".into()],
            generator: text("g"),
            copyright: text("r"),
            podcast: Some(FeedPodcast {
                guid: text("p"),
                locked: Some(false),
                funding: vec![give, Funding { url: "u".into(), title: None }],
                medium: text("music"),
                update_frequency: text("weekly"),
            }),
        };
        let shown: Vec<String> = lines(&about).into_iter().map(|(name, value)| format!("{name}: {value}")).collect();
        let expected = "description: d|authors: Ann <ann@a.example>, Ben <https://ben.example/>, Cy|categories: fog, sea|language: en|image: i|\
            icon: c|generator: g|copyright: r|podcast guid: p|medium: music|appears: weekly|funding: Give (https://give.example/), u|locked: no";
        assert_eq!(shown.join("|"), expected);
    }
}
