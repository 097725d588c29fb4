//! `postrider event-types`: the catalogue of event types.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use hyper::Method;
use serde_json::{Value as Json, json};

use super::words::event_type as words;
use super::{Context, bytes, object, parse_json, query};
use crate::exit::Failure;
use crate::output::{entries, line, part};

#[derive(Debug, Args)]
pub(crate) struct EventTypes {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List event types, the tenant's own and the server's.
    List {
        /// Only those of the server, or only the tenant's own: server or tenant.
        #[arg(long)]
        scope: Option<String>,
        /// Show at most this many.
        #[arg(long)]
        limit: Option<u32>,
        /// The cursor of the page.
        #[arg(long)]
        cursor: Option<String>,
    },
    /// Show an event type with its schema and example.
    Get {
        /// The name of the type.
        name: String,
        /// Show the server's, even if the tenant has its own.
        #[arg(long)]
        server_wide: bool,
    },
    /// Add an event type.
    Create {
        /// The name of the type.
        name: String,
        #[command(flatten)]
        what: What,
    },
    /// Change an event type. What is not given stays.
    Update {
        /// The name of the type.
        name: String,
        #[command(flatten)]
        what: What,
        /// It is no longer deprecated.
        #[arg(long, conflicts_with = "deprecated")]
        current: bool,
    },
    /// Delete an event type. Its events and subscriptions stay.
    Delete {
        /// The name of the type.
        name: String,
        /// Delete the server's.
        #[arg(long)]
        server_wide: bool,
    },
    /// Add or change all event types of a file that `export` wrote.
    Import {
        /// The file; - for standard input.
        file: PathBuf,
        /// Import them for all tenants.
        #[arg(long)]
        server_wide: bool,
    },
    /// Write all event types as JSON, one a line.
    Export {
        /// Only those of the server, or only the tenant's own: server or tenant.
        #[arg(long)]
        scope: Option<String>,
    },
    /// Show or change what is done with events that do not fit: accept, flag or refuse.
    Policy {
        /// With an event whose type is not in the catalogue; "server" takes the server's choice.
        #[arg(long, value_name = "CONDUCT")]
        unknown_types: Option<String>,
        /// With an event whose data does not fit the schema of its type; "server" takes the server's choice.
        #[arg(long, value_name = "CONDUCT")]
        misfits: Option<String>,
    },
}

#[derive(Debug, Args)]
struct What {
    /// What it means, for people.
    #[arg(long)]
    description: Option<String>,
    /// A file with the JSON Schema of the data; - for standard input.
    #[arg(long, value_name = "FILE")]
    schema: Option<PathBuf>,
    /// A file with an example of the data; - for standard input.
    #[arg(long, value_name = "FILE")]
    example: Option<PathBuf>,
    /// Applications should stop sending it.
    #[arg(long)]
    deprecated: bool,
    /// The type of the server, for all tenants. It takes an admin key.
    #[arg(long)]
    server_wide: bool,
}

pub(crate) async fn run(context: &Context, arguments: EventTypes) -> Result<(), Failure> {
    match arguments.command {
        Command::List { scope, limit, cursor } => list(context, scope, limit, cursor).await,
        Command::Get { name, server_wide } => {
            let one = context.get(&path(&name)?, &scope_of(server_wide)).await?;
            Ok(context.output.value(&one, |one| words::one(&context.show(), one))?)
        }
        Command::Create { name, what } => {
            let mut body = what.body()?;
            set(&mut body, "name", json!(name));
            if what.server_wide {
                set(&mut body, "scope", json!("server"));
            }
            let made = context.post("/v1/event-types", Some(&body)).await?;
            Ok(context.output.value(&made, |_| format!("added {name}"))?)
        }
        Command::Update { name, what, current } => {
            let mut body = what.body()?;
            if current {
                set(&mut body, "deprecated", json!(false));
            }
            let changed = change(context, &name, what.server_wide, &body).await?;
            Ok(context.output.value(&changed, |_| format!("changed {name}"))?)
        }
        Command::Delete { name, server_wide } => {
            let (path, query) = (path(&name)?, scope_of(server_wide));
            let answer = context.ask(Method::DELETE, &path, &query, None).await?;
            Ok(context.output.value(&answer, |_| format!("deleted {name}"))?)
        }
        Command::Import { file, server_wide } => import(context, &file, server_wide).await,
        Command::Export { scope } => export(context, scope).await,
        Command::Policy { unknown_types, misfits } => policy(context, unknown_types, misfits).await,
    }
}

impl What {
    fn body(&self) -> Result<Json, Failure> {
        let file = |path: &Option<PathBuf>, what: &str| {
            path.as_ref().map(|path| parse_json(&contents(path)?, what)).transpose()
        };
        Ok(object(vec![
            ("description", self.description.clone().map(Json::from)),
            ("schema", file(&self.schema, "the schema")?),
            ("example", file(&self.example, "the example")?),
            ("deprecated", self.deprecated.then_some(Json::Bool(true))),
        ]))
    }
}

/// The text of a file; `-` is standard input.
fn contents(path: &Path) -> Result<String, Failure> {
    if path.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().lock().read_to_string(&mut text)?;
        return Ok(text);
    }
    let read = std::fs::read_to_string(path);
    read.map_err(|error| Failure::usage(format!("cannot read {}: {error}", path.display())))
}

