//! A message as JSON, and as Slack's incoming webhooks take it.

use postrider_domain::alerts::{AlertMessage, AlertStatus, Example};
use serde_json::{Value as Json, json};

/// The longest text of a Slack message, in bytes; Slack cuts at 40,000 characters.
const SLACK_BYTES_MAX: usize = 30_000;

/// What a webhook gets, as the Standard Webhooks specification has it.
pub(super) fn webhook(message: &AlertMessage, source: &str) -> Json {
    let example = |example: &Example| {
        json!({
            "tenant": example.tenant,
            "id": example.id,
            "name": example.name,
            "detail": example.detail,
        })
    };
    let alerts: Vec<Json> = (message.lines.iter())
        .map(|line| {
            json!({
                "kind": line.kind.as_str(),
                "severity": line.kind.severity().as_str(),
                "status": line.status.as_str(),
                "count": line.count,
                "new": line.new,
                "since": line.since,
                "worst": line.worst.iter().map(example).collect::<Vec<_>>(),
            })
        })
        .collect();
    json!({
        "type": "postrider.alert",
        "timestamp": message.at,
        "data": {
            "status": message.status.as_str(),
            "severity": (message.status != AlertStatus::Test).then(|| message.severity().as_str()),
            "reminder": message.is_reminder,
            "subject": message.subject(),
            "text": message.text(),
            "source": source,
            "alerts": alerts,
        },
    })
}

/// What a Slack-compatible webhook gets. Names that tenants chose cannot mention anybody: the three
/// characters that Slack reads as markup are escaped.
pub(super) fn slack(message: &AlertMessage, source: &str) -> Json {
    let mut text = format!("{}\n{}", message.subject(), message.text());
    if text.len() > SLACK_BYTES_MAX {
        let end = (0..=SLACK_BYTES_MAX).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
    }
    let text = format!("{text}{}", footer(source));
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    json!({ "text": text })
}

/// The last line of a text: who sent it.
pub(super) fn footer(source: &str) -> String {
    format!("\nSent by Postrider on {source}.\n")
}

#[cfg(test)]
mod tests {
    use postrider_domain::alerts::{AlertKind, AlertLine};
    use postrider_domain::time::Timestamp;

    use super::*;

    fn message(name: &str) -> AlertMessage {
        let line = AlertLine {
            kind: AlertKind::DeliveryDead,
            status: AlertStatus::Firing,
            count: 3,
            new: 3,
            since: Timestamp::EPOCH,
            worst: vec![Example::of_server(name, "12 attempts failed")],
        };
        let (at, status, lines) = (Timestamp::EPOCH, AlertStatus::Firing, vec![line]);
        AlertMessage { number: 0, at, status, is_reminder: false, lines }
    }

    #[test]
    fn slack_markup_in_a_tenants_name_is_text() {
        let text = slack(&message("<!channel> & <https://evil.example|click>"), "host");
        let text = text["text"].as_str().unwrap();
        assert!(
            text.contains("&lt;!channel&gt; &amp; &lt;https://evil.example|click&gt;"),
            "{text}"
        );
        assert!(!text.contains('<'), "{text}");
        assert!(text.starts_with("[Postrider] error: 3 deliveries dead\n"), "{text}");
    }

    #[test]
    fn webhook_has_counts_and_examples_as_data_and_as_text() {
        let body = webhook(&message("task.updated"), "host");
        assert_eq!(body["type"], "postrider.alert");
        let data = &body["data"];
        assert_eq!((&data["status"], &data["severity"]), (&json!("firing"), &json!("error")));
        assert_eq!(data["alerts"][0]["kind"], "delivery_dead");
        assert_eq!(data["alerts"][0]["worst"][0]["name"], "task.updated");
        let test = webhook(&AlertMessage::test(Timestamp::EPOCH), "host");
        assert_eq!(
            (&test["data"]["status"], &test["data"]["severity"]),
            (&json!("test"), &Json::Null)
        );
    }
}
