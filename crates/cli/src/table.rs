//! Tables that fit the terminal.
//!
//! Columns that may be cut are cut, columns that are nice to have are left out, and where even that is
//! not enough, each row is a block of lines. **The identifier of a row is never cut**: it must be possible
//! to copy it.

use unicode_width::UnicodeWidthStr as _;

use crate::output::{Colour, Output, escaped};

/// Spaces between two columns.
const GAP: usize = 2;
/// A cut column counts as this wide when it is decided whether there is room for another column.
const ROOMY: usize = 32;
const ELLIPSIS: &str = "…";

/// One cell. Its text is escaped when it is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    text: String,
    colour: Option<Colour>,
}

impl Cell {
    /// A text in a colour.
    pub fn painted(text: &str, colour: Colour) -> Cell {
        Cell { text: escaped(text), colour: Some(colour) }
    }

    /// A state in its colour.
    pub fn state(state: &str) -> Cell {
        Cell::painted(state, Colour::of_state(state))
    }

    /// Its text, without colour.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// A part of its text, in its colour.
    pub(crate) fn in_colour(&self, text: &str, output: Output) -> String {
        match self.colour {
            Some(colour) => output.paint(colour, text),
            None => text.to_owned(),
        }
    }
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Cell {
        Cell { text: escaped(text.as_ref()), colour: None }
    }
}

/// How a column that does not fit the terminal is made narrower.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Narrow {
    /// The column stays as wide as its widest cell.
    Never,
    /// The ends of its cells are cut, down to this width.
    End(usize),
    /// The middles of its cells are cut, down to this width: a URL's host and the end of its path stay.
    Middle(usize),
    /// Its cells go on in the next line. For the last column only.
    Wrap,
}

/// One column.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    head: &'static str,
    narrow: Narrow,
    is_optional: bool,
    is_right: bool,
}

impl Column {
    /// A column that is always whole.
    pub const fn new(head: &'static str) -> Column {
        Column { head, narrow: Narrow::Never, is_optional: false, is_right: false }
    }

    /// Its cells may be cut to this width.
    #[must_use]
    pub const fn cut(self, width: usize) -> Column {
        Column { narrow: Narrow::End(width), ..self }
    }

    /// Its cells may be cut to this width, in their middle.
    #[must_use]
    pub const fn cut_middle(self, width: usize) -> Column {
        Column { narrow: Narrow::Middle(width), ..self }
    }

    /// Its cells go on in the next line. For the last column only.
    #[must_use]
    pub const fn wrap(self) -> Column {
        Column { narrow: Narrow::Wrap, ..self }
    }

    /// The column is left out where there is no room for it.
    #[must_use]
    pub const fn optional(self) -> Column {
        Column { is_optional: true, ..self }
    }

    /// Its cells are aligned to the right, as numbers are.
    #[must_use]
    pub const fn right(self) -> Column {
        Column { is_right: true, ..self }
    }

    const fn least(&self, natural: usize) -> usize {
        match self.narrow {
            Narrow::Never => natural,
            Narrow::End(least) | Narrow::Middle(least) => {
                if least < natural {
                    least
                } else {
                    natural
                }
            }
            Narrow::Wrap => 16,
        }
    }
}

