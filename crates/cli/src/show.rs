//! How answers of the API are shown: lists, single records, and what to say where there is nothing.

use postrider_domain::time::Timestamp;
use serde_json::Value as Json;

use crate::output::{Colour, Output, entries, escaped, part, time};
use crate::table::{Cell, Column, Table, wrapped};
use crate::times;

/// The terminal and the time, which is all that decides how something is shown.
#[derive(Debug, Clone, Copy)]
pub struct Show {
    /// Colours and width.
    pub output: Output,
    /// The time to which relative times refer.
    pub now: Timestamp,
}

impl Show {
    /// A field that is a time, as `3m ago`; a dash if there is none.
    pub fn when(&self, value: &Json, name: &str) -> Cell {
        let shown = time(value, name).map(|then| times::relative(self.now, then));
        Cell::from(shown.unwrap_or_else(|| "-".to_owned()))
    }

    /// A field that is a time in the past, as `3m`; a dash if there is none.
    pub fn age(&self, value: &Json, name: &str) -> Cell {
        let shown = time(value, name).map(|then| times::distance(self.now, then));
        Cell::from(shown.unwrap_or_else(|| "-".to_owned()))
    }

    /// A field that is a time, as `3m ago (2026-11-18 02:14:57 UTC)`; `None` if there is none.
    pub fn moment(&self, value: &Json, name: &str) -> Option<Cell> {
        time(value, name).map(|then| Cell::from(times::both(self.now, then)))
    }

    /// A list as a table with the hint that there is more, or what to say where it is empty.
    pub fn list(
        &self,
        list: &Json,
        columns: &[Column],
        row: impl Fn(&Json) -> Vec<Cell>,
        empty: Empty<'_>,
    ) -> String {
        let entries = entries(list);
        if entries.is_empty() {
            return empty.shown(self.output);
        }
        let mut table = Table::new(columns);
        entries.iter().for_each(|entry| table.row(row(entry)));
        table.shown(self.output) + &more(list)
    }
}

/// A cell with a field as text.
pub fn cell(value: &Json, name: &str) -> Cell {
    Cell::from(part(value, name))
}

/// A cell with the field `url`, for a table: without `https://`, which takes the room of what differs.
pub fn url(value: &Json) -> Cell {
    let url = part(value, "url");
    Cell::from(url.strip_prefix("https://").unwrap_or(&url))
}

/// A cell with the field `state`, in its colour.
pub fn state(value: &Json) -> Cell {
    Cell::state(&part(value, "state"))
}

/// What to say where a list is empty: that there is nothing, and what to do next.
#[derive(Debug, Clone, Copy)]
pub struct Empty<'a> {
    /// That there is nothing.
    pub nothing: &'a str,
    /// What to do next; one line for each way.
    pub next: &'a [&'a str],
}

impl Empty<'_> {
    fn shown(self, output: Output) -> String {
        let mut lines = vec![self.nothing.to_owned()];
        lines.extend(self.next.iter().map(|line| output.paint(Colour::Dim, line)));
        lines.join("\n")
    }
}

/// A hint that the list has more pages.
pub fn more(list: &Json) -> String {
    match list.get("next_cursor").and_then(Json::as_str) {
        Some(cursor) => format!("\nmore: --cursor {}", escaped(cursor)),
        None => String::new(),
    }
}

/// One record: a line for each field, with its name.
#[derive(Debug, Default)]
pub struct Fields(Vec<(&'static str, Cell)>);

impl Fields {
    /// Without any field.
    pub fn new() -> Fields {
        Fields::default()
    }

    /// With this field.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<Cell>) -> Fields {
        self.0.push((name, value.into()));
        self
    }

    /// With this field, if it has a value.
    #[must_use]
    pub fn with_some(self, name: &'static str, value: Option<impl Into<Cell>>) -> Fields {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// With a field of the record, if it is there, under another name.
    #[must_use]
    pub fn with_part(self, name: &'static str, record: &Json, field: &str) -> Fields {
        let value = part(record, field);
        if value == "-" { self } else { self.with(name, value) }
    }

    /// As text: values that are too long go on in the next line.
    pub fn shown(&self, output: Output) -> String {
        let names = self.0.iter().map(|(name, _)| name.len()).max().unwrap_or(0) + 2;
        let width = output.width().saturating_sub(names).max(16);
        let mut lines = Vec::new();
        for (name, value) in &self.0 {
            let mut label = format!("{name:<names$}");
            for piece in wrapped(value.text(), width) {
                let shown = value.in_colour(&piece, output);
                lines.push(format!("{}{shown}", output.paint(Colour::Dim, &label)));
                label = " ".repeat(names);
            }
        }
        lines.iter().map(|line| line.trim_end()).collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn show() -> Show {
        let now = "2026-11-18T02:14:57Z".parse().unwrap();
        Show { output: Output::plain(40), now }
    }

    #[test]
    fn empty_list_says_what_to_do_next() {
        let empty = Empty {
            nothing: "No tenants yet.",
            next: &["Create one: postrider tenants create ID"],
        };
        let columns = [Column::new("ID")];
        let shown = show().list(&json!({"data": []}), &columns, |_| Vec::new(), empty);
        assert_eq!(shown, "No tenants yet.\nCreate one: postrider tenants create ID");
        let list = json!({"data": [{"id": "acme", "at": "2026-11-18T02:04:57Z"}], "next_cursor": "c\u{7}"});
        let columns = [Column::new("ID"), Column::new("AT")];
        let row = |one: &Json| vec![cell(one, "id"), show().when(one, "at")];
        let shown = show().list(&list, &columns, row, empty);
        assert_eq!(shown, "ID    AT\nacme  10m ago\nmore: --cursor c\\u{7}");
    }

    #[test]
    fn fields_are_aligned_wrapped_and_left_out_where_there_is_no_value() {
        let record = json!({"id": "dlv_1", "none": null, "why": "101 of 101 attempts failed, more than 70 %"});
        let fields = Fields::new()
            .with_part("delivery", &record, "id")
            .with_part("nothing", &record, "none")
            .with_some("at", show().moment(&record, "none"))
            .with_part("reason", &record, "why");
        assert_eq!(
            fields.shown(Output::plain(40)),
            "delivery  dlv_1\nreason    101 of 101 attempts failed,\n          more than 70 %"
        );
    }
}
