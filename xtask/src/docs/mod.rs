//! `cargo xtask docs`: the documents as a book, by mdBook, which is installed where it is missing.

use std::path::Path;

use anyhow::Result;

use crate::process::{command, exists, run as run_command};

pub(crate) fn run(root: &Path) -> Result<()> {
    let own = root.join("target/mdbook");
    let installed = own.join("bin/mdbook");
    let program = if exists("mdbook --version") {
        "mdbook".to_owned()
    } else {
        if !installed.exists() {
            let mut install = command(root, "cargo install --locked mdbook --root");
            run_command(install.arg(&own))?;
        }
        installed.display().to_string()
    };
    run_command(command(root, &program).args(["build", "docs"]))?;
    println!("the book: {}", root.join("target/book/index.html").display());
    Ok(())
}
