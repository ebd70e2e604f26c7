//! `feedfleet top` with and without a terminal, and the manual pages.

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use load_tests::origin::feed::Feed;
use load_tests::origin::script::Script;

use crate::fleet::Fleet;
use crate::program::{command, run};

/// Returns what `top` writes to a terminal until q is pressed, with these variables set.
fn on_a_terminal(fleet: &Fleet, variables: &[(&str, &str)]) -> String {
    let top = format!("'{}' top --every 250ms", command(&[]).get_program().to_str().unwrap());
    // No shell could continue it: Ctrl-Z does nothing.
    typed(fleet, variables, &top, &[("q quits", 2, b"x\x1a"), ("q quits", 1, b"q")])
}

/// Returns what this command line writes to a terminal. Presses keys, each when it has written a text a number of times since the
/// last key.
fn typed(fleet: &Fleet, variables: &[(&str, &str)], line: &str, presses: &[(&str, usize, &[u8])]) -> String {
    let mut terminal = Command::new("script")
        .args(["--quiet", "--flush", "--return", "--command", line, "/dev/null"])
        .env("TERM", "xterm")
        .env_remove("NO_COLOR")
        .env("FEEDFLEET_SERVER", &fleet.server)
        .envs(variables.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut keys, mut screen) = (terminal.stdin.take().unwrap(), terminal.stdout.take().unwrap());
    let (mut sent, mut part, mut presses) = (Vec::new(), [0; 4096], presses.iter());
    let (mut next, mut since) = (presses.next(), 0);
    loop {
        let read = screen.read(&mut part).unwrap();
        if read == 0 {
            break;
        }
        sent.extend_from_slice(&part[..read]);
        if let Some((text, times, press)) = next
            && sent[since..].windows(text.len()).filter(|bytes| *bytes == text.as_bytes()).count() >= *times
        {
            keys.write_all(press).unwrap();
            (next, since) = (presses.next(), sent.len());
        }
    }
    assert!(terminal.wait().unwrap().success());
    String::from_utf8(sent).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_screen_ends_at_q_and_gives_the_terminal_back() {
    let fleet = Fleet::start(&[]).await;
    fleet.origin.set("/harbour", Script::feed(Feed::rss().title("Harbour \u{1b}[2J news").initial(2)));
    fleet.done(&["feed", "add", &fleet.origin.url("/harbour")]);

    let once = fleet.done(&["top"]);
    assert!(once.contains("1 feed  2 entries") && once.contains("Harbour") && !once.contains('\u{1b}'), "{once}");
    let json: serde_json::Value = serde_json::from_str(&fleet.done(&["top", "--json"])).unwrap();
    assert_eq!(json["feeds"], 1);

    let sent = on_a_terminal(&fleet, &[]);
    assert!(sent.contains("\u{1b}[?1049h") && sent.contains("\u{1b}[32mpolling"), "{sent:?}");
    assert!(sent.trim_end().ends_with("\u{1b}[?7h\u{1b}[?25h\u{1b}[?1049l"), "{sent:?}");
    assert!(sent.contains("Harbour [2J news"), "{sent:?}");
    let bare = on_a_terminal(&fleet, &[("NO_COLOR", "1")]);
    assert!(bare.contains("polling") && !bare.contains("\u{1b}[32m") && !bare.contains("\u{1b}[1m"), "{bare:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_screen_gives_the_terminal_back_while_it_is_stopped() {
    let fleet = Fleet::start(&[]).await;
    let top = command(&[]).get_program().to_str().unwrap().to_owned();
    let modes = "stty -a | tr ' ' '\\n' | grep -x -e '-*icanon' -e '-*echo' | tr '\\n' ' '";
    // No second frame comes: after `fg` the last one is shown again.
    let line = format!("bash -mc \"'{top}' top --every 1h; {modes}; echo stopped; fg\"");
    let (leave, enter) = ("\u{1b}[?7h\u{1b}[?25h\u{1b}[?1049l", "\u{1b}[?1049h");
    let sent = typed(&fleet, &[], &line, &[("q quits", 1, b"\x1a"), (enter, 1, b"q")]);
    let (before, after) = sent.split_once("stopped\r\n").unwrap_or_else(|| panic!("{sent:?}"));
    assert!(before.contains(leave) && before.ends_with("icanon echo "), "{before:?}");
    assert!(!before.contains("-icanon") && !before.contains("-echo"), "{before:?}");
    let (_, shown) = after.split_once(enter).unwrap_or_else(|| panic!("{after:?}"));
    assert!(shown.contains("q quits") && shown.trim_end().ends_with(leave), "{after:?}");
}

#[test]
fn top_says_what_it_does_not_take() {
    let ran = run(&["top", "--every", "1ms"]);
    assert!(ran.code == Some(2) && ran.err.contains("must be at least 250ms"), "{}", ran.err);
}

#[test]
fn the_manual_has_a_page_for_each_command() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("man1");
    let ran = run(&["man", folder.to_str().unwrap()]);
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (Some(0), "", ""));
    for (page, words) in [("feedfleet.1", "politely"), ("feedfleet-feed-add.1", "URL"), ("feedfleet-top.1", "screen")] {
        let text = std::fs::read_to_string(folder.join(page)).unwrap();
        assert!(text.contains(".TH feedfleet"), "{page}: {text}");
        assert!(text.contains(words), "{page}: {text}");
    }
}
