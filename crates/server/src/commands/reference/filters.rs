//! The page of the filter grammar.

use postrider_domain::filter::{FIELDS, operators};
use postrider_domain::limits;

use super::{Document, code};

const INTRODUCTION: &str = "\
A filter is JSON in the field `filter` of a subscription: one condition, or one group of conditions and groups. How to
write one, with examples: [the guide](../guide/filters.md).

```text
filter    = condition | group
group     = { \"all\": [ filter, … ] }          every one must hold
          | { \"any\": [ filter, … ] }          at least one must hold
condition = { \"field\": path, \"op\": operator, \"value\": any JSON, \"as\": \"time\" }
path      = root, or root and words joined by dots; a whole number is a place in a list
```";

const COMPARISON: &str = "\
- Numbers compare as numbers, RFC 3339 times as times (`2026-11-16T12:00:00Z` equals `2026-11-16T13:00:00+01:00`),
  everything else as text, case-sensitive. A number beside a text is compared as text.
- With `\"as\": \"time\"` beside `gt`, `gte`, `lt` or `lte` both sides are read as times, also with an offset without a
  colon (`2026-11-16T12:00:00.000-0800`). A field that is no time does not match.
- Lists, objects, `true`, `false` and `null` have no order: `gt`, `gte`, `lt` and `lte` are false for them.
- A field that the event does not have satisfies `ne`, `not_contains` and `exists` with `false`, and nothing else. A
  field that is `null` is there.";

pub(super) fn page() -> String {
    let mut page = Document::new("Filter grammar", INTRODUCTION);
    page.heading("Fields");
    page.columns(&["root", "what it is"]);
    for (root, meaning) in FIELDS {
        page.row(&[code(root), (*meaning).to_owned()]);
    }
    page.heading("Operators");
    page.columns(&["operator", "value", "holds when"]);
    for operator in operators() {
        page.row(&[code(operator.name), operator.value.to_owned(), operator.meaning.to_owned()]);
    }
    page.heading("Comparison");
    page.line(COMPARISON);
    page.heading("Limits");
    page.columns(&["what", "at most"]);
    let limits = [
        ("groups, nested ones included", limits::FILTER_GROUPS_MAX as u64),
        ("entries of one group", limits::FILTER_CONDITIONS_MAX as u64),
        ("characters of a field", limits::FILTER_FIELD_CHARS_MAX as u64),
        ("bytes of a value, as JSON", limits::FILTER_VALUE_BYTES_MAX as u64),
        ("values of `contains_only`", limits::FILTER_SET_VALUES_MAX as u64),
        ("steps on one event", limits::FILTER_STEPS_MAX),
    ];
    for (what, most) in limits {
        page.row(&[what.to_owned(), most.to_string()]);
    }
    page.line(
        "\nA step is one value that is looked at, one word of a path, or 64 bytes of text that are compared. An event \
         whose\nfilter needs more steps is delivered unfiltered, and the owner is told by the event\n\
         [`postrider.subscription.filter_over_budget`](events.md#postridersubscriptionfilter_over_budget).",
    );
    page.0
}
