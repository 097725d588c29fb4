//! The output of commands: words for people, JSON for programs; colours and the terminal's width.
//!
//! **No control character is printed**: text from tenants and receivers is escaped.

use std::io::{self, IsTerminal as _, Write};

use postrider_domain::time::Timestamp;
use serde_json::Value as Json;

use crate::table::Table;

/// The width of lines where the terminal does not say how wide it is.
pub const DEFAULT_WIDTH: usize = 80;
/// No terminal is taken to be narrower or wider.
const WIDTHS: std::ops::RangeInclusive<usize> = 20..=400;

/// The output format.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    /// JSON instead of text.
    pub json: bool,
    colour: bool,
    log_colour: bool,
    redraws: bool,
    is_dumb: bool,
    width: usize,
}

/// When colours are used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ColourChoice {
    /// On a terminal, unless `NO_COLOR` is set or `TERM` is `dumb`.
    #[default]
    Auto,
    /// Also in a file or a pipe.
    Always,
    /// Never.
    Never,
}

/// What the environment says of the terminal.
#[derive(Debug, Clone, Copy, Default)]
pub struct Terminal {
    /// `NO_COLOR` is set.
    pub no_color: bool,
    /// `TERM` is `dumb`: it neither shows colours nor moves the cursor.
    pub is_dumb: bool,
    /// `COLUMNS`, which is used where the output is no terminal.
    pub columns: Option<usize>,
}

/// The few colours that are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    /// Success.
    Green,
    /// Failure.
    Red,
    /// Pending.
    Yellow,
    /// Less important.
    Dim,
    /// More important.
    Bold,
}

impl Colour {
    /// The colour of a state, of an outcome or of the level of a finding.
    pub fn of_state(state: &str) -> Colour {
        match state {
            "delivered" | "enabled" | "finished" | "sent" | "ok" => Colour::Green,
            "dead" | "frozen" | "failed" | "FAIL" => Colour::Red,
            "waiting" | "disabled" | "paused" | "note" => Colour::Yellow,
            "cancelled" => Colour::Dim,
            _ => Colour::Bold,
        }
    }
}

impl Output {
    /// The format for this process's standard output and standard error.
    pub fn new(json: bool, choice: ColourChoice, terminal: Terminal) -> Output {
        let can_colour = |is_terminal: bool| match choice {
            ColourChoice::Auto => is_terminal && !terminal.no_color && !terminal.is_dumb,
            ColourChoice::Always => true,
            ColourChoice::Never => false,
        };
        let (out, err) = (io::stdout().is_terminal(), io::stderr().is_terminal());
        let seen = terminal_size::terminal_size_of(io::stdout());
        let width = seen.map(|(width, _)| usize::from(width.0)).or(terminal.columns);
        let width = width.filter(|width| *width > 0).unwrap_or(DEFAULT_WIDTH);
        Output {
            json,
            colour: !json && can_colour(out),
            log_colour: can_colour(err),
            redraws: !json && err && !terminal.is_dumb,
            is_dumb: terminal.is_dumb,
            width: width.clamp(*WIDTHS.start(), *WIDTHS.end()),
        }
    }

    /// Text without colours, as wide as this.
    pub const fn plain(width: usize) -> Output {
        Output {
            json: false,
            colour: false,
            log_colour: false,
            redraws: false,
            is_dumb: true,
            width,
        }
    }

    /// How wide a line may be.
    pub const fn width(self) -> usize {
        self.width
    }

    /// Whether lines on the standard error, such as those of the log, may have colours.
    pub const fn colours_log(self) -> bool {
        self.log_colour
    }

    /// Whether the terminal cannot move its cursor, so that nothing can be drawn on it.
    pub const fn is_dumb(self) -> bool {
        self.is_dumb
    }

    /// Whether the standard error can show a line that changes, such as a progress bar.
    pub const fn redraws(self) -> bool {
        self.redraws
    }

