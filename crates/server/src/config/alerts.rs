//! The settings of alerts: targets, pace, and the mail server.
//!
//! A target has secrets: the URL of a Slack webhook, the secret of a signature. **No error and no
//! `Debug` shows them**, and [`Value::masked`] hides them where the settings are shown.

use std::fmt;

use lettre::Address;
use postrider_domain::alerts::{AlertKind, AlertPolicy, Severity, Wanted};
use postrider_domain::policy::Share;
use postrider_domain::signature::SigningSecret;
use serde_json::{Map, Value as Json, json};
use url::Url;

use super::value::{Raw, Value};

/// Targets of one server.
const TARGETS_MAX: usize = 16;
/// Addresses of one e-mail, and tenants of one target.
const ENTRIES_MAX: usize = 50;
/// Shown in place of a secret.
const MASK: &str = "***";

/// The settings of alerts.
#[derive(Debug, Clone)]
pub(crate) struct AlertSettings {
    pub(crate) targets: AlertTargets,
    pub(crate) policy: AlertPolicy,
    pub(crate) disk_free_min: Share,
    pub(crate) smtp: SmtpSettings,
}

impl Default for AlertSettings {
    fn default() -> Self {
        AlertSettings {
            targets: AlertTargets::default(),
            policy: AlertPolicy::default(),
            disk_free_min: Share::from_millionths(50_000),
            smtp: SmtpSettings::default(),
        }
    }
}

/// The mail server.
#[derive(Debug, Clone, Default)]
pub(crate) struct SmtpSettings {
    /// Its name or address, with or without a port.
    pub(crate) server: Option<String>,
    pub(crate) tls: SmtpTls,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    /// The sender.
    pub(crate) from: Option<String>,
}

/// How the connection to the mail server is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum SmtpTls {
    /// The connection begins in the clear and must switch to TLS.
    #[default]
    StartTls,
    /// The connection begins with TLS.
    Tls,
    /// The connection is not encrypted.
    Off,
}

/// Who is told.
#[derive(Debug, Clone, Default)]
pub(crate) struct AlertTargets(pub(crate) Vec<AlertTarget>);

/// One of those who are told.
#[derive(Debug, Clone)]
pub(crate) struct AlertTarget {
    pub(crate) name: String,
    pub(crate) to: SendTo,
    pub(crate) wanted: Wanted,
}

/// Where a message goes.
#[derive(Clone)]
pub(crate) enum SendTo {
    /// A URL that gets JSON, signed as Standard Webhooks.
    Webhook { url: Url, secret: SigningSecret },
    /// A URL that takes what Slack's incoming webhooks take. The URL is the secret.
    Slack { url: Url },
    /// E-mail to these addresses.
    Email { to: Vec<Address> },
}

impl SendTo {
    /// `webhook`, `slack` or `email`.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            SendTo::Webhook { .. } => "webhook",
            SendTo::Slack { .. } => "slack",
            SendTo::Email { .. } => "email",
        }
    }

    /// Where it goes, without secrets.
    pub(crate) fn shown(&self) -> String {
        match self {
            SendTo::Webhook { url, .. } | SendTo::Slack { url } => {
                url.origin().ascii_serialization()
            }
            SendTo::Email { to } => {
                to.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
            }
        }
    }
}

impl fmt::Debug for SendTo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.kind(), self.shown())
    }
}

impl Value for AlertTargets {
    fn take(&mut self, raw: &Raw) -> Result<(), String> {
        let entries = match raw {
            Raw::Untyped(text) | Raw::Text(text) if text.trim().is_empty() => Vec::new(),
            Raw::Untyped(text) => match serde_json::from_str(text) {
                Ok(Json::Array(entries)) => entries,
                // Not the parser's error: it may have a part of a secret.
                Ok(_) | Err(_) => return Err(EXPECTED.to_owned()),
            },
            Raw::List(items) => items.iter().map(Raw::json).collect(),
            Raw::Text(_)
            | Raw::Integer(_)
            | Raw::Float(_)
            | Raw::Boolean(_)
            | Raw::Table(_)
            | Raw::Other(_) => return Err(EXPECTED.to_owned()),
        };
        let targets: Result<Vec<AlertTarget>, String> = (entries.iter().enumerate())
            .map(|(n, entry)| target(entry).map_err(|why| place(n, entry, &why)))
            .collect();
        let targets = targets?;
        if targets.len() > TARGETS_MAX {
            return Err(format!("a list of at most {TARGETS_MAX} targets"));
        }
        let mut names: Vec<&str> = targets.iter().map(|target| target.name.as_str()).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!(
                "a list of targets with different names: {:?} is there twice",
                twice[0]
            ));
        }
        self.0 = targets;
        Ok(())
    }

    fn show(&self) -> Json {
        self.0.iter().map(|target| shown(target, false)).collect()
    }

    fn masked(&self) -> Json {
        self.0.iter().map(|target| shown(target, true)).collect()
    }
}

