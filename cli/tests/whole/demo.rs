//! The demo when its output is not a terminal.

use crate::harness::Home;

/// Returns the number before a word, such as 12,345 before " entries".
fn number_before(text: &str, words: &str) -> u64 {
    let end = text.find(words).unwrap_or_else(|| panic!("no '{words}' in:\n{text}"));
    let digits = text[..end].split_whitespace().last().unwrap().replace(',', "");
    digits.parse().unwrap_or_else(|_| panic!("no number before '{words}': {digits}"))
}

#[test]
fn a_demo_polls_brings_entries_breaks_no_rule_and_ends_by_itself() {
    let home = Home::new("");
    let demo = home.command(&["demo", "--plain", "--for", "15s", "--listen", "127.0.0.1:0"]).output().unwrap();
    let (out, err) = (String::from_utf8(demo.stdout).unwrap(), String::from_utf8(demo.stderr).unwrap());
    assert!(demo.status.success(), "{out}\n{err}");
    assert!(out.starts_with("feedfleet demo: 312 feeds on 66 hosts"), "{out}");
    assert!(out.contains("\n 0:0") && out.contains("  new in "), "{out}");
    assert!(number_before(&out, " requests and stored") > 100, "{out}");
    assert!(number_before(&out, " entries, ") > 300, "{out}");
    assert!(number_before(&out, " answers were 304") > 10, "{out}");

    // The judge's table: one line per rule, each zero.
    let (_, card) = out.split_once("no rule was broken").unwrap_or_else(|| panic!("{out}"));
    let rules: Vec<&str> = card.lines().filter(|line| line.starts_with("  ")).collect();
    assert_eq!(rules.len(), 15, "{card}");
    assert!(rules.iter().all(|rule| rule.ends_with(" 0")), "{card}");
    assert!(!out.chars().any(|c| c.is_control() && c != '\n'), "a feed's control characters came through");
}
