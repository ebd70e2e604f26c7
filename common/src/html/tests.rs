use std::io;
use std::time::Duration;

use html5ever::serialize::{HtmlSerializer, SerializeOpts, Serializer, TraversalScope};
use proptest::prelude::*;

use html5ever::{local_name, ns};

use super::build::build_at_once;
use super::*;
use crate::testing::{assert_linear, processor_time};

const LIMITS: TreeLimits = TreeLimits { max_nodes: 50_000, max_depth: 300, max_bytes: 4_000_000, deadline: None };

/// Returns the tree as text: `div(p("x"))`.
fn shown(tree: &Tree, node: NodeId) -> String {
    let children: Vec<String> = tree.children(node).map(|child| shown(tree, child)).collect();
    match tree.content(node) {
        Content::Text(text) => format!("{:?}", &**text),
        Content::Element(name, ..) => format!("{}({})", name.local, children.join(" ")),
        Content::Other => children.join(" "),
    }
}

fn fragment(html: &str) -> String {
    let tree = Tree::of_fragment(html, LIMITS).unwrap();
    shown(&tree, tree.root())
}

#[test]
fn broken_html_is_read_as_browsers_read_it() {
    let table = [
        ("<p>a<p>b", r#"html(p("a") p("b"))"#),
        ("<b>a<p>b</b>c", r#"html(b("a") p(b("b") "c"))"#),
        ("<table>x<tr><td>y</table>", r#"html("x" table(tbody(tr(td("y")))))"#),
        ("<table><b>x<tr><td>y</table>z", r#"html(b("x") table(tbody(tr(td("y")))) b("z"))"#),
        ("a<!-- b -->c<template><p>d</template>", r#"html("a"  "c" template())"#),
        ("&eacute;&amp;&#0;", "html(\"é&\u{fffd}\")"),
    ];
    for (html, tree) in table {
        assert_eq!(fragment(html), tree, "{html}");
    }
}

#[test]
fn nodes_are_walked_in_order_and_what_is_left_out_is_left_out() {
    let tree = Tree::of_fragment("<ul><li>a</li><li>b<i>c</i></li></ul><p id=x>d", LIMITS).unwrap();
    let names: Vec<&str> = tree.inside(tree.root()).map(|node| tree.name(node)).collect();
    assert_eq!(names, ["html", "ul", "li", "", "li", "", "i", "", "p", ""]);
    let list = tree.inside(tree.root()).find(|node| tree.name(*node) == "ul").unwrap();
    assert_eq!(tree.inside(list).count(), 6, "not beyond its own end");
    let after = tree.after(list, tree.root(), false).unwrap();
    assert_eq!(tree.attribute(after, "id"), Some("x"));
}

#[test]
fn html_that_multiplies_itself_is_given_up_early() {
    let many = |count: usize, make: &dyn Fn(usize) -> String| (0..count).map(make).collect::<String>();
    let table = [
        ("elements without end", "<i></i>".repeat(150_000)),
        ("nesting", "<div>".repeat(200_000)),
        ("formatting that is opened again", many(200, &|n| format!("<b id={n}>")) + &"<p>x".repeat(100_000)),
        (
            "a large attribute that is repeated",
            format!("<b title='{}'>", "x".repeat(200_000)) + &"<p>x</p>".repeat(90_000),
        ),
        ("misnested formatting", many(30_000, &|n| format!("<a id={n}><div>")) + &"</a>".repeat(30_000)),
        ("in a style that is none", format!("<svg><style>{}", many(50_000, &|n| format!("<b id={n}>")))),
    ];
    for (name, html) in table {
        let started = processor_time();
        assert_eq!(Tree::of_fragment(&html, LIMITS).err(), Some(TooCostly), "{name}");
        assert_eq!(Tree::of_document(&html, LIMITS).err(), Some(TooCostly), "{name}");
        let took = processor_time() - started;
        assert!(took < Duration::from_secs(20), "{name}: {took:?}");
    }
    let page = "<div><p>Some <b>text</b> and <a href='https://example.com/'>a link</a>.</p></div>".repeat(5000);
    assert!(Tree::of_document(&page, LIMITS).is_ok(), "a long page is none of these");
}

/// What publishers write, and what attackers write to cost us time.
const PIECES: [&str; 44] = [
    "<p>",
    "</p>",
    "<b>",
    "</b>",
    "<a href='x'>",
    "</a>",
    "<div a=1 b='2' c=\"3\" d>",
    "</div>",
    "<table>",
    "<tr><td>",
    "</table>",
    "<script>",
    "</script>",
    "</script a='b'",
    "<style>",
    "</style>",
    "<textarea>",
    "</textarea",
    "<svg>",
    "</svg>",
    "<![CDATA[",
    "]]>",
    "<!--",
    "-->",
    "<!",
    "</>",
    "</1",
    "<?",
    "<",
    ">",
    "&amp",
    "&am",
    "&",
    ";",
    "\u{a0}",
    "text",
    " a b c",
    " d='",
    "\"",
    "'",
    "\n",
    "é",
    "<template>",
    "<plaintext>",
];

/// A pattern repeated to about this length.
type Repeated = Box<dyn Fn(usize) -> String>;

#[test]
fn time_grows_with_the_input_whatever_is_repeated() {
    let mut patterns: Vec<(String, Repeated)> = Vec::new();
    for piece in PIECES {
        for before in ["", "<p a='", "<svg>", "<table>"] {
            let make = move |length: usize| format!("{before}{}", piece.repeat(length / piece.len()));
            patterns.push((format!("{before}{piece}.."), Box::new(make)));
        }
    }
    let numbered = |make: fn(usize) -> String| {
        move |length: usize| {
            let mut html = String::new();
            (0..).map_while(|n| (html.len() < length).then(|| html.push_str(&make(n)))).for_each(drop);
            html
        }
    };
    let attributes = numbered(|n| format!(" a{n}"));
    let values = numbered(|n| format!(" a{n}='<'"));
    patterns.push(("attributes".into(), Box::new(move |length| format!("<p{}", attributes(length)))));
    patterns.push(("attributes behind an end tag".into(), Box::new(move |length| format!("</><p{}", values(length)))));
    let attributes = numbered(|n| format!(" a{n}"));
    let script = move |length| format!("<script></xyz</script{}", attributes(length));
    patterns.push(("attributes of a script's end".into(), Box::new(script)));
    let attributes = numbered(|n| format!(" a{n}"));
    let foreign = move |length| format!("<svg><style><![CDATA[]]><p{}", attributes(length));
    patterns.push(("attributes in svg".into(), Box::new(foreign)));
    patterns.push(("formatting".into(), Box::new(numbered(|n| format!("<b id={n}></b>")))));
    let open = "<b a b c d e f g h>".repeat(290);
    patterns.push(("open formatting".into(), Box::new(move |length| open.clone() + &"<b x></b>".repeat(length / 9))));
    let deep = "<div>".repeat(290);
    patterns.push(("depth".into(), Box::new(move |length| deep.clone() + &"</i>".repeat(length / 4))));
    for (name, make) in patterns {
        assert_linear(&name, make, |html| {
            drop(Tree::of_fragment(html, LIMITS).map(|tree| tree.write_inside(tree.root(), usize::MAX, |_| None)));
        });
    }
}

#[test]
fn a_tag_with_too_many_attributes_is_refused_wherever_it_hides() {
    let attributes: String = (0..300).map(|n| format!(" a{n}")).collect();
    for before in [
        "",
        "x",
        "&am",
        "<",
        "</",
        "</>",
        "<svg><![CDATA[]]>",
        "<!-- -->",
        "<script></x",
        "<script></",
        "<p a='<b>'>",
        "<!>",
        "<?>",
    ] {
        let html = match before.starts_with("<script") {
            true => format!("{before}</script{attributes}>"),
            false => format!("{before}<p{attributes}>"),
        };
        assert_eq!(Tree::of_fragment(&html, LIMITS).err(), Some(TooCostly), "{before}");
        assert_eq!(Tree::of_document(&html, LIMITS).err(), Some(TooCostly), "{before}");
    }
}

#[test]
fn what_only_looks_like_a_tag_is_not_refused() {
    let words = " word".repeat(400);
    for html in [
        format!("<script>if (a<b {words}) </script>"),
        format!("<textarea><p {words}</textarea>"),
        format!("<style>a<b{words}</style>"),
        format!("<p title='{words}'>"),
        format!("<p>{words}"),
        format!("<!-- {words} -->"),
        format!("<img src='data:image/png;base64,{}'>", "a/".repeat(200_000)),
    ] {
        assert!(Tree::of_document(&html, LIMITS).is_ok(), "{}", &html[..40]);
    }
}

#[test]
fn building_ends_at_the_deadline() {
    let page = "<p>Some text</p>".repeat(1000);
    let passed = TreeLimits { deadline: Some(Instant::now()), ..LIMITS };
    assert_eq!(Tree::of_document(&page, passed).err(), Some(TooCostly));
    let to_come = TreeLimits { deadline: Some(Instant::now() + Duration::from_secs(600)), ..LIMITS };
    assert!(Tree::of_document(&page, to_come).is_ok());
}

/// Returns a tree written by html5ever's own serialiser.
fn written_by_html5ever(tree: &Tree, within: NodeId) -> String {
    fn children(tree: &Tree, within: NodeId, to: &mut impl Serializer) -> io::Result<()> {
        for node in tree.children(within) {
            match tree.content(node) {
                Content::Text(text) => to.write_text(text)?,
                Content::Element(name, attributes, _) => {
                    to.start_elem(name.clone(), attributes.iter().map(|one| (&one.name, &*one.value)))?;
                    children(tree, node, to)?;
                    to.end_elem(name.clone())?;
                }
                Content::Other => {}
            }
        }
        Ok(())
    }
    let parent = QualName::new(None, ns!(html), local_name!("div"));
    let options =
        SerializeOpts { traversal_scope: TraversalScope::ChildrenOnly(Some(parent)), ..SerializeOpts::default() };
    let mut html = Vec::new();
    children(tree, within, &mut HtmlSerializer::new(&mut html, options)).unwrap();
    String::from_utf8(html).unwrap()
}

#[test]
fn html_is_written_as_html5ever_writes_it() {
    for html in [
        "<p title='\"&<>\u{a0}'>a & b < c > d \"e\" \u{a0} \u{a9}</p><br>x<img src=y>",
        "<script>a && b < c</script><style>a > b</style><xmp>&</xmp><noscript><p>&amp;</noscript><iframe><b></iframe>",
        "<svg xlink:href=a xml:lang=b xmlns:xlink=c xmlns=d><style>&lt;</style></svg><math><mi>x</mi></math>",
        "<table><td>a<template>b</template>",
    ] {
        let tree = Tree::of_fragment(html, LIMITS).unwrap();
        let written = tree.write_inside(tree.root(), usize::MAX, |_| None);
        assert_eq!(written, written_by_html5ever(&tree, tree.root()), "{html}");
    }
    let tree = Tree::of_fragment("<a href=x>y</a>", LIMITS).unwrap();
    assert_eq!(tree.write_inside(tree.root(), usize::MAX, |_| Some("z".into())), "<html><a href=\"z\">y</a></html>");
    let long = Tree::of_fragment(&"<p>x</p>".repeat(1000), LIMITS).unwrap();
    assert!((100..200).contains(&long.write_inside(long.root(), 100, |_| None).len()));
}

proptest! {
    #[test]
    fn portions_make_the_same_tree_as_the_whole(pieces in proptest::collection::vec(0..PIECES.len(), 0..80)) {
        let html: String = pieces.into_iter().map(|piece| PIECES[piece]).collect();
        let (tree, whole) = (Tree::of_fragment(&html, LIMITS).unwrap(), build_at_once(&html, LIMITS));
        prop_assert_eq!(shown(&tree, tree.root()), shown(&whole, whole.root()));
        prop_assert_eq!(tree.write_inside(tree.root(), usize::MAX, |_| None), written_by_html5ever(&tree, tree.root()));
    }
}
