//! `postrider keys`: creates, lists and deletes API keys.

use clap::{Args, Subcommand};
use serde_json::{Value as Json, json};

use super::{Context, more, object, query, segment};
use crate::exit::Failure;
use crate::output::{entries, part, table};

#[derive(Debug, Args)]
pub(crate) struct Keys {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Create a key. It is shown once.
    Create {
        /// The scopes of the key: ingest, manage, read, admin.
        #[arg(long, value_delimiter = ',', required = true)]
        scopes: Vec<String>,
        /// The tenant of the key.
        #[arg(long)]
        tenant: Option<String>,
        /// The display name.
        #[arg(long)]
        name: Option<String>,
        /// When it stops working, as an RFC 3339 time.
        #[arg(long, value_name = "TIME")]
        expires_at: Option<String>,
    },
    /// List all keys with their tenants, or those of the tenant that --as names.
    List {
        /// Show at most this many.
        #[arg(long)]
        limit: Option<u32>,
        /// The cursor of the page.
        #[arg(long)]
        cursor: Option<String>,
    },
    /// Delete a key.
    Delete {
        /// The key's identifier.
        id: String,
    },
}

pub(crate) async fn run(context: &Context, keys: Keys) -> Result<(), Failure> {
    match keys.command {
        Command::Create { scopes, tenant, name, expires_at } => {
            let body = object(vec![
                ("scopes", Some(json!(scopes))),
                ("tenant", tenant.map(Json::from)),
                ("name", name.map(Json::from)),
                ("expires_at", expires_at.map(Json::from)),
            ]);
            let created = context.post("/v1/keys", Some(&body)).await?;
            context.output.value(&created, |key| {
                format!("{}\nKeep it: it is not shown again.", part(key, "key"))
            })?;
        }
        Command::List { limit, cursor } => {
            let query =
                query(vec![("limit", limit.map(|limit| limit.to_string())), ("cursor", cursor)]);
            let list = context.get("/v1/keys", &query).await?;
            context.output.value(&list, |list| {
                let row = |key: &Json| {
                    ["id", "tenant", "scopes", "name", "expires_at", "last_used_at"]
                        .map(|name| part(key, name))
                        .to_vec()
                };
                let head = ["ID", "TENANT", "SCOPES", "NAME", "EXPIRES", "LAST USED"];
                table(&head, entries(list).iter().map(row).collect()) + &more(list)
            })?;
        }
        Command::Delete { id } => {
            let answer = context.delete(&format!("/v1/keys/{}", segment(&id)?)).await?;
            context.output.value(&answer, |_| format!("deleted {id}"))?;
        }
    }
    Ok(())
}
