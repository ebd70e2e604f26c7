//! `dev/bench parse`: the worker's parser beside feed-rs alone, and, given a Python with feedparser, beside that.
//!
//! `parse_bench FOLDER [PYTHON]` writes a few well-formed feeds of 10 to 30 items to the folder, and has every side read
//! all of them again and again; sides take turns, and medians of the rounds are compared. The worker's side decodes,
//! parses and normalises, with hints, links and identities; feed-rs parses.

use std::hint::black_box;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use worker::parse::{ParseLimits, parse};

/// As the program has it.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const ROUNDS: usize = 9;
/// How long one side reads in one round.
const TURN: Duration = Duration::from_millis(300);
const URL: &str = "https://harbour.example/feed.xml";

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().context("usage: parse_bench FOLDER [PYTHON]")?);
    let feeds = feeds();
    std::fs::create_dir_all(&folder)?;
    for (name, feed) in &feeds {
        std::fs::write(folder.join(name), feed)?;
    }
    let mut feedparser = arguments.next().map(|python| Feedparser::start(&python, &folder)).transpose()?;

    println!(
        "{:<28}{:>8}{:>12}{:>12}{:>14}{:>10}{:>14}",
        "feed", "bytes", "ours", "feed-rs", "feedparser", "/ feed-rs", "feedparser /"
    );
    let mut ratios = Vec::new();
    for (name, feed) in &feeds {
        let (mut ours, mut feed_rs, mut python) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            ours.push(time_each(|| read_ours(feed))?);
            feed_rs.push(time_each(|| read_feed_rs(feed))?);
            if let Some(feedparser) = &mut feedparser {
                python.push(feedparser.time_each(name)?);
            }
        }
        let ratio = median(&mut ours.iter().zip(&feed_rs).map(|(ours, bare)| ours / bare).collect::<Vec<_>>());
        let (ours, feed_rs) = (median(&mut ours), median(&mut feed_rs));
        ratios.push(ratio);
        print!("{name:<28}{:>8}{:>9.1} us{:>9.1} us", feed.len(), ours * 1e6, feed_rs * 1e6);
        match python.is_empty() {
            true => println!("{:>14}{ratio:>10.2}", "-"),
            false => {
                let python = median(&mut python);
                println!("{:>11.0} us{ratio:>10.2}{:>14.0}", python * 1e6, python / ours);
            }
        }
    }
    println!(
        "parse and normalise over feed-rs alone, median of all feeds (T9: floor 1.5, stretch 1.2): {:.2}",
        median(&mut ratios)
    );
    Ok(())
}

fn read_ours(feed: &str) -> anyhow::Result<usize> {
    let feed = parse(feed.as_bytes(), Some("application/xml; charset=utf-8"), URL, &ParseLimits::default())?;
    ensure!(!feed.repaired && !feed.entries.is_empty(), "a sound feed was not read as one");
    Ok(feed.entries.len())
}

fn read_feed_rs(feed: &str) -> anyhow::Result<usize> {
    let parser = feed_rs::parser::Builder::new().base_uri(Some(URL)).sanitize_content(false).build();
    Ok(parser.parse(feed.as_bytes())?.entries.len())
}

/// Seconds for one call, over a turn of them.
fn time_each(mut read: impl FnMut() -> anyhow::Result<usize>) -> anyhow::Result<f64> {
    let begun = Instant::now();
    let mut calls = 0_u32;
    while begun.elapsed() < TURN {
        black_box(read()?);
        calls += 1;
    }
    Ok(begun.elapsed().as_secs_f64() / f64::from(calls))
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A Python process that reads a feed for each name that it receives, and answers with seconds.
struct Feedparser {
    child: Child,
    answers: BufReader<ChildStdout>,
}

const PYTHON: &str = "
import sys, time, feedparser
for name in sys.stdin:
    feed = open(sys.argv[1] + '/' + name.strip(), 'rb').read()
    begun, calls = time.perf_counter(), 0
    while calls == 0 or time.perf_counter() - begun < 0.3:
        assert feedparser.parse(feed, sanitize_html=False).entries
        calls += 1
    print((time.perf_counter() - begun) / calls, flush=True)
";

impl Feedparser {
    fn start(python: &str, folder: &Path) -> anyhow::Result<Self> {
        let mut command = Command::new(python);
        command.args(["-c", PYTHON]).arg(folder).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("{python} cannot be started"))?;
        let answers = child.stdout.take().context("a pipe")?;
        Ok(Feedparser { child, answers: BufReader::new(answers) })
    }

    fn time_each(&mut self, name: &str) -> anyhow::Result<f64> {
        let questions = self.child.stdin.as_mut().context("a pipe")?;
        writeln!(questions, "{name}")?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        answer.trim().parse().with_context(|| format!("feedparser answered {answer:?}"))
    }
}

