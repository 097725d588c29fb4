//! `postrider migrate`: moves all data from one store to another, and compares both.
//!
//! It opens the stores directly, while no server runs on either. The source is only read. An
//! interrupted move continues where it stopped when the same command is run again.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use postrider_store::embedded::{self, EmbeddedStore};
use postrider_store::postgres::{self, PostgresStore};
use postrider_store::transfer::{Moved, Phase, RECORDS_MAX, Source, Target, Watch, transfer};
use serde_json::{Map, Value as Json, json};

use crate::config::Environment;
use crate::exit::Failure;
use crate::output::{self, Colour, Output, escaped};

#[derive(Debug, Args)]
pub(crate) struct Migrate {
    /// The source: a data directory, or postgres://…; also POSTRIDER_MIGRATE_FROM, which other
    /// users of this machine cannot see.
    #[arg(long, value_name = "STORE")]
    from: Option<String>,
    /// The target: a new data directory, or the postgres://… of an empty database; also
    /// POSTRIDER_MIGRATE_TO.
    #[arg(long, value_name = "STORE")]
    to: Option<String>,
}

pub(crate) async fn run(
    migrate: Migrate,
    environment: &Environment,
    output: Output,
) -> Result<(), Failure> {
    let given = |flag: Option<String>, name: &str, variable: &str| {
        let given = flag.or_else(|| environment.get(variable).map(str::to_owned));
        given.map(StoreLocation::new).ok_or_else(|| {
            Failure::usage(format!("{name} is missing: give a data directory or postgres://…"))
        })
    };
    let from = given(migrate.from, "--from", "POSTRIDER_MIGRATE_FROM")?;
    let to = given(migrate.to, "--to", "POSTRIDER_MIGRATE_TO")?;
    from.check_source()?;
    let source = from.open_source().await.with_context(|| from.shown())?;
    let target = to.open_target().await.with_context(|| to.shown())?;
    let mut progress = Progress::new(output);
    let moved = transfer(&*source, &*target, &mut progress, RECORDS_MAX).await;
    progress.end();
    let moved = moved.map_err(|error| Failure::failed(error.to_string()))?;
    Ok(output.value(&summary(&from, &to, &moved), |_| words(&from, &to, &moved, output))?)
}

/// The source or the target of a move.
#[derive(Debug)]
enum StoreLocation {
    /// A data directory.
    Directory(PathBuf),
    /// A database, with its full URL.
    Database(String),
}

impl StoreLocation {
    fn new(given: String) -> StoreLocation {
        // A mistyped address is treated as one too: as a directory name it would be printed with
        // its password.
        if ["://", "host=", "password="].iter().any(|mark| given.contains(mark)) {
            return StoreLocation::Database(given);
        }
        StoreLocation::Directory(PathBuf::from(given))
    }

    /// The form for messages, without a password.
    fn shown(&self) -> String {
        match self {
            StoreLocation::Directory(path) => path.display().to_string(),
            StoreLocation::Database(url) => postgres::shown(url),
        }
    }

    /// Refuses a directory without a store.
    fn check_source(&self) -> Result<(), Failure> {
        let StoreLocation::Directory(path) = self else { return Ok(()) };
        let why = if !path.exists() {
            "there is no such directory"
        } else if !path.join("main.db").is_file() {
            "it has no main.db, so it is no data directory of Postrider"
        } else {
            return Ok(());
        };
        let advice = "give the data directory of the server to move (often ./postrider-data or \
                      /var/lib/postrider), or postgres://…";
        Err(Failure::failed(format!("--from {}: {why}\n{advice}", path.display())))
    }

    async fn open_source(&self) -> anyhow::Result<Arc<dyn Source>> {
        match self {
            StoreLocation::Directory(path) => Ok(open(path, EmbeddedStore::open_to_move).await?),
            StoreLocation::Database(url) => Ok(PostgresStore::connect(url, options()).await?),
        }
    }

    async fn open_target(&self) -> anyhow::Result<Arc<dyn Target>> {
        match self {
            StoreLocation::Directory(path) => Ok(open(path, EmbeddedStore::open_to_fill).await?),
            StoreLocation::Database(url) => {
                Ok(PostgresStore::connect_to_fill(url, options()).await?)
            }
        }
    }
}

/// The database options for a move.
fn options() -> postgres::PostgresOptions {
    let node = "migrate".to_owned();
    postgres::PostgresOptions {
        node,
        connections: 4,
        listen: false,
        ..postgres::PostgresOptions::default()
    }
}

type Opened = Result<Arc<EmbeddedStore>, postrider_store::StoreError>;

async fn open(
    path: &Path,
    open: fn(PathBuf, embedded::EmbeddedOptions) -> Opened,
) -> anyhow::Result<Arc<EmbeddedStore>> {
    let path = path.to_owned();
    let opened =
        tokio::task::spawn_blocking(move || open(path, embedded::EmbeddedOptions::default()));
    Ok(opened.await.context("opening the store panicked")??)
}

/// Shows the progress: a bar on a terminal, otherwise lines.
struct Progress {
    output: Output,
    bar: Option<ProgressBar>,
    last: (Option<Phase>, u64),
}

