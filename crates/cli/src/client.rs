//! The client of the API that the other commands use: `postrider-client`, with the failures of a
//! command.
//!
//! Nothing is repeated: a person or a script decides about that. Kinds of failures are
//! distinguished, because scripts check the exit code.

use std::time::Duration;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::{Method, StatusCode};
use postrider_client::{Call, Error};
use serde_json::Value as Json;
use url::Url;

use crate::exit::Failure;

/// If the server does not answer within this time, it counts as unreachable.
const DEADLINE: Duration = Duration::from_secs(60);

/// A connection's parameters: server, key and tenant.
#[derive(Clone)]
pub struct Client {
    api: postrider_client::Client,
}

impl Client {
    /// A client of the server at this URL.
    pub fn new(
        server: &str,
        key: Option<String>,
        tenant: Option<String>,
    ) -> Result<Client, Failure> {
        let is_url = Url::parse(server).is_ok_and(|url| {
            matches!(url.scheme(), "http" | "https")
                && url.host().is_some()
                && url.query().is_none()
        });
        if !is_url {
            return Err(Failure::usage("--server must be a URL such as http://127.0.0.1:8080"));
        }
        let mut builder = postrider_client::Client::builder(server)
            .user_agent(concat!("postrider/", env!("CARGO_PKG_VERSION")))
            .timeout(DEADLINE)
            .retries(0);
        if let Some(key) = key {
            builder = builder.key(key);
        }
        if let Some(tenant) = tenant {
            builder = builder.tenant(tenant);
        }
        let api = builder.build().map_err(|error| Failure::usage(error.to_string()))?;
        Ok(Client { api })
    }

    /// The server's URL.
    pub fn server(&self) -> &Url {
        self.api.server()
    }

    /// The client itself, for typed calls.
    pub fn api(&self) -> &postrider_client::Client {
        &self.api
    }

    /// Sends a request, and returns the answer as JSON; `null` if it has no body.
    pub async fn ask(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, String)],
        body: Option<Bytes>,
    ) -> Result<Json, Failure> {
        let call = call(method, path, query).body(body.unwrap_or_default());
        self.api.call(&call).await.map_err(|error| self.failure(error))
    }

    /// Sends a request for text, such as `/metrics` and `/healthz`.
    pub async fn text(&self, path: &str) -> Result<(StatusCode, String), Failure> {
        let answer = self.api.fetch(&Call::get(path)).await;
        let (status, bytes) = answer.map_err(|error| self.failure(error))?;
        Ok((status, String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// Begins a stream of server-sent events.
    pub async fn follow(&self, path: &str, query: &[(&str, String)]) -> Result<Incoming, Failure> {
        let stream = self.api.open(&call(Method::GET, path, query)).await;
        stream.map_err(|error| self.failure(error))
    }

    /// The failure of a command whose call failed.
    pub fn failure(&self, error: Error) -> Failure {
        let text = error.to_string();
        match error {
            Error::Problem(problem) => Failure::answered(problem.status, &problem.document),
            Error::Timeout { .. } => {
                Failure::unreachable(self.server(), "no answer within a minute")
            }
            Error::Connection { cause, .. } => Failure::unreachable(self.server(), &cause),
            Error::Usage(what) => Failure::usage(what),
            Error::Answer { .. } | _ => Failure::failed(text),
        }
    }
}

fn call(method: Method, path: &str, query: &[(&str, String)]) -> Call {
    query.iter().fold(Call::new(method, path), |call, (name, value)| call.query(*name, value))
}