    /// The text in a colour, on a terminal.
    pub fn paint(self, colour: Colour, text: &str) -> String {
        if !self.colour {
            return text.to_owned();
        }
        let code = match colour {
            Colour::Green => 32,
            Colour::Red => 31,
            Colour::Yellow => 33,
            Colour::Dim => 2,
            Colour::Bold => 1,
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }

    /// A state in its colour.
    pub fn state(self, state: &str) -> String {
        self.paint(Colour::of_state(state), &escaped(state))
    }

    /// Prints JSON for programs, or the result of `human` for people.
    pub fn value(self, value: &Json, human: impl FnOnce(&Json) -> String) -> io::Result<()> {
        let text = if self.json { value.to_string() } else { human(value) };
        line(&text)
    }
}

/// Prints a line to the standard output. A closed output is not an error.
pub fn line(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        result => result,
    }
}

/// Escapes everything that a terminal might interpret. Escaping twice changes nothing.
pub fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        // Formatting characters (such as bidirectional overrides) can disguise text too.
        let disguises = matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}');
        if c.is_control() || disguises {
            safe.extend(c.escape_unicode());
        } else {
            safe.push(c);
        }
    }
    safe
}

/// A field of a JSON object as text: a list joined by commas, a dash if it is missing.
pub fn part(value: &Json, name: &str) -> String {
    words(value.get(name).unwrap_or(&Json::Null))
}

fn words(value: &Json) -> String {
    match value {
        Json::Null => "-".to_owned(),
        Json::Bool(true) => "yes".to_owned(),
        Json::Bool(false) => "no".to_owned(),
        Json::String(text) if text.is_empty() => "-".to_owned(),
        Json::String(text) => escaped(text),
        Json::Array(list) if list.is_empty() => "-".to_owned(),
        Json::Array(list) => list.iter().map(words).collect::<Vec<_>>().join(", "),
        other @ (Json::Number(_) | Json::Object(_)) => escaped(&other.to_string()),
    }
}

/// A field of a JSON object that is a time.
pub fn time(value: &Json, name: &str) -> Option<Timestamp> {
    value.get(name)?.as_str()?.parse().ok()
}

/// JSON as text, one line per field.
pub fn pretty(value: &Json) -> String {
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.lines().map(escaped).collect::<Vec<_>>().join("\n")
}

/// A table of cells that are escaped already, as wide as it gets.
pub fn table(head: &[&str], rows: Vec<Vec<String>>) -> String {
    Table::of_texts(head, rows)
}

/// The entries of a list answer.
pub fn entries(list: &Json) -> &[Json] {
    list.get("data").and_then(Json::as_array).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn control_characters_are_escaped_for_the_terminal() {
        for (text, safe) in [
            ("plain ü", "plain ü"),
            ("\u{1b}[31mred", "\\u{1b}[31mred"),
            ("a\nb\r\u{7}\u{9b}", "a\\u{a}b\\u{d}\\u{7}\\u{9b}"),
            ("a\u{202e}b\u{feff}", "a\\u{202e}b\\u{feff}"),
        ] {
            assert_eq!(escaped(text), safe);
            assert_eq!(escaped(safe), safe, "twice");
        }
    }

    #[test]
    fn fields_read_as_words() {
        let value = json!({
            "types": ["task.*", "note.\u{1b}"], "none": [], "gone": null, "on": true, "off": false, "n": 1.5,
            "empty": "",
        });
        for (name, words) in [
            ("types", "task.*, note.\\u{1b}"),
            ("none", "-"),
            ("gone", "-"),
            ("missing", "-"),
            ("on", "yes"),
            ("off", "no"),
            ("n", "1.5"),
            ("empty", "-"),
        ] {
            assert_eq!(part(&value, name), words, "{name}");
        }
    }

    #[test]
    fn colours_follow_the_choice_and_then_the_environment() {
        // The tests have no terminal: `auto` means none.
        let dumb = Terminal { is_dumb: true, no_color: true, columns: Some(1) };
        for (choice, terminal, coloured) in [
            (ColourChoice::Auto, Terminal::default(), false),
            (ColourChoice::Always, Terminal::default(), true),
            (ColourChoice::Always, dumb, true),
            (ColourChoice::Never, Terminal::default(), false),
        ] {
            let output = Output::new(false, choice, terminal);
            assert_eq!(output.paint(Colour::Red, "x") != "x", coloured, "{choice:?}");
            let json = Output::new(true, choice, terminal);
            assert_eq!(json.paint(Colour::Red, "x"), "x", "JSON has no colours");
        }
    }
}
