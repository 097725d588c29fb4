//! The Helm chart, rendered by helm itself as its users render it, and every object compared with the schemas
//! of Kubernetes.
//!
//! Nothing is installed in a cluster.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::Release;
use crate::process::{command, output, run as run_command};

/// The oldest version of Kubernetes that the chart is for, and a recent one.
const KUBERNETES: [&str; 2] = ["1.25", "1.37"];
/// Values to render the chart with, and the kinds of what comes out. They set whatever can be set.
const CASES: [(&str, &[&str]); 2] = [
    ("single", &["Service", "Service", "StatefulSet"]),
    ("cluster", &["PodDisruptionBudget", "Service", "Service", "StatefulSet", "ServiceMonitor"]),
];
/// Values that are refused, and what helm says of them.
const REFUSED: [(&str, &str); 2] = [
    ("mode=clustre", "mode must be one of"),
    ("mode=cluster,database.urlSecret=", "database.urlSecret is needed by a cluster"),
];

/// Checks the chart with the programs of a folder: `helm` and `kubernetes-validate`.
pub(super) fn check(root: &Path, programs: &Path) -> Result<()> {
    let folder = root.join("packaging/helm");
    let chart = fs::read_to_string(folder.join("postrider/Chart.yaml"))?;
    let version = Release::of(root)?.version;
    ensure!(is_version_of(&chart, &version), "Chart.yaml does not have the version {version}");
    let helm = programs.join("helm");
    let rendered = root.join("target/chart");
    fs::create_dir_all(&rendered).with_context(|| format!("cannot make {}", rendered.display()))?;
    for (name, kinds) in CASES {
        let values = format!("postrider/ci/{name}.yaml");
        let mut lint = command(&folder, &helm.to_string_lossy());
        run_command(lint.args(["lint", "--strict", "--quiet", "postrider", "--values", &values]))?;
        let mut template = command(&folder, &helm.to_string_lossy());
        let objects =
            output(template.args(["template", "hooks", "postrider", "--values", &values]))?;
        ensure!(kinds_of(&objects) == kinds, "{name}: rendered {:?}", kinds_of(&objects));
        let wanted = settings_of(&fs::read_to_string(folder.join(&values))?);
        for setting in &wanted {
            let argument = format!("- {setting:?}");
            ensure!(has_line(&objects, &argument), "{name}: the server does not get {setting}");
        }
        let file = rendered.join(format!("{name}.yaml"));
        fs::write(&file, objects).with_context(|| format!("cannot write {}", file.display()))?;
        for version in KUBERNETES {
            let program = programs.join("kubernetes-validate");
            let mut validate = command(&folder, &program.to_string_lossy());
            // It warns of kinds of others, whose schemas it does not have: ServiceMonitor.
            validate.args(["--strict", "--quiet", "--no-warn", "-k", version]);
            run_command(validate.arg(&file))?;
        }
    }
    for (values, words) in REFUSED {
        let mut template = command(&folder, &helm.to_string_lossy());
        let tried = template.args(["template", "hooks", "postrider", "--set", values]).output()?;
        let said = String::from_utf8_lossy(&tried.stderr);
        ensure!(!tried.status.success() && said.contains(words), "--set {values}: {said}");
    }
    println!("the chart: rendered by helm, and valid for Kubernetes {}", KUBERNETES.join(" and "));
    Ok(())
}

/// Whether chart and program have the workspace's version.
fn is_version_of(chart: &str, version: &str) -> bool {
    let has = |line: String| chart.lines().any(|found| found == line);
    has(format!("version: {version}")) && has(format!("appVersion: \"{version}\""))
}

/// The kinds of rendered objects, in their order.
fn kinds_of(objects: &str) -> Vec<&str> {
    objects.lines().filter_map(|line| line.strip_prefix("kind: ")).collect()
}

/// The settings of a file of values, as `--set` takes them: `name=value`.
fn settings_of(values: &str) -> Vec<String> {
    let lines = values.lines().skip_while(|line| *line != "settings:").skip(1);
    let lines = lines.map_while(|line| line.strip_prefix("  "));
    let pairs = lines.filter_map(|line| line.split_once(": "));
    pairs.map(|(name, value)| format!("{name}={}", value.trim_matches('"'))).collect()
}

fn has_line(objects: &str, wanted: &str) -> bool {
    objects.lines().any(|line| line.trim() == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chart_has_the_version_twice() {
        assert!(is_version_of("version: 1.2.3\nappVersion: \"1.2.3\"\n", "1.2.3"));
        assert!(!is_version_of("version: 1.2.3\nappVersion: \"1.2.2\"\n", "1.2.3"));
    }

    #[test]
    fn settings_and_kinds_are_read_line_by_line() {
        let values =
            "mode: single\nsettings:\n  retry.max: 11\n  telemetry.log: \"a,b\"\nreplicas: 3\n";
        assert_eq!(settings_of(values), ["retry.max=11", "telemetry.log=a,b"]);
        assert_eq!(settings_of("mode: single\n"), [""; 0]);
        assert_eq!(
            kinds_of("---\nkind: Service\nspec:\n  kind: x\n---\nkind: Pod\n"),
            ["Service", "Pod"]
        );
        assert!(has_line("args:\n  - \"a=1\"\n", "- \"a=1\""));
    }
}