/// A table.
#[derive(Debug)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table of these columns, without rows.
    pub fn new(columns: &[Column]) -> Table {
        Table { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row with a cell for each column.
    pub fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// The table as text, as wide as the terminal at most.
    pub fn shown(self, output: Output) -> String {
        let (columns, rows) = self.with_room(output.width());
        let natural = naturals(&columns, &rows);
        match fitted(&columns, &natural, output.width()) {
            Some(widths) => lines(&columns, &rows, &widths, output),
            None => blocks(&columns, &rows, output),
        }
    }

    /// Without the optional columns for which there is no room, the last one first.
    fn with_room(mut self, width: usize) -> (Vec<Column>, Vec<Vec<Cell>>) {
        loop {
            let natural = naturals(&self.columns, &self.rows);
            let wanted = self.columns.iter().zip(&natural).map(|(column, natural)| {
                let least = column.least(*natural);
                GAP + (*natural).min(ROOMY.max(least))
            });
            let last = self.columns.iter().rposition(|column| column.is_optional);
            match last {
                Some(last) if wanted.sum::<usize>() > width + GAP => {
                    self.columns.remove(last);
                    for row in self.rows.iter_mut().filter(|row| row.len() > last) {
                        row.remove(last);
                    }
                }
                Some(_) | None => return (self.columns, self.rows),
            }
        }
    }

    /// A table of texts that may have colours in them, however wide it is.
    pub(crate) fn of_texts(head: &[&str], rows: Vec<Vec<String>>) -> String {
        let mut all = vec![head.iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>()];
        all.extend(rows);
        let width_of = |column: usize| {
            all.iter().filter_map(|row| row.get(column)).map(|cell| visible(cell)).max()
        };
        let widths: Vec<_> = (0..head.len()).map(|column| width_of(column).unwrap_or(0)).collect();
        let row = |cells: &Vec<String>| {
            let padded = cells.iter().zip(&widths).map(|(cell, column)| {
                format!("{cell}{}", " ".repeat(column.saturating_sub(visible(cell)) + GAP))
            });
            padded.collect::<String>().trim_end().to_owned()
        };
        all.iter().map(row).collect::<Vec<_>>().join("\n")
    }
}

/// The width that each column needs to be whole.
fn naturals(columns: &[Column], rows: &[Vec<Cell>]) -> Vec<usize> {
    let widest = |(index, column): (usize, &Column)| {
        let cells = rows.iter().filter_map(|row| row.get(index)).map(|cell| cell.text.width());
        cells.chain([column.head.width()]).max().unwrap_or(0)
    };
    columns.iter().enumerate().map(widest).collect()
}

/// The widths of the columns in a table of this width; `None` if they cannot be made to fit.
fn fitted(columns: &[Column], natural: &[usize], width: usize) -> Option<Vec<usize>> {
    let gaps = GAP * columns.len().saturating_sub(1);
    let room = width.checked_sub(gaps)?;
    let mut widths = natural.to_vec();
    while widths.iter().sum::<usize>() > room {
        let can_give = |(index, width): &(usize, &usize)| {
            columns.get(*index).is_some_and(|column| **width > column.least(**width))
        };
        let widest = widths.iter().enumerate().filter(can_give).max_by_key(|(_, width)| **width);
        let (widest, _) = widest?;
        widths[widest] -= 1;
    }
    Some(widths)
}

fn lines(columns: &[Column], rows: &[Vec<Cell>], widths: &[usize], output: Output) -> String {
    let head: Vec<Cell> = columns.iter().map(|column| Cell::from(column.head)).collect();
    let mut lines = Vec::new();
    for row in std::iter::once(&head).chain(rows) {
        let mut line = String::new();
        let mut rest = Vec::new();
        for ((column, width), cell) in columns.iter().zip(widths).zip(row) {
            let text = match column.narrow {
                Narrow::Wrap => {
                    let mut pieces: Vec<String> = (wrapped(&cell.text, *width).iter())
                        .flat_map(|piece| broken(piece, *width))
                        .collect();
                    rest = pieces.split_off(1.min(pieces.len()));
                    pieces.pop().unwrap_or_default()
                }
                Narrow::Never | Narrow::End(_) => cut(&cell.text, *width),
                Narrow::Middle(_) => cut_middle(&cell.text, *width),
            };
            let space = " ".repeat(width.saturating_sub(text.width()));
            let shown = cell.in_colour(&text, output);
            let gap = " ".repeat(GAP);
            let aligned = if column.is_right { space + &shown } else { shown + &space };
            line.push_str(&(aligned + &gap));
        }
        lines.push(line.trim_end().to_owned());
        let before = widths.len().saturating_sub(1);
        let indent = widths.iter().take(before).sum::<usize>() + GAP * before;
        lines.extend(rest.iter().map(|piece| format!("{}{piece}", " ".repeat(indent))));
    }
    lines.join("\n")
}

/// Each row as a block: a line for each cell, with the name of its column.
fn blocks(columns: &[Column], rows: &[Vec<Cell>], output: Output) -> String {
    let names = columns.iter().map(|column| column.head.width()).max().unwrap_or(0) + GAP;
    let width = output.width().saturating_sub(names);
    let block = |row: &Vec<Cell>| {
        let line = |(column, cell): (&Column, &Cell)| {
            let text = match column.narrow {
                Narrow::Never | Narrow::Wrap => cell.text.clone(),
                Narrow::End(least) => cut(&cell.text, width.max(least)),
                Narrow::Middle(least) => cut_middle(&cell.text, width.max(least)),
            };
            let space = " ".repeat(names - column.head.width());
            format!("{}{space}{}", column.head, cell.in_colour(&text, output))
        };
        columns.iter().zip(row).map(line).collect::<Vec<_>>().join("\n")
    };
    rows.iter().map(block).collect::<Vec<_>>().join("\n\n")
}

/// The text, with its end cut off where it is wider.
pub fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    begin_of(text, width.saturating_sub(1)) + ELLIPSIS
}

/// The text, with its middle cut out where it is wider: two thirds of what is left are its begin.
pub fn cut_middle(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let room = width.saturating_sub(1);
    let begin = begin_of(text, room - room / 3);
    let backwards: String = text.chars().rev().collect();
    let end: String = begin_of(&backwards, room / 3).chars().rev().collect();
    begin + ELLIPSIS + &end
}

/// The longest prefix of the text that is not wider than this.
fn begin_of(text: &str, width: usize) -> String {
    let mut taken = String::new();
    for c in text.chars() {
        taken.push(c);
        if taken.width() > width {
            taken.pop();
            break;
        }
    }
    taken
}

