//! Sanitises untrusted HTML, so that it is safe to show: what `html=sanitised` adds to entries.
//!
//! The sanitised text is computed on request and never stored. This costs some CPU time per read, but no disk space. More
//! important, a fix in the sanitiser applies to every entry that was ever stored: a stored result would keep the
//! vulnerabilities of the version that computed it. The publisher's original text remains in `summary` and `content`.
//!
//! What is left is text with structure, pictures and links. Scripts, styles, frames, forms, handlers of events, `id` and
//! `class`, and addresses that run code or carry data are gone. Links get `rel="noopener noreferrer"`.

//!
//! Whatever publishers write, it takes time in proportion to its length. What a text may cost is known before ammonia sees it,
//! from a tree that html5ever built of it in the same steps; a text beyond the limits is shown without its markup. So are the
//! texts that are left when a page's time has expired.

#[cfg(test)]
mod attacks;

use std::panic::catch_unwind;
use std::time::Instant;

use ammonia::{Builder, Url, UrlRelative};
use common::entry::LINK_SCHEMES;
use common::html::{Tree, TreeLimits};

/// What the tree of one text may cost.
const LIMITS: TreeLimits = TreeLimits { max_nodes: 30_000, max_depth: 300, max_bytes: 3_000_000, deadline: None };
/// What writing a text out may cost beside reading it, for each of its bytes: texts of a paragraph's length are never near it.
const SERIALISING_COST: usize = 1000;
/// How many times as long as itself a text may become, and bytes that any text may grow by: an element that is not closed is opened
/// again in every paragraph behind it, with its attributes, and relative links are resolved.
const MAX_GROWTH: usize = 5;
const MIN_GROWTH: usize = 64 * 1024;

/// Returns the text as HTML that may be shown; relative links are resolved against `base`, and left out without one.
/// Without markup once the deadline has passed.
pub(crate) fn sanitised(html: &str, base: Option<&str>, deadline: Instant) -> String {
    let longest = longest(html);
    // no panic is known; one that is not known must not keep a reader from all entries behind this one
    let made = catch_unwind(|| {
        let max_bytes = LIMITS.max_bytes.min(longest);
        let limits = TreeLimits { deadline: Some(deadline), max_bytes, ..LIMITS };
        let tree = Tree::of_fragment(html, limits).ok()?;
        let is_affordable = tree.serialising_cost() <= SERIALISING_COST.saturating_mul(html.len());
        // Quotes and the like are longer when they are written than they are in the tree.
        let fits = |made: &String| made.len() <= longest;
        is_affordable.then(|| cleaned(html, affordable_base(&tree, html, base))).filter(fits)
    });
    made.unwrap_or_default().unwrap_or_else(|| ammonia::clean_text(html))
}

/// Returns the maximum length of what is made of a text.
fn longest(html: &str) -> usize {
    html.len().saturating_mul(MAX_GROWTH).saturating_add(MIN_GROWTH)
}

/// Returns what links are resolved against, unless that would repeat a long address all over the text.
fn affordable_base(tree: &Tree, html: &str, base: Option<&str>) -> Option<Url> {
    let base = base?;
    let links = tree.inside(tree.root()).flat_map(|node| tree.attributes(node));
    let links = links.filter(|(name, _)| matches!(*name, "href" | "src" | "poster" | "cite")).count();
    let growth = links.saturating_mul(base.len());
    let base = Url::parse(base).ok().filter(|base| matches!(base.scheme(), "http" | "https"));
    base.filter(|_| growth <= longest(html))
}

