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

/// Labels whose values the sample has some of: the others are not known before the server runs.
const OPEN: [&str; 8] =
    ["code", "commit", "destination", "method", "route", "status", "target", "version"];

/// The labels that the lines of a metric have, each with all its values or with an example.
fn labels(sample: &str, name: &str) -> String {
    let mut found: Vec<(&str, Vec<&str>)> = Vec::new();
    let of_metric = sample.lines().filter_map(|line| {
        let line = line.strip_prefix(name)?;
        // Of a histogram, the lines of the buckets have all labels.
        line.strip_prefix("_bucket").unwrap_or(line).strip_prefix('{')
    });
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
    let shown = found.iter().map(|(label, values)| {
        let which = match *label {
            "code" => "[error codes](errors.md), for example ",
            label if OPEN.contains(&label) => "for example ",
            "le" => "upper bounds in seconds, ",
            _ => "",
        };
        format!("`{label}`: {which}{}", values.join(", "))
    });
    shown.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histograms_have_their_labels_and_bounds() {
        let page = page();
        let histograms: Vec<&str> =
            page.lines().filter(|line| line.contains("| histogram |")).collect();
        assert!(histograms.len() >= 5, "{page}");
        for line in histograms {
            assert!(line.contains("`le`: upper bounds in seconds, 0.0"), "{line}");
            assert!(line.contains(", +Inf"), "{line}");
        }
        let requests = page.lines().find(|line| line.contains("http_request_seconds")).unwrap();
        assert!(requests.contains("`route`: for example /v1/events; `le`"), "{requests}");
    }

    #[test]
    fn labels_of_the_sample_are_complete_or_said_to_be_examples() {
        let page = page();
        for open in OPEN {
            let label = format!("`{open}`: ");
            let mut rest = page.as_str();
            while let Some((_, after)) = rest.split_once(&label) {
                let values = after.split([';', '|']).next().unwrap_or_default();
                assert!(values.contains("for example "), "{open}: {values}");
                rest = after;
            }
            assert!(page.contains(&label), "no metric has the label {open}");
        }
        // A label that has a single value in the sample looks as if it had no other.
        for line in page.lines().filter(|line| line.starts_with("| `p")) {
            let labels = line.split(" | ").nth(2).unwrap_or_default();
            for label in labels.split("; ").filter(|label| label.starts_with('`')) {
                let is_example = label.contains("for example ");
                assert!(is_example || label.contains(", "), "{label} in {line}");
            }
        }
    }
}