impl Drop for Feedparser {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ended = self.child.wait();
    }
}

/// Returns feeds as the common publishing programs write them.
fn feeds() -> Vec<(String, String)> {
    let mut feeds = Vec::new();
    for items in [10, 30] {
        feeds.push((format!("wordpress-{items}.xml"), wordpress(items)));
        feeds.push((format!("atom-escaped-{items}.xml"), atom(items)));
        feeds.push((format!("rss-escaped-{items}.xml"), escaped_rss(items)));
        feeds.push((format!("podcast-{items}.xml"), podcast(items)));
    }
    feeds
}

/// Some 2 KB of a post as HTML.
fn html(number: usize) -> String {
    let paragraph = |at: usize| {
        format!(
            "<p>Paragraph {at} of post {number}: the ferry left <em>late</em> again, and nobody on the quay &amp; in the café was \
             <a href=\"https://harbour.example/2026/{number}/{at}\" title=\"x\">surprised</a>; the tide tables said as much.</p>\n"
        )
    };
    (0..8).map(paragraph).collect::<String>() + "<p><img src=\"/img/quay.jpg\" alt=\"the quay\" /></p>"
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

const HEAD: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";

fn wordpress(items: usize) -> String {
    let item = |n: usize| {
        format!(
            "\t<item>\n\t\t<title>Ferry notes, part {n}</title>\n\t\t<link>https://harbour.example/2026/{n}/</link>\n\
             \t\t<dc:creator><![CDATA[Ada Quay]]></dc:creator>\n\t\t<pubDate>Mon, 02 Nov 2026 08:{:02}:00 +0000</pubDate>\n\
             \t\t<category><![CDATA[Ferries]]></category>\n\t\t<category><![CDATA[Weather]]></category>\n\
             \t\t<guid isPermaLink=\"false\">https://harbour.example/?p={n}</guid>\n\
             \t\t<description><![CDATA[<p>The ferry left late again, and nobody was surprised. [&#8230;]</p>]]></description>\n\
             \t\t<content:encoded><![CDATA[{}]]></content:encoded>\n\
             \t\t<wfw:commentRss>https://harbour.example/2026/{n}/feed/</wfw:commentRss>\n\t\t<slash:comments>{n}</slash:comments>\n\t</item>\n",
            n % 60,
            html(n)
        )
    };
    format!(
        "{HEAD}<rss version=\"2.0\" xmlns:content=\"http://purl.org/rss/1.0/modules/content/\" xmlns:wfw=\"http://wellformedweb.org/CommentAPI/\" \
         xmlns:dc=\"http://purl.org/dc/elements/1.1/\" xmlns:atom=\"http://www.w3.org/2005/Atom\" \
         xmlns:sy=\"http://purl.org/rss/1.0/modules/syndication/\" xmlns:slash=\"http://purl.org/rss/1.0/modules/slash/\">\n<channel>\n\
         <title>The Harbour</title>\n<atom:link href=\"https://harbour.example/feed/\" rel=\"self\" type=\"application/rss+xml\" />\n\
         <link>https://harbour.example</link>\n<description>Notes</description>\n<language>en-GB</language>\n\
         <sy:updatePeriod>hourly</sy:updatePeriod>\n<sy:updateFrequency>1</sy:updateFrequency>\n{}</channel>\n</rss>\n",
        (1..=items).map(item).collect::<String>()
    )
}

fn atom(items: usize) -> String {
    let entry = |n: usize| {
        format!(
            "  <entry>\n    <id>tag:harbour.example,2026:{n}</id>\n    <published>2026-11-02T08:{:02}:00.000+01:00</published>\n\
             \x20   <updated>2026-11-02T09:00:00Z</updated>\n    <category term=\"Ferries\"/>\n    <title type=\"text\">Ferry notes, part {n}</title>\n\
             \x20   <content type=\"html\">{}</content>\n    <link rel=\"alternate\" type=\"text/html\" href=\"https://harbour.example/2026/{n}\"/>\n\
             \x20   <author><name>Ada Quay</name><uri>https://harbour.example/ada</uri></author>\n  </entry>\n",
            n % 60,
            escape(&html(n))
        )
    };
    format!(
        "{HEAD}<feed xmlns=\"http://www.w3.org/2005/Atom\" xml:lang=\"en\">\n  <id>tag:harbour.example,2026:feed</id>\n  <title>The Harbour</title>\n\
         \x20 <updated>2026-11-02T09:00:00Z</updated>\n  <link rel=\"self\" href=\"https://harbour.example/atom.xml\"/>\n\
         \x20 <link rel=\"hub\" href=\"https://hub.example/\"/>\n  <link href=\"https://harbour.example/\"/>\n{}</feed>\n",
        (1..=items).map(entry).collect::<String>()
    )
}

fn escaped_rss(items: usize) -> String {
    let item = |n: usize| {
        format!(
            "<item><title>Ferry notes &amp; more, part {n}</title><link>https://harbour.example/2026/{n}?a=1&amp;b=2</link>\
             <guid>https://harbour.example/2026/{n}</guid><pubDate>Mon, 02 Nov 2026 08:{:02}:00 GMT</pubDate>\
             <author>ada@harbour.example (Ada Quay)</author><description>{}</description></item>\n",
            n % 60,
            escape(&html(n))
        )
    };
    format!(
        "{HEAD}<rss version=\"2.0\"><channel><title>The Harbour</title><link>https://harbour.example/</link>\
         <description>Notes</description><ttl>60</ttl>\n{}</channel></rss>\n",
        (1..=items).map(item).collect::<String>()
    )
}

fn podcast(items: usize) -> String {
    let item = |n: usize| {
        format!(
            "    <item>\n      <title>Episode {n}: the quay</title>\n      <itunes:title>The quay</itunes:title>\n      <itunes:episode>{n}</itunes:episode>\n\
             \x20     <itunes:author>Ada Quay</itunes:author>\n      <itunes:duration>00:3{}:00</itunes:duration>\n      <itunes:explicit>false</itunes:explicit>\n\
             \x20     <itunes:image href=\"https://harbour.example/img/{n}.jpg\"/>\n      <guid isPermaLink=\"false\">ep-{n}</guid>\n\
             \x20     <pubDate>Mon, 02 Nov 2026 08:{:02}:00 GMT</pubDate>\n      <link>https://harbour.example/ep/{n}</link>\n\
             \x20     <description><![CDATA[{}]]></description>\n      <itunes:summary>About the quay, part {n}.</itunes:summary>\n\
             \x20     <enclosure url=\"https://harbour.example/audio/{n}.mp3\" length=\"123456\" type=\"audio/mpeg\"/>\n    </item>\n",
            n % 10,
            n % 60,
            &html(n)[..html(n).floor_char_boundary(700)]
        )
    };
    format!(
        "{HEAD}<rss version=\"2.0\" xmlns:itunes=\"http://www.itunes.com/dtds/podcast-1.0.dtd\">\n  <channel>\n    <title>The Harbour, spoken</title>\n\
         \x20   <link>https://harbour.example/</link>\n    <language>en</language>\n    <itunes:category text=\"Society\"/>\n{}  </channel>\n</rss>\n",
        (1..=items).map(item).collect::<String>()
    )
}
