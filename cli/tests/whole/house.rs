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

pub(crate) const CRATES: [&str; 7] = ["cli", "common", "load-tests", "scheduler", "store", "web", "worker"];

/// Returns the folder of a crate's manifest in the workspace.
pub(crate) fn folder(crate_name: &str) -> &str {
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
        // The web crate serves with hyper; the test below says that it uses no client of it.
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

/// Returns the text of every source file below a folder of the workspace, by its path.
pub(crate) fn sources(folder: &str) -> Vec<(String, String)> {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder)];
    let mut sources = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                sources.push((path.display().to_string(), std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    sources
}

/// Features of dependencies are those of the whole workspace, so that hyper's client is compiled into the web crate too: what
/// counts is what its code names.
#[test]
fn a_scheduler_opens_no_connection_for_a_stranger() {
    for crate_name in ["scheduler", "store", "web"] {
        let sources = sources(&format!("{}/src", folder(crate_name)));
        assert!(sources.len() > 10, "{crate_name}: {}", sources.len());
        for (path, text) in sources.iter().filter(|(path, _)| !path.contains("test")) {
            // Tests at a file's end call the server that they test.
            let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            for banned in [
                "hyper::client",
                "hyper_util::client",
                "client::conn",
                "client::legacy",
                "TcpStream::connect",
                "lookup_host",
            ] {
                assert!(!code.contains(banned), "{path} names {banned}");
            }
            let grouped = ["use hyper::{", "use hyper_util::{"].iter().any(|group| {
                code.split(group)
                    .skip(1)
                    .any(|rest| rest.split(';').next().is_some_and(|names| names.contains("client")))
            });
            assert!(!grouped, "{path} imports a client");
        }
    }
}

#[test]
fn the_scheduler_builds_no_http_server_no_template_and_no_xml_reader() {
    let built = built_for(&["-p", "scheduler", "--edges", "normal"]);
    assert!(contains(&built, "store"), "{built}");
    for banned in ["axum", "askama", "ammonia", "quick-xml"] {
        assert!(!contains(&built, banned), "the scheduler depends on {banned}");
    }
}

#[test]
fn the_folder_of_the_scheduler_lists_at_most_13_names() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scheduler/src");
    let names: BTreeSet<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(names.len() <= 13, "{} names: {names:?}", names.len());
}

#[test]
fn there_is_one_tls_stack() {
    let built = built_for(&["--workspace", "--edges", "normal,build,dev"]);
    assert!(contains(&built, "aws-lc-rs"));
    for banned in ["ring", "openssl-sys", "native-tls"] {
        assert!(!contains(&built, banned), "{banned} crept in");
    }
}

/// Returns the packages that are built, a line each. The lock file also lists dependencies of other platforms and
/// disabled features, so this calls cargo.
fn built_for(arguments: &[&str]) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut tree = std::process::Command::new(env!("CARGO"));
    tree.args(["tree", "--locked", "--offline", "--prefix", "none"]).args(arguments).current_dir(root);
    let output = tree.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn contains(built: &str, package: &str) -> bool {
    built.lines().any(|line| line.split(' ').next() == Some(package))
}
