//! The page of the metrics, read from what the server would show to Prometheus.

use super::{Document, code};
use crate::serve;

const INTRODUCTION: &str = "\
`GET /metrics` answers in Prometheus' text format, on the API's address and on the listener of health and metrics
([where](../guide/production.md#monitoring)). Counters begin at zero when a process starts, and count what became
durable. No label has a value that a tenant can choose, so the page does not grow with tenants. In a cluster each node
tells of its own share, but for `postrider_ledger`, `postrider_ledger_accepted` and `postrider_lane_depth`, which are the
whole store's: do not add those up.";

pub(super) fn page() -> String {
    let sample = serve::sample_metrics();
    let mut page = Document::new("Metrics", INTRODUCTION);
    page.line("");
    page.columns(&["metric", "kind", "labels", "meaning"]);
    let mut help = "";
    for line in sample.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').map_or("", |(_, help)| help);
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            page.row(&[code(name), kind.to_owned(), labels(&sample, name), help.to_owned()]);
        }
    }
    page.0
}

/// The labels that the lines of a metric have, with their values where they are few.
fn labels(sample: &str, name: &str) -> String {
    let mut found: Vec<(&str, Vec<&str>)> = Vec::new();
    let of_metric = sample.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('{'));
    for pair in
        of_metric.filter_map(|line| line.split_once('}')).flat_map(|(pairs, _)| pairs.split(','))
    {
        let Some((label, value)) = pair.split_once('=') else { continue };
        // The commit differs in every build.
        let value = if label == "commit" { "…" } else { value.trim_matches('"') };
        match found.iter_mut().find(|(known, _)| *known == label) {
            Some((_, values)) if values.contains(&value) => {}
            Some((_, values)) => values.push(value),
            None => found.push((label, vec![value])),
        }
    }
    let shown = found.iter().map(|(label, values)| format!("`{label}`: {}", values.join(", ")));
    shown.collect::<Vec<_>>().join("; ")
}
