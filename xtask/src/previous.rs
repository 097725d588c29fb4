//! `cargo xtask previous`: builds the binary of the previous version from its pinned commit.
//!
//! The tests of a rolling upgrade run nodes of both versions. The previous one has its own worktree
//! in `target/previous`, and reuses third-party crates that are built already.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::process::{self, command, exists, output, run as run_command};

/// The commit of the previous version. Every release changes it.
const COMMIT: &str = "414a721";
/// The environment variable with the path of the binary, for the tests.
pub(crate) const VARIABLE: &str = "POSTRIDER_PREVIOUS";

/// Builds it and prints its path.
pub(crate) fn run(root: &Path) -> Result<()> {
    match build(root)? {
        Some(program) => println!("{VARIABLE}={}", program.display()),
        None => {
            println!("previous: skipped, commit {COMMIT} is not in this clone (a shallow one?)")
        }
    }
    Ok(())
}

/// Builds it; `None` if its commit is not in this clone.
pub(crate) fn build(root: &Path) -> Result<Option<PathBuf>> {
    let known = format!("git -C {} cat-file -e {COMMIT}^{{commit}}", root.display());
    if !exists(&known) {
        return Ok(None);
    }
    let folder = root.join("target/previous");
    let (source, target) = (folder.join("source"), folder.join("target"));
    let is_there = output(&mut command(root, &format!("git rev-parse {COMMIT}")))?
        == output(&mut command(&source, "git rev-parse HEAD")).unwrap_or_default();
    if !is_there {
        run_command(&mut command(root, "git worktree prune"))?;
        let mut add = command(root, "git worktree add --force --detach");
        run_command(add.arg(&source).arg(COMMIT))?;
    }
    share_builds(&process::target(root).join("debug"), &target.join("debug"))?;
    let mut build = command(&source, "cargo build --package postrider");
    run_command(build.env("CARGO_TARGET_DIR", &target))?;
    Ok(Some(target.join("debug/postrider")))
}

/// Links built third-party crates, so that they are not built again.
fn share_builds(from: &Path, to: &Path) -> Result<()> {
    if to.exists() || !from.exists() {
        return Ok(());
    }
    fs::create_dir_all(to)?;
    for part in ["deps", "build", ".fingerprint"] {
        let mut copy = command(Path::new("/"), "cp -al");
        run_command(copy.arg(from.join(part)).arg(to.join(part)))?;
        for entry in fs::read_dir(to.join(part))? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            // Our own crates differ.
            let name = name.trim_start_matches("lib");
            if !name.starts_with("postrider") && !name.starts_with("xtask") {
                continue;
            }
            if path.is_dir() { fs::remove_dir_all(&path)? } else { fs::remove_file(&path)? }
        }
    }
    Ok(())
}
