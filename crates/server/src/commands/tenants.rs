//! `postrider tenants`: creates, lists, shows, changes and deletes tenants.

use clap::{Args, Subcommand};
use serde_json::{Map, Value as Json};

use super::words::access;
use super::{Context, Paging, object, segment};
use crate::exit::Failure;
use crate::output::part;

#[derive(Debug, Args)]
pub(crate) struct Tenants {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Create a tenant.
    Create {
        /// Its identifier: 1 to 64 lowercase letters, digits, `-` and `_`.
        id: String,
        #[command(flatten)]
        about: About,
    },
    /// Change a tenant: only what is given.
    Update {
        /// The tenant's identifier.
        id: String,
        #[command(flatten)]
        about: About,
    },
    /// List tenants.
    List(Paging),
    /// Show a tenant.
    Get {
        /// The tenant's identifier.
        id: String,
    },
    /// Delete a tenant with its keys. Its subscriptions must be deleted first.
    Delete {
        /// The tenant's identifier.
        id: String,
    },
}

/// What a tenant is called, and the limits of its own. The server's hold for what is left out.
#[derive(Debug, Args)]
struct About {
    /// The display name; empty for none.
    #[arg(long)]
    name: Option<String>,
    /// A longer text; empty for none.
    #[arg(long)]
    description: Option<String>,
    /// A pair of the operator's own; may be given several times. A change replaces all of them, and an empty
    /// text removes them.
    #[arg(long, value_name = "KEY=VALUE")]
    metadata: Vec<String>,
    /// A limit of its own, by a name that `GET /v1/limits` shows, such as `subscriptions=50`; may be given several
    /// times. A change replaces all of them, and an empty text removes them.
    #[arg(long, value_name = "NAME=NUMBER")]
    quota: Vec<String>,
    /// The most requests per second; `default` for the server's limit.
    #[arg(long, value_name = "NUMBER", value_parser = rate)]
    requests_per_second: Option<Json>,
    /// The most events per second; `default` for the server's limit.
    #[arg(long, value_name = "NUMBER", value_parser = rate)]
    events_per_second: Option<Json>,
}

impl About {
    /// The fields for the request.
    fn fields(self) -> Result<Vec<(&'static str, Option<Json>)>, Failure> {
        let number = |text: &str| text.parse::<u64>().ok().map(Json::from);
        Ok(vec![
            ("name", self.name.map(text_or_none)),
            ("description", self.description.map(text_or_none)),
            ("metadata", pairs("--metadata", "VALUE", &self.metadata, |text| Some(text.into()))?),
            ("quotas", pairs("--quota", "NUMBER", &self.quota, number)?),
            ("requests_per_second", self.requests_per_second),
            ("events_per_second", self.events_per_second),
        ])
    }
}

/// A text of the request; null, which removes the value, for an empty one.
fn text_or_none(text: String) -> Json {
    if text.is_empty() { Json::Null } else { text.into() }
}

/// A rate; null, which removes it, for `default`.
fn rate(text: &str) -> Result<Json, String> {
    match text {
        "default" => Ok(Json::Null),
        _ => text.parse::<u32>().map(Json::from).map_err(|_| "a number, or `default`".to_owned()),
    }
}

/// The pairs that an option was given; `None` if it was not given, and null for one empty text.
fn pairs(
    option: &str,
    kind: &str,
    given: &[String],
    value: impl Fn(&str) -> Option<Json>,
) -> Result<Option<Json>, Failure> {
    if given.is_empty() {
        return Ok(None);
    }
    if given.iter().all(String::is_empty) {
        return Ok(Some(Json::Null));
    }
    let mut pairs = Map::new();
    for pair in given {
        let parsed = pair.split_once('=').and_then(|(key, text)| Some((key, value(text)?)));
        let (key, value) = parsed.ok_or_else(|| {
            Failure::usage(format!("{option} {pair}: give a name and a value, as NAME={kind}"))
        })?;
        pairs.insert(key.to_owned(), value);
    }
    Ok(Some(Json::Object(pairs)))
}

pub(crate) async fn run(context: &Context, tenants: Tenants) -> Result<(), Failure> {
    let output = context.output;
    match tenants.command {
        Command::Create { id, about } => {
            let mut fields = vec![("id", Some(Json::from(id)))];
            fields.extend(about.fields()?);
            let body = object(fields);
            let created = context.post("/v1/tenants", Some(&body)).await?;
            output.value(&created, |tenant| {
                let id = part(tenant, "id");
                format!(
                    "created {id}\nA key for it: postrider keys create --tenant {id} --scopes manage,read\n\
                     To act for it: --as {id}"
                )
            })?;
        }
        Command::Update { id, about } => {
            let fields = about.fields()?;
            if fields.iter().all(|(_, value)| value.is_none()) {
                return Err(Failure::usage("nothing to change: give --name or another option"));
            }
            let changed = context.patch(&path(&id)?, &object(fields)).await?;
            output.value(&changed, |one| access::tenant(&context.show(), one))?;
        }
        Command::List(paging) => {
            let list = context.get("/v1/tenants", &paging.query(vec![])).await?;
            output.value(&list, |list| access::tenants(&context.show(), list))?;
        }
        Command::Get { id } => {
            let one = context.get(&path(&id)?, &[]).await?;
            output.value(&one, |one| access::tenant(&context.show(), one))?;
        }
        Command::Delete { id } => {
            let answer = context.delete(&path(&id)?).await?;
            output.value(&answer, |_| format!("deleted {id}"))?;
        }
    }
    Ok(())
}

fn path(id: &str) -> Result<String, Failure> {
    Ok(format!("/v1/tenants/{}", segment(id)?))
}
