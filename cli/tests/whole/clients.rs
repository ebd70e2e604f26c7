//! Clients that generators make of the API's description, in Python and TypeScript: they compile, and work with a fleet.

use std::path::{Path, PathBuf};
use std::process::Command;

use load_tests::{Feed, Origin, Script, loopback};

use crate::harness::Home;
use crate::webhooks::examples::installed;

fn tree() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Copies a file of the tests into the home.
fn place(home: &Home, name: &str) {
    std::fs::copy(tree().join("cli/tests/whole/clients").join(name), home.path(name)).unwrap();
}

/// Runs a program in the home; returns what it printed.
fn run(home: &Home, program: impl AsRef<std::ffi::OsStr>, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(home.path("")).output().unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{arguments:?}: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// Returns a fleet without feeds, and an origin with one. The fleet's description is in the home.
async fn fleet(home: &Home) -> (Origin, String, crate::harness::Fleet) {
    let origin = Origin::listen(&loopback(1, 0)).await.unwrap();
    origin.set("/feed", Script::feed(Feed::rss().initial(3)));
    let feed = origin.url("/feed");
    let fleet = home.start(&[]);
    let description = fleet.get("/openapi.json").await;
    std::fs::write(home.path("openapi.json"), description.to_string()).unwrap();
    (origin, feed, fleet)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_generated_client_in_python_works() {
    let home = Home::new("");
    let (_origin, feed, fleet) = fleet(&home).await;
    let python = installed("cli/tests/whole/clients/openapi-python-client.txt");
    place(&home, "smoke.py");
    let wish = ["-m", "openapi_python_client", "generate", "--path", "openapi.json", "--meta", "none"];
    let output = run(&home, &python, &[&wish[..], &["--output-path", "client"]].concat());
    assert!(!output.contains("Could not find") && !output.contains("Unable to parse"), "{output}");
    assert_eq!(run(&home, &python, &["smoke.py", &fleet.api, &feed]), "entries 2\n");
    fleet.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_generated_client_in_typescript_compiles_and_works() {
    let home = Home::new("");
    let (_origin, feed, fleet) = fleet(&home).await;
    let modules = installed("cli/tests/whole/clients/typescript");
    std::os::unix::fs::symlink(format!("{modules}/node_modules"), home.path("node_modules")).unwrap();
    place(&home, "smoke.ts");
    run(&home, home.path("node_modules/.bin/openapi-typescript"), &["openapi.json", "-o", "schema.ts"]);
    let strict = ["--strict", "--skipLibCheck", "--target", "es2022", "--module", "nodenext", "--outDir", "out"];
    run(&home, home.path("node_modules/.bin/tsc"), &[&strict[..], &["smoke.ts"]].concat());
    assert_eq!(run(&home, "node", &["out/smoke.js", &fleet.api, &feed]), "entries 2\n");
    fleet.stop();
}
