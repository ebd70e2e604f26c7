//! Import of subscription files into a running fleet, and export from it.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::process::Command;

use serde_json::Value;

use crate::fleet::Fleet;
use crate::program::{Ran, run_with_input};

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn file(content: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(content).unwrap();
    file
}

fn import(fleet: &Fleet, content: &[u8], flags: &[&str]) -> Ran {
    let file = file(content);
    fleet.run(&[&["import", file.path().to_str().unwrap()], flags].concat())
}

/// Returns the fields of all feeds that people set.
fn feeds(fleet: &Fleet) -> Vec<Value> {
    let mut feeds: Vec<Value> = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let mut command = vec!["feed", "list", "--json", "--limit", "1000"];
        command.extend(after.iter().flat_map(|after| ["--after", after]));
        let page = fleet.run(&command);
        feeds.extend(page.out.lines().map(json));
        after = page.err.trim().split_once(" --after ").map(|(_, after)| after.to_owned());
        if after.is_none() {
            break;
        }
    }
    let kept = ["url", "subscribers", "active_subscribers", "sla", "important", "private", "interval", "calm"];
    for feed in &mut feeds {
        feed.as_object_mut().unwrap().retain(|name, _| kept.contains(&name.as_str()));
    }
    feeds.sort_by_key(|feed| feed["url"].as_str().unwrap().to_owned());
    feeds
}

/// Returns a fleet that does not poll.
async fn quiet() -> Fleet {
    let fleet = Fleet::start(&["--set", "policy.import_spread=1000h"]).await;
    fleet.done(&["fleet", "pause"]);
    fleet
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_added_known_and_refused_is_counted_and_said() {
    let fleet = quiet().await;
    let document = "<opml><body>\n<outline text='News'>\n<outline type='rss' xmlUrl='http://a.example/1'/>\n\
        <outline type='rss' xmlUrl='ftp://a.example/2'/>\n<outline xmlUrl='http://a.example/1'/></outline>\n\
        <outline type='rss' text='no address'/></body></opml>";
    let ran = import(&fleet, document.as_bytes(), &[]);
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (Some(1), "1 feed added, 1 known, 2 refused\nall polling is paused; `feedfleet fleet resume` starts it\n"),
        "{}",
        ran.err
    );
    let errors: Vec<&str> = ran.err.lines().collect();
    assert!(errors[0].starts_with("refused: line 4: url: 'ftp://a.example/2' has the scheme ftp"), "{errors:?}");
    assert!(errors.len() == 2 && errors[1].starts_with("refused: line 6: url: "), "{errors:?}");
    let again = json(&import(&fleet, document.as_bytes(), &["--json"]).out);
    assert_eq!((&again["added"], &again["known"]), (&Value::from(0), &Value::from(2)));
    assert_eq!(again["refused"][0]["line"], 4);

    let ran = run_with_input(&["import", "-", "--server", &fleet.server], b"# a list\nhttp://a.example/3\n");
    let paused = "all polling is paused; `feedfleet fleet resume` starts it";
    let expected = format!("1 feed added, 0 known\n{paused}\n");
    assert_eq!((ran.code, ran.out, ran.err.as_str()), (Some(0), expected, ""));

    let cut_off = &b"<opml><body>\n<outline xmlUrl='http://a.example/9'/>\n"[..];
    let documents = [
        (&b"<html><p>no</p></html>"[..], "no <opml> element"),
        (b"<opml>\n<outline", "line 2"),
        (cut_off, "line 3: it ends before </opml>"),
    ];
    for (content, expected) in documents {
        let ran = import(&fleet, content, &[]);
        assert!(ran.code == Some(1) && ran.err.contains(expected), "{}", ran.err);
    }
    assert_eq!(feeds(&fleet).len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_fleet_exports_another_imports_to_the_same_set() {
    let (one, other) = (quiet().await, quiet().await);
    let list: String = (0..2_345).map(|n| format!("http://host{}.example/f?a={n}&b='\"<>\u{e9}\n", n % 50)).collect();
    assert!(import(&one, list.as_bytes(), &[]).out.starts_with("2,345 feeds added, 0 known\n"));
    one.done(&[
        "feed",
        "set",
        "7",
        "--subscribers",
        "40",
        "--active-subscribers",
        "4",
        "--private",
        "--interval",
        "90s",
    ]);
    one.done(&["feed", "set", "8", "--sla", "--important"]);
    one.done(&["feed", "pause", "9"]);

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("feeds.opml");
    let ran = one.run(&["export", path.to_str().unwrap()]);
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (Some(0), "", "2,345 feeds exported\n"));
    let names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["feeds.opml"]);
    assert_eq!(one.run(&["export"]).out.as_bytes(), std::fs::read(&path).unwrap());

    let imported = other.done(&["import", path.to_str().unwrap()]);
    assert!(imported.starts_with("2,345 feeds added, 0 known\n"), "{imported}");
    assert_eq!(feeds(&other), feeds(&one));
    assert_eq!(other.done(&["import", path.to_str().unwrap()]), "0 feeds added, 2,345 known\n");
    // The file's values for known feeds are applied.
    other.done(&["feed", "set", "7", "--subscribers", "3"]);
    assert_eq!(other.done(&["import", path.to_str().unwrap()]), "0 feeds added, 2,345 known, 1 changed\n");
    assert_eq!(feeds(&other), feeds(&one));
}