impl Progress {
    fn new(output: Output) -> Progress {
        let bar = output.redraws().then(|| {
            let style = "{msg:>12} {bar:40} {human_pos}/{human_len} records, {eta} left";
            let style = ProgressStyle::with_template(style);
            ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        Progress { output, bar, last: (None, 0) }
    }

    fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// A line for every hundredth, and for every new phase.
    fn line(&mut self, phase: Phase, done: u64, total: u64) {
        let hundredth = done.saturating_mul(100) / total.max(1);
        if self.last == (Some(phase), hundredth) {
            return;
        }
        self.last = (Some(phase), hundredth);
        let (what, part) = named(phase);
        let line = if self.output.json {
            json!({ "phase": what, "part": part, "done": done, "total": total }).to_string()
        } else {
            format!("{what} {} {done} of {total} records", part.unwrap_or(""))
        };
        // If the output was closed, the move continues.
        output::line(&line).ok();
    }
}

/// The name of a phase, and of the part that is being copied.
fn named(phase: Phase) -> (&'static str, Option<&'static str>) {
    match phase {
        Phase::Copying(part) => ("copying", Some(part.as_str())),
        Phase::Verifying => ("verifying", None),
    }
}

impl Watch for Progress {
    fn moved(&mut self, phase: Phase, done: u64, total: u64) {
        let Some(bar) = &self.bar else { return self.line(phase, done, total) };
        let (what, part) = named(phase);
        bar.set_length(total);
        bar.set_position(done);
        bar.set_message(part.unwrap_or(what));
    }
}

/// The summary as JSON: the moved records with their checksums.
fn summary(from: &StoreLocation, to: &StoreLocation, moved: &Moved) -> Json {
    let kind = |(kind, sum): (&postrider_store::transfer::RecordKind, &_)| {
        let postrider_store::transfer::Summed { count, sum } = sum;
        (kind.as_str().to_owned(), json!({ "count": count, "checksum": format!("{sum:032x}") }))
    };
    let kinds: Map<String, Json> = moved.digest.by_kind().iter().map(kind).collect();
    json!({
        "from": from.shown(),
        "to": to.shown(),
        "verified": true,
        "records": moved.digest.records(),
        "tenants": moved.digest.tenants(),
        "resumed": moved.resumed,
        "was_finished": moved.was_finished,
        "kinds": kinds,
        "next": next_steps(to),
    })
}

/// The summary as text.
fn words(from: &StoreLocation, to: &StoreLocation, moved: &Moved, output: Output) -> String {
    let mut lines = Vec::new();
    let done = if moved.was_finished { "was moved before" } else { "moved" };
    lines.push(format!(
        "{} from {} to {}: {} records, counts and checksums agree on both sides",
        output.paint(Colour::Green, done),
        escaped(&from.shown()),
        escaped(&to.shown()),
        moved.digest.records(),
    ));
    for (kind, sum) in moved.digest.by_kind() {
        let checksum = format!("{:032x}", sum.sum);
        let line = format!("  {:<14}{:>12}", kind.as_str(), sum.count);
        lines.push(format!("{line}  {}", output.paint(Colour::Dim, &checksum)));
    }
    lines.push(String::new());
    lines.extend(next_steps(to).iter().map(|step| escaped(step)));
    lines.join("\n")
}

/// The next steps for the operator.
fn next_steps(to: &StoreLocation) -> Vec<String> {
    let ring = match to {
        StoreLocation::Directory(path) => {
            let ring = path.join("keyring");
            let there = if ring.exists() { "is there" } else { "is missing" };
            format!(
                "Secrets were moved as they are sealed: {} must be the key ring of the source, \
                 and {there} (or name the file by POSTRIDER_KEYRING).",
                ring.display()
            )
        }
        StoreLocation::Database(_) => {
            "Secrets were moved as they are sealed: give every node the file \
             `keyring` of the source's data directory, by POSTRIDER_KEYRING or in its own."
                .to_owned()
        }
    };
    let start = match to {
        StoreLocation::Directory(path) => {
            format!("Then: postrider serve --data-dir {}", path.display())
        }
        StoreLocation::Database(_) => {
            format!("Then, on each node: postrider serve --store {}", to.shown())
        }
    };
    vec![
        ring,
        "Keys stay valid, the admin key too. The source is as it was: never serve both, or what \
         waits is sent twice."
            .to_owned(),
        start,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_location_is_a_directory_or_a_database_and_never_shows_a_password() {
        for (given, shown) in [
            ("./postrider-data", "./postrider-data"),
            ("postgres://me:secret@db:5432/hooks", "postgres://me@db:5432/hooks"),
            ("postgresql://me@a,b/hooks?password=secret", "postgresql://me@a,b/hooks"),
            ("host=a,b user=me password=secret", "a database"),
            ("postgre://me:secret@db/hooks", "postgre://me@db/hooks"),
            ("postgres://me:se/cret@db/hooks", "postgres://***"),
        ] {
            assert_eq!(StoreLocation::new(given.to_owned()).shown(), shown);
        }
    }
}
