//! The configuration file: TOML, every value with its line.

use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::Given;
use super::fault::{Fault, Origin};
use super::settings;
use super::value::Raw;

/// Reads a file. Errors of TOML are reported here; values are checked later.
pub(super) fn read(path: &Path, given: &mut Vec<Given>, faults: &mut Vec<Fault>) {
    let whole = Origin::File { path: path.to_owned(), line: 1 };
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => {
            faults.push(Fault::new(whole, format!("cannot be read: {error}")));
            return;
        }
    };
    let file = File { path: path.to_owned(), text: &text };
    match DeTable::parse(&text) {
        Ok(table) => file.table("", table.get_ref(), given, faults),
        Err(error) => {
            let start = error.span().map_or(0, |span| span.start);
            faults.push(Fault::new(file.at(start), format!("not TOML: {}", error.message())));
        }
    }
}

struct File<'a> {
    path: PathBuf,
    text: &'a str,
}

impl File<'_> {
    /// The line of a byte offset.
    fn at(&self, byte: usize) -> Origin {
        let before = self.text.get(..byte).unwrap_or(self.text);
        Origin::File { path: self.path.clone(), line: before.matches('\n').count() + 1 }
    }

    fn table(
        &self,
        prefix: &str,
        table: &DeTable<'_>,
        given: &mut Vec<Given>,
        faults: &mut Vec<Fault>,
    ) {
        for (name, value) in table {
            let key = format!("{prefix}{}", name.get_ref());
            let origin = self.at(name.span().start);
            match value.get_ref() {
                DeValue::Table(inner) if settings::is_group(&key) => {
                    self.table(&format!("{key}."), inner, given, faults);
                }
                DeValue::Table(_) => faults.push(Fault::unknown(origin, &key)),
                DeValue::String(_)
                | DeValue::Integer(_)
                | DeValue::Float(_)
                | DeValue::Boolean(_)
                | DeValue::Datetime(_)
                | DeValue::Array(_) => given.push(Given { key, raw: raw(value), origin }),
            }
        }
    }
}

fn raw(value: &Spanned<DeValue<'_>>) -> Raw {
    match value.get_ref() {
        DeValue::String(text) => Raw::Text(text.to_string()),
        DeValue::Integer(integer) => match i64::from_str_radix(integer.as_str(), integer.radix()) {
            Ok(integer) => Raw::Integer(integer),
            Err(_) => Raw::Other("a number that is too large"),
        },
        DeValue::Float(float) => match float.as_str().parse() {
            Ok(float) => Raw::Float(float),
            Err(_) => Raw::Other("a number that cannot be read"),
        },
        DeValue::Boolean(boolean) => Raw::Boolean(*boolean),
        DeValue::Datetime(_) => Raw::Other("a date"),
        DeValue::Array(items) => Raw::List(items.iter().map(raw).collect()),
        DeValue::Table(table) => {
            let entry = |(name, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
                let name: &std::borrow::Cow<'_, str> = name.get_ref();
                (name.to_string(), raw(value))
            };
            Raw::Table(table.iter().map(entry).collect())
        }
    }
}
