//! `postrider subscriptions`: create, list, change, test and delete subscriptions.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use hyper::Method;
use serde_json::{Value as Json, json};
use url::{Host, Url};

use super::{Context, bytes, more, object, parse_json, query, segment};
use crate::exit::Failure;
use crate::output::{entries, escaped, part, table};

#[derive(Debug, Args)]
pub(crate) struct Subscriptions {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Create a subscription. Its secret is shown once.
    Create(Box<Create>),
    /// List subscriptions.
    List {
        /// Those to this destination.
        #[arg(long, value_name = "ID")]
        destination: Option<String>,
        /// At most so many.
        #[arg(long)]
        limit: Option<u32>,
        /// Where the next page begins.
        #[arg(long)]
        cursor: Option<String>,
    },
    /// Show one.
    Get {
        /// Its identifier.
        id: String,
    },
    /// Change one: only what is given changes. A new URL drops the token and the certificates.
    Update(Box<Update>),
    /// Delete one; what it still waits for is cancelled.
    Delete {
        /// Its identifier.
        id: String,
    },
    /// Send a test event to one now, and show the outcome.
    Test {
        /// Its identifier.
        id: String,
    },
    /// Give one a new secret; the old one stays valid for a while.
    Rotate {
        /// Its identifier.
        id: String,
        /// How long the old one stays valid; 24 hours unless set.
        #[arg(long, value_name = "SECONDS")]
        overlap_seconds: Option<u64>,
    },
}

#[derive(Debug, Args)]
struct Create {
    /// Where events are sent.
    url: String,
    /// Event types, such as task.updated, task.* or *.
    #[arg(required = true)]
    types: Vec<String>,
    /// Only events of this object.
    #[arg(long)]
    object: Option<String>,
    /// Only events that match, as JSON.
    #[arg(long)]
    filter: Option<String>,
    /// standard, cloudevents or raw.
    #[arg(long)]
    format: Option<String>,
    /// A bearer token that is sent along.
    #[arg(long)]
    auth_token: Option<String>,
    #[command(flatten)]
    tls: Tls,
    /// The secret to sign with; one is made unless given.
    #[arg(long)]
    secret: Option<String>,
    /// At most so many requests per second.
    #[arg(long, value_name = "PER_SECOND")]
    rate_limit: Option<f64>,
}

/// Certificates, as files in PEM.
#[derive(Debug, Args)]
struct Tls {
    /// The certificate that is shown to the receiver (mutual TLS).
    #[arg(long, value_name = "FILE", requires = "client_key")]
    client_certificate: Option<PathBuf>,
    /// Its key.
    #[arg(long, value_name = "FILE", requires = "client_certificate")]
    client_key: Option<PathBuf>,
    /// The authorities that the receiver's certificate may be of, instead of the usual ones.
    #[arg(long, value_name = "FILE")]
    ca_certificates: Option<PathBuf>,
}

impl Tls {
    /// The fields of a body, with what the files hold.
    fn fields(self) -> Result<Vec<(&'static str, Option<Json>)>, Failure> {
        let read = |path: Option<PathBuf>| -> Result<Option<Json>, Failure> {
            let Some(path) = path else { return Ok(None) };
            let text = std::fs::read_to_string(&path).map_err(|error| {
                Failure::usage(format!("{} cannot be read: {error}", path.display()))
            })?;
            Ok(Some(Json::from(text)))
        };
        Ok(vec![
            ("client_certificate", read(self.client_certificate)?),
            ("client_key", read(self.client_key)?),
            ("ca_certificates", read(self.ca_certificates)?),
        ])
    }
}

#[derive(Debug, Args)]
struct Update {
    /// Its identifier.
    id: String,
    /// Where events are sent.
    #[arg(long)]
    url: Option<String>,
    /// Event types, separated by commas.
    #[arg(long, value_delimiter = ',')]
    types: Option<Vec<String>>,
    /// Only events that match, as JSON.
    #[arg(long)]
    filter: Option<String>,
    /// A bearer token that is sent along.
    #[arg(long)]
    auth_token: Option<String>,
    #[command(flatten)]
    tls: Tls,
    /// At most so many requests per second.
    #[arg(long, value_name = "PER_SECOND")]
    rate_limit: Option<f64>,
    /// Whether it takes events.
    #[arg(long)]
    enabled: Option<bool>,
}

