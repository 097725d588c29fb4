//! One call of the API, before it is sent.

use bytes::Bytes;
use hyper::Method;
use serde::Serialize;
use serde_json::Value;

use crate::error::Error;

/// A request: method, path, query and body. For calls that have no method of their own in this
/// client; see [`crate::Client::call`].
#[derive(Clone)]
pub struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) body: Bytes,
    pub(crate) content_type: &'static str,
}

impl Call {
    /// A request without query and body. The path begins with a slash and is percent-encoded
    /// already.
    pub fn new(method: Method, path: impl Into<String>) -> Call {
        let (query, body) = (Vec::new(), Bytes::new());
        Call { method, path: path.into(), query, body, content_type: "application/json" }
    }

    /// A `GET`.
    pub fn get(path: impl Into<String>) -> Call {
        Call::new(Method::GET, path)
    }

    /// A `POST`.
    pub fn post(path: impl Into<String>) -> Call {
        Call::new(Method::POST, path)
    }

    /// With a parameter of the query.
    #[must_use]
    pub fn query(mut self, name: impl Into<String>, value: impl Into<String>) -> Call {
        self.query.push((name.into(), value.into()));
        self
    }

    /// With a body that is JSON already.
    #[must_use]
    pub fn body(mut self, json: impl Into<Bytes>) -> Call {
        self.body = json.into();
        self
    }

    /// With a body of many lines of JSON.
    #[must_use]
    pub fn lines(mut self, ndjson: impl Into<Bytes>) -> Call {
        self.body = ndjson.into();
        self.content_type = "application/x-ndjson";
        self
    }

    /// With a value as its body.
    pub(crate) fn json(self, value: &impl Serialize) -> Result<Call, Error> {
        let json = serde_json::to_vec(value);
        Ok(self.body(json.map_err(|error| Error::Usage(format!("the body is not JSON: {error}")))?))
    }

    /// With the fields of a query that have a value.
    pub(crate) fn fields(mut self, query: &impl Serialize) -> Call {
        let fields = serde_json::to_value(query).unwrap_or_default();
        for (name, value) in fields.as_object().into_iter().flatten() {
            match value {
                Value::Null => {}
                Value::String(text) => self.query.push((name.clone(), text.clone())),
                Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                    self.query.push((name.clone(), value.to_string()));
                }
            }
        }
        self
    }

    /// Method and path, for messages.
    pub(crate) fn name(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

/// A path of these words, percent-encoded.
pub(crate) fn path(words: &[&str]) -> Result<String, Error> {
    let mut path = String::from("/v1");
    for word in words {
        if matches!(*word, "" | "." | "..") {
            return Err(Error::Usage("an identifier is empty or malformed".to_owned()));
        }
        path.push('/');
        for byte in word.bytes() {
            if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
                path.push(char::from(byte));
            } else {
                path.push_str(&format!("%{byte:02X}"));
            }
        }
    }
    Ok(path)
}
