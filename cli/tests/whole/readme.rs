//! Runs the commands in README as printed: a new user's first minutes.
//!
//! In a block marked `console`, lines after `$ ` are commands and the others are their output; each such block is a
//! separate terminal. In a block marked `sh`, each line is a command that must succeed. Terminals run side by side in a
//! folder with the repository's examples. A new block needs no change here, unless it cannot run: then [`NOT_RUN`] says
//! why.
//!
//! Ports are replaced, because another program on the machine may use the printed ones.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use common::testing::Port;

use crate::harness::PATIENCE;

/// Commands that are skipped, each with its reason.
const NOT_RUN: [(&str, &str); 6] = [
    ("cargo run --release -- run https://blog.rust-lang.org/feed.xml", "needs the Internet; `run` is run otherwise"),
    ("dev/test", "this test is part of it"),
    ("cargo build --release && export PATH=$PWD/target/release:$PATH", "the program under test is in PATH already"),
    (r#"dev/install && dev/services up && eval "$(dev/services env)""#, "needs the three servers"),
    (
        "feedfleet scheduler --listen 127.0.0.1:7878 & feedfleet scheduler --listen 127.0.0.1:7879 &",
        "as above; the tests of the cluster run the roles",
    ),
    (
        "feedfleet worker --listen 127.0.0.1:7881 & feedfleet worker --listen 127.0.0.1:7882 & feedfleet worker --listen 127.0.0.1:7883 &",
        "as above",
    ),
];

const README: &str = include_str!("../../../README.md");
const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/example");
/// The ports in README: of the feeds, and of the fleet.
const PORTS: [&str; 2] = ["8000", "7878"];

/// A command, and its expected output.
#[derive(Debug, Default)]
struct Step {
    command: String,
    printed: Vec<String>,
}

/// Returns the terminals of a document, each with its steps.
fn terminals(document: &str) -> Vec<Vec<Step>> {
    let (mut terminals, mut fence): (Vec<Vec<Step>>, _) = (Vec::new(), None);
    for line in document.lines() {
        match (line.strip_prefix("```"), fence) {
            (Some(_), Some(_)) => fence = None,
            (Some(kind), None) => {
                fence = Some(kind);
                terminals.push(Vec::new());
            }
            (None, Some(kind)) => {
                let Some(steps) = terminals.last_mut() else { continue };
                let command = match kind {
                    "console" => line.strip_prefix("$ "),
                    "sh" => Some(line.split("    #").next().unwrap_or(line).trim_end()),
                    _ => None,
                };
                let typed = ["$ ", "feedfleet ", "cargo ", "dev/"].iter().any(|start| line.starts_with(start));
                assert!(
                    command.is_some() || kind == "console" || !typed,
                    "mark the block of '{line}' as sh or console"
                );
                match command {
                    Some(command) => steps.push(Step { command: command.to_owned(), ..Step::default() }),
                    None => steps.last_mut().into_iter().for_each(|step| step.printed.push(line.to_owned())),
                }
            }
            (None, None) => {}
        }
    }
    terminals.retain(|steps| !steps.is_empty());
    terminals
}

/// A shell whose output goes to a file; dropping it also ends everything that it started.
struct Terminal {
    shell: Child,
    input: ChildStdin,
    output: PathBuf,
    commands: usize,
}

impl Terminal {
    fn open(folder: &Path, number: usize, ports: &[String; 2]) -> Self {
        let output = folder.join(format!("terminal-{number}"));
        let file = std::fs::File::create(&output).unwrap();
        let program = Path::new(env!("CARGO_BIN_EXE_feedfleet")).parent().unwrap();
        let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
        let mut shell = Command::new("bash");
        shell.args(["--noprofile", "--norc"]).current_dir(folder).env_clear().env("PATH", path);
        shell.env("FEEDFLEET_API__LISTEN", format!("127.0.0.1:{}", ports[1]));
        shell.env("FEEDFLEET_SERVER", format!("http://127.0.0.1:{}", ports[1]));
        // A separate process group, so that its background jobs can be killed with it.
        shell.process_group(0).stdin(Stdio::piped()).stdout(file.try_clone().unwrap()).stderr(file);
        let mut shell = shell.spawn().unwrap();
        let input = shell.stdin.take().unwrap();
        Terminal { shell, input, output, commands: 0 }
    }

    fn shown(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.output).unwrap()).into_owned()
    }

    /// Types a command and waits until it has printed the expected output, and exited successfully unless it keeps
    /// running.
    fn run(&mut self, step: &Step, feeds: u16) {
        let Step { command, printed } = step;
        self.commands += 1;
        let done = format!("command {} ended with", self.commands);
        writeln!(self.input, "{command}").unwrap();
        let goes_on = command.starts_with("feedfleet run ") && !command.contains("--once");
        // The output may lack a final newline.
        writeln!(self.input, r"printf '\n%s %s\n' '{done}' $?").unwrap();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let shown = self.shown();
            let ended = shown.lines().find_map(|line| line.strip_prefix(&done));
            assert!(ended.is_none_or(|code| code == " 0" && !goes_on), "{command}\n{shown}");
            let shapes: Vec<String> = shown.lines().map(shape).collect();
            let missing = printed.iter().find(|line| !shapes.contains(&shape(line)));
            // A server in the background is ready when its port accepts connections.
            let serves = !command.ends_with('&') || TcpStream::connect((Ipv4Addr::LOCALHOST, feeds)).is_ok();
            if (goes_on || ended.is_some()) && missing.is_none() && serves {
                return;
            }
            assert!(
                Instant::now() < deadline && (goes_on || ended.is_none() || missing.is_none()),
                "{command}\nnot printed: {missing:?}\n{shown}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let group = format!("-{}", self.shell.id());
        // Some of them may already have exited.
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = self.shell.wait();
    }
}

