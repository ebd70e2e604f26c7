//! Help texts, as snapshots, so that each change is reviewed.

use crate::program::run;

fn help(command: &[&str]) -> String {
    let arguments: Vec<&str> = command.iter().copied().chain(["--help"]).collect();
    let ran = run(&arguments);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{command:?}");
    ran.out
}

#[test]
fn help_texts_are_as_they_were_read_last() {
    let commands: &[&[&str]] = &[
        &[],
        &["run"],
        &["demo"],
        &["migrate"],
        &["setup"],
        &["feed"],
        &["feed", "add"],
        &["feed", "list"],
        &["feed", "show"],
        &["feed", "explain"],
        &["feed", "set"],
        &["feed", "remove"],
        &["import"],
        &["export"],
        &["requeue"],
        &["requeue", "show"],
        &["ping"],
        &["push"],
        &["push", "check"],
        &["tail"],
        &["subscription"],
        &["subscription", "add"],
        &["subscription", "set"],
        &["subscription", "replay"],
        &["fleet"],
        &["host"],
        &["host", "list"],
        &["host", "set"],
        &["host", "block"],
        &["entries"],
        &["stats"],
        &["top"],
        &["man"],
        &["health"],
        &["parse"],
        &["config"],
        &["config", "check"],
        &["config", "print"],
        &["config", "reload"],
        &["config", "show"],
        &["fleet", "pause"],
        &["fetch"],
        &["discover"],
        &["completions"],
        &["backup"],
        &["simulate"],
    ];
    for command in commands.iter().copied() {
        let name = ["feedfleet"].iter().chain(command).copied().collect::<Vec<_>>().join("-");
        insta::assert_snapshot!(name, help(command));
    }
}

#[test]
fn help_fits_a_terminal_of_120_columns() {
    for command in [&[][..], &["feed"], &["fleet"], &["host"], &["config"], &["parse"], &["simulate"]] {
        for line in help(command).lines() {
            assert!(line.chars().count() <= 120, "{line}");
        }
    }
}

#[test]
fn the_version_is_the_packages() {
    let ran = run(&["--version"]);
    assert_eq!(ran.out.trim(), format!("feedfleet {}", env!("CARGO_PKG_VERSION")));
    assert_eq!(run(&["version"]).out, ran.out);
}

#[test]
fn help_of_a_command_is_found_in_both_ways() {
    assert_eq!(run(&["help", "feed", "add"]).out, help(&["feed", "add"]));
}

#[test]
fn help_is_as_wide_as_the_terminal() {
    for (columns, widest) in [("60", 60), ("80", 80), ("200", 100)] {
        let ran = crate::program::command(&["feed", "add", "--help"]).env("COLUMNS", columns).output().unwrap();
        let text = String::from_utf8(ran.stdout).unwrap();
        let width = text.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(width <= widest && width + 20 > widest, "{width} columns of {columns}:\n{text}");
    }
}