/// The lines of a text that is broken at spaces. A word that is too long has a line of its own.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.width() + 1 + word.width() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) | None => lines.push(word.to_owned()),
        }
    }
    lines
}

/// The pieces of a word that is too long for a line.
fn broken(word: &str, width: usize) -> Vec<String> {
    let mut pieces = Vec::new();
    let mut rest = word;
    while rest.width() > width {
        let begin = begin_of(rest, width.max(2));
        rest = rest.get(begin.len()..).unwrap_or_default();
        pieces.push(begin);
    }
    pieces.push(rest.to_owned());
    pieces
}

/// The visible width of a text: colour codes, which end in `m`, take no space.
fn visible(text: &str) -> usize {
    let mut plain = String::new();
    let mut in_colour = false;
    for c in text.chars() {
        match c {
            '\u{1b}' => in_colour = true,
            'm' if in_colour => in_colour = false,
            _ if in_colour => {}
            c => plain.push(c),
        }
    }
    plain.width()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::{ColourChoice, Terminal};

    const ID: &str = "dlv_019a86d99e3877078707070707070707";
    const URL: &str = "https://hooks.example.com/services/T024BE7LH/incoming/task-updates";

    fn sample(width: usize) -> String {
        let mut table = Table::new(&[
            Column::new("ID"),
            Column::new("STATE"),
            Column::new("ATT").right(),
            Column::new("URL").cut_middle(12),
            Column::new("EVENT").optional(),
        ]);
        table.row(vec![ID.into(), Cell::state("dead"), "12".into(), URL.into(), "evt_1".into()]);
        table.row(vec![ID.into(), Cell::state("waiting"), "1".into(), "https://a.b/".into()]);
        table.shown(Output::plain(width))
    }

    #[test]
    fn table_is_never_wider_than_the_terminal() {
        for width in [48, 63, 64, 65, 70, 80, 100, 120, 160, 400] {
            let text = sample(width);
            let widest = text.lines().map(|line| line.width()).max().unwrap();
            assert!(widest <= width, "{width}:\n{text}");
            assert!(text.contains(ID), "{text}");
            assert_eq!(text.contains("EVENT"), width >= 100, "{width}:\n{text}");
            assert_eq!(text.contains(URL), width >= 160, "{width}:\n{text}");
        }
    }

    #[test]
    fn row_becomes_a_block_where_its_columns_cannot_fit() {
        let text = sample(50);
        assert!(
            text.starts_with(&format!("ID     {ID}\nSTATE  dead\nATT    12\nURL    https://h")),
            "{text}"
        );
    }

    #[test]
    fn url_keeps_its_host_and_the_end_of_its_path() {
        assert_eq!(cut_middle(URL, 30), "https://hooks.exampl…k-updates");
        assert_eq!(cut("task.updated", 6), "task.…");
        assert_eq!(cut("日本語テキスト", 5), "日本…");
        assert_eq!(cut("x", 0), "…");
        assert_eq!(cut_middle("x", 1), "x");
    }

    #[test]
    fn last_column_goes_on_in_the_next_line() {
        let mut table = Table::new(&[Column::new("WHEN"), Column::new("WHY").wrap()]);
        table.row(vec!["3m ago".into(), "101 of 101 attempts failed, more than 70 %".into()]);
        assert_eq!(
            table.shown(Output::plain(34)),
            "WHEN    WHY\n3m ago  101 of 101 attempts\n        failed, more than 70 %"
        );
        let mut table = Table::new(&[Column::new("WHEN"), Column::new("WHY").wrap()]);
        table.row(vec!["3m ago".into(), "host 0123456789abcdefghij-日本語 failed".into()]);
        assert_eq!(
            table.shown(Output::plain(24)),
            "WHEN    WHY\n3m ago  host\n        0123456789abcdef\n        ghij-日本語\n        failed"
        );
    }

    #[test]
    fn cells_are_escaped_and_coloured_without_losing_their_alignment() {
        let mut table = Table::new(&[Column::new("A"), Column::new("B")]);
        table.row(vec![Cell::state("dead"), "\u{1b}[2J".into()]);
        table.row(vec![Cell::state("waiting"), "y".into()]);
        let output = Output::new(false, ColourChoice::Always, Terminal::default());
        assert_eq!(
            table.shown(output),
            "A        B\n\u{1b}[31mdead\u{1b}[0m     \\u{1b}[2J\n\u{1b}[33mwaiting\u{1b}[0m  y"
        );
        let texts = vec![vec!["\u{1b}[31mdead\u{1b}[0m".to_owned(), "x".to_owned()]];
        assert_eq!(
            Table::of_texts(&["STATE", "N"], texts),
            "STATE  N\n\u{1b}[31mdead\u{1b}[0m   x"
        );
    }
}
