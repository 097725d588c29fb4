//! `cargo xtask dashboard`: the web page, built, checked, and tested in a browser against the binary.
//!
//! `npm run build` leaves the page in `dashboard/embed/`, where the binary's build finds it.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context, Result, bail};

use crate::process::{command, run as run_command, target};
use crate::{deny, install};

/// What the page is made of, beside its packages.
const SOURCES: [&str; 10] = [
    "../clients/openapi.json",
    "../clients/typescript/src",
    "index.html",
    "openapi.json",
    "package-lock.json",
    "public",
    "scripts",
    "src",
    "tsconfig.json",
    "vite.config.js",
];

/// Builds the page, then checks and tests what the arguments say, or everything.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    match arguments {
        [] => {
            build(root)?;
            check(root)?;
            test(root)
        }
        [what] if what == "build" => build(root),
        [what] if what == "check" => build(root).and_then(|()| check(root)),
        [what] if what == "test" => build(root).and_then(|()| test(root)),
        _ => bail!("`cargo xtask dashboard` takes `build`, `check` or `test`"),
    }
}

/// Fetches the page's packages and builds the page, each where it is older than what it is made from.
pub(crate) fn build(root: &Path) -> Result<()> {
    let dashboard = root.join("dashboard");
    install::node()?;
    let made =
        |path: &str| fs::metadata(dashboard.join(path)).and_then(|file| file.modified()).ok();
    // npm writes this one last.
    if made("node_modules/.package-lock.json") < Some(newest(&dashboard.join("package-lock.json"))?)
    {
        run_command(&mut command(&dashboard, "npm ci"))?;
    }
    let mut sources = SystemTime::UNIX_EPOCH;
    for source in SOURCES {
        sources = sources.max(newest(&dashboard.join(source))?);
    }
    if made("embed/files.tsv") < Some(sources) {
        run_command(&mut command(&dashboard, "npm run build"))?;
    }
    deny::check_page(root)
}

/// When the newest file of a folder was changed, or the file itself.
fn newest(path: &Path) -> Result<SystemTime> {
    let context = || format!("cannot read {}", path.display());
    let about = fs::metadata(path).with_context(context)?;
    let mut newest = about.modified().with_context(context)?;
    if about.is_dir() {
        for entry in fs::read_dir(path).with_context(context)? {
            newest = newest.max(self::newest(&entry.with_context(context)?.path())?);
        }
    }
    Ok(newest)
}

/// The compiler's view of the page's sources.
pub(crate) fn check(root: &Path) -> Result<()> {
    run_command(&mut command(&root.join("dashboard"), "npm run check"))
}

/// The page's tests: a real browser against the real binary.
pub(crate) fn test(root: &Path) -> Result<()> {
    install::of_page_tests()?;
    run_command(&mut command(root, "cargo build --quiet --package postrider"))?;
    let mut test = command(&root.join("dashboard"), "npm test");
    run_command(test.env("POSTRIDER_BINARY", target(root).join("debug/postrider")))
}

/// Pictures of all pages, with realistic data, in `target/screenshots/`. The arguments name pages.
pub(crate) fn screenshots(root: &Path, arguments: &[String]) -> Result<()> {
    build(root)?;
    install::chromium()?;
    run_command(&mut command(root, "cargo build --quiet --package postrider"))?;
    let mut pictures = command(&root.join("dashboard"), "node scripts/screenshots.mjs");
    pictures.arg(root.join("target/screenshots")).args(arguments);
    run_command(pictures.env("POSTRIDER_BINARY", target(root).join("debug/postrider")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_file_of_a_folder_counts_also_below_it() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let file = newest(&here.join("src/dashboard.rs")).unwrap();
        assert!(newest(here).unwrap() >= file);
        assert!(
            newest(&here.join("no-such-folder"))
                .unwrap_err()
                .to_string()
                .contains("no-such-folder")
        );
    }
}
