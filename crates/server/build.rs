//! Records at build time the commit and the target, for `postrider --version`.

use std::process::Command;

#[expect(clippy::disallowed_methods, reason = "cargo tells a build script by the environment")]
fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = output.status.success().then(|| String::from_utf8(output.stdout).ok())??;
    Some(text.trim().to_owned())
}

fn main() {
    let commit = git(&["rev-parse", "--short=10", "HEAD"]);
    // This file changes with every commit and checkout.
    let history = git(&["rev-parse", "--path-format=absolute", "--git-path", "logs/HEAD"]);
    let lines = [
        format!("cargo::rustc-env=POSTRIDER_COMMIT={}", commit.as_deref().unwrap_or("no commit")),
        format!("cargo::rustc-env=BUILD_TARGET={}", variable("TARGET")),
        format!("cargo::rustc-env=BUILD_PROFILE={}", variable("PROFILE")),
        format!("cargo::rerun-if-changed={}", history.as_deref().unwrap_or("build.rs")),
        "cargo::rerun-if-changed=build.rs".to_owned(),
    ];
    for line in lines {
        println!("{line}");
    }
}
