//! `cargo xtask generators`: what others make of the OpenAPI document.
//!
//! Redocly's linter judges `docs/reference/openapi.json`, and the generators of TypeScript types and of a Python client
//! run over it. **An error or a warning of any of them fails.** The tools are installed from their registries into the
//! target folder, each in the version that is written here.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::install;
use crate::process::{command, run};

const DOCUMENT: &str = "docs/reference/openapi.json";
const NODE_PACKAGES: [&str; 3] =
    ["@redocly/cli@2.77.0", "openapi-typescript@7.13.0", "typescript@5.9.3"];
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
    run(tool("tsc").args(["--noEmit", "--strict"]).arg(&types))?;
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
    // Redocly's linter counts its warnings in a last sentence, and has others of its own about old versions of Node.js.
    if !done.status.success() || said.contains("You have ") {
        bail!("{command:?} says:\n{said}");
    }
    Ok(())
}