const EXPECTED: &str = "a list of targets such as [{ name = \"ops\", email = [\"ops@example.com\"] }] in the file, or \
                        the same as JSON elsewhere";

/// The error of one target.
fn place(n: usize, entry: &Json, why: &str) -> String {
    let name = entry.get("name").and_then(Json::as_str).filter(|name| is_name(name));
    match name {
        Some(name) => format!("a list of targets; of the one with the name {name:?}, {why}"),
        None => format!("a list of targets; of number {}, {why}", n + 1),
    }
}

fn is_name(text: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    (1..=32).contains(&text.len()) && text.bytes().all(is_plain)
}

fn target(entry: &Json) -> Result<AlertTarget, String> {
    let Some(fields) = entry.as_object() else { return Err("it must be a table".to_owned()) };
    let known = ["name", "url", "secret", "slack", "email", "severity", "kinds", "tenants"];
    if let Some(other) = fields.keys().find(|key| !known.contains(&key.as_str())) {
        let near = known.iter().find(|known| strsim::jaro_winkler(known, other) > 0.85);
        let near = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
        return Err(format!("a field is unknown{near} The fields are {}", known.join(", ")));
    }
    let name = text(fields, "name")?.filter(|name| is_name(name));
    let name = name.ok_or("`name` must be 1 to 32 letters, digits, `-` or `_`")?.to_owned();
    Ok(AlertTarget { name, to: send_to(fields)?, wanted: wanted(fields)? })
}

fn send_to(fields: &Map<String, Json>) -> Result<SendTo, String> {
    let (webhook, slack) = (url(fields, "url")?, url(fields, "slack")?);
    let secret = text(fields, "secret")?;
    if secret.is_some() && webhook.is_none() {
        return Err("`secret` goes with `url` only".to_owned());
    }
    match (webhook, slack, fields.contains_key("email")) {
        (Some(url), None, false) => {
            let secret = secret.and_then(|secret| secret.parse().ok()).ok_or(
                "`url` needs a `secret` beside it, which signs the messages: whsec_ and 24 to 64 random \
                 bytes in base64",
            )?;
            Ok(SendTo::Webhook { url, secret })
        }
        (None, Some(url), false) => Ok(SendTo::Slack { url }),
        (None, None, true) => {
            let to: Option<Vec<Address>> =
                list(fields, "email")?.iter().map(|one| one.parse().ok()).collect();
            let to = to.filter(|to| !to.is_empty());
            Ok(SendTo::Email { to: to.ok_or("`email` must be a list of addresses")? })
        }
        _ => Err("there must be exactly one of `url`, `slack` and `email`".to_owned()),
    }
}

fn wanted(fields: &Map<String, Json>) -> Result<Wanted, String> {
    let severity = match text(fields, "severity")? {
        None => Severity::Warning,
        Some(name) => {
            name.parse().map_err(|_| "`severity` must be \"warning\", \"error\" or \"critical\"")?
        }
    };
    let kinds: Result<_, _> =
        list(fields, "kinds")?.iter().map(|name| name.parse::<AlertKind>()).collect();
    let all: Vec<&str> = AlertKind::ALL.iter().map(|kind| kind.as_str()).collect();
    let kinds = kinds.map_err(|_| format!("`kinds` must be a list of {}", all.join(", ")))?;
    let tenants: Result<_, _> = list(fields, "tenants")?.iter().map(|one| one.parse()).collect();
    let tenants = tenants.map_err(|_| "`tenants` must be a list of tenants' identifiers")?;
    Ok(Wanted { severity, kinds, tenants })
}

fn text<'a>(fields: &'a Map<String, Json>, name: &str) -> Result<Option<&'a str>, String> {
    match fields.get(name) {
        None | Some(Json::Null) => Ok(None),
        Some(Json::String(text)) => Ok(Some(text.trim())),
        Some(_) => Err(format!("`{name}` must be text")),
    }
}

