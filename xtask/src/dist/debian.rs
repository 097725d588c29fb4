//! The Debian package, made by `dpkg-deb` from `packaging/debian/`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::stage::Stage;
use super::{Release, binary};
use crate::process::{command, output, run};

/// Scripts of the package, run as root at installing and removing.
pub(super) const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// Makes the package of this version.
pub(super) fn make(
    root: &Path,
    folder: &Path,
    release: &Release,
    binary: &Path,
) -> Result<PathBuf> {
    make_version(root, folder, release, binary, &release.version)
}

/// Makes a package of the same files under another version, for upgrades.
pub(super) fn make_version(
    root: &Path,
    folder: &Path,
    release: &Release,
    binary: &Path,
    version: &str,
) -> Result<PathBuf> {
    let ours = root.join("packaging");
    let stage = Stage::new(root.join("target/dist-stage/debian"))?;
    stage.copy(binary, "usr/bin/postrider", 0o755)?;
    stage.copy(&ours.join("postrider.toml"), "etc/postrider/postrider.toml", 0o644)?;
    let unit = "lib/systemd/system/postrider.service";
    stage.copy(&ours.join("systemd/postrider.service"), unit, 0o644)?;
    let documents = "usr/share/doc/postrider";
    stage.copy(&ours.join("debian/copyright"), &format!("{documents}/copyright"), 0o644)?;
    stage.copy(&root.join("README.md"), &format!("{documents}/README.md"), 0o644)?;
    stage.copy(&root.join("docs/install.md"), &format!("{documents}/install.md"), 0o644)?;
    let changes = changelog(version, &release.commit_time)?;
    stage.write(&format!("{documents}/changelog"), changes.as_bytes(), 0o644)?;
    run(&mut command(&stage.folder.join(documents), "gzip -9n changelog"))?;
    for file in ["rules.yml", "dashboard.json"] {
        let to = format!("usr/share/postrider/monitoring/{file}");
        stage.copy(&ours.join("monitoring").join(file), &to, 0o644)?;
    }
    stage.man_pages(binary, "usr/share/man/man1")?;
    for (shell, to) in [
        ("bash", "usr/share/bash-completion/completions/postrider"),
        ("fish", "usr/share/fish/vendor_completions.d/postrider.fish"),
        ("zsh", "usr/share/zsh/vendor-completions/_postrider"),
    ] {
        stage.completions(binary, shell, to)?;
    }
    let architecture = output(&mut command(root, "dpkg --print-architecture"))?;
    let architecture = architecture.trim();
    stage.write("DEBIAN/md5sums", digests(&stage)?.as_bytes(), 0o644)?;
    let control = control(&ours, &stage, binary, version, architecture)?;
    stage.write("DEBIAN/control", control.as_bytes(), 0o644)?;
    stage.copy(&ours.join("debian/conffiles"), "DEBIAN/conffiles", 0o644)?;
    for script in SCRIPTS {
        let to = format!("DEBIAN/{script}");
        stage.copy(&ours.join("debian").join(script), &to, 0o755)?;
    }
    stage.set_times(release)?;
    let package = folder.join(format!("postrider_{version}_{architecture}.deb"));
    let mut build = command(root, "dpkg-deb --root-owner-group -Zxz --build");
    build.arg(&stage.folder).arg(&package);
    run(build.env("SOURCE_DATE_EPOCH", &release.commit_time))?;
    Ok(package)
}

/// The digests of the files, by which `dpkg --verify` finds those that were changed.
fn digests(stage: &Stage) -> Result<String> {
    let mut sum = command(&stage.folder, "find usr lib -type f -exec md5sum {} +");
    let mut lines: Vec<String> = output(&mut sum)?.lines().map(str::to_owned).collect();
    lines.sort_by(|a, b| a.split_whitespace().last().cmp(&b.split_whitespace().last()));
    Ok(lines.join("\n") + "\n")
}

fn control(
    ours: &Path,
    stage: &Stage,
    binary: &Path,
    version: &str,
    architecture: &str,
) -> Result<String> {
    let size = output(command(&stage.folder, "du --summarize --apparent-size -k").arg("."))?;
    let size = size.split_whitespace().next().context("du says nothing")?.to_owned();
    let depends = format!("libc6 (>= {}), libgcc-s1", binary::glibc_needed(binary)?);
    let text = fs::read_to_string(ours.join("debian/control.in"))
        .context("cannot read packaging/debian/control.in")?;
    Ok(text
        .replace("@VERSION@", version)
        .replace("@ARCHITECTURE@", architecture)
        .replace("@SIZE@", &size)
        .replace("@DEPENDS@", &depends))
}

/// Debian's own form of a changelog: one entry, which leads to ours.
fn changelog(version: &str, commit_time: &str) -> Result<String> {
    let mut date = command(Path::new("/"), "date --utc --rfc-email --date");
    let date = output(date.arg(format!("@{commit_time}")).env("LC_ALL", "C"))?;
    Ok(format!(
        "postrider ({version}) unstable; urgency=medium\n\n  * See CHANGELOG.md of this version.\n\n \
         -- The Postrider developers <postrider@localhost>  {date}"
    ))
}
