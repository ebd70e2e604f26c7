use super::*;

fn mended(text: &str) -> Option<Mended> {
    super::mended(text, &ParseLimits::default())
}

#[test]
fn the_feed_is_found_behind_junk_and_nowhere_else() {
    assert_eq!(feed_position("Warning: <b>x</b> <?xml?><rss>"), Some(25));
    assert_eq!(feed_position("<RDF:RDF>"), Some(0));
    assert_eq!(feed_position("<atom:feed xmlns:atom='x'>"), Some(0));
    assert_eq!(feed_position("<html><feedback/><rssx></html>"), None);
    assert_eq!(feed_position("< rss"), None);
    assert_eq!(feed_position("<!-- <rss> --><SCRIPT>'<rss>'</Script><style><feed></style><rss>"), Some(59));
    for page in
        ["<html><!-- <rss> --></html>", "<html><script>x = '<rss>'</script></html>", "<!-- <rss>", "<Script><feed>"]
    {
        assert_eq!(feed_position(page), None, "{page}");
    }
}

#[test]
fn what_is_broken_is_mended() {
    let rss = |inside: &str| format!("<rss><channel>{inside}</channel></rss>");
    let table = [
        ("<rss><channel><title>a & b</title></channel></rss>", rss("<title>a &amp; b</title>")),
        ("junk<rss><channel><link>x", rss("<link>x</link>")),
        ("<RSS><Title>a</TITLE></RSS>", "<RSS><Title>a</Title></RSS>".to_owned()),
        ("<rss><channel><a><b></a></channel></rss>", rss("<a><b></b></a>")),
        ("<rss><channel></b><c/></channel></rss>", rss("<c/>")),
        ("<rss><channel><item>1</item><item>2", rss("<item>1</item>")),
        ("<rss><channel><item>1<item>2</item></channel></rss>", rss("<item>1</item><item>2</item>")),
        ("<rss><channel><title>a<item>1</item></channel></rss>", rss("<title>a</title><item>1</item>")),
        (
            "<rss><channel>&<item><description>a &amp; <b/><![CDATA[&]]></description></item></channel></rss>",
            rss("&amp;<item><description>a &amp; <b/><![CDATA[&]]></description></item>"),
        ),
        (
            "<rss><channel><item><title>a<b>c</b><link>x</link><guid>1<pubDate>y</item></channel></rss>",
            rss("<item><title>a&lt;b&gt;c&lt;/b&gt;</title><link>x</link><guid>1</guid><pubDate>y</pubDate></item>"),
        ),
        (
            "<rss><channel><item><description>a<link href='b'><title>c</title><guid>1</guid></item></channel></rss>",
            rss(
                "<item><description>a&lt;link href='b'&gt;&lt;title&gt;c&lt;/title&gt;</description><guid>1</guid></item>",
            ),
        ),
        (
            "<rdf:RDF><rss:item>1<rss:item>2</rss:item></rdf:RDF>",
            "<rdf:RDF><rss:item>1</rss:item><rss:item>2</rss:item></rdf:RDF>".to_owned(),
        ),
        (
            "<!DOCTYPE a []>&<!-- <!DOCTYPE b> --><!DOCTYPE c [<!ENTITY d '>'>]><rss>&</rss>",
            "<!DOCTYPE c [<!ENTITY d '>'>]><rss>&amp;</rss>".to_owned(),
        ),
        ("<!DOCTYPE a [<rss></rss>", "<rss></rss>".to_owned()),
        ("<rss/>x", "<rss/>".to_owned()),
        (
            "<rss><channel><description><p>x<br>&eacute;</description></channel></rss>",
            rss("<description>&lt;p&gt;x&lt;br&gt;é</description>"),
        ),
        ("<rss><channel><a b=c b=d '9'=e f='<'/></channel>", rss("<a b=\"c\" f=\"&lt;\"/>")),
        (
            "<a:feed><a:entry><a:title type='xhtml'><b>x</b> &amp; y</a:entry></a:feed>",
            "<a:feed><a:entry><a:title type=\"html\">&lt;b&gt;x&lt;/b&gt; &amp;amp; y</a:title></a:entry></a:feed>"
                .to_owned(),
        ),
    ];
    for (broken, whole) in table {
        assert_eq!(mended(broken).map(|mended| mended.text), Some(whole), "{broken}");
    }
    assert_eq!(mended("<html></html>"), None);
    assert_eq!(mended(&format!("<rss>{}", "<a>".repeat(MAX_OPEN))), None);
}