/// A list of text; a single text is a list of one.
fn list<'a>(fields: &'a Map<String, Json>, name: &str) -> Result<Vec<&'a str>, String> {
    let problem = || format!("`{name}` must be a list of at most {ENTRIES_MAX} texts");
    match fields.get(name) {
        None | Some(Json::Null) => Ok(Vec::new()),
        Some(Json::String(text)) => Ok(vec![text.trim()]),
        Some(Json::Array(items)) if items.len() <= ENTRIES_MAX => {
            items.iter().map(|item| item.as_str().map(str::trim).ok_or_else(problem)).collect()
        }
        Some(_) => Err(problem()),
    }
}

/// A URL of the operator: any host, also an internal one.
fn url(fields: &Map<String, Json>, name: &str) -> Result<Option<Url>, String> {
    let Some(text) = text(fields, name)? else { return Ok(None) };
    let url = Url::parse(text).ok().filter(|url| {
        matches!(url.scheme(), "http" | "https") && url.has_host() && url.username().is_empty()
    });
    url.map(Some)
        .ok_or_else(|| format!("`{name}` must be an http or https URL without a user name"))
}

fn shown(target: &AlertTarget, is_masked: bool) -> Json {
    let hide = |text: String| if is_masked { MASK.to_owned() } else { text };
    let mut fields = Map::new();
    fields.insert("name".to_owned(), json!(target.name));
    match &target.to {
        SendTo::Webhook { url, secret } => {
            // The query may have a token.
            let whole = url.query().is_none() || !is_masked;
            let url = if whole { url.to_string() } else { target.to.shown() + "/" + MASK };
            fields.insert("url".to_owned(), json!(url));
            fields.insert("secret".to_owned(), json!(hide(secret.expose().to_string())));
        }
        SendTo::Slack { url } => {
            fields.insert("slack".to_owned(), json!(hide(url.to_string())));
        }
        SendTo::Email { to } => {
            let to: Vec<String> = to.iter().map(ToString::to_string).collect();
            fields.insert("email".to_owned(), json!(to));
        }
    }
    let Wanted { severity, kinds, tenants } = &target.wanted;
    if *severity != Severity::Warning {
        fields.insert("severity".to_owned(), json!(severity.as_str()));
    }
    if !kinds.is_empty() {
        let kinds: Vec<&str> = kinds.iter().map(|kind| kind.as_str()).collect();
        fields.insert("kinds".to_owned(), json!(kinds));
    }
    if !tenants.is_empty() {
        fields.insert("tenants".to_owned(), json!(tenants));
    }
    Json::Object(fields)
}

impl AlertSettings {
    /// Whether there is a target with an e-mail address.
    pub(super) fn has_email(&self) -> bool {
        self.targets.0.iter().any(|target| matches!(target.to, SendTo::Email { .. }))
    }
}

/// Whether a text is a mail server: a host, with or without a port.
pub(super) fn is_mail_server(text: &str) -> bool {
    server_and_port(text).is_some()
}

/// The host and the port of a mail server.
pub(crate) fn server_and_port(text: &str) -> Option<(String, Option<u16>)> {
    let url = Url::parse(&format!("smtp://{text}")).ok()?;
    let is_bare = url.username().is_empty()
        && url.password().is_none()
        && matches!(url.path(), "" | "/")
        && url.query().is_none()
        && url.fragment().is_none();
    let host = url.host_str().filter(|host| !host.is_empty() && is_bare)?;
    Some((host.trim_start_matches('[').trim_end_matches(']').to_owned(), url.port()))
}

