//! `postrider keys`: creates, lists and deletes API keys; replaces a lost admin key.

mod reset;

use clap::{Args, Subcommand};
use serde_json::{Value as Json, json};

use super::words::access as words;
use super::{Context, Paging, object, segment};
use crate::cli::Connection;
use crate::config::Environment;
use crate::exit::Failure;
use crate::output::Output;

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
    List(Paging),
    /// Delete a key.
    Delete {
        /// The key's identifier.
        id: String,
    },
    /// Replace the admin key that was lost: on the data directory, while no server is running.
    ///
    /// The key of the first start stops working, a new one is made and written to admin.key. Needs no
    /// key, but the files: the data directory with its key ring, or the database and the key ring.
    ResetAdmin(reset::ResetAdmin),
}

pub(crate) async fn run(
    connection: &Connection,
    keys: Keys,
    environment: &Environment,
    output: Output,
) -> Result<(), Failure> {
    if let Command::ResetAdmin(arguments) = &keys.command {
        return reset::run(connection, arguments, environment, output).await;
    }
    let context = Context::new(connection, environment, output)?;
    match keys.command {
        Command::Create { scopes, tenant, name, expires_at } => {
            let body = object(vec![
                ("scopes", Some(json!(scopes))),
                ("tenant", tenant.map(Json::from)),
                ("name", name.map(Json::from)),
                ("expires_at", expires_at.map(Json::from)),
            ]);
            let created = context.post("/v1/keys", Some(&body)).await?;
            output.value(&created, |key| words::created_key(&context.show(), key))?;
        }
        Command::List(paging) => {
            let list = context.get("/v1/keys", &paging.query(vec![])).await?;
            output.value(&list, |list| words::keys(&context.show(), list))?;
        }
        Command::Delete { id } => {
            let answer = context.delete(&format!("/v1/keys/{}", segment(&id)?)).await?;
            output.value(&answer, |_| format!("deleted {id}"))?;
        }
        Command::ResetAdmin(_) => {}
    }
    Ok(())
}
