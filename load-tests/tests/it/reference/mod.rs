//! Compares the simulator with the reference simulation, a Python program that is not part of this project: its results
//! are recorded here, with the commands that produced them, and other projects' rules must produce the same.

use load_tests::simulate::histories::{self, Series};
use load_tests::simulate::{Comparison, Figures, Recipe, SampledFeed, Simulated, sample};

/// The maximum difference of results: the reference ends its search for a parameter within 1.5 % of the budget.
const SEARCHED: f64 = 0.05;
/// The maximum difference with the same parameter: fleets and draws are the same, only times are rounded to
/// milliseconds.
const AT_THE_SAME_KNOB: f64 = 0.005;

/// Returns the rows of a recorded table: policy, parameter or budget, results.
fn recorded(table: &str) -> Vec<(Simulated, f64, Vec<f64>)> {
    let lines = table.lines().filter(|line| !line.starts_with('#'));
    let of_line = |line: &str| {
        let (policy, numbers) = line.split_once('\t').unwrap();
        let mut numbers = numbers.split('\t').map(|cell| cell.parse::<f64>().unwrap());
        (policy.parse().unwrap(), numbers.next().unwrap(), numbers.collect())
    };
    lines.map(of_line).collect()
}

fn samples(histories: &[Series], recipe: &Recipe, seeds: impl Iterator<Item = u64>) -> Vec<Vec<SampledFeed>> {
    seeds.map(|seed| sample(histories, &Recipe { seed, ..*recipe }).unwrap()).collect()
}

fn assert_close(what: &str, ours: &[f64], theirs: &[f64], tolerance: f64) {
    println!("{what}: ours {ours:.4?}, the reference's {theirs:.4?}");
    assert_eq!(ours.len(), theirs.len());
    for (ours, theirs) in ours.iter().zip(theirs) {
        assert!((ours - theirs).abs() <= tolerance * theirs, "{what}: {ours}, the reference has {theirs}");
    }
}

#[test]
fn rules_come_to_what_the_reference_has_at_the_same_knob_on_made_up_histories() {
    let recipe = Recipe { feeds: 100, days: 40, ..Recipe::default() };
    let samples = samples(&histories::generated(1, 25), &recipe, 1..=2);
    let defaults = common::config::defaults().policy;
    let recorded = recorded(include_str!("made_up.tsv"));
    assert_eq!(recorded.len(), 14);
    for (policy, knob, theirs) in recorded {
        let each: Vec<Figures> = samples.iter().map(|sample| policy.run(sample, &defaults, knob)).collect();
        let ours = Figures::pooled(&each);
        let ours = [
            ours.polls_per_feed_day,
            ours.weighted_mean_minutes,
            ours.weighted_p95_minutes,
            ours.unweighted_mean_minutes,
            ours.polls_per_item,
            ours.hot_share,
            ours.missed,
        ];
        assert_close(&format!("{policy} at {knob}"), &ours, &theirs, AT_THE_SAME_KNOB);
    }
}

#[test]
#[ignore = "needs the public histories, which are no part of the project: dev/soak policies"]
fn rules_come_to_what_the_reference_has_at_the_same_polls_on_public_histories() {
    let path = std::env::var("FEEDFLEET_HISTORIES").expect("FEEDFLEET_HISTORIES names the file of posting histories");
    let histories = histories::read(&std::fs::read_to_string(path).unwrap()).unwrap();
    let comparison = Comparison::new(samples(&histories, &Recipe::default(), 1..=5), common::config::defaults().policy);
    let recorded = recorded(include_str!("public.tsv"));
    assert_eq!(recorded.len(), 12);
    for (policy, budget, theirs) in recorded {
        let ours = comparison.row(policy, budget).figures;
        let ours = [ours.polls_per_feed_day, ours.weighted_mean_minutes, ours.unweighted_mean_minutes];
        assert_close(&format!("{policy} at {budget}"), &ours, &theirs, SEARCHED);
    }
}
