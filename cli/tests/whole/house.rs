//! The code base itself: which crate may depend on which, and that there is one TLS stack.

use std::collections::BTreeSet;
use std::path::Path;

/// Returns the workspace members that a crate's manifest names under `section`.
fn members_in(crate_name: &str, section: &str) -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder(crate_name)).join("Cargo.toml");
    let manifest: toml::Table = std::fs::read_to_string(path).unwrap().parse().unwrap();
    let names = manifest.get(section).and_then(toml::Value::as_table).into_iter().flat_map(|table| table.keys());
    names.filter(|name| CRATES.contains(&name.as_str())).cloned().collect()
}

const CRATES: [&str; 7] = ["cli", "common", "load-tests", "scheduler", "store", "web", "worker"];

/// Returns the folder of a crate's manifest in the workspace.
fn folder(crate_name: &str) -> &str {
    match crate_name {
        "store" => "scheduler/store",
        "web" => "scheduler/web",
        other => other,
    }
}

#[test]
fn dependencies_point_one_way() {
    let allowed = [
        ("common", vec![]),
        ("store", vec!["common"]),
        ("scheduler", vec!["common", "store"]),
        ("web", vec!["common", "scheduler", "store"]),
        ("worker", vec!["common"]),
        ("cli", vec!["common", "load-tests", "scheduler", "store", "web", "worker"]),
        ("load-tests", vec!["common"]),
    ];
    for (crate_name, allowed) in allowed {
        let allowed: BTreeSet<String> = allowed.into_iter().map(str::to_owned).collect();
        let found = members_in(crate_name, "dependencies");
        assert!(found.is_subset(&allowed), "{crate_name} depends on {found:?}, it may on {allowed:?}");
        for name in members_in(crate_name, "dev-dependencies") {
            let fine = allowed.contains(&name) || name == "load-tests" || name == crate_name;
            assert!(fine, "the tests of {crate_name} depend on {name}");
        }
    }
}

#[test]
fn the_scheduler_has_no_http_client_and_no_parser_and_the_worker_no_sql() {
    let names = |crate_name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder(crate_name)).join("Cargo.toml");
        let manifest: toml::Table = std::fs::read_to_string(path).unwrap().parse().unwrap();
        manifest["dependencies"].as_table().unwrap().keys().cloned().collect::<BTreeSet<String>>()
    };
    for crate_name in ["scheduler", "store", "web"] {
        for banned in ["reqwest", "feed-rs"] {
            assert!(!names(crate_name).contains(banned), "{crate_name} depends on {banned}");
        }
        // The web crate serves with hyper, whose client it does not use.
        assert!(crate_name == "web" || !names(crate_name).contains("hyper"), "{crate_name} depends on hyper");
    }
    for banned in ["sqlx", "axum", "askama", "ammonia", "quick-xml"] {
        assert!(!names("scheduler").contains(banned), "the scheduler's loops depend on {banned}");
    }
    // The web crate reads XML-RPC by quick-xml, and refuses feeds: its own test sends some.
    assert!(!names("store").contains("quick-xml"), "the store parses nothing");
    for banned in ["sqlx", "axum"] {
        assert!(!names("worker").contains(banned), "{banned}");
    }
}

#[test]
fn there_is_one_tls_stack() {
    // The lock file also lists dependencies of other platforms and disabled features, so this asks what is built.
    let arguments = ["tree", "--locked", "--offline", "--workspace", "--prefix", "none", "--edges", "normal,build,dev"];
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let output = std::process::Command::new(env!("CARGO")).args(arguments).current_dir(root).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let built = String::from_utf8(output.stdout).unwrap();
    assert!(built.lines().any(|line| line.starts_with("aws-lc-rs ")));
    for banned in ["ring", "openssl-sys", "native-tls"] {
        assert!(!built.lines().any(|line| line.starts_with(&format!("{banned} "))), "{banned} crept in");
    }
}