/// Returns a line without what differs between runs: numbers become `#`, times such as `5 h 9 min` become `T`, and so
/// does `now`.
fn shape(line: &str) -> String {
    let mut shape = String::new();
    let mut words = line.split_whitespace().peekable();
    let digits = |word: &str| word.trim_start_matches(['+', '-', '(']).bytes().all(|byte| byte.is_ascii_digit());
    while let Some(word) = words.next() {
        let unit = words.peek().map(|next| next.trim_end_matches(')'));
        if digits(word) && matches!(unit, Some("ms" | "s" | "min" | "h" | "d")) {
            words.next();
            if !shape.ends_with(" T") {
                shape.push_str(" T");
            }
            continue;
        }
        if word == "now" {
            shape.push_str(" T ago");
            continue;
        }
        shape.push(' ');
        let mut in_number = false;
        for character in word.chars() {
            let is_digit = character.is_ascii_digit();
            if !is_digit {
                shape.push(character);
            } else if !in_number {
                shape.push('#');
            }
            in_number = is_digit;
        }
    }
    shape
}

/// Returns a free port for the feeds that may be dialled by default.
fn free_port() -> u16 {
    let bind = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
    let start = u16::try_from(std::process::id() % 900).unwrap() + 8001;
    (start..9000).chain(8001..start).find(|port| bind(*port).is_ok()).expect("a free port")
}

#[test]
fn the_commands_of_readme_work_as_printed() {
    let (feeds, fleet) = (free_port(), Port::reserved());
    let ports = [feeds.to_string(), fleet.number().to_string()];
    let here = |text: &str| text.replace(PORTS[0], &ports[0]).replace(PORTS[1], &ports[1]);
    let folder = tempfile::tempdir().unwrap();
    let examples = folder.path().join("docs/example");
    std::fs::create_dir_all(&examples).unwrap();
    for file in std::fs::read_dir(EXAMPLES).unwrap().map(Result::unwrap) {
        let text = std::fs::read_to_string(file.path()).unwrap();
        std::fs::write(examples.join(file.file_name()), here(&text)).unwrap();
    }

    let mut left_out = NOT_RUN.map(|(command, _)| command).to_vec();
    let mut open = Vec::new();
    for (number, steps) in terminals(README).into_iter().enumerate() {
        let mut terminal = Terminal::open(folder.path(), number, &ports);
        for step in steps {
            match left_out.iter().position(|command| *command == step.command) {
                Some(place) => drop(left_out.remove(place)),
                None => {
                    let printed = step.printed.iter().map(|line| here(line)).collect();
                    terminal.run(&Step { command: here(&step.command), printed }, feeds);
                }
            }
        }
        open.push(terminal);
    }
    assert!(left_out.is_empty(), "README does not have {left_out:?} any more");
    let commands = open.iter().map(|terminal| terminal.commands).sum::<usize>();
    assert!(commands > 20, "only {commands} commands were found in README");
}

#[test]
fn a_shape_keeps_words_and_leaves_out_numbers() {
    let mut shapes = String::new();
    for line in
        ["1   D  in 5 h 9 min   modified 7 s ago", "salt +17 min 47 s", "salt -47 s", "12:03:04  9 entries (in 45 min)"]
    {
        writeln!(shapes, "{}", shape(line)).unwrap();
    }
    assert_eq!(shapes, " # D in T modified T ago\n salt T\n salt T\n #:#:# # entries (in T\n");
}
