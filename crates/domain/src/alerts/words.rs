//! The words of a message: its subject, and its text.
//!
//! Tenants choose URLs and types of events. **What they chose cannot end a line or forge a header**:
//! control characters never get into an [`Example`]. Paths and queries of URLs are left out,
//! because a webhook's URL is often its own password.

use url::Url;

use super::{AlertKind, AlertLine, AlertMessage, AlertStatus, Example};

/// The longest subject, in characters.
const SUBJECT_MAX: usize = 160;
/// The longest name or detail of an example, in characters.
const TEXT_MAX: usize = 160;

/// The origin of a URL, such as `https://hooks.example.com:8443`.
pub fn origin_of(url: &str) -> String {
    let origin = Url::parse(url).ok().map(|url| url.origin().ascii_serialization());
    origin.map_or_else(|| "?".to_owned(), |origin| plain(&origin))
}

/// The text on one line, without control characters and without those that change the direction of
/// writing, and not too long.
pub fn plain(text: &str) -> String {
    cut(text, TEXT_MAX)
}

fn cut(text: &str, max: usize) -> String {
    let is_odd = |c: char| {
        c.is_control()
            || matches!(c, '\u{2028}' | '\u{2029}' | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    let clean = |c: char| if is_odd(c) { '\u{fffd}' } else { c };
    let mut clean: String = text.chars().take(max + 1).map(clean).collect();
    if clean.chars().count() > max {
        clean.pop();
        clean.pop();
        clean.push('…');
    }
    clean
}

impl Example {
    /// An example of something that belongs to nobody in particular, such as a node.
    pub fn of_server(name: &str, detail: &str) -> Self {
        Example { tenant: None, id: None, name: plain(name), detail: plain(detail), weight: 0 }
    }

    fn line(&self) -> String {
        let tenant = self.tenant.as_ref().map(|tenant| format!("tenant {tenant}"));
        let about: Vec<String> = self.id.iter().cloned().chain(tenant).collect();
        let about =
            if about.is_empty() { String::new() } else { format!(" ({})", about.join(", ")) };
        format!("  - {}{about}: {}\n", self.name, self.detail)
    }
}

impl AlertMessage {
    /// What is wrong and how much of it, on one line.
    pub fn subject(&self) -> String {
        let phrases: Vec<String> = self.lines.iter().map(AlertLine::phrase).collect();
        let phrases = phrases.join(", ");
        let subject = match self.status {
            AlertStatus::Test => "[Postrider] test: alerts arrive here".to_owned(),
            AlertStatus::Resolved => format!("[Postrider] resolved: {phrases}"),
            AlertStatus::Firing if self.is_reminder => format!("[Postrider] still: {phrases}"),
            AlertStatus::Firing => {
                format!("[Postrider] {}: {phrases}", self.severity().as_str())
            }
        };
        cut(&subject, SUBJECT_MAX)
    }

    /// The whole message as plain text.
    pub fn text(&self) -> String {
        let mut text = match self.status {
            AlertStatus::Test => "This is a test: alerts of Postrider arrive here. Nothing is \
                                  wrong.\n"
                .to_owned(),
            AlertStatus::Resolved => "All that was reported is over.\n".to_owned(),
            AlertStatus::Firing => String::new(),
        };
        for line in &self.lines {
            if !text.is_empty() {
                text.push('\n');
            }
            line.write(&mut text);
        }
        text
    }
}

impl AlertLine {
    /// A few words, for a subject.
    fn phrase(&self) -> String {
        let count = self.count;
        let s = if count == 1 { "" } else { "s" };
        let ies = if count == 1 { "y" } else { "ies" };
        let mut phrase = match self.kind {
            AlertKind::TransitionsSuspended => "most destinations fail at once".to_owned(),
            AlertKind::Disk => "the disk is full".to_owned(),
            AlertKind::Store => "the store fails".to_owned(),
            AlertKind::DestinationFrozen => format!("{count} destination{s} frozen"),
            AlertKind::DeliveryDead => format!("{count} deliver{ies} dead"),
            AlertKind::DestinationDisabled => format!("{count} destination{s} disabled"),
            AlertKind::ClockStepped => "the clock was set".to_owned(),
        };
        if let ([one], true) = (self.worst.as_slice(), self.count == 1 && self.has_url()) {
            phrase.push_str(&format!(" ({})", one.name));
        }
        phrase
    }

    fn has_url(&self) -> bool {
        matches!(self.kind, AlertKind::DestinationFrozen | AlertKind::DestinationDisabled)
    }

    /// The advice for who reads it.
    const fn advice(&self) -> &'static str {
        match self.kind {
            AlertKind::TransitionsSuspended => {
                "The fault is probably ours, so no destination is disabled or frozen for now. Look at \
                 this machine's network, resolver and proxy."
            }
            AlertKind::Disk => {
                "When it is full, new events are refused and deliveries go on. Make room; nothing needs \
                 to be started again."
            }
            AlertKind::Store => {
                "Nothing is accepted or sent until it works again. Look at its log."
            }
            AlertKind::DestinationFrozen => {
                "It is not attempted until somebody enables it: postrider destinations enable ID."
            }
            AlertKind::DeliveryDead => {
                "They are kept and can be replayed: postrider replay start --state dead."
            }
            AlertKind::DestinationDisabled => {
                "It is probed at intervals, and a success enables it again: postrider destinations get ID."
            }
            AlertKind::ClockStepped => {
                "No slot is lost and no attempt is early. Look at this machine's time service."
            }
        }
    }

    fn write(&self, text: &mut String) {
        let (phrase, since) = (self.phrase(), self.since);
        match self.status {
            AlertStatus::Resolved => {
                return text.push_str(&format!("Over: {phrase}, since {since}.\n"));
            }
            AlertStatus::Firing | AlertStatus::Test => {
                text.push_str(&format!("{}, since {since}", capital(&phrase)));
            }
        }
        if self.new > 0 && self.new < self.count {
            text.push_str(&format!(" ({} since the last message)", self.new));
        }
        text.push_str(".\n");
        self.worst.iter().for_each(|example| text.push_str(&example.line()));
        let shown = u64::try_from(self.worst.len()).unwrap_or(u64::MAX);
        if shown > 0 && self.count > shown {
            text.push_str(&format!("  … and {} more\n", self.count - shown));
        }
        text.push_str(self.advice());
        text.push('\n');
    }
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|c| c.to_ascii_uppercase());
    first.into_iter().chain(chars).collect()
}
