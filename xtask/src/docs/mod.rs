//! `cargo xtask docs`: the documents as a book, by mdBook, which is installed where it is missing.
//!
//! mdBook sees a copy of `docs/` in the target folder, together with every file of the repository that a page links to,
//! so that **no link of the book leads nowhere**: the pages that were made are checked.

mod dead_links;
mod staging;

use std::path::Path;

use anyhow::{Result, bail};

use crate::process::{command, output, run as run_command};

/// The version of mdBook. Another one that is installed is not used.
const MDBOOK: &str = "0.5.4";
const STAGED: &str = "target/book-src";
const BOOK: &str = "target/book";

pub(crate) fn run(root: &Path) -> Result<()> {
    let program = mdbook(root)?;
    let pages = staging::stage(root, &root.join(STAGED))?;
    let mut build = command(root, &program);
    run_command(build.args(["build", STAGED, "--dest-dir"]).arg(root.join(BOOK)))?;
    let checked = dead_links::check(&root.join(BOOK))?;
    for dead in &checked.dead {
        println!("{dead}");
    }
    if !checked.dead.is_empty() {
        bail!("{} links of the book lead nowhere", checked.dead.len());
    }
    let index = root.join(BOOK).join("index.html");
    println!("the book: {} pages, {} links, {}", pages, checked.links, index.display());
    Ok(())
}

/// The program in the right version: an installed one, or one of its own in the target folder.
fn mdbook(root: &Path) -> Result<String> {
    let own = root.join("target/mdbook");
    let installed = own.join("bin/mdbook").display().to_string();
    let is_right = |program: &str| {
        let said = output(command(root, program).arg("--version"));
        said.is_ok_and(|said| said.trim().trim_start_matches("mdbook v") == MDBOOK)
    };
    for program in ["mdbook", &installed] {
        if is_right(program) {
            return Ok(program.to_owned());
        }
    }
    let mut install = command(root, "cargo install --locked mdbook --force --version");
    run_command(install.arg(MDBOOK).arg("--root").arg(&own))?;
    Ok(installed)
}
