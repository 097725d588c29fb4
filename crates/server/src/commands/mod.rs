//! The commands beside `serve`. Most ask the API and print; none touches the store but `migrate`,
//! `backup` and `restore`, which work on a store that no server has open.

pub(crate) mod alerts;
pub(crate) mod audit;
pub(crate) mod backup;
pub(crate) mod config;
pub(crate) mod deliveries;
pub(crate) mod destinations;
pub(crate) mod doctor;
pub(crate) mod erase;
pub(crate) mod event_types;
pub(crate) mod events;
pub(crate) mod forecast;
pub(crate) mod keyring;
pub(crate) mod keys;
pub(crate) mod listen;
pub(crate) mod manual;
pub(crate) mod mcp;
pub(crate) mod migrate;
mod progress;
pub(crate) mod reference;
pub(crate) mod replay;
pub(crate) mod restore;
pub(crate) mod send;
pub(crate) mod stream;
pub(crate) mod subscriptions;
pub(crate) mod tail;
pub(crate) mod tenants;
mod words;

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use hyper::Method;
use hyper::body::Incoming;
use postrider_transport::{Clock as _, SystemClock};
use serde_json::{Map, Value as Json};
use tokio::net::TcpStream;

use crate::cli::{Connection, ServerArgs};
use crate::client::Client;
use crate::config::{ConfigError, Environment, Given, Loaded};
use crate::exit::Failure;
use crate::output::Output;
use crate::show::Show;

/// The default address of a server.
const DEFAULT_SERVER: &str = "http://127.0.0.1:8080";
/// How long a server that did not answer is looked at, to say why.
const PROBE: Duration = Duration::from_secs(2);

/// What a command needs: the connection to the server, and the output format.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) output: Output,
    key: KeySource,
}

/// Where the key comes from.
enum KeySource {
    /// The flag `--key`.
    Flag,
    /// The variable `POSTRIDER_KEY`.
    Variable,
    /// This file.
    File(PathBuf),
    /// There is none: this file cannot be read.
    Missing(PathBuf, std::io::Error),
}

