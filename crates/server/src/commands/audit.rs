//! `postrider audit`: who changed what.

use std::io::Write as _;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::Value as Json;

use super::words::access as words;
use super::{Context, query};
use crate::exit::Failure;
use crate::output::entries;

/// Entries per request.
const PAGE: &str = "1000";
/// The columns of a CSV file, which are the fields of an entry.
const COLUMNS: [&str; 12] = [
    "id",
    "at",
    "tenant",
    "actor",
    "key",
    "key_name",
    "action",
    "target_kind",
    "target",
    "address",
    "status",
    "problem",
];

#[derive(Debug, Args)]
pub(crate) struct Audit {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List entries, newest first.
    List {
        #[command(flatten)]
        filter: Filter,
        /// Show at most this many.
        #[arg(long)]
        limit: Option<u32>,
        /// The cursor of the page.
        #[arg(long)]
        cursor: Option<String>,
    },
    /// Print all entries, newest first, for another program.
    Export {
        #[command(flatten)]
        filter: Filter,
        /// The format of an entry.
        #[arg(long, value_enum, default_value_t = Format::Ndjson)]
        format: Format,
    },
}

/// Selects entries.
#[derive(Debug, Args)]
struct Filter {
    /// Entries of this tenant.
    #[arg(long)]
    of_tenant: Option<String>,
    /// Entries by the key with this identifier.
    #[arg(long)]
    by: Option<String>,
    /// Entries with this action, such as subscription.create.
    #[arg(long)]
    action: Option<String>,
    /// Entries about the record with this identifier.
    #[arg(long)]
    target: Option<String>,
    /// Entries at or after this RFC 3339 time.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Entries before this RFC 3339 time.
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// One JSON object a line.
    Ndjson,
    /// Comma-separated values with a header line.
    Csv,
}

impl Filter {
    fn query(self, limit: Option<String>, cursor: Option<String>) -> Vec<(&'static str, String)> {
        query(vec![
            ("tenant", self.of_tenant),
            ("key", self.by),
            ("action", self.action),
            ("target", self.target),
            ("since", self.since),
            ("until", self.until),
            ("limit", limit),
            ("cursor", cursor),
        ])
    }
}

pub(crate) async fn run(context: &Context, audit: Audit) -> Result<(), Failure> {
    match audit.command {
        Command::List { filter, limit, cursor } => {
            let query = filter.query(limit.map(|limit| limit.to_string()), cursor);
            let list = context.get("/v1/audit", &query).await?;
            context.output.value(&list, |list| words::audit(&context.show(), list))?;
        }
        Command::Export { filter, format } => export(context, filter, format).await?,
    }
    Ok(())
}

/// Prints page after page, as they arrive.
async fn export(context: &Context, filter: Filter, format: Format) -> Result<(), Failure> {
    let mut query = filter.query(Some(PAGE.to_owned()), None);
    if let Format::Csv = format {
        std::io::stdout().write_all((COLUMNS.join(",") + "\n").as_bytes())?;
    }
    loop {
        let list = context.get("/v1/audit", &query).await?;
        let line = |entry: &Json| match format {
            Format::Ndjson => format!("{entry}\n"),
            Format::Csv => csv(entry) + "\n",
        };
        let lines: String = entries(&list).iter().map(line).collect();
        std::io::stdout().write_all(lines.as_bytes())?;
        let Some(cursor) = list.get("next_cursor").and_then(Json::as_str) else { return Ok(()) };
        query.retain(|(name, _)| *name != "cursor");
        query.push(("cursor", cursor.to_owned()));
    }
}

/// An entry as a line of comma-separated values (RFC 4180).
fn csv(entry: &Json) -> String {
    let field = |name: &str| match &entry[name] {
        Json::Null => String::new(),
        Json::String(text) if text.contains(['"', ',', '\n', '\r']) || is_formula(text) => {
            format!("\"{}\"", guarded(text).replace('"', "\"\""))
        }
        Json::String(text) => text.clone(),
        other @ (Json::Bool(_) | Json::Number(_) | Json::Array(_) | Json::Object(_)) => {
            other.to_string()
        }
    };
    COLUMNS.map(field).join(",")
}

/// Whether a spreadsheet would interpret the text as a formula.
fn is_formula(text: &str) -> bool {
    text.starts_with(['=', '+', '-', '@', '\t'])
}

fn guarded(text: &str) -> String {
    if is_formula(text) { format!("'{text}") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn csv_quotes_what_needs_it_and_defuses_formulas() {
        let entry = json!({"id": "aud_1", "key_name": "a, \"b\"", "status": 201, "target": "=1+1"});
        let line = csv(&entry);
        assert_eq!(line, "aud_1,,,,,\"a, \"\"b\"\"\",,,\"'=1+1\",,201,");
    }
}
