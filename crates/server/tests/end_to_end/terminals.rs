//! What commands and the server print on a terminal: colours, and bars for work that takes long.
//!
//! `script` gives them the terminal.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::support::{Deadline, Receiver, Start, program, run, stderr};

/// A program on a terminal of 80 by 24.
struct OnTerminal {
    script: Child,
    printed: String,
}

impl OnTerminal {
    /// Starts `postrider` with these words, of which none has a space.
    fn start(words: &[&str], variables: &[(&str, &str)]) -> OnTerminal {
        let line = format!("stty rows 24 cols 80; exec {} {}", program(), words.join(" "));
        let mut script = Command::new("script");
        script.args(["-qec", &line, "/dev/null"]).env_clear().env("TERM", "xterm");
        script.env("PATH", "/usr/bin:/bin");
        script.envs(variables.iter().copied()).stdin(Stdio::piped()).stdout(Stdio::piped());
        OnTerminal { script: script.spawn().unwrap(), printed: String::new() }
    }

    /// Reads until these words are there, which may have colours between them.
    fn until(&mut self, words: &str) {
        let deadline = Deadline::new();
        while !self.printed.contains(words) {
            let mut some = [0; 4096];
            let read = self.script.stdout.as_mut().unwrap().read(&mut some).unwrap();
            assert!(read > 0 && !deadline.has_passed(), "no {words:?} in {:?}", self.printed);
            self.printed += &String::from_utf8_lossy(&some[..read]);
        }
    }

    /// Presses Ctrl-C, and returns what was printed.
    fn interrupt(mut self) -> String {
        self.script.stdin.as_mut().unwrap().write_all(b"\x03").unwrap();
        self.end()
    }

    /// Waits for the end, and returns what was printed.
    fn end(mut self) -> String {
        let mut rest = Vec::new();
        // A terminal whose last program has ended may be an error to its reader.
        drop(self.script.stdout.as_mut().unwrap().read_to_end(&mut rest));
        self.script.wait().unwrap();
        self.printed + &String::from_utf8_lossy(&rest)
    }
}

const GREEN: &str = "\u{1b}[32m";

#[test]
fn tables_have_colours_on_a_terminal_unless_the_environment_says_otherwise() {
    let server = Start::dev().fresh();
    server.subscribe("http://127.0.0.1:9/");
    let url = format!("http://{}", server.address);
    let listed = |variable: (&str, &str)| {
        let words = ["destinations", "list", "--server", &url];
        OnTerminal::start(&words, &[("POSTRIDER_KEY", &server.key), variable]).end()
    };
    let shown = listed(("X", "1"));
    assert!(shown.contains(&format!("{GREEN}enabled")), "{shown:?}");
    for variable in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let shown = listed(variable);
        assert!(shown.contains("enabled") && !shown.contains('\u{1b}'), "{variable:?}: {shown:?}");
    }
}

#[test]
fn log_has_colours_on_a_terminal_unless_the_environment_says_otherwise() {
    for (variable, is_coloured) in
        [(("X", "1"), true), (("NO_COLOR", "1"), false), (("TERM", "dumb"), false)]
    {
        let folder = tempfile::tempdir().unwrap();
        let data_dir = folder.path().join("data");
        let words =
            ["serve", "--dev", "--listen", "127.0.0.1:0", "--data-dir", data_dir.to_str().unwrap()];
        let mut server = OnTerminal::start(&words, &[variable]);
        server.until("listening");
        let printed = server.interrupt();
        // On a terminal the log is lines for people.
        let line = printed.lines().find(|line| line.contains("INFO") && line.contains("listening"));
        let line = line.unwrap_or_else(|| panic!("no line of the log: {printed:?}"));
        assert!(!line.contains("{\""), "{line:?}");
        assert_eq!(line.contains(&format!("{GREEN} INFO")), is_coloured, "{variable:?}: {line:?}");
        assert_eq!(printed.contains('\u{1b}'), is_coloured, "{variable:?}: {printed:?}");
    }
}

/// A data directory with deliveries, whose server has stopped.
fn stopped(data_dir: &Path) {
    let receiver = Receiver::start(200);
    let mut server = Start::dev().at(data_dir);
    server.subscribe(&receiver.url());
    server.send(20);
    receiver.wait_for(20);
    server.signal("TERM");
    assert!(server.ended().0.success());
}

#[test]
fn long_work_on_files_shows_how_far_it_is_on_a_terminal_only() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (data, copy) = (at("data"), at("copy"));
    stopped(Path::new(&data));
    let backup = ["backup", "--data-dir", &data, "--to", &copy];
    let (restored, again) = (at("restored"), at("again"));
    let restore = ["restore", "--from", &copy, "--data-dir", &restored];
    let verify = ["doctor", "--verify", "--data-dir", &data];
    for (words, bars, end) in [
        (backup, ["copying", "copying"], "backed up to"),
        (restore, ["copying", "verifying"], "every row read"),
    ] {
        let shown = OnTerminal::start(&words, &[]).end();
        for bar in bars {
            assert!(shown.contains(&format!("{bar} ")), "{words:?}: no {bar} in {shown:?}");
        }
        assert!(shown.contains(end), "{words:?}: {shown:?}");
    }
    let shown = OnTerminal::start(&verify, &[]).end();
    assert!(shown.contains("verifying ") && shown.contains("every row is as"), "{shown:?}");
    let shown = OnTerminal::start(&verify, &[("TERM", "dumb")]).end();
    assert!(!shown.contains("verifying ") && shown.contains("every row is as"), "{shown:?}");
    let quiet = run(&["restore", "--from", &copy, "--data-dir", &again]);
    assert!(quiet.status.success() && !stderr(&quiet).contains("copying"), "{}", stderr(&quiet));
}
