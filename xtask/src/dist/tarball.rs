//! The tarball: for any Linux with the glibc that the binary asks for.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::Release;
use super::stage::Stage;
use crate::process::{command, run};

/// Packs the binary with its manual, completions, unit, configuration and licence.
pub(super) fn make(
    root: &Path,
    folder: &Path,
    release: &Release,
    binary: &Path,
) -> Result<PathBuf> {
    let name = release.tar_name();
    let stage = Stage::new(root.join("target/dist-stage").join(&name))?;
    stage.copy(binary, "bin/postrider", 0o755)?;
    for file in ["LICENSE", "README.md", "CHANGELOG.md"] {
        stage.copy(&root.join(file), file, 0o644)?;
    }
    stage.copy(&root.join("docs/install.md"), "INSTALL.md", 0o644)?;
    stage.copy(&root.join("packaging/postrider.toml"), "etc/postrider.toml", 0o644)?;
    let unit = "packaging/systemd/postrider.service";
    stage.copy(&root.join(unit), "lib/systemd/postrider.service", 0o644)?;
    for file in ["rules.yml", "dashboard.json"] {
        let from = root.join("packaging/monitoring").join(file);
        stage.copy(&from, &format!("share/monitoring/{file}"), 0o644)?;
    }
    stage.man_pages(binary, "share/man/man1")?;
    for (shell, file) in
        [("bash", "postrider.bash"), ("fish", "postrider.fish"), ("zsh", "_postrider")]
    {
        stage.completions(binary, shell, &format!("share/completions/{file}"))?;
    }
    stage.set_times(release)?;
    let tarball = folder.join(format!("{name}.tar.gz"));
    let mut tar = command(&root.join("target/dist-stage"), "tar --create --gzip --sort=name");
    tar.args(["--owner=0", "--group=0", "--numeric-owner", "--file"]);
    run(tar.arg(&tarball).arg(&name).env("GZIP", "-9n"))?;
    Ok(tarball)
}
