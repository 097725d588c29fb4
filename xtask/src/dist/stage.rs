//! Laying out the files of a package: copied with their modes, all with the time of the commit.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::Release;
use crate::process::{command, output, run};

/// A folder that becomes a package.
pub(super) struct Stage {
    pub(super) folder: PathBuf,
}

impl Stage {
    /// An empty one.
    pub(super) fn new(folder: PathBuf) -> Result<Stage> {
        drop(fs::remove_dir_all(&folder));
        let stage = Stage { folder };
        stage.directory("")?;
        Ok(stage)
    }

    /// Makes a directory that everybody may read.
    pub(super) fn directory(&self, path: &str) -> Result<PathBuf> {
        let made = self.folder.join(path);
        fs::create_dir_all(&made).with_context(|| format!("cannot make {}", made.display()))?;
        let mut current = made.as_path();
        while current.starts_with(&self.folder) {
            fs::set_permissions(current, Permissions::from_mode(0o755))?;
            let Some(parent) = current.parent() else { break };
            current = parent;
        }
        Ok(made)
    }

    /// Copies a file.
    pub(super) fn copy(&self, from: &Path, to: &str, mode: u32) -> Result<()> {
        let bytes = fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
        self.write(to, &bytes, mode)
    }

    /// Writes a file.
    pub(super) fn write(&self, to: &str, bytes: &[u8], mode: u32) -> Result<()> {
        let path = self.folder.join(to);
        if let Some((folder, _)) = to.rsplit_once('/') {
            self.directory(folder)?;
        }
        fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
        fs::set_permissions(&path, Permissions::from_mode(mode))?;
        Ok(())
    }

    /// The man pages, compressed without a time, so that the same pages give the same bytes.
    pub(super) fn man_pages(&self, binary: &Path, to: &str) -> Result<()> {
        let folder = self.directory(to)?;
        run(Command::new(binary).arg("man").arg(&folder))?;
        let mut zip = command(&folder, "gzip -9n");
        for entry in fs::read_dir(&folder)? {
            zip.arg(entry?.path());
        }
        run(&mut zip)?;
        for entry in fs::read_dir(&folder)? {
            fs::set_permissions(entry?.path(), Permissions::from_mode(0o644))?;
        }
        Ok(())
    }

    /// The completions of a shell.
    pub(super) fn completions(&self, binary: &Path, shell: &str, to: &str) -> Result<()> {
        let script = output(Command::new(binary).args(["completions", shell]))?;
        self.write(to, script.as_bytes(), 0o644)
    }

    /// Gives every file the time of the commit.
    pub(super) fn set_times(&self, release: &Release) -> Result<()> {
        let mut touch = command(&self.folder, "find . -exec touch --no-dereference --date");
        touch.arg(format!("@{}", release.commit_time)).args(["{}", "+"]);
        run(&mut touch)
    }
}
