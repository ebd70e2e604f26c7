//! Short forms of load scenarios (`load-tests/scenarios`): they run and pass, and an injected fault is detected.

use std::path::{Path, PathBuf};

use load_tests::scenario::file::{self, Form};
use load_tests::scenario::{Report, Setting, run};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../load-tests/scenarios")
}

async fn short(name: &str, planted: bool) -> Report {
    let form = Form { short: true, planted };
    let setting = Setting { binary: env!("CARGO_BIN_EXE_feedfleet").into(), form, progress: false };
    let report = run(&folder().join(format!("{name}.toml")), &setting).await;
    report.unwrap_or_else(|error| panic!("{error}: {:?}", std::error::Error::source(&error)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_steady_mix_is_kept() {
    let report = short("steady", false).await;
    assert!(report.is_good(), "{report}");
    let written = tempfile::tempdir().unwrap();
    let text = report.write(written.path()).unwrap();
    assert!(std::fs::read_to_string(text).unwrap().contains("the judge:"));
    let json: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(written.path().join("steady.json")).unwrap()).unwrap();
    assert!(
        json["samples"].as_array().unwrap().len() > 10 && json["figures"]["memory_mb.worker"].as_f64().unwrap() > 1.0
    );
    let picture = std::fs::read_to_string(written.path().join("steady.svg")).unwrap();
    assert!(picture.contains(">worker 0<") && picture.contains(">p99<"), "{picture}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_hold_on_to_the_api_fail_no_feed_and_leave_health_answering() {
    let report = short("callers", false).await;
    assert!(report.is_good(), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_that_crowds_its_hosts_is_found_out() {
    let report = short("throttling", true).await;
    let missed: Vec<&str> =
        report.checks.iter().filter(|check| !check.good).map(|check| check.figure.as_str()).collect();
    assert!(missed.contains(&"breaches") && report.figures["gap_broken"] > 0.0, "{report}");
}

#[test]
fn every_file_has_all_its_forms() {
    let mut files = 0;
    for entry in std::fs::read_dir(folder()).unwrap().map(Result::unwrap) {
        for (short, planted) in [(false, false), (true, false), (false, true), (true, true)] {
            let (scenario, _) =
                file::read(&entry.path(), Form { short, planted }).unwrap_or_else(|error| panic!("{error}"));
            assert!(!scenario.expect.is_empty(), "{} expects nothing", entry.path().display());
        }
        files += 1;
    }
    assert!(files >= 10, "{files}");
}
