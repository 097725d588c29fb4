//! The output of commands: tables and lines for people, JSON for programs.
//!
//! **No control character is printed**: text from tenants and receivers is escaped.

use std::io::{self, IsTerminal as _, Write};

use serde_json::Value as Json;

/// The output format.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    /// JSON instead of text.
    pub json: bool,
    colour: bool,
}

/// The few colours that are used.
#[derive(Debug, Clone, Copy)]
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

impl Output {
    /// Colours are used on a terminal, unless they are disabled.
    pub fn new(json: bool, no_color: bool) -> Output {
        Output { json, colour: !json && !no_color && io::stdout().is_terminal() }
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
        let colour = match state {
            "delivered" | "enabled" => Colour::Green,
            "dead" | "frozen" | "failed" => Colour::Red,
            "waiting" | "disabled" => Colour::Yellow,
            _ => Colour::Bold,
        };
        self.paint(colour, &escaped(state))
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

/// Escapes everything that a terminal might interpret.
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

/// A field of a JSON object as text; a dash if it is missing.
pub fn part(value: &Json, name: &str) -> String {
    match value.get(name) {
        None | Some(Json::Null) => "-".to_owned(),
        Some(Json::String(text)) => escaped(text),
        Some(other @ (Json::Bool(_) | Json::Number(_) | Json::Array(_) | Json::Object(_))) => {
            escaped(&other.to_string())
        }
    }
}

/// A table with two spaces between columns. The cells must be escaped already.
pub fn table(head: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut lines = vec![head.iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>()];
    lines.extend(rows);
    let width_of = |column: usize| {
        lines.iter().filter_map(|line| line.get(column)).map(|cell| width(cell)).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..head.len()).map(width_of).collect();
    let line = |cells: &Vec<String>| {
        let padded = cells.iter().zip(&widths).map(|(cell, column)| {
            format!("{cell}{}", " ".repeat(column.saturating_sub(width(cell)) + 2))
        });
        padded.collect::<String>().trim_end().to_owned()
    };
    lines.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// The visible width of a cell: colour codes, which end in `m`, take no space.
fn width(cell: &str) -> usize {
    let mut shown = 0;
    let mut in_colour = false;
    for c in cell.chars() {
        match c {
            '\u{1b}' => in_colour = true,
            'm' if in_colour => in_colour = false,
            _ if in_colour => {}
            _ => shown += 1,
        }
    }
    shown
}

/// The entries of a list answer.
pub fn entries(list: &Json) -> &[Json] {
    list.get("data").and_then(Json::as_array).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
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
        }
    }

    #[test]
    fn columns_are_as_wide_as_what_they_show() {
        let red = "\u{1b}[31mdead\u{1b}[0m";
        let rows = vec![
            vec!["a".into(), red.into(), "x".into()],
            vec!["äöü".into(), "waiting".into(), "y".into()],
        ];
        let expected = format!("ID   STATE    N\na    {red}     x\näöü  waiting  y");
        assert_eq!(table(&["ID", "STATE", "N"], rows), expected);
    }
}
