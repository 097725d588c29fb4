//! E-mails: plain text, through the operator's mail server.
//!
//! The subject and the text have names that tenants chose. They are on one line and free of control
//! characters ([`plain`](postrider_domain::alerts::plain)), and lettre encodes what a header cannot
//! have; so nobody can forge a header.

use std::time::Duration;

use anyhow::Context as _;
use lettre::message::header::{ContentType, HeaderName, HeaderValue};
use lettre::message::{Mailbox, MessageBuilder};
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Certificate, Tls, TlsParameters};
use lettre::{Address, AsyncSmtpTransport, AsyncTransport as _, Message, Tokio1Executor};
use postrider_domain::alerts::AlertMessage;

use super::body::footer;
use crate::config::{SmtpSettings, SmtpTls, server_and_port};

/// The time limit of one e-mail. A test of all targets is answered within half a minute.
const DEADLINE: Duration = Duration::from_secs(20);

/// A mail server, and the addresses of one target.
pub(super) struct Email {
    server: AsyncSmtpTransport<Tokio1Executor>,
    from: Mailbox,
    to: Vec<Address>,
    password: Option<String>,
}

impl Email {
    /// Prepares the connection. `roots` are trusted beside the platform's, in PEM.
    pub(super) fn new(
        settings: &SmtpSettings,
        to: Vec<Address>,
        roots: Option<&[u8]>,
    ) -> anyhow::Result<Email> {
        let server = settings.server.as_deref().and_then(server_and_port);
        let (host, port) = server.context("alerts.smtp_server is not set")?;
        let tls = || -> anyhow::Result<TlsParameters> {
            let mut tls = TlsParameters::builder(host.clone());
            if let Some(roots) = roots {
                let roots = Certificate::from_pem(roots).context("tls.extra_roots")?;
                tls = tls.add_root_certificate(roots);
            }
            Ok(tls.build_rustls()?)
        };
        let (tls, standard) = match settings.tls {
            SmtpTls::StartTls => (Tls::Required(tls()?), 587),
            SmtpTls::Tls => (Tls::Wrapper(tls()?), 465),
            SmtpTls::Off => (Tls::None, 25),
        };
        let mut server = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(host)
            .port(port.unwrap_or(standard))
            .tls(tls)
            .timeout(Some(DEADLINE));
        if let (Some(user), Some(password)) = (&settings.user, &settings.password) {
            server = server.credentials(Credentials::new(user.clone(), password.clone()));
        }
        let from = settings.from.as_deref().context("alerts.email_from is not set")?;
        let from = from.parse().ok().context("alerts.email_from is not an address")?;
        Ok(Email { server: server.build(), from, to, password: settings.password.clone() })
    }

    /// Sends a message. The error has no password.
    pub(super) async fn send(
        &self,
        message: &AlertMessage,
        id: &str,
        source: &str,
    ) -> Result<(), String> {
        let mail = self.mail(message, id, source).map_err(|error| error.to_string())?;
        let sent = tokio::time::timeout(DEADLINE, self.server.send(mail)).await;
        match sent {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(self.explain(&error)),
            Err(_) => Err(format!("the mail server took longer than {} s", DEADLINE.as_secs())),
        }
    }

    fn mail(
        &self,
        message: &AlertMessage,
        id: &str,
        source: &str,
    ) -> Result<Message, lettre::error::Error> {
        let domain = self.from.email.domain();
        let automatic = HeaderName::new_from_ascii_str("Auto-Submitted");
        let mut mail: MessageBuilder = Message::builder()
            .from(self.from.clone())
            .subject(message.subject())
            .message_id(Some(format!("<{id}@{domain}>")))
            .raw_header(HeaderValue::new(automatic, "auto-generated".to_owned()))
            .header(ContentType::TEXT_PLAIN);
        for address in &self.to {
            mail = mail.to(Mailbox::new(None, address.clone()));
        }
        mail.body(message.text() + &footer(source))
    }

    /// The error with its causes. A mail server may repeat what it was told, so the password is
    /// taken out.
    fn explain(&self, error: &dyn std::error::Error) -> String {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(next) = cause {
            let next_text = next.to_string();
            if !text.contains(&next_text) {
                text = format!("{text}: {next_text}");
            }
            cause = next.source();
        }
        let text = match self.password.as_deref().filter(|password| !password.is_empty()) {
            Some(password) => text.replace(password, "***"),
            None => text,
        };
        postrider_domain::alerts::plain(&text)
    }
}