fn cleaned(html: &str, base: Option<Url>) -> String {
    let mut builder = Builder::default();
    builder
        .url_schemes(LINK_SCHEMES.into())
        .url_relative(base.map_or(UrlRelative::Deny, UrlRelative::RewriteWithBase))
        .link_rel(Some("noopener noreferrer"))
        .add_tags(["audio", "video", "source"])
        .add_tag_attributes("audio", ["src", "controls"])
        .add_tag_attributes("video", ["src", "poster", "controls", "width", "height"])
        .add_tag_attributes("source", ["src", "type"])
        // browsers do not follow it, readers that show it as a link do, and the sanitiser does not look at its scheme
        .rm_tag_attributes("blockquote", ["cite"])
        .rm_tag_attributes("q", ["cite"])
        .rm_tag_attributes("del", ["cite"])
        .rm_tag_attributes("ins", ["cite"])
        // a player that cannot be started shows nothing, and one that starts automatically is unwanted
        .set_tag_attribute_value("audio", "controls", "")
        .set_tag_attribute_value("video", "controls", "");
    builder.clean(html).to_string()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use common::testing::mutations::{count, survives, write_seeds};
    use common::testing::{assert_linear, pieces, processor_time};

    use super::attacks::{ATTACKS, assert_harmless};
    use super::*;

    const BASE: &str = "https://blog.example/2026/post";

    fn safe(html: &str) -> String {
        with_base(html, Some(BASE))
    }

    fn with_base(html: &str, base: Option<&str>) -> String {
        sanitised(html, base, Instant::now() + Duration::from_secs(600))
    }

    #[test]
    fn text_with_structure_links_and_pictures_stays() {
        let table = [
            ("<p>Fog <i>again</i>, <b>twice</b>.</p>", "<p>Fog <i>again</i>, <b>twice</b>.</p>"),
            ("plain & simple < text", "plain &amp; simple &lt; text"),
            (
                "<a href='../tides#now' title=t>tides</a>",
                "<a href=\"https://blog.example/tides#now\" title=\"t\" rel=\"noopener noreferrer\">tides</a>",
            ),
            (
                "<a rel='me opener' href=https://a.example/>a</a>",
                "<a href=\"https://a.example/\" rel=\"noopener noreferrer\">a</a>",
            ),
            ("<img src=fog.png alt=fog>", "<img src=\"https://blog.example/2026/fog.png\" alt=\"fog\">"),
            (
                "<video src=f.mp4 autoplay></video>",
                "<video src=\"https://blog.example/2026/f.mp4\" controls=\"\"></video>",
            ),
            ("<table><tr><td>a</table>", "<table><tbody><tr><td>a</td></tr></tbody></table>"),
            ("<blockquote>a<p>b", "<blockquote>a<p>b</p></blockquote>"),
            (
                "<a href=mailto:a@a.example>mail</a>",
                "<a href=\"mailto:a@a.example\" rel=\"noopener noreferrer\">mail</a>",
            ),
        ];
        for (html, expected) in table {
            assert_eq!(safe(html), expected, "{html}");
        }
        assert_eq!(with_base("<a href=/x>x</a><img src=y>", None), "<a rel=\"noopener noreferrer\">x</a><img>");
        assert_eq!(with_base("<a href=/x>x</a>", Some("javascript:1")), "<a rel=\"noopener noreferrer\">x</a>");
    }

    #[test]
    fn no_known_spelling_of_an_attack_gets_through() {
        for attack in ATTACKS {
            let made = safe(attack);
            assert_harmless(&made, attack);
            assert_eq!(safe(&made), made, "what is safe stays as it is: {attack}");
        }
    }

    #[test]
    fn no_mutation_of_an_attack_gets_through() {
        let seeds: Vec<Vec<u8>> = ATTACKS.iter().map(|attack| attack.as_bytes().to_vec()).collect();
        // For libFuzzer, if requested.
        write_seeds("sanitised", &seeds);
        survives("attacks", &seeds, 20 * count(), |bytes| {
            let attack = String::from_utf8_lossy(bytes);
            assert_harmless(&safe(&attack), &attack);
        });
    }

    #[test]
    fn html_that_multiplies_itself_becomes_plain_text() {
        let large = format!("<b title='{}'>", "x".repeat(100_000)) + &"<p>x</p>".repeat(50_000);
        for hostile in [large, "<div>".repeat(100_000), "<table>".to_owned() + &"<b></b>".repeat(60_000)] {
            let made = safe(&hostile);
            assert!(!made.contains('<') && made.len() < 10 * hostile.len());
        }
    }

    /// The parser opens the first element again in each paragraph.
    #[test]
    fn a_short_text_stays_short() {
        let title = "y".repeat(3_400);
        let reopened = format!("<p><b title='{title}'>x{}", "<p>x".repeat(866));
        let quotes = format!("<p><b title='{}'>x{}", "\"".repeat(3_400), "<p>x".repeat(20));
        let links = "<a>".repeat(8_000);
        for hostile in [reopened, quotes, links] {
            let made = safe(&hostile);
            assert!(made.len() <= 64 * 1024 + 5 * hostile.len(), "{} bytes of {}", made.len(), hostile.len());
        }
        let few = format!("<p><b title='{title}'>x<p>y<p>z");
        assert_eq!(safe(&few).matches("<b title=").count(), 3, "few paragraphs keep it");
    }

    #[test]
    fn texts_become_plain_when_the_time_for_them_has_passed() {
        assert_eq!(sanitised("<p>a</p>", None, Instant::now()), ammonia::clean_text("<p>a</p>"));
    }

    /// Parts of entries' texts, and of texts that are meant to cost us time.
    const PIECES: [&str; 28] = [
        "&",
        "&a",
        "\u{a0}x",
        "©",
        "<",
        "<b>",
        "<p>x",
        "<a href=x>",
        "</p>",
        "<br>",
        "<q cite=x>",
        "\"",
        "<a href=",
        "<img src=x>",
        "<table>",
        "<td>",
        "<svg>",
        "<math>",
        "<style>",
        "<script>",
        "<!--",
        "<div>",
        "</div>",
        "<a href='",
        "<video src=x>",
        "text ",
        "<select>",
        "<b><i></b>",
    ];

    #[test]
    fn time_grows_with_the_text_whatever_is_repeated() {
        for piece in PIECES.map(str::to_owned).into_iter().chain(pieces(&PIECES, 24)) {
            assert_linear(&piece, |length| piece.repeat(length / piece.len()), |html| drop(safe(html)));
        }
        assert_linear(
            "foster parents",
            |length| "<table>".to_owned() + &"<b></b>x".repeat(length / 8),
            |html| drop(safe(html)),
        );
        let attributes = |length| format!("<p{}>", (0..length / 6).map(|n| format!(" a{n}")).collect::<String>());
        assert_linear("attributes", attributes, |html| drop(safe(html)));
        let attribute = |length| format!("<p title='{}'>", "&".repeat(length));
        assert_linear("an attribute", attribute, |html| drop(safe(html)));
    }

    #[test]
    fn a_long_base_is_not_multiplied_by_the_links_below_it() {
        let long = format!("https://a.example/{}", "b/".repeat(4000));
        let links = "<a href=x>y</a>".repeat(5000);
        assert!(with_base(&links, Some(&long)).len() < 10 * links.len());
        assert!(with_base("<a href=x>y</a>", Some(&long)).contains("b/b/x"));
    }

    /// A page has 8 MB of text at most. Each text is read twice: once for what it costs, once by the sanitiser. Without
    /// optimisation one text of a fifth is measured.
    #[test]
    fn a_page_of_texts_costs_little_whatever_is_repeated() {
        const TEXT: usize = 1024 * 1024;
        let (texts, length) = if cfg!(debug_assertions) { (1, TEXT / 5) } else { (8, TEXT) };
        let longest = Duration::from_millis(if cfg!(debug_assertions) { 5000 } else { 1500 });
        let mut costs: Vec<(Duration, String)> = Vec::new();
        for piece in PIECES.map(str::to_owned).into_iter().chain(pieces(&PIECES, 24)) {
            let text = piece.repeat(length / piece.len());
            let begun = processor_time();
            (0..texts).for_each(|_| drop(safe(&text)));
            costs.push((processor_time() - begun, piece));
        }
        costs.sort_by(|one, other| other.cmp(one));
        costs
            .iter()
            .take(8)
            .for_each(|(cost, piece)| println!("{cost:>12.3?} for {texts} texts of {length} bytes: {piece:?}"));
        assert!(costs[0].0 < longest, "{:?}: {:?}", costs[0].0, costs[0].1);
    }
}
