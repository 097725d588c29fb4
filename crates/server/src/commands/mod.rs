//! The commands beside `serve`. Most ask the API and print; none touches the store but `migrate`,
//! `backup` and `restore`, which work on a store that no server has open.

pub(crate) mod audit;
pub(crate) mod backup;
pub(crate) mod config;
pub(crate) mod deliveries;
pub(crate) mod destinations;
pub(crate) mod doctor;
pub(crate) mod forecast;
pub(crate) mod keyring;
pub(crate) mod keys;
pub(crate) mod listen;
pub(crate) mod manual;
pub(crate) mod mcp;
pub(crate) mod migrate;
pub(crate) mod reference;
pub(crate) mod replay;
pub(crate) mod restore;
pub(crate) mod send;
pub(crate) mod subscriptions;
pub(crate) mod tail;

use bytes::Bytes;
use hyper::Method;
use serde_json::{Map, Value as Json};

use crate::cli::{Connection, ServerArgs};
use crate::client::Client;
use crate::config::{ConfigError, Environment, Given, Loaded};
use crate::exit::Failure;
use crate::output::Output;

/// The default address of a server.
const DEFAULT_SERVER: &str = "http://127.0.0.1:8080";

/// What a command needs: the connection to the server, and the output format.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) output: Output,
}

impl Context {
    /// Determines the server and the key: from flags, environment variables, or `admin.key`.
    pub(crate) fn new(
        connection: &Connection,
        environment: &Environment,
        output: Output,
    ) -> Result<Context, Failure> {
        let set = |flag: &Option<String>, name: &str| {
            flag.clone().or_else(|| environment.get(name).map(str::to_owned))
        };
        let server = set(&connection.server, "POSTRIDER_SERVER");
        let key = set(&connection.key, "POSTRIDER_KEY").or_else(|| {
            let file = std::fs::read_to_string(connection.data_dir.join("admin.key")).ok()?;
            Some(file.trim().to_owned())
        });
        let tenant = set(&connection.tenant, "POSTRIDER_TENANT");
        let client = Client::new(server.as_deref().unwrap_or(DEFAULT_SERVER), key, tenant)?;
        Ok(Context { client, output })
    }

    async fn get(&self, path: &str, query: &[(&str, String)]) -> Result<Json, Failure> {
        self.client.ask(Method::GET, path, query, None).await
    }

    async fn post(&self, path: &str, body: Option<&Json>) -> Result<Json, Failure> {
        self.client.ask(Method::POST, path, &[], body.map(bytes)).await
    }

    async fn delete(&self, path: &str) -> Result<Json, Failure> {
        self.client.ask(Method::DELETE, path, &[], None).await
    }
}

/// JSON as bytes, for a request.
fn bytes(body: &Json) -> Bytes {
    Bytes::from(body.to_string())
}

/// Combines the sources of the configuration.
pub(crate) fn load(
    arguments: &ServerArgs,
    environment: &Environment,
) -> Result<Loaded, ConfigError> {
    let mut flags = Vec::new();
    for assignment in &arguments.set {
        flags.push(Given::by_set(assignment)?);
    }
    let named = [
        ("listen", &arguments.listen, "--listen"),
        ("data_dir", &arguments.data_dir, "--data-dir"),
        ("store", &arguments.store, "--store"),
        ("time_scale", &arguments.time_scale, "--time-scale"),
        ("server.tls_cert", &arguments.tls_cert, "--tls-cert"),
        ("server.tls_key", &arguments.tls_key, "--tls-key"),
    ];
    for (key, value, flag) in named {
        if let Some(value) = value {
            flags.push(Given::by_flag(key, value, flag));
        }
    }
    if arguments.dev {
        flags.push(Given::by_flag("dev", "true", "--dev"));
    }
    let file = arguments.config.clone().or_else(|| environment.config_file());
    Loaded::new(file.as_deref(), environment, flags)
}

/// Checks an identifier for use in a path.
fn segment(id: &str) -> Result<&str, Failure> {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    if !id.is_empty() && id.bytes().all(is_plain) {
        Ok(id)
    } else {
        Err(Failure::usage("an identifier consists of letters, digits, `_` and `-`"))
    }
}

/// The pairs that have a value.
fn query(pairs: Vec<(&'static str, Option<String>)>) -> Vec<(&'static str, String)> {
    pairs.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// A JSON object of the pairs that have a value.
fn object(pairs: Vec<(&str, Option<Json>)>) -> Json {
    let set = pairs.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Json::Object(set.collect::<Map<_, _>>())
}

/// Parses a JSON argument.
fn parse_json(text: &str, what: &str) -> Result<Json, Failure> {
    serde_json::from_str(text).map_err(|error| Failure::usage(format!("{what}: {error}")))
}

/// A hint that the list has more pages.
fn more(list: &Json) -> String {
    match list.get("next_cursor").and_then(Json::as_str) {
        Some(cursor) => format!("\nmore: --cursor {}", crate::output::escaped(cursor)),
        None => String::new(),
    }
}