pub(crate) async fn run(context: &Context, arguments: Subscriptions) -> Result<(), Failure> {
    let output = context.output;
    match arguments.command {
        Command::Create(create) => {
            let created = context.post("/v1/subscriptions", Some(&body(*create)?)).await?;
            output.value(&created, |created| {
                let secret = part(created, "secret");
                format!(
                    "{}\nsecret: {secret}\nKeep the secret: it is not shown again.{}",
                    part(created, "id"),
                    hint(&part(created, "url"), &secret)
                )
            })?;
        }
        Command::List { destination, limit, cursor } => {
            let limit = limit.map(|limit| limit.to_string());
            let query =
                query(vec![("destination", destination), ("limit", limit), ("cursor", cursor)]);
            let list = context.get("/v1/subscriptions", &query).await?;
            output.value(&list, |list| {
                let row = |one: &Json| {
                    ["id", "url", "types", "format", "enabled"].map(|name| part(one, name)).to_vec()
                };
                let head = ["ID", "URL", "TYPES", "FORMAT", "ENABLED"];
                table(&head, entries(list).iter().map(row).collect()) + &more(list)
            })?;
        }
        Command::Get { id } => {
            let one = context.get(&path(&id, "")?, &[]).await?;
            output.value(&one, pretty)?;
        }
        Command::Update(update) => {
            let path = path(&update.id, "")?;
            let body = bytes(&changes(*update)?);
            let changed = context.client.ask(Method::PATCH, &path, &[], Some(body)).await?;
            output.value(&changed, pretty)?;
        }
        Command::Delete { id } => {
            let answer = context.delete(&path(&id, "")?).await?;
            output.value(&answer, |_| format!("deleted {id}"))?;
        }
        Command::Test { id } => {
            let answer = context.post(&path(&id, "/test")?, None).await?;
            output.value(&answer, pretty)?;
        }
        Command::Rotate { id, overlap_seconds } => {
            let body = object(vec![("overlap_seconds", overlap_seconds.map(Json::from))]);
            let answer = context.post(&path(&id, "/secret/rotate")?, Some(&body)).await?;
            output.value(&answer, pretty)?;
        }
    }
    Ok(())
}

/// How to look at what arrives, where it arrives on this machine.
fn hint(url: &str, secret: &str) -> String {
    let Ok(url) = Url::parse(url) else { return String::new() };
    let is_here = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    match url.port_or_known_default().filter(|_| is_here) {
        Some(port) => {
            format!("\nTo look at what arrives: postrider listen --port {port} --secret {secret}")
        }
        None => String::new(),
    }
}

fn path(id: &str, what: &str) -> Result<String, Failure> {
    Ok(format!("/v1/subscriptions/{}{what}", segment(id)?))
}

fn body(create: Create) -> Result<Json, Failure> {
    let filter = create.filter.map(|filter| parse_json(&filter, "--filter")).transpose()?;
    let mut fields = create.tls.fields()?;
    fields.extend([
        ("url", Some(json!(create.url))),
        ("types", Some(json!(create.types))),
        ("object", create.object.map(Json::from)),
        ("filter", filter),
        ("format", create.format.map(Json::from)),
        ("auth_token", create.auth_token.map(Json::from)),
        ("secret", create.secret.map(Json::from)),
        ("rate_limit", create.rate_limit.map(Json::from)),
    ]);
    Ok(object(fields))
}

fn changes(update: Update) -> Result<Json, Failure> {
    let filter = update.filter.map(|filter| parse_json(&filter, "--filter")).transpose()?;
    let mut fields = update.tls.fields()?;
    fields.extend([
        ("url", update.url.map(Json::from)),
        ("types", update.types.map(Json::from)),
        ("filter", filter),
        ("auth_token", update.auth_token.map(Json::from)),
        ("rate_limit", update.rate_limit.map(Json::from)),
        ("enabled", update.enabled.map(Json::from)),
    ]);
    Ok(object(fields))
}

/// All of it, a line for each field.
pub(super) fn pretty(value: &Json) -> String {
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.lines().map(escaped).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::hint;

    #[test]
    fn who_looks_on_listens_where_it_arrives() {
        for (url, port) in [
            ("http://127.0.0.1:9001/in", "9001"),
            ("http://localhost/in", "80"),
            ("http://[::1]:9000/", "9000"),
        ] {
            let words = format!("postrider listen --port {port} --secret s");
            assert!(hint(url, "s").ends_with(&words), "{url}");
        }
        for elsewhere in ["https://example.com/in", "not a URL"] {
            assert_eq!(hint(elsewhere, "s"), "", "{elsewhere}");
        }
    }
}