impl KeySource {
    /// What to say of the key when the server refuses it.
    fn words(&self, is_unknown: bool) -> String {
        let source = match self {
            KeySource::Flag => "The key was given by --key.".to_owned(),
            KeySource::Variable => "The key comes from the variable POSTRIDER_KEY.".to_owned(),
            KeySource::File(path) => {
                let file = path.display();
                let whose = if is_unknown {
                    " Is that the data directory of this server? Name another by --data-dir."
                } else {
                    ""
                };
                format!("The key comes from {file}.{whose}")
            }
            KeySource::Missing(path, error) if error.kind() == std::io::ErrorKind::NotFound => {
                format!("No key was given, and there is no file {}.", path.display())
            }
            KeySource::Missing(path, error) => {
                format!("No key was given, and {} cannot be read: {error}.", path.display())
            }
        };
        if is_unknown {
            let ways = "Give a key by --key or POSTRIDER_KEY, or name the directory with admin.key by \
                        --data-dir. If the admin key is lost: postrider keys reset-admin";
            return format!("{source}\n{ways}");
        }
        source
    }
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
        let file = connection.data_dir.join("admin.key");
        let (key, source) = match (&connection.key, environment.get("POSTRIDER_KEY")) {
            (Some(key), _) => (Some(key.clone()), KeySource::Flag),
            (None, Some(key)) => (Some(key.to_owned()), KeySource::Variable),
            (None, None) => match std::fs::read_to_string(&file) {
                Ok(text) => (Some(text.trim().to_owned()), KeySource::File(file)),
                Err(error) => (None, KeySource::Missing(file, error)),
            },
        };
        let tenant = set(&connection.tenant, "POSTRIDER_TENANT");
        let client = Client::new(server.as_deref().unwrap_or(DEFAULT_SERVER), key, tenant)?;
        Ok(Context { client, output, key: source })
    }

    /// How things are shown now.
    fn show(&self) -> Show {
        Show { output: self.output, now: SystemClock.now() }
    }

    async fn get(&self, path: &str, query: &[(&str, String)]) -> Result<Json, Failure> {
        self.ask(Method::GET, path, query, None).await
    }

    async fn post(&self, path: &str, body: Option<&Json>) -> Result<Json, Failure> {
        self.ask(Method::POST, path, &[], body.map(bytes)).await
    }

    async fn patch(&self, path: &str, body: &Json) -> Result<Json, Failure> {
        self.ask(Method::PATCH, path, &[], Some(bytes(body))).await
    }

    async fn delete(&self, path: &str) -> Result<Json, Failure> {
        self.ask(Method::DELETE, path, &[], None).await
    }

    /// Sends a request. A failure says where the key comes from, or what answers in place of a server.
    async fn ask(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, String)],
        body: Option<Bytes>,
    ) -> Result<Json, Failure> {
        match self.client.ask(method, path, query, body).await {
            Ok(answer) => Ok(answer),
            Err(failure) => Err(self.explained(failure).await),
        }
    }

    /// Begins a stream of server-sent events.
    async fn follow(&self, path: &str, query: &[(&str, String)]) -> Result<Incoming, Failure> {
        match self.client.follow(path, query).await {
            Ok(body) => Ok(body),
            Err(failure) => Err(self.explained(failure).await),
        }
    }

    /// The failure with what helps to mend it.
    async fn explained(&self, failure: Failure) -> Failure {
        match failure.code {
            4 => {
                let is_unknown = failure.is_unauthenticated();
                let words = self.key.words(is_unknown);
                let is_given = !matches!(self.key, KeySource::Missing(..));
                if !is_unknown || !is_given {
                    return failure.hint(&words);
                }
                // The server's own words are for those who write a client.
                let server = self.client.server();
                let unknown = format!("{server} does not know this key, or it has expired");
                failure.instead(unknown).hint(&words)
            }
            5 => self.looked_at(failure).await,
            _ => failure,
        }
    }

    /// Looks at what listens at the address of a server that does not answer.
    async fn looked_at(&self, failure: Failure) -> Failure {
        let server = self.client.server();
        let (Some(host), Some(port)) = (server.host_str(), server.port()) else { return failure };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let connect = tokio::time::timeout(PROBE, TcpStream::connect((host, port)));
        if !matches!(connect.await, Ok(Ok(_))) {
            return failure;
        }
        let mut other = server.clone();
        let (scheme, is_tls) = (server.scheme().to_owned(), server.scheme() == "https");
        if other.set_scheme(if is_tls { "http" } else { "https" }).is_err() {
            return failure;
        }
        if !is_tls {
            let words = "It takes connections, but does not answer. If it has a certificate, its URL \
                         begins with https: --server ";
            let message = format!("{}\n{words}{other}", failure.first_line());
            return failure.instead(message);
        }
        let plain = match Client::new(other.as_str(), None, None) {
            Ok(plain) => plain,
            Err(_) => return failure,
        };
        match tokio::time::timeout(PROBE, plain.text("/healthz")).await {
            Ok(Ok(_)) => {
                let words = format!(
                    "{server} does not speak {scheme}, but plain http: use --server {other}"
                );
                failure.instead(words)
            }
            Ok(Err(_)) | Err(_) => failure,
        }
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

/// An identifier that the application chose, for use in a path: everything but letters, digits, `-`,
/// `.`, `_` and `~` is percent-encoded. An error if the path would be another one: empty, `.` or `..`,
/// which HTTP clients resolve even if they are encoded.
fn escaped_segment(id: &str) -> Result<String, Failure> {
    if matches!(id, "" | "." | "..") {
        return Err(Failure::usage("an identifier is not empty, and not `.` or `..`"));
    }
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~');
    let encode = |b: u8| if is_plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") };
    Ok(id.bytes().map(encode).collect())
}

/// Which page of a list.
#[derive(Debug, Default, Args)]
pub(crate) struct Paging {
    /// Show at most this many.
    #[arg(long, value_name = "N")]
    limit: Option<u32>,
    /// The cursor of the page.
    #[arg(long)]
    cursor: Option<String>,
}

impl Paging {
    /// The query of a list: these pairs, and the page.
    fn query(self, mut pairs: Vec<(&'static str, Option<String>)>) -> Vec<(&'static str, String)> {
        pairs.extend([
            ("limit", self.limit.map(|limit| limit.to_string())),
            ("cursor", self.cursor),
        ]);
        query(pairs)
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

#[cfg(test)]
mod tests {
    use super::escaped_segment;

    #[test]
    fn identifiers_of_the_application_stay_one_segment_of_a_path() {
        for (id, escaped) in [
            ("hook-7_a.b~c", "hook-7_a.b~c"),
            ("order:17", "order%3A17"),
            ("a/b?c#d%", "a%2Fb%3Fc%23d%25"),
            ("...", "..."),
        ] {
            assert_eq!(escaped_segment(id).unwrap(), escaped);
        }
        for other_path in ["", ".", ".."] {
            assert!(escaped_segment(other_path).is_err(), "{other_path:?}");
        }
    }
}
