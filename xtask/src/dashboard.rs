//! Builds and checks the dashboard, if there is one.

use std::path::Path;

use anyhow::Result;

use crate::install;
use crate::process::{command, run};

/// Whether there is a dashboard to build.
pub(crate) fn exists(root: &Path) -> bool {
    root.join("dashboard/package.json").exists()
}

/// Fetches the dashboard's packages and builds the files that the server embeds.
pub(crate) fn build(root: &Path) -> Result<()> {
    let dashboard = root.join("dashboard");
    install::node()?;
    let locked = dashboard.join("package-lock.json").exists();
    let fetch = if locked { "npm ci" } else { "npm install" };
    run(&mut command(&dashboard, &format!("{fetch} --no-audit --no-fund")))?;
    run(&mut command(&dashboard, "npm run build"))
}

/// Runs the checks and tests that the dashboard's package.json defines.
pub(crate) fn check(root: &Path) -> Result<()> {
    let dashboard = root.join("dashboard");
    for script in ["check", "lint", "test"] {
        run(&mut command(&dashboard, &format!("npm run --if-present {script}")))?;
    }
    Ok(())
}
