//! Commands for this repository: run, check, tidy, measure coverage, and others.
//!
//! Never part of a release. It depends only on `anyhow`, so that it builds in seconds.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a chore talks to a person")]

mod abuse;
mod bench_cluster;
mod budget;
mod ci;
mod clients;
mod comments;
mod coverage;
mod dashboard;
mod deny;
mod dist;
mod docs;
mod docs_check;
mod fixture;
mod generators;
mod install;
mod markdown;
mod planted;
mod previous;
mod process;
mod reference;
mod references;
mod serve;
mod tidy;
mod toml;
mod trust;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const HELP: &str = "\
cargo xtask <chore>

  serve [args…]  build postrider, optimised, and run `postrider serve` with the arguments
  install        what the chores and tests need beside cargo, where it is missing
  ci [--quick]   everything that must pass before a commit, with a summary at the end;
                 --quick leaves out what takes more than a few minutes
  tidy           the rules of the house that clippy cannot see
  comments [count] [seed]
                 comments drawn at random from the sources, for a reading test
  docs           the documents as a book in target/book, by mdBook, installed where it is missing
  docs-check [words…]
                 run the shell blocks of README and docs with the real binary; words choose pages
  reference [--check]
                 write docs/reference from what the binary says of itself, or check that it is current
  generators     let Redocly's linter and the generators of clients judge the OpenAPI document
  references     let the Standard Webhooks libraries and Schemathesis judge the binary
  clients [args…]
                 the clients in other languages against the binary; `--update-openapi` renews the
                 document that they are made from
  dashboard [build|check|test]
                 the web page: built, its types checked, and tested in a browser against the binary
  screenshots [pages…]
                 pictures of the web page in target/screenshots/, light, dark and on a phone
  budget         instructions per delivery, by callgrind, against xtask/budget.toml
  bench-cluster [args…]
                 deliveries per second of 1, 2 and 3 nodes on a PostgreSQL of its own, and what
                 they cost there; the arguments are for `postrider bench`
  trust [--long] [tests…]
                 kills, stops, full disks, faults, hostile receivers with the real binary;
                 --long is the long form, on a release build, with the simulation
  fixture PROGRAM NAME
                 stores of a released version, made by its own binary, for the tests of upgrades
  planted        plant bugs in a copy of the sources, and show that the simulation catches each
  previous       the binary of the version before, for the tests of a rolling upgrade
  abuse [neighbour] [--short] [--rounds N] [--binary PATH] [tests…]
                 attacks on the real binary, one line of figures each; `neighbour` measures a tenant
                 beside another that runs all of them at once
  dist [--binary | [--check | --clients] [--image]]
                 binary, tarball and Debian package in target/dist/ with checksums; --check installs,
                 starts, upgrades and purges them in a Debian of their own; --clients does so too,
                 and sends a first webhook by each client there; --image makes a container image
                 as well; --binary makes the stripped binary alone
  packages       what can be checked of packaging/ without a build
  coverage       line coverage of crates/domain by its own tests
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (chore, rest) = match arguments.split_first() {
        Some((chore, rest)) => (chore.as_str(), rest),
        None => ("help", [].as_slice()),
    };
    let root = root();
    let result = match chore {
        "serve" => serve::run(&root, rest),
        "install" => install::everything(&root),
        "ci" => ci::run(&root, rest),
        "tidy" => tidy::run(&root),
        "comments" => comments::run(&root, rest),
        "docs" => docs::run(&root),
        "docs-check" => docs_check::run(&root, rest),
        "reference" => reference::run(&root, rest),
        "references" => references::run_all(&root, rest),
        "generators" => generators::run_all(&root),
        "clients" => clients::run(&root, rest),
        "dashboard" => dashboard::run(&root, rest),
        "screenshots" => dashboard::screenshots(&root, rest),
        "budget" => budget::run(&root, rest),
        "bench-cluster" => bench_cluster::run(&root, rest),
        "trust" => trust::run(&root, rest),
        "abuse" => abuse::run(&root, rest),
        "coverage" => coverage::run(&root),
        "fixture" => fixture::run(&root, rest),
        "planted" => planted::run(&root, rest),
        "previous" => previous::run(&root),
        "dist" => dist::run(&root, rest),
        "packages" => dist::check_packaging(&root),
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            Ok(())
        }
        _ => {
            eprint!("no such chore: {chore}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The root folder of the repository.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}
