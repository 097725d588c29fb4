//! `cargo xtask reference`: writes `docs/reference/` from what the binary says of itself, or checks that
//! what is there is current.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process::{command, output, run as run_command, target};

const FOLDER: &str = "docs/reference";
/// The pages, and the OpenAPI document, which clients and the dashboard link to.
const PAGES: [&str; 8] = [
    "settings.md",
    "metrics.md",
    "cli.md",
    "api.md",
    "events.md",
    "errors.md",
    "filters.md",
    "openapi.json",
];

/// Writes the pages; with `--check` changes nothing and fails where one is stale.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let check = match arguments {
        [] => false,
        [flag] if flag == "--check" => true,
        _ => bail!("`cargo xtask reference` takes --check and nothing else"),
    };
    run_command(&mut command(root, "cargo build --quiet --package postrider"))?;
    let mut stale = Vec::new();
    for page in PAGES {
        let mut ask = Command::new(target(root).join("debug/postrider"));
        let (name, _) = page.split_once('.').unwrap_or((page, ""));
        let made = output(ask.current_dir(root).arg("reference").arg(name))?;
        let path = root.join(FOLDER).join(page);
        if fs::read_to_string(&path).is_ok_and(|found| found == made) {
            continue;
        }
        stale.push(format!("{FOLDER}/{page}"));
        if !check {
            fs::create_dir_all(root.join(FOLDER))?;
            fs::write(&path, made).with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    match (stale.as_slice(), check) {
        ([], _) => println!("reference: {} pages are current", PAGES.len()),
        (stale, false) => println!("reference: wrote {}", stale.join(", ")),
        (stale, true) => {
            bail!(
                "{} is not what the code says: run `cargo xtask reference` and commit it",
                stale.join(", ")
            )
        }
    }
    Ok(())
}
