//! Tests of what `packaging/` says about this program: settings, their defaults, and metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use postrider_domain::attempt::Turn;
use postrider_domain::destination::DestinationState;

use crate::config::{Environment, Loaded, Origin};
use crate::serve::Metrics;

fn packaging() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging")
}

fn read(path: &str) -> String {
    fs::read_to_string(packaging().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// All files in a folder and its folders.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn commented_settings_of_the_packaged_configuration_are_the_defaults() {
    let is_default = |line: &str| {
        let name = line.strip_prefix('#').and_then(|rest| rest.chars().next());
        name.is_some_and(|first| first.is_ascii_lowercase())
    };
    let text = read("postrider.toml");
    let uncommented: Vec<&str> = text
        .lines()
        .map(|line| if is_default(line) { line.trim_start_matches('#') } else { line })
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("postrider.toml");
    fs::write(&file, uncommented.join("\n")).unwrap();
    let loaded = Loaded::new(Some(&file), &Environment::default(), Vec::new()).unwrap();
    let standard = Loaded::new(None, &Environment::default(), Vec::new()).unwrap();
    let mut compared = 0;
    for (ours, standard) in loaded.shown().iter().zip(standard.shown()) {
        if ours.key == "data_dir" {
            assert_eq!(ours.value, "/var/lib/postrider");
        } else if ours.origin != Origin::Default {
            assert_eq!(ours.value, standard.value, "{}", ours.key);
            compared += 1;
        }
    }
    assert!(compared >= 7, "only {compared} settings are shown");
}

#[test]
fn variables_of_containers_are_settings() {
    let mut found = 0;
    for path in files(&packaging()) {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        for (at, _) in text.match_indices("POSTRIDER_") {
            let is_name = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
            let rest = &text[at..];
            let name = &rest[..rest.find(|c| !is_name(c)).unwrap_or(rest.len())];
            // A value that no setting takes: a known name is refused for its value, another for its name.
            let variables = Environment::of(&[(name, "\u{7}")]);
            let told = Loaded::new(None, &variables, Vec::new()).err();
            let told = told.map(|error| error.to_string()).unwrap_or_default();
            assert!(!told.contains("unknown"), "{}: {name}: {told}", path.display());
            found += 1;
        }
    }
    assert!(found >= 10, "only {found} variables are set");
    let unknown = Environment::of(&[("POSTRIDER_LISSEN", "\u{7}")]);
    let told = Loaded::new(None, &unknown, Vec::new()).unwrap_err().to_string();
    assert!(told.contains("unknown"), "{told}");
}

/// Every metric with the names and values of its labels, from a page with a sample of each.
fn exposed() -> BTreeMap<String, BTreeMap<String, BTreeSet<String>>> {
    let metrics = Metrics::default();
    metrics.accepted(1, 1, Duration::from_millis(1));
    let attempt = (Turn::First, "delivered", Duration::from_millis(1));
    metrics.settled(Duration::from_millis(1), [attempt].into_iter());
    metrics.transition(DestinationState::Enabled, DestinationState::Disabled);
    metrics.store_failed("accept");
    metrics.refused(vec![("limits.queued", 1)]);
    metrics.alert("ops", Some(true));
    let mut exposed: BTreeMap<String, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for line in metrics.render().lines().filter(|line| !line.starts_with('#')) {
        let series = line.rsplit_once(' ').unwrap().0;
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let known = exposed.entry(name.to_owned()).or_default();
        for (label, value) in labels_of(labels.trim_end_matches('}')) {
            known.entry(label).or_default().insert(value);
        }
    }
    exposed
}

/// `a="x",b=~"y|z"` as pairs.
fn labels_of(text: &str) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    let mut rest = text;
    while let Some((name, after)) = rest.split_once('"') {
        let Some((value, after)) = after.split_once('"') else { break };
        let name = name.trim_matches([',', ' ', '=', '~', '!']);
        pairs.push((name.to_owned(), value.to_owned()));
        rest = after;
    }
    pairs
}

/// Labels that Prometheus adds itself.
const OF_PROMETHEUS: [&str; 2] = ["job", "instance"];
/// Labels whose every value is on each page, so that a value in a query can be checked.
const CLOSED: [(&str, &str); 5] = [
    ("postrider_ledger", "state"),
    ("postrider_circuits", "state"),
    ("postrider_lane_depth", "lane"),
    ("postrider_lane_in_flight", "lane"),
    ("postrider_lane_age_seconds", "lane"),
];

#[test]
fn metrics_and_labels_that_alerts_and_dashboard_name_are_exposed() {
    let exposed = exposed();
    let mut named = BTreeSet::new();
    for file in ["rules.yml", "rules_test.yml", "dashboard.json"] {
        let text = read(&format!("monitoring/{file}")).replace("\\\"", "\"");
        for (at, _) in text.match_indices("postrider_") {
            let rest = &text[at..];
            let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            let (name, rest) = rest.split_at(rest.find(|c| !is_name(c)).unwrap_or(rest.len()));
            let known = exposed.get(name).unwrap_or_else(|| panic!("{file}: no metric {name}"));
            named.insert(name.to_owned());
            let labels = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
            for (label, value) in labels_of(labels.map_or("", |(labels, _)| labels)) {
                if OF_PROMETHEUS.contains(&label.as_str()) {
                    continue;
                }
                let values = known.get(&label);
                let values = values.unwrap_or_else(|| panic!("{file}: {name} has no {label}"));
                for one in value.split('|').filter(|_| CLOSED.contains(&(name, &label))) {
                    assert!(values.contains(one), "{file}: {name} has no {label} {one}");
                }
            }
        }
    }
    let forgotten: Vec<_> = exposed
        .keys()
        .filter(|name| !name.ends_with("_sum") && !name.ends_with("_count"))
        .filter(|name| !named.contains(*name))
        .collect();
    assert!(forgotten.is_empty(), "neither an alert nor a panel shows {forgotten:?}");
}
