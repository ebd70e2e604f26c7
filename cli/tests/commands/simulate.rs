//! `feedfleet simulate`: its output and its errors.

use serde_json::Value;

use crate::program::run;

/// Small enough for an unoptimised build.
const SMALL: [&str; 5] = ["simulate", "--feeds", "20", "--days", "10"];

fn simulate(more: &[&str]) -> crate::program::Ran {
    run(&[&SMALL, more].concat())
}

#[test]
fn a_line_for_each_policy_and_budget_and_the_same_for_the_same_seed() {
    let flags = ["--json", "--policy", "feedfleet,newsgator,oracle", "--budget", "1,0.5"];
    let ran = simulate(&flags);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    let lines: Vec<Value> = ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of_line = |line: &Value| (line["policy"].as_str().unwrap().to_owned(), line["budget"].as_f64().unwrap());
    let expected = [1.0, 0.5].map(|budget| ["feedfleet", "newsgator", "oracle"].map(|policy| (policy.into(), budget)));
    assert_eq!(lines.iter().map(of_line).collect::<Vec<_>>(), expected.concat());
    for line in &lines {
        let names: Vec<&str> = line.as_object().unwrap().keys().map(String::as_str).collect();
        let mut expected = [
            "policy",
            "budget",
            "polls_per_feed_day",
            "weighted_mean_minutes",
            "weighted_p95_minutes",
            "unweighted_mean_minutes",
            "polls_per_item",
            "missed_share",
            "hot_share",
        ];
        expected.sort_unstable();
        assert_eq!(names, expected);
    }
    let polls = |at: usize| lines[at]["polls_per_feed_day"].as_f64().unwrap();
    assert!((polls(0) / polls(1) - 1.0).abs() < 0.02 && (polls(3) / polls(1) - 0.5).abs() < 0.02, "{lines:?}");
    assert_eq!(simulate(&flags).out, ran.out);
    assert_ne!(simulate(&[&flags[..], &["--seed", "2"]].concat()).out, ran.out);
}

#[test]
fn histories_of_a_file_are_read_and_a_picture_is_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let (histories, picture) = (folder.path().join("histories.tsv"), folder.path().join("curve.svg"));
    let times: Vec<String> = (0..60).map(|day| (1_700_000_000 + day * 86_400).to_string()).collect();
    std::fs::write(&histories, format!("daily\tblog:s\t{}\n", times.join(" "))).unwrap();
    let ran = simulate(&[
        "--histories",
        histories.to_str().unwrap(),
        "--policy",
        "feedfleet,fixed",
        "--plot",
        picture.to_str().unwrap(),
    ]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    assert_eq!(ran.out.lines().count(), 1 + 4, "{}", ran.out);
    assert!(std::fs::read_to_string(picture).unwrap().starts_with("<svg "));
}

#[test]
fn the_plot_of_ones_own_fleet_has_a_line_for_each_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let (histories, picture) = (folder.path().join("histories.tsv"), folder.path().join("own.svg"));
    let times: Vec<String> = (0..60).map(|day| (1_700_000_000 + day * 86_400).to_string()).collect();
    std::fs::write(&histories, format!("https://a.example/feed\tauto:s\t{}\n", times.join(" "))).unwrap();
    let drawn = |more: &[&str]| {
        let flags =
            ["simulate", "--histories", histories.to_str().unwrap(), "--own", "--plot", picture.to_str().unwrap()];
        let ran = run(&[&flags[..], more].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        std::fs::read_to_string(&picture).unwrap()
    };
    let one = drawn(&[]);
    assert!(one.starts_with("<svg ") && one.contains(">now</text>") && one.contains("Own fleet: 1 feed"), "{one}");
    assert!(!one.contains(">with --set</text>"));
    let both = drawn(&["--set", "policy.price=9"]);
    assert!(both.contains(">now</text>") && both.contains(">with --set</text>"), "{both}");
}

#[test]
fn goals_are_ratios() {
    let ran = simulate(&["--goals", "--json", "--seed", "1,2"]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    let goals: Value = serde_json::from_str(&ran.out).unwrap();
    assert!(goals["mean_at_equal_polls"].as_f64().unwrap() < 0.6, "{goals}");
    assert_eq!(goals["polls_under_floor"], 0.0);
}

#[test]
fn a_crowd_keeps_to_open_minutes_and_floors() {
    let ran = run(&["simulate", "--crowd", "--feeds", "300", "--days", "3", "--price", "0.02", "--json"]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    let outcome: Value = serde_json::from_str(&ran.out).unwrap();
    assert!(outcome["polls_per_feed_day"].as_f64().unwrap() > 2.0, "{outcome}");
    assert!(outcome["hot_share"].as_f64().unwrap() < 0.002, "{outcome}");
    assert_eq!(outcome["polls_under_floor"], 0);
}

#[test]
fn mistakes_are_said() {
    let refused = |flags: &[&str], said: &str| {
        let ran = run(&[&["simulate"], flags].concat());
        assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{flags:?}");
        assert!(ran.err.contains(said), "{flags:?}: {}", ran.err);
    };
    refused(&["--crowd", "--set", "policy.price=2"], "cannot be used with");
    refused(&["--policy", "guess"], "no such policy; there are feedfleet, newsgator, fixed");
    refused(&["--budget", "0"], "a budget is a fraction of newsgator's polls");
    refused(&["--seed", "x"], "seeds are whole numbers, such as 1 or 1,2 or 1-5");
    refused(&["--days", "3000"], "no history is long enough for --days 3000");
    refused(&["--histories", "/nowhere"], "--histories /nowhere: cannot be read");
    refused(
        &["--histories", "Cargo.toml"],
        "--histories Cargo.toml: line 1: neither three parts nor four; expected NAME",
    );
}
