//! `cargo xtask dist --check`: the packages in a Debian of their own.
//!
//! A minimal system is made by `mmdebstrap` (once, then kept in `target/`), and each run works on a copy.
//! With `--clients` it has Python, Node and Go of Debian, and the first webhook is sent by each client.
//! There the package is installed, its unit's command runs and takes an event, the package is upgraded over
//! it, removed and purged. No service manager runs in such a system: the unit's options are judged by
//! `systemd-analyze` ([`super::checks`]), and its command line is run as its user. `strace` refuses the system
//! calls that the unit refuses ([`sandbox`]), and shows whether the server tried one of them, opened a socket
//! of another family, or made memory writable and executable.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::{Release, clients, debian, sandbox};
use crate::install;
use crate::process::{command, output, run as run_command};

/// Installs, starts, upgrades, removes and purges.
pub(super) fn run(
    root: &Path,
    folder: &Path,
    release: &Release,
    binary: &Path,
    package: &Path,
    with_clients: bool,
) -> Result<()> {
    run_command(&mut command(folder, "sha256sum --check --strict SHA256SUMS"))?;
    tarball(folder, release)?;
    let system = system(root, with_clients)?;
    if with_clients {
        clients::prepare(root, &system.join("clients"))?;
    }
    let next_version = format!("{}+next", release.version);
    let scratch = root.join("target/dist-stage");
    let next = debian::make_version(root, &scratch, release, binary, &next_version)?;
    for (from, name) in [(package, "postrider.deb"), (next.as_path(), "next.deb")] {
        let to = system.join(name);
        fs::copy(from, &to).with_context(|| format!("cannot copy to {}", to.display()))?;
    }
    fs::copy(root.join("packaging/debian/trial.sh"), system.join("trial.sh"))
        .context("cannot copy packaging/debian/trial.sh")?;
    let unit = fs::read_to_string(root.join("packaging/systemd/postrider.service"))
        .context("cannot read packaging/systemd/postrider.service")?;
    fs::write(system.join("calls"), sandbox::allowed_calls(&unit)?)
        .context("cannot write the list of system calls")?;
    // A network of its own: no port is taken, and nothing leaves the machine.
    install::ensure_debian_package("iproute2", "ip", "the trial has a network of its own")?;
    let mut trial = command(root, "unshare --mount --pid --net --fork --kill-child sh -c");
    trial.args(["ip link set lo up && exec chroot \"$@\"", "sh"]).arg(&system);
    trial.args(["/bin/sh", "/trial.sh", &release.version, &next_version]);
    run_command(trial.env_clear().env("PATH", PATH).env("LC_ALL", "C.UTF-8"))?;
    println!("installed, started, upgraded, removed and purged in {}", system.display());
    fs::remove_dir_all(&system).context("cannot remove the trial's system")
}

/// Of the system inside.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// The tarball's program runs where it is unpacked, and nothing in it is missing.
fn tarball(folder: &Path, release: &Release) -> Result<()> {
    let place = folder.with_file_name("dist-stage").join("unpacked");
    drop(fs::remove_dir_all(&place));
    fs::create_dir_all(&place).context("cannot make a folder to unpack into")?;
    let name = release.tar_name();
    let mut unpack = command(&place, "tar --extract --gzip --file");
    run_command(unpack.arg(folder.join(format!("{name}.tar.gz"))))?;
    let top = place.join(&name);
    for file in [
        "LICENSE",
        "README.md",
        "INSTALL.md",
        "etc/postrider.toml",
        "lib/systemd/postrider.service",
        "share/completions/postrider.bash",
        "share/man/man1/postrider.1.gz",
        "share/man/man1/postrider-serve.1.gz",
        "share/monitoring/rules.yml",
    ] {
        let found = fs::metadata(top.join(file)).map(|found| found.len()).unwrap_or_default();
        ensure!(found > 0, "the tarball has no {file}, or it is empty");
    }
    let told = output(command(&top, "./bin/postrider --version").env_clear())?;
    ensure!(told.contains(&release.version), "the tarball's program is another version: {told}");
    let config = "./bin/postrider config --config etc/postrider.toml";
    let shown = output(command(&top, config).env_clear())?;
    ensure!(shown.contains("/var/lib/postrider"), "the configuration is not read: {shown}");
    Ok(())
}

/// The Debian of this machine, which the binary was built on; else the stable one.
fn suite() -> String {
    let told = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let value = |name: &str| told.lines().find_map(|line| line.strip_prefix(name));
    let is_debian = value("ID=").is_some_and(|id| id.trim_matches('"') == "debian");
    let codename = value("VERSION_CODENAME=").filter(|_| is_debian).unwrap_or("stable");
    codename.trim_matches('"').to_owned()
}

/// A copy of a minimal Debian, which is made at the first time.
fn system(root: &Path, with_clients: bool) -> Result<PathBuf> {
    let mut packages = "--include=adduser,ca-certificates,init-system-helpers,strace".to_owned();
    let mut name = "target/dist-base-strace.tar";
    if with_clients {
        packages.push_str(clients::PACKAGES);
        name = "target/dist-base-strace-clients.tar";
    }
    let base = root.join(name);
    if !base.exists() {
        let purpose = "the package is tried in a Debian of its own";
        install::ensure_debian_package("mmdebstrap", "mmdebstrap", purpose)?;
        let unfinished = base.with_extension("new.tar");
        let mut make = command(root, "mmdebstrap --quiet --mode=root --variant=minbase");
        make.arg(packages).arg(suite());
        run_command(make.arg(&unfinished))?;
        fs::rename(&unfinished, &base).context("cannot keep the system's tarball")?;
    }
    let system = root.join("target/dist-system");
    if system.exists() {
        fs::remove_dir_all(&system).context("cannot remove the last trial's system")?;
    }
    fs::create_dir_all(&system)?;
    let mut unpack = command(&system, "tar --extract --numeric-owner --exclude=./dev/* --file");
    run_command(unpack.arg(&base))?;
    Ok(system)
}