/// The path of a type. Its name has dots, which an identifier of ours has not.
fn path(name: &str) -> Result<String, Failure> {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    let is_name = !name.is_empty() && name.bytes().all(is_plain) && !name.starts_with('.');
    if is_name {
        return Ok(format!("/v1/event-types/{name}"));
    }
    Err(Failure::usage("a type is words of letters, digits, `_` and `-`, joined by dots"))
}

fn scope_of(server_wide: bool) -> Vec<(&'static str, String)> {
    query(vec![("scope", server_wide.then(|| "server".to_owned()))])
}

fn set(body: &mut Json, name: &str, value: Json) {
    if let Json::Object(fields) = body {
        fields.insert(name.to_owned(), value);
    }
}

async fn change(
    context: &Context,
    name: &str,
    server_wide: bool,
    body: &Json,
) -> Result<Json, Failure> {
    let (path, query) = (path(name)?, scope_of(server_wide));
    context.ask(Method::PATCH, &path, &query, Some(bytes(body))).await
}

async fn list(
    context: &Context,
    scope: Option<String>,
    limit: Option<u32>,
    cursor: Option<String>,
) -> Result<(), Failure> {
    let limit = limit.map(|limit| limit.to_string());
    let query = query(vec![("scope", scope), ("limit", limit), ("cursor", cursor)]);
    let list = context.get("/v1/event-types", &query).await?;
    context.output.value(&list, |list| words::list(&context.show(), list))?;
    Ok(())
}

/// What `export` writes of a type, and `import` reads.
const FIELDS: [&str; 5] = ["name", "description", "schema", "example", "deprecated"];

async fn export(context: &Context, scope: Option<String>) -> Result<(), Failure> {
    let mut cursor = None;
    loop {
        let limit = Some("1000".to_owned());
        let pairs = query(vec![("scope", scope.clone()), ("limit", limit), ("cursor", cursor)]);
        let list = context.get("/v1/event-types", &pairs).await?;
        for one in entries(&list) {
            let field = |name| (name, one.get(name).filter(|value| !value.is_null()).cloned());
            line(&object(FIELDS.map(field).to_vec()).to_string())?;
        }
        cursor = list.get("next_cursor").and_then(Json::as_str).map(str::to_owned);
        if cursor.is_none() {
            return Ok(());
        }
    }
}

/// Adds what is not there, and changes what is.
async fn import(context: &Context, file: &Path, server_wide: bool) -> Result<(), Failure> {
    let text = contents(file)?;
    let (mut added, mut changed) = (0u64, 0u64);
    for (n, text) in text.lines().enumerate().filter(|(_, text)| !text.trim().is_empty()) {
        let mut body = parse_json(text, &format!("line {}", n + 1))?;
        let name = part(&body, "name");
        let there = context.get(&path(&name)?, &query(vec![("scope", owner(server_wide))])).await;
        match there {
            Ok(_) => {
                // What the file does not have is removed, so that both are the same.
                for field in FIELDS.into_iter().skip(1) {
                    if body.get(field).is_none() {
                        set(&mut body, field, Json::Null);
                    }
                }
                if let Json::Object(fields) = &mut body {
                    fields.remove("name");
                    if fields.get("deprecated").is_some_and(Json::is_null) {
                        fields.insert("deprecated".to_owned(), json!(false));
                    }
                }
                change(context, &name, server_wide, &body).await?;
                changed += 1;
            }
            Err(failure) if failure.code == 3 => {
                if server_wide {
                    set(&mut body, "scope", json!("server"));
                }
                context.post("/v1/event-types", Some(&body)).await?;
                added += 1;
            }
            Err(failure) => return Err(failure),
        }
    }
    let answer = json!({ "added": added, "changed": changed });
    Ok(context.output.value(&answer, |_| format!("added {added}, changed {changed}"))?)
}

fn owner(server_wide: bool) -> Option<String> {
    Some(if server_wide { "server" } else { "tenant" }.to_owned())
}

async fn policy(
    context: &Context,
    unknown_types: Option<String>,
    misfits: Option<String>,
) -> Result<(), Failure> {
    let word = |word: String| match word.as_str() {
        "server" => Json::Null,
        _ => Json::from(word),
    };
    let body =
        object(vec![("unknown_types", unknown_types.map(word)), ("misfits", misfits.map(word))]);
    let is_change = body.as_object().is_some_and(|fields| !fields.is_empty());
    let answer = match is_change {
        true => {
            let body = Some(bytes(&body));
            context.ask(Method::PATCH, "/v1/catalogue", &[], body).await?
        }
        false => context.get("/v1/catalogue", &[]).await?,
    };
    context.output.value(&answer, |answer| {
        let of = |name: &str| {
            let own = answer.pointer(&format!("/own/{name}")).filter(|own| !own.is_null());
            let whose =
                if own.is_some() { "the tenant's own choice" } else { "the server's choice" };
            format!("{} ({whose})", part(answer, name))
        };
        format!(
            "events of unknown types: {}\nevents that do not fit:  {}",
            of("unknown_types"),
            of("misfits")
        )
    })?;
    Ok(())
}
