//! Building and checking the dashboard.

use std::path::Path;

use anyhow::Result;

use crate::install;
use crate::process::{command, run};

/// Fetches the dashboard's packages and builds what the server embeds.
pub(crate) fn build(root: &Path) -> Result<()> {
    let dashboard = root.join("dashboard");
    install::node()?;
    let locked = dashboard.join("package-lock.json").exists();
    let fetch = if locked { "npm ci" } else { "npm install" };
    run(&mut command(&dashboard, &format!("{fetch} --no-audit --no-fund")))?;
    run(&mut command(&dashboard, "npm run build"))
}

/// The compiler's view of the dashboard's sources.
pub(crate) fn check(root: &Path) -> Result<()> {
    run(&mut command(&root.join("dashboard"), "npm run check"))
}

/// The dashboard's tests: a real browser against the real binary, which is built already.
pub(crate) fn test(root: &Path) -> Result<()> {
    install::chromium()?;
    let mut test = command(&root.join("dashboard"), "npm test");
    run(test.env("POSTRIDER_BINARY", root.join("target/debug/postrider")))
}
