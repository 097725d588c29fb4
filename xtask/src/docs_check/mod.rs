//! `cargo xtask docs-check`: runs the shell blocks of README, guide and the pages beside it with the real binary.
//!
//! The blocks of a page are one script, in order, so that a variable of one block is there in the next.
//! Each page has an empty folder, a fresh server where it starts one, and free ports in place of those
//! that it names: **no page depends on another, or on what runs on this machine**.

mod script;

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::markdown::{Block, Run, blocks, has_checked_blocks};
use crate::process::{command, run as run_command, run_and_listen, target};
use crate::{install, tidy};

/// A page that takes longer hangs.
const PAGE_SECONDS_MAX: &str = "180";

/// Runs all pages, or those whose path has one of the words in it.
pub(crate) fn run(root: &Path, words: &[String]) -> Result<()> {
    install::of_documents()?;
    let build = "cargo build --quiet --package postrider";
    run_command(&mut command(root, build))?;
    let links = tidy::check_links(root)?;
    let (mut run, mut not_run, mut failed) = (0, 0, Vec::new());
    for path in pages(root)? {
        if !words.is_empty() && !words.iter().any(|word| path.contains(word.as_str())) {
            continue;
        }
        let text = fs::read_to_string(root.join(&path))?;
        let blocks: Vec<Block> = blocks(&text).into_iter().filter(|b| b.run().is_some()).collect();
        let count = |wanted: &[Run]| {
            blocks
                .iter()
                .filter(|block| block.run().is_some_and(|run| wanted.contains(&run)))
                .count()
        };
        let (shown, skipped) = (count(&[Run::ToItsEnd, Run::Background]), count(&[Run::Never]));
        println!("\n== {path}: {shown} blocks to run, {skipped} marked as not run");
        run += shown;
        not_run += skipped;
        if shown > 0 && !run_page(root, &path, &blocks)? {
            failed.push(path);
        }
    }
    println!(
        "\ndocs-check: {run} shell blocks run, {not_run} marked as not run, {links} links checked"
    );
    if !failed.is_empty() {
        bail!("blocks failed in {}", failed.join(", "));
    }
    Ok(())
}

/// The documents with blocks, from the top of the repository.
fn pages(root: &Path) -> Result<Vec<String>> {
    let mut pages = vec!["README.md".to_owned()];
    for folder in ["docs", "docs/guide"] {
        for entry in
            fs::read_dir(root.join(folder)).with_context(|| format!("cannot read {folder}"))?
        {
            let path = format!("{folder}/{}", entry?.file_name().to_string_lossy());
            if has_checked_blocks(&path) {
                pages.push(path);
            }
        }
    }
    pages.sort();
    Ok(pages)
}

/// Runs the blocks of a page; whether all succeeded.
fn run_page(root: &Path, path: &str, blocks: &[Block]) -> Result<bool> {
    let name = path.trim_end_matches(".md").replace('/', "-");
    let folder = root.join("target/docs-check").join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    let work = folder.join("work");
    fs::create_dir_all(&work)?;
    let programs = programs(root)?;
    let ports = script::Ports::new(free_ports()?);
    let script = folder.join("script.sh");
    fs::write(&script, script::of(path, blocks, &ports, &programs))?;
    let mut bash = Command::new("timeout");
    bash.args([PAGE_SECONDS_MAX, "bash"]).arg(&script).current_dir(&work);
    Ok(run_and_listen(&mut bash)?.0)
}

/// A folder with the program alone, to be found first.
fn programs(root: &Path) -> Result<PathBuf> {
    let folder = root.join("target/docs-check/bin");
    fs::create_dir_all(&folder)?;
    let link = folder.join("postrider");
    if link.symlink_metadata().is_ok() {
        fs::remove_file(&link)?;
    }
    std::os::unix::fs::symlink(target(root).join("debug/postrider"), link)?;
    Ok(folder)
}

/// A free port for each that documents may name. That of health and metrics is 10,000 above the API's.
fn free_ports() -> Result<Vec<u16>> {
    let bind = |port: u16| TcpListener::bind(("127.0.0.1", port));
    for _ in 0..100 {
        let api = bind(0)?;
        let port = api.local_addr()?.port();
        let Some(Ok(health)) = port.checked_add(10_000).map(bind) else { continue };
        let receivers = script::PORTS.iter().skip(2).map(|_| bind(0));
        let receivers: Vec<TcpListener> = receivers.collect::<std::io::Result<_>>()?;
        let all = [api, health].into_iter().chain(receivers);
        return all.map(|listener| Ok(listener.local_addr()?.port())).collect();
    }
    bail!("no two free ports that are 10,000 apart on 127.0.0.1")
}
