//! The page of the events that Postrider sends itself.

use postrider_engine::OPERATIONAL_EVENTS;

use super::{Document, code};

const INTRODUCTION: &str = "\
Postrider tells a tenant what happens to its own deliveries and destinations by events of types that begin with
`postrider.`. They are delivered like any other event: signed, retried, logged. A subscription must name them
(`postrider.*`, `postrider.destination.*` or one type); `*` does not include them. An application cannot send them.

The body is that of every delivery ([what arrives](../guide/receiving.md#what-arrives)). The tables and the examples are
of its `data`, which may get more fields in later versions.

The tenant that the setting `operator_tenant` names is told of every tenant's, and alone of those that belong to no
tenant. A dead delivery of a `postrider.*` event is not told of by another one.";

pub(super) fn page() -> String {
    let mut page = Document::new("Events that Postrider sends", INTRODUCTION);
    for event in OPERATIONAL_EVENTS {
        page.heading(&code(event.name));
        page.line(event.when);
        page.line("");
        page.columns(&["field of `data`", "type", "meaning"]);
        for (path, field) in event.all_fields() {
            page.row(&[code(&path), field.kind.described(), field.meaning.to_owned()]);
        }
        // The lines of an example are as the table of events has them, without their indentation there.
        let example: Vec<&str> = event.example.lines().map(str::trim).collect();
        page.line(&format!("\n```json\n{}\n```", example.join("\n ")));
    }
    page.0
}
