//! `cargo xtask generators`: what others make of the OpenAPI document.
//!
//! Redocly's linter judges `docs/reference/openapi.json`, and the generators of TypeScript types and of a Python client
//! run over it. **An error or a warning of any of them fails.** A program that passes a filter is compiled with the
//! TypeScript types. The tools are installed from their registries into the
//! target folder, each in the version that is written here.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::install;
use crate::process::{command, run};

const DOCUMENT: &str = "docs/reference/openapi.json";
const NODE_PACKAGES: [&str; 3] =
    ["@redocly/cli@2.77.0", "openapi-typescript@7.13.0", "typescript@5.9.3"];
/// A program against the generated types: every kind of filter can be passed, and a wrong one cannot.
const FILTERS: &str = r#"import type { components } from "./types";

type Schemas = components["schemas"];
type Filter = Schemas["Filter"];

const time: Filter = { field: "data.due", op: "lt", value: "2026-11-16T12:00:00.000-0800", as: "time" };
const group: Filter = { all: [{ field: "data.status", op: "changed" }, { any: [time] }] };
export const subscription: Pick<Schemas["NewSubscription"], "url" | "types" | "filter"> = {
  url: "https://hooks.example.com/", types: ["task.*"], filter: group,
};
export const change: Pick<Schemas["SubscriptionChange"], "filter"> = { filter: null };
export const test: Schemas["FilterTest"] = { filter: time, event: { type: "task.updated", data: {} } };
// @ts-expect-error there is no such operator
export const wrong: Filter = { field: "data.due", op: "before" };
"#;
const PYTHON_PACKAGE: &str = "openapi-python-client==0.29.1";

/// Installs the tools and runs them.
pub(crate) fn run_all(root: &Path) -> Result<()> {
    let folder = root.join("target/generators");
    std::fs::create_dir_all(&folder)?;
    install::node()?;
    install::python()?;
    std::fs::write(folder.join("package.json"), "{\"private\": true}\n")?;
    let mut npm = command(&folder, "npm install --silent --no-audit --no-fund");
    run(npm.args(NODE_PACKAGES))?;
    let python = folder.join("python/bin/python");
    if !python.exists() {
        run(Command::new("python3").args(["-m", "venv"]).arg(folder.join("python")))?;
    }
    run(Command::new(&python).args(["-m", "pip", "install", "--quiet", PYTHON_PACKAGE]))?;
    let tool = |name: &str| {
        let mut tool = Command::new(folder.join("node_modules/.bin").join(name));
        tool.current_dir(root)
            .env("REDOCLY_TELEMETRY", "off")
            .env("REDOCLY_SUPPRESS_UPDATE_NOTICE", "true");
        tool
    };
    let mut lint = tool("redocly");
    quietly(lint.args([
        "lint",
        "--config",
        "xtask/redocly.yaml",
        "--max-problems",
        "1000",
        DOCUMENT,
    ]))?;
    let types = folder.join("types.ts");
    quietly(tool("openapi-typescript").arg(DOCUMENT).arg("--output").arg(&types))?;
    let filters = folder.join("filters.ts");
    std::fs::write(&filters, FILTERS)?;
    run(tool("tsc").args(["--noEmit", "--strict"]).args([&types, &filters]))?;
    let tools = folder.join("python/bin");
    let mut client = Command::new("sh");
    // It formats what it has made with a tool from the same folder.
    client.args(["-c", "PATH=\"$0:$PATH\" exec openapi-python-client \"$@\""]).arg(&tools);
    client.current_dir(&folder).args([
        "generate",
        "--overwrite",
        "--fail-on-warning",
        "--meta",
        "none",
    ]);
    client.arg("--config").arg(root.join("xtask/openapi-python-client.yaml"));
    client.arg("--output-path").arg(folder.join("python_client"));
    quietly(client.arg("--path").arg(root.join(DOCUMENT)))
}

/// Runs a tool, and fails also where it warns.
fn quietly(command: &mut Command) -> Result<()> {
    let done = command.output()?;
    let said = [done.stdout, done.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    if !done.status.success() || warns(&said) {
        bail!("{command:?} says:\n{said}");
    }
    Ok(())
}

/// Whether a tool's output has a warning. Redocly's linter counts its warnings in a last sentence, and has others of
/// its own about old versions of Node.js; openapi-typescript puts a sign before each.
fn warns(said: &str) -> bool {
    said.contains("You have ") || said.contains('⚠')
}

#[cfg(test)]
mod tests {
    use super::warns;

    #[test]
    fn warnings_of_each_tool_are_recognized() {
        assert!(warns("Woohoo!\nYou have 2 warnings.\n"));
        assert!(warns(" ⚠  OpenAPI 3.1 has no type nullable\n"));
        assert!(!warns("✨ openapi-typescript 7.13.0\n🚀 openapi.json → types.ts [41ms]\n"));
    }
}
