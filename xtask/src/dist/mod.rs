//! `cargo xtask dist`: the binary, a tarball and a Debian package in `target/dist/`, with checksums.
//!
//! Everything is made of `packaging/` and of what the binary says of itself; nothing is downloaded. With
//! `--check` the packages are then installed, started, upgraded and purged in a system of their own
//! ([`trial`]); with `--clients` that system has the clients too ([`clients`]). `cargo xtask packages` is the cheap part, which CI runs ([`checks`]).

mod binary;
mod chart;
mod checks;
mod clients;
mod debian;
mod image;
mod sandbox;
mod stage;
mod tarball;
mod trial;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

pub(crate) use self::checks::run as check_packaging;
use crate::process::{command, output};
use crate::toml::Toml;

/// Builds the packages, and with `--check` tries them; `--image` makes a container image too.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let wanted = Wanted::of(arguments)?;
    let folder = root.join("target/dist");
    // What an earlier run left has no place beside the new checksums.
    drop(fs::remove_dir_all(&folder));
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let binary = binary::build(root, &folder)?;
    if wanted.binary_only {
        return Ok(());
    }
    check_packaging(root)?;
    let release = Release::of(root)?;
    let tarball = tarball::make(root, &folder, &release, &binary)?;
    let debian = debian::make(root, &folder, &release, &binary)?;
    write_checksums(&folder, &[&tarball, &debian])?;
    if wanted.check {
        trial::run(root, &folder, &release, &binary, &debian, wanted.clients)?;
    }
    if wanted.image {
        image::build(root, &release)?;
    }
    Ok(())
}

/// What was asked for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wanted {
    /// Nothing but the stripped binary: for the image.
    binary_only: bool,
    /// Try the packages.
    check: bool,
    /// Try the clients with them.
    clients: bool,
    /// Make an image.
    image: bool,
}

impl Wanted {
    fn of(arguments: &[String]) -> Result<Wanted> {
        let mut wanted = Wanted::default();
        for argument in arguments {
            match argument.as_str() {
                "--binary" => wanted.binary_only = true,
                "--check" => wanted.check = true,
                "--clients" => (wanted.check, wanted.clients) = (true, true),
                "--image" => wanted.image = true,
                _ => bail!("cargo xtask dist [--binary | [--check | --clients] [--image]]"),
            }
        }
        Ok(wanted)
    }
}

/// Which version of what this is.
struct Release {
    version: String,
    /// As Rust calls it, such as `x86_64`.
    machine: &'static str,
    /// When the commit was made, in seconds: files of a package carry it, so that the same commit makes
    /// the same package.
    commit_time: String,
}

impl Release {
    fn of(root: &Path) -> Result<Release> {
        let manifest = Toml::parse(&fs::read_to_string(root.join("Cargo.toml"))?);
        let version = manifest.value("workspace.package", "version");
        let version = version.context("Cargo.toml has no version")?.trim_matches('"').to_owned();
        let time = output(&mut command(root, "git log -1 --format=%ct"))?;
        Ok(Release {
            version,
            machine: std::env::consts::ARCH,
            commit_time: time.trim().to_owned(),
        })
    }

    fn tar_name(&self) -> String {
        format!("postrider-{}-{}-linux", self.version, self.machine)
    }
}

/// `SHA256SUMS`, to be checked by `sha256sum --check`.
fn write_checksums(folder: &Path, files: &[&PathBuf]) -> Result<()> {
    let mut sum = command(folder, "sha256sum");
    sum.args(files.iter().filter_map(|file| file.file_name()));
    let sums = output(&mut sum)?;
    print!("{sums}");
    fs::write(folder.join("SHA256SUMS"), sums).context("cannot write SHA256SUMS")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_arguments_are_refused() {
        let wanted =
            |words: &str| Wanted::of(&words.split(' ').map(str::to_owned).collect::<Vec<_>>());
        let both = Wanted { check: true, image: true, ..Wanted::default() };
        assert_eq!(wanted("--check --image").unwrap(), both);
        assert!(wanted("--clients").unwrap().check);
        assert!(wanted("--chek").is_err());
    }

    #[test]
    fn release_has_the_version_of_the_workspace() {
        let release = Release::of(&crate::root()).unwrap();
        assert!(release.tar_name().starts_with(&format!("postrider-{}-", release.version)));
        assert!(release.version.split('.').count() == 3, "{}", release.version);
        assert!(release.commit_time.parse::<u64>().is_ok());
    }
}
