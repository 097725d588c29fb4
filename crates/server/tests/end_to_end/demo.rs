//! `postrider demo` tells a whole story, and leaves nothing behind.

use std::io::{BufRead as _, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};

use serde_json::Value as Json;

use crate::support::{Deadline, postrider};

/// A running demonstration without a terminal.
struct Running {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Running {
    /// Starts one whose files are in `scratch`.
    fn start(arguments: &[&str], scratch: &Path) -> Running {
        let mut process = postrider(&[&["demo"], arguments].concat())
            .env("TMPDIR", scratch)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Running { process, lines }
    }

    /// Reads lines until one satisfies `is_it`; returns all of them.
    fn read_until(&mut self, mut is_it: impl FnMut(&str) -> bool) -> Vec<String> {
        let (mut read, deadline) = (Vec::new(), Deadline::new());
        loop {
            let line = self.lines.next();
            let line = line.unwrap_or_else(|| panic!("it ended: {read:#?}")).unwrap();
            read.push(line);
            let last = read.last().unwrap();
            if is_it(last) {
                return read;
            }
            assert!(!deadline.has_passed(), "{read:#?}");
        }
    }

    fn signal(&self, name: &str) {
        let pid = self.process.id().to_string();
        let sent = std::process::Command::new("kill").args(["-s", name, &pid]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits for the end; returns the rest of the lines.
    fn end(mut self) -> Vec<String> {
        let rest: Vec<String> = self.lines.map_while(Result::ok).collect();
        assert!(self.process.wait().unwrap().success(), "{rest:#?}");
        rest
    }
}

fn assert_empty(scratch: &Path) {
    let left: Vec<_> =
        std::fs::read_dir(scratch).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(left.is_empty(), "left behind: {left:?}");
}

#[test]
fn story_has_an_outage_a_recovery_a_death_and_a_replay() {
    let scratch = tempfile::tempdir().unwrap();
    let mut demo = Running::start(&["--plain", "--time-scale", "1000"], scratch.path());
    let intro = demo.read_until(|line| line.contains("Ctrl-C"));
    let intro = intro.join("\n");
    for words in ["time × 1000", "postrider tail --server", "/hangs", "Dashboard", "6 retries"] {
        assert!(intro.contains(words), "{words} in {intro}");
    }
    // Each is told when it happens, however long that takes on this machine.
    let mut awaited = vec![
        "/gone answered 410 Gone: frozen",
        "/comes failed 101 times: disabled",
        "/comes recovered at its ",
        "/hangs leaves ",
        "/broken: a delivery died after ",
        " that died were replayed and are delivered",
    ];
    let told = demo.read_until(|line| {
        awaited.retain(|words| !line.contains(words));
        awaited.is_empty()
    });
    let recovered = told.iter().find(|line| line.contains("/comes recovered")).unwrap();
    assert!(recovered.contains(" waiting are sent"), "{recovered}");
    demo.signal("INT");
    let rest = demo.end();
    assert!(rest.iter().any(|line| line.starts_with("RECEIVER")), "{rest:#?}");
    assert_empty(scratch.path());
}

#[test]
fn demonstration_ends_by_itself_and_its_ledger_balances() {
    let scratch = tempfile::tempdir().unwrap();
    let demo = Running::start(&["--for", "4s", "--json"], scratch.path());
    let lines = demo.end();
    let lines: Vec<Json> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines[0]["server"].as_str().unwrap().starts_with("http://127.0.0.1:"));
    assert!(lines[0]["dashboard"].as_str().unwrap().contains("/go/"));
    assert!(lines[1..].iter().any(|line| line["kind"] == "frozen" && line["receiver"] == "gone"));
    let end = &lines.last().unwrap()["end"];
    let destinations = end["destinations"].as_array().unwrap();
    assert_eq!(destinations.len(), 7);
    assert_eq!(destinations[0]["failures"], 0, "nothing fails at /healthy");
    assert!(destinations[0]["attempts"].as_u64().unwrap() > 0);
    assert!(crate::support::balances(&end["ledger"]), "{end}");
    assert_empty(scratch.path());
}

#[test]
fn dashboard_link_leads_to_a_fresh_sign_in_link_each_time() {
    let scratch = tempfile::tempdir().unwrap();
    let mut demo = Running::start(&["--json"], scratch.path());
    let begin: Json = serde_json::from_str(&demo.read_until(|_| true)[0]).unwrap();
    let (server, link) = (begin["server"].as_str().unwrap(), begin["dashboard"].as_str().unwrap());
    let [first, second] = [(); 2].map(|()| location_of(link));
    for location in [&first, &second] {
        assert!(location.starts_with(&format!("{server}/#/signin?token=pt_")), "{location}");
    }
    assert_ne!(first, second);
    let (without_word, _) = link.rsplit_once('/').unwrap();
    assert!(answer_of(&format!("{without_word}/0000000000")).starts_with("HTTP/1.1 404"));
    demo.signal("TERM");
    demo.end();
    assert_empty(scratch.path());
}

#[test]
fn closed_pipe_and_closed_terminal_end_it_without_a_trace() {
    let scratch = tempfile::tempdir().unwrap();
    let mut demo = Running::start(&["--plain"], scratch.path());
    demo.read_until(|line| line.contains("Ctrl-C"));
    let Running { mut process, lines } = demo;
    drop(lines);
    assert!(process.wait().unwrap().success());
    assert_empty(scratch.path());

    let mut demo = Running::start(&["--plain"], scratch.path());
    demo.read_until(|line| line.contains("frozen"));
    demo.signal("HUP");
    demo.end();
    assert_empty(scratch.path());
}

#[test]
fn terminal_that_cannot_move_its_cursor_gets_lines_and_no_screen() {
    let scratch = tempfile::tempdir().unwrap();
    // `script` gives it a terminal; the demonstration ends with it.
    let demo = format!("{} demo", crate::support::program());
    let mut script = std::process::Command::new("script");
    script.args(["-qec", &demo, "/dev/null"]).env("TERM", "dumb").env("TMPDIR", scratch.path());
    let mut process = script.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let mut demo = Running { process, lines };
    let intro = demo.read_until(|line| line.contains("Ctrl-C")).join("\n");
    assert!(intro.contains("time × 200") && !intro.contains('\u{1b}'), "{intro:?}");
    demo.signal("TERM");
    drop(demo.process.wait());
}

#[test]
fn keys_on_a_terminal_open_the_help_break_and_repair_a_receiver_and_quit() {
    use std::io::{Read as _, Write as _};

    let scratch = tempfile::tempdir().unwrap();
    let demo = format!("stty rows 24 cols 80; {} demo", crate::support::program());
    let mut script = std::process::Command::new("script");
    script.args(["-qec", &demo, "/dev/null"]).env("TERM", "xterm").env("TMPDIR", scratch.path());
    let mut process = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut keys, mut screen) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
    let (mut sent, deadline) = (Vec::new(), Deadline::new());
    let mut until = |words: &str| {
        while !drawn(&String::from_utf8_lossy(&sent)).contains(words) {
            let mut some = [0; 4096];
            let read = screen.read(&mut some).unwrap();
            sent.extend_from_slice(&some[..read]);
            let shown = drawn(&String::from_utf8_lossy(&sent));
            assert!(read > 0 && !deadline.has_passed(), "no {words:?} in\n{shown}");
        }
    };
    let mut press = |key: &str| {
        keys.write_all(key.as_bytes()).unwrap();
        keys.flush().unwrap();
    };
    until("q  quit");
    press("?");
    until("postrider destinations list");
    press("\u{1b}");
    until("What happens");
    press("j");
    until("b  break /slow");
    press("b");
    until("you broke /slow");
    press("b");
    until("you repaired /slow");
    press("q");
    let mut rest = Vec::new();
    screen.read_to_end(&mut rest).unwrap();
    assert!(String::from_utf8_lossy(&rest).contains("\u{1b}[?1049l"), "it leaves its screen");
    assert!(process.wait().unwrap().success());
    assert_empty(scratch.path());
}

/// What stands on a screen of 80 by 24 to which this was sent.
fn drawn(sent: &str) -> String {
    let mut screen = vec![vec![' '; 80]; 24];
    let (mut row, mut column) = (0, 0);
    let mut chars = sent.chars();
    while let Some(c) = chars.next() {
        if c != '\u{1b}' {
            if let Some(cell) = screen.get_mut(row).and_then(|row| row.get_mut(column)) {
                *cell = c;
            }
            column += 1;
        } else if chars.next() == Some('[') {
            let mut numbers = String::new();
            let end = chars.find(|c| {
                numbers.push(*c);
                c.is_ascii_alphabetic()
            });
            // `CSI row ; column H` goes to a place; the rest is colours and modes.
            if end == Some('H')
                && let Some((to_row, to_column)) = numbers.trim_end_matches('H').split_once(';')
                && let (Ok(to_row), Ok(to_column)) =
                    (to_row.parse::<usize>(), to_column.parse::<usize>())
            {
                (row, column) = (to_row.saturating_sub(1), to_column.saturating_sub(1));
            }
        }
    }
    let lines: Vec<String> = screen.into_iter().map(|row| row.into_iter().collect()).collect();
    lines.join("\n")
}

/// The head of the answer to a GET.
fn answer_of(url: &str) -> String {
    use std::io::{Read as _, Write as _};
    let (address, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    write!(stream, "GET /{path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn location_of(url: &str) -> String {
    let answer = answer_of(url);
    assert!(answer.starts_with("HTTP/1.1 303"), "{answer}");
    let line = answer.lines().find_map(|line| line.strip_prefix("location: "));
    line.unwrap_or_else(|| panic!("{answer}")).to_owned()
}
