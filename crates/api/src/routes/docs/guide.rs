//! The part of the reference that is about no single call: what a receiver gets, how it verifies that, filters, and
//! the events that Postrider sends itself.

use std::fmt::Write as _;

use postrider_domain::filter::operators;
use postrider_engine::OPERATIONAL_EVENTS;

use super::{escaped, prose};
use crate::document::webhooks::{HEADERS, delivery_example, operational_example};

/// The anchors and titles of the sections.
pub(super) const TITLES: [(&str, &str); 5] = [
    ("start", "First steps"),
    ("deliveries-received", "What a receiver gets"),
    ("verify", "Verify a delivery"),
    ("filter-grammar", "Filters"),
    ("operational-events", "Events of Postrider"),
];

const START: &str = "export POSTRIDER=… KEY=…            # the address of the server, and a key
curl -X POST \"$POSTRIDER/v1/subscriptions\" -H \"Authorization: Bearer $KEY\" \\
  -H 'Content-Type: application/json' -d '{\"url\": \"https://hooks.example.com/\", \"types\": [\"task.*\"]}'
curl -X POST \"$POSTRIDER/v1/events\" -H \"Authorization: Bearer $KEY\" \\
  -H 'Content-Type: application/json' -d '{\"type\": \"task.updated\", \"data\": {\"status\": \"CUR\"}}'";

const VERIFY: &str = "# Python; any Standard Webhooks library does the same
import base64, hashlib, hmac, time

def verify(secret: str, headers: dict[str, str], body: bytes) -> bool:
    stamp = headers['webhook-timestamp']
    if abs(time.time() - int(stamp)) > 300:
        return False
    signed = headers['webhook-id'].encode() + b'.' + stamp.encode() + b'.' + body
    key = base64.b64decode(secret.removeprefix('whsec_'))
    expected = 'v1,' + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return any(hmac.compare_digest(expected, one) for one in headers['webhook-signature'].split())";

const FILTERS: [(&str, &str); 4] = [
    ("One condition", r#"{"field": "data.status", "op": "eq", "value": "CUR"}"#),
    (
        "All of several",
        r#"{"all": [{"field": "data.priority", "op": "gte", "value": 3}, {"field": "data.status", "op": "ne", "value": "CPL"}]}"#,
    ),
    ("What has changed", r#"{"field": "data.status", "op": "changed"}"#),
    (
        "Groups in groups",
        r#"{"any": [{"field": "object", "op": "eq", "value": "task-17"}, {"all": [{"field": "data.tags", "op": "contains", "value": "urgent"}, {"field": "data.owner", "op": "exists", "value": true}]}]}"#,
    ),
];

/// All sections.
pub(super) fn sections(page: &mut String) {
    let [start, received, verify, filters, events] = TITLES;
    open(page, start);
    page.push_str(
        "<p>All calls are JSON over HTTP. The examples use two variables of the shell.</p>",
    );
    code(page, START);
    page.push_str("</section>");
    open(page, received);
    page.push_str("<p>A POST to the URL of the subscription. Any 2xx within five seconds is a success; everything else is retried.</p>");
    table(
        page,
        &["header", "meaning"],
        HEADERS.map(|(name, meaning)| vec![format!("`{name}`"), meaning.to_owned()]),
    );
    page.push_str("<p>The body in the format <code>standard</code>; <code>cloudevents</code> is structured CloudEvents 1.0, <code>raw</code> is <code>data</code> alone:</p>");
    code(page, &pretty(&delivery_example()));
    page.push_str("</section>");
    open(page, verify);
    page.push_str("<p>Deliveries are signed as Standard Webhooks has it. The secret is shown when a subscription is created or its secret is rotated. Verify the bytes as they came, before they are parsed.</p>");
    code(page, VERIFY);
    page.push_str("</section>");
    open(page, filters);
    page.push_str("<p>A filter is one condition, or a group <code>all</code> or <code>any</code> of conditions and groups. <code>field</code> is <code>object</code>, <code>type</code>, or <code>data</code> or <code>old</code> with a path.</p>");
    for (title, example) in FILTERS {
        let _infallible = write!(page, "<h4>{title}</h4>");
        code(page, example);
    }
    let rows = operators()
        .map(|one| vec![format!("`{}`", one.name), one.value.to_owned(), one.meaning.to_owned()]);
    table(page, &["op", "value", "holds when"], rows);
    page.push_str("</section>");
    open(page, events);
    page.push_str("<p>Sent to subscriptions that name them, such as <code>postrider.*</code>; <code>*</code> does not include them.</p>");
    for event in OPERATIONAL_EVENTS {
        let _infallible = write!(
            page,
            "<h3><code>{}</code></h3><p>{}</p>",
            escaped(event.name),
            prose(event.when)
        );
        let rows = event.all_fields().into_iter().map(|(path, field)| {
            vec![format!("`{path}`"), field.kind.described(), field.meaning.to_owned()]
        });
        table(page, &["field of data", "type", "meaning"], rows);
        code(page, &pretty(&operational_example(event)));
    }
    page.push_str("</section>");
}

/// JSON in lines. A value can always be written.
fn pretty(value: &serde_json::Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

fn open(page: &mut String, (anchor, title): (&str, &str)) {
    let _infallible = write!(page, "<section><h2 id=\"{anchor}\">{}</h2>", escaped(title));
}

fn code(page: &mut String, text: &str) {
    let _infallible = write!(page, "<pre><code>{}</code></pre>", escaped(text));
}

fn table(page: &mut String, head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) {
    page.push_str("<div class=\"wide\"><table><tr>");
    for name in head {
        let _infallible = write!(page, "<th>{}</th>", escaped(name));
    }
    page.push_str("</tr>");
    for row in rows {
        page.push_str("<tr>");
        for cell in row {
            let _infallible = write!(page, "<td>{}</td>", prose(&cell));
        }
        page.push_str("</tr>");
    }
    page.push_str("</table></div>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_of_the_page_compile() {
        for (title, example) in FILTERS {
            let filter = serde_json::from_str(example).unwrap();
            let compiled = postrider_domain::filter::Filter::compile(&filter);
            assert!(compiled.is_ok(), "{title}: {compiled:?}");
        }
    }
}
