//! `cargo xtask serve`: from a fresh checkout to a running server by one command.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;

use anyhow::{Context, Result};

use crate::process::{command, shown};
use crate::toml::{Toml, texts};
use crate::{dashboard, process};

/// Builds and becomes `postrider serve`, so that signals reach it; says what is there while there is
/// no server yet.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    if !root.join("crates/server/Cargo.toml").exists() {
        return say_what_is_there(root);
    }
    if dashboard::exists(root) {
        dashboard::build(root)?;
    }
    process::run(&mut command(root, "cargo build --release --bin postrider"))?;
    // The server's own relative paths (`--data-dir`) mean the folder that the person stands in.
    let mut serve = command(Path::new("."), "cargo run --quiet --release --bin postrider");
    serve.arg("--manifest-path").arg(root.join("Cargo.toml"));
    serve.args(["--", "serve"]).args(arguments);
    println!("$ {}", shown(&serve));
    Err(serve.exec()).context("cannot start `cargo`")
}

fn say_what_is_there(root: &Path) -> Result<()> {
    println!(
        "There is no server yet: crates/server, the binary `postrider`, is still to be written."
    );
    println!("What is there today:");
    for (folder, description) in crates(root)? {
        println!("  {folder:<18} {description}");
    }
    println!("README.md says what comes next; `cargo xtask ci` checks what is there.");
    Ok(())
}

/// Every crate's folder and description.
fn crates(root: &Path) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root.join("crates")).context("no folder crates/")? {
        let folder = entry?;
        let Ok(manifest) = fs::read_to_string(folder.path().join("Cargo.toml")) else { continue };
        let toml = Toml::parse(&manifest);
        let description = toml.value("package", "description").map(texts).unwrap_or_default();
        found.push((
            format!("crates/{}", folder.file_name().to_string_lossy()),
            description.first().copied().unwrap_or("(no description)").to_owned(),
        ));
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_crate_of_this_repository_says_what_it_is() {
        let crates = crates(&crate::root()).unwrap();
        assert!(crates.iter().any(|(folder, _)| folder == "crates/domain"), "{crates:?}");
        for (folder, description) in crates {
            assert_ne!(description, "(no description)", "{folder}");
        }
    }
}