#[test]
fn what_each_of_many_tags_and_attributes_is_compared_with_is_bounded() {
    let ended = |times: usize| mended(&format!("<rss>{}</rss>", "</a>".repeat(times))).map(|mended| mended.text);
    assert_eq!(ended(MAX_UNMATCHED).as_deref(), Some("<rss></rss>"));
    assert_eq!(ended(MAX_UNMATCHED + 1), None);
    let kept = |attributes: String| mended(&format!("<rss{attributes}></rss>")).map(|mended| mended.text);
    let repeated = " a=1".repeat(MAX_ATTRIBUTES_READ - 1);
    assert_eq!(kept(format!("{repeated} b=2")).as_deref(), Some("<rss a=\"1\" b=\"2\"></rss>"));
    assert_eq!(kept(format!("{repeated} a=1 b=2")).as_deref(), Some("<rss a=\"1\"></rss>"));
}

#[test]
fn entries_that_are_broken_are_scanned_a_bounded_number_of_times() {
    let text = format!("<rss><channel>{}]]></item></channel></rss>", "<item><b><![CDATA[</item>".repeat(1000));
    let mut rewriter = Rewriter::new(Dialect::of_root("rss").unwrap(), "", text.len(), ParseLimits::default());
    let before = rewriter.budget;
    for (at, _) in text.match_indices("<item>") {
        assert_eq!(rewriter.whole_entry(&text[at..], "item"), None);
    }
    assert!(before == WASTE * text.len() && rewriter.budget == 0, "all of it is spent");
    let text = format!("<item><!--</item>{}", "<item></item>".repeat(1000)).repeat(2);
    let mut rewriter = Rewriter::new(Dialect::of_root("rss").unwrap(), "", text.len(), ParseLimits::default());
    let entries = text.match_indices("<item>").filter_map(|(at, _)| rewriter.whole_entry(&text[at..], "item"));
    assert_eq!(entries.count(), 2000, "what is unclosed costs no other entry");
    assert!(rewriter.budget > text.len());
    let entries = "<item><b><!--</item>".repeat(100);
    let text = format!("{entries}--></item{}>", " ".repeat(10 * entries.len()));
    let mut rewriter = Rewriter::new(Dialect::of_root("rss").unwrap(), "", text.len(), ParseLimits::default());
    for (at, _) in text.match_indices("<item>") {
        assert_eq!(rewriter.whole_entry(&text[at..], "item"), None);
    }
    assert_eq!(rewriter.budget, 0, "the rest of an end tag is scanned too");
}

#[test]
fn what_a_broken_entry_hides_changes_no_other_one() {
    let draft = "<rss><channel><item><guid>1</guid></item><!-- <item><guid>draft</guid></item> ";
    assert!(!mended(draft).unwrap().text.contains("draft"), "a document that was cut in a comment");
    let unclosed = "<rss><channel><item><!-- a</item><item><guid>2</guid></item></channel></rss>";
    assert!(mended(unclosed).unwrap().text.contains("<item><guid>2</guid></item>"));
    let sound = "<entry><id>2</id><content type='xhtml'><div xmlns='http://www.w3.org/1999/xhtml'><p/><![CDATA[y]]></div></content></entry>";
    let cut = format!(
        "<feed xmlns='http://www.w3.org/2005/Atom'><entry><id>1</id><!-- x</entry>{sound}<entry><id>3</id><!-- z --><content><![CDATA[cut"
    );
    assert!(mended(&cut).unwrap().text.contains(sound), "a section that does not end, behind one that does");
}

#[test]
fn an_entity_of_the_document_is_kept_in_what_is_rewritten() {
    let text = "<!DOCTYPE rss [<!ENTITY b 'http://a.org/'>]><rss><channel><item><guid>&b;1&c;</guid><title>AT&T</title></item></channel></rss>";
    let mended = mended(text).unwrap().text;
    assert!(mended.contains("<guid>&b;1&amp;c;</guid>") && mended.contains("AT&amp;T"), "{mended}");
}

#[test]
fn a_document_that_ends_too_early_is_known() {
    for (text, truncated) in [("<rss></rss>", false), ("<rss><channel>", true), ("<rss></channel></rss>x", false)] {
        assert_eq!(mended(text).map(|mended| mended.truncated), Some(truncated), "{text}");
    }
}