/// Whether a text is the address of a sender.
pub(super) fn is_sender(text: &str) -> bool {
    text.parse::<lettre::message::Mailbox>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::super::{Environment, Loaded, show};
    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    fn load(targets: &str) -> Result<Loaded, String> {
        let variables = Environment::of(&[
            ("POSTRIDER_ALERTS__TARGETS", targets),
            ("POSTRIDER_ALERTS__SMTP_SERVER", "smtp.example.com"),
            ("POSTRIDER_ALERTS__EMAIL_FROM", "postrider@example.com"),
        ]);
        Loaded::new(None, &variables, Vec::new()).map_err(|error| error.to_string())
    }

    #[test]
    fn targets_of_file_and_environment_are_the_same_and_their_secrets_are_masked() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("postrider.toml");
        let text = format!(
            "[alerts]\nhourly_max = 3\n[[alerts.targets]]\nname = \"pager\"\n\
             url = \"http://pager.internal/x\"\nsecret = \"{SECRET}\"\nseverity = \"critical\"\n\
             [[alerts.targets]]\nname = \"chat\"\nslack = \"https://hooks.example.com/T0/hidden\"\n\
             kinds = [\"disk\"]\ntenants = [\"acme\"]\n"
        );
        std::fs::write(&file, text).unwrap();
        let of_file = Loaded::new(Some(&file), &Environment::default(), Vec::new()).unwrap();
        let json = json!([
            {"name": "pager", "url": "http://pager.internal/x", "secret": SECRET, "severity": "critical"},
            {"name": "chat", "slack": "https://hooks.example.com/T0/hidden", "kinds": ["disk"],
             "tenants": ["acme"]},
        ]);
        let of_environment = load(&json.to_string()).unwrap();
        let shown = |loaded: &Loaded| Value::show(&loaded.config.alerts.targets);
        assert_eq!(shown(&of_file), json);
        assert_eq!(shown(&of_environment), json);
        assert_eq!(of_file.config.alerts.policy.hourly_max, 3);
        let printed = show::toml(&of_file.shown()) + &format!("{:?}", of_file.config);
        assert!(printed.contains("pager.internal") && printed.contains("***"), "{printed}");
        assert!(!printed.contains("MfKQ9r8") && !printed.contains("hidden"), "{printed}");
    }

    #[test]
    fn bad_targets_are_refused_with_the_place_and_without_their_secrets() {
        for (targets, expected) in [
            ("nonsense", "must be a list of targets"),
            ("{}", "must be a list of targets"),
            ("[1]", "of number 1, it must be a table"),
            (r#"[{"slack": "https://x.example/hidden"}]"#, "`name` must be"),
            (r#"[{"name": "a", "slack": "ftp://x.example/hidden"}]"#, "`slack` must be an http"),
            (r#"[{"name": "a", "url": "https://x.example/"}]"#, "needs a `secret`"),
            (
                r#"[{"name": "a", "url": "https://x.example/", "secret": "hidden"}]"#,
                "needs a `secret`",
            ),
            (r#"[{"name": "a", "email": ["hidden"]}]"#, "list of addresses"),
            (r#"[{"name": "a", "email": []}]"#, "list of addresses"),
            (r#"[{"name": "a"}]"#, "exactly one of"),
            (
                r#"[{"name": "a", "email": "a@b.example", "slack": "https://x.example/hidden"}]"#,
                "exactly one",
            ),
            (
                r#"[{"name": "a", "email": "a@b.example", "severety": "hidden"}]"#,
                "did you mean `severity`",
            ),
            (
                r#"[{"name": "a", "email": "a@b.example", "severity": "hidden"}]"#,
                "`severity` must be",
            ),
            (r#"[{"name": "a", "email": "a@b.example", "kinds": ["hidden"]}]"#, "clock_stepped"),
            (
                r#"[{"name": "a", "email": "a@b.example"}, {"name": "a", "email": "c@b.example"}]"#,
                "there twice",
            ),
        ] {
            let told = load(targets).unwrap_err();
            assert!(told.contains(expected), "{targets}: {told}");
            assert!(!told.contains("hidden"), "{targets}: {told}");
        }
        assert!(load(r#"[{"name": "a", "email": "a@b.example"}]"#).is_ok());
        assert!(load("").unwrap().config.alerts.targets.0.is_empty());
    }

    #[test]
    fn mail_server_has_a_host_and_perhaps_a_port() {
        for (text, host, port) in [
            ("smtp.example.com", "smtp.example.com", None),
            ("smtp.example.com:2525", "smtp.example.com", Some(2525)),
            ("127.0.0.1:25", "127.0.0.1", Some(25)),
            ("[::1]:587", "::1", Some(587)),
        ] {
            assert_eq!(server_and_port(text), Some((host.to_owned(), port)), "{text}");
        }
        for text in ["", "user:password@smtp.example.com", "smtp.example.com/x", "a b", ":25"] {
            assert_eq!(server_and_port(text), None, "{text}");
        }
    }
}
