//! `postrider tenants`: creates, lists, shows and deletes tenants.

use clap::{Args, Subcommand};
use serde_json::Value as Json;

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
        /// The display name.
        #[arg(long)]
        name: Option<String>,
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

pub(crate) async fn run(context: &Context, tenants: Tenants) -> Result<(), Failure> {
    let output = context.output;
    match tenants.command {
        Command::Create { id, name } => {
            let body = object(vec![("id", Some(Json::from(id))), ("name", name.map(Json::from))]);
            let created = context.post("/v1/tenants", Some(&body)).await?;
            output.value(&created, |tenant| {
                let id = part(tenant, "id");
                format!(
                    "created {id}\nA key for it: postrider keys create --tenant {id} --scopes manage,read\n\
                     To act for it: --as {id}"
                )
            })?;
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