/// A file has no logins, and an outline without one would be another feed.
#[tokio::test(flavor = "multi_thread")]
async fn feeds_with_a_login_are_left_out_of_an_export() {
    let key = "secrets.key=AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
    let fleet = Fleet::start(&["--set", key, "--set", "policy.import_spread=1000h"]).await;
    fleet.done(&["fleet", "pause"]);
    for url in ["http://a.example/feed", "http://ann:secret-of-hers@a.example/feed"] {
        fleet.done(&["feed", "add", "--json", url]);
    }
    let ran = fleet.run(&["export"]);
    let expected = "1 feed with a login left out: an import could not log in\n1 feed exported\n";
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), expected));
    assert_eq!(ran.out.matches("xmlUrl=\"http://a.example/feed\"").count(), 1, "{}", ran.out);
    assert!(!ran.out.contains("private"), "{}", ran.out);
    assert!(import(&fleet, ran.out.as_bytes(), &[]).out.starts_with("0 feeds added, 1 known\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_keeps_links_pipes_and_permissions() {
    let fleet = quiet().await;
    import(&fleet, b"http://a.example/1\n", &[]);
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let export = |to: &str| {
        let ran = fleet.run(&["export", to]);
        assert_eq!((ran.code, ran.err.as_str()), (Some(0), "1 feed exported\n"), "{to}");
        ran.out
    };
    fs::write(path("mine.opml"), "old").unwrap();
    fs::set_permissions(path("mine.opml"), fs::Permissions::from_mode(0o600)).unwrap();
    symlink("mine.opml", path("link.opml")).unwrap();
    export(&path("link.opml"));
    assert!(fs::symlink_metadata(path("link.opml")).unwrap().is_symlink());
    assert!(fs::read_to_string(path("mine.opml")).unwrap().ends_with("</opml>\n"));
    assert_eq!(fs::metadata(path("mine.opml")).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!fs::exists(path("mine.opml.part")).unwrap());

    let pipe = path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reader = {
        let pipe = pipe.clone();
        std::thread::spawn(move || fs::read_to_string(pipe))
    };
    export(&pipe);
    assert!(fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo(), "it was replaced");
    assert!(reader.join().unwrap().unwrap().ends_with("</opml>\n"));
    assert!(export("/dev/stdout").ends_with("</opml>\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_opens_its_report_first_and_says_what_it_did_whatever_becomes_of_the_report() {
    let fleet = quiet().await;
    let list = b"ftp://a.example/\nhttp://a.example/1\n";
    let ran = import(&fleet, list, &["--report", "/no/such/folder/report"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""));
    assert!(ran.err.starts_with("error: cannot write the report /no/such/folder/report: "), "{}", ran.err);
    assert!(feeds(&fleet).is_empty());
    // Nothing was imported: what was in the report stays.
    let (mine, nobody) = (file(list), "http://127.0.0.1:9");
    let path = mine.path().to_str().unwrap();
    assert_eq!(crate::program::run(&["import", path, "--report", path, "--server", nobody]).code, Some(1));
    assert_eq!(fs::read(path).unwrap(), list);
    // It can be opened, and nothing can be written into it.
    let (list, folder) = (file(list), tempfile::tempdir().unwrap());
    let report = folder.path().join("report");
    let mut limited = Command::new("sh");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_feedfleet"), "import"]);
    limited.arg(list.path()).arg("--report").arg(&report).env("FEEDFLEET_SERVER", &fleet.server);
    let ran = Ran::from(limited.output().unwrap());
    assert!(ran.code == Some(1) && ran.out.starts_with("1 feed added, 0 known, 1 refused\n"), "{ran:?}");
    assert!(ran.err.contains(&format!("error: cannot write the report {}: ", report.display())), "{}", ran.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_says_when_the_first_polls_are_and_keeps_its_refusals_in_a_report() {
    let fleet = Fleet::start(&["--set", "policy.import_spread=90m"]).await;
    let list: String = (0..25).map(|n| format!("ftp://a.example/{n}\n")).collect::<String>() + "http://10.0.0.1/feed\n";
    let report = tempfile::NamedTempFile::new().unwrap();
    let path = report.path().to_str().unwrap().to_owned();
    let ran = import(&fleet, list.as_bytes(), &["--report", &path]);
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.out.starts_with("1 feed added, 0 known, 25 refused\nfirst polls are spread over the next 1h 30m "),
        "{}",
        ran.out
    );
    assert!(ran.out.contains("`feedfleet feed refresh ID` polls one of them sooner"), "{}", ran.out);
    assert_eq!(ran.err.lines().filter(|line| line.starts_with("refused: line ")).count(), 10, "{}", ran.err);
    assert_eq!(ran.err.lines().last(), Some(format!("refused lines: {path}").as_str()));
    let lines: Vec<Value> = std::fs::read_to_string(&path).unwrap().lines().map(json).collect();
    assert_eq!((lines.len(), &lines[24]["url"]), (25, &Value::from("ftp://a.example/24")));

    let again = import(&fleet, list.as_bytes(), &[]);
    assert_eq!(again.err.lines().last(), Some("refused: 15 more; --report FILE writes all of them"));
    let added: Value = json(&fleet.done(&["feed", "add", "http://10.0.0.2/feed", "--json"]));
    assert_eq!(added["id"], 2, "known feeds and refused lines use no numbers");
    let remote = fleet.run(&["import", "http://a.example/feeds.opml"]);
    assert!(
        remote.code == Some(2) && remote.err.contains("curl -L 'http://a.example/feeds.opml' | feedfleet import -")
    );
}
