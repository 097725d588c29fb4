//! What the trial of the clients needs: each client as its users have it, with the first example of its
//! README.
//!
//! `cargo xtask clients` builds and tests all of that first; here it is only copied. The trial has no
//! network, so nothing is fetched there.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::process::{command, run as run_command, target};

/// The languages, as further packages of the system. The Rust client is a program that is built here.
pub(super) const PACKAGES: &str = ",python3,nodejs,golang-go";

/// Puts the clients into a folder of the system.
pub(super) fn prepare(root: &Path, to: &Path) -> Result<()> {
    crate::clients::run(root, &[])?;
    let built = root.join("target/clients");
    let [rust, typescript, python, go] =
        ["rust", "typescript", "python", "go"].map(|name| to.join(name));
    for folder in [&rust, &typescript.join("node_modules"), &python, &go.join("example")] {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    copy(&target(root).join("debug/examples/first_webhook"), &rust.join("first_webhook"))?;
    let modules = built.join("typescript-examples/node_modules/@postrider");
    copy_folder(&modules, &typescript.join("node_modules"))?;
    copy(&built.join("typescript-examples/example-0.js"), &typescript.join("first.js"))?;
    let module = r#"{"type": "module"}"#;
    fs::write(typescript.join("package.json"), module).context("cannot write package.json")?;
    // The client and all that it needs, each as a wheel: none of them has compiled code.
    let pip = "-m pip --disable-pip-version-check --quiet wheel --wheel-dir";
    let mut wheels = command(root, &format!("{} {pip}", built.join("venv/bin/python").display()));
    run_command(wheels.arg(&python).arg(wheel(&built)?))?;
    copy(&built.join("python-examples/example_0.py"), &python.join("first.py"))?;
    copy_folder(&root.join("clients/go"), &go)?;
    copy(&built.join("go-examples/example0/main.go"), &go.join("example/main.go"))?;
    let name = "github.com/postrider/postrider/clients/go";
    let manifest = format!(
        "module example\n\ngo 1.19\n\nrequire {name} v0.0.0\n\nreplace {name} => /clients/go/go\n"
    );
    fs::write(go.join("example/go.mod"), manifest).context("cannot write go.mod")
}

/// The wheel of the Python client.
fn wheel(built: &Path) -> Result<PathBuf> {
    let folder = built.join("wheels");
    let mut entries = fs::read_dir(&folder).with_context(|| format!("no {}", folder.display()))?;
    Ok(entries.next().context("there is no wheel of the Python client")??.path())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    Ok(())
}

/// Copies a folder into another one.
fn copy_folder(from: &Path, into: &Path) -> Result<()> {
    run_command(command(Path::new("/"), "cp --archive").arg(from).arg(into))
}
