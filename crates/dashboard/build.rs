//! Lists the files of the dashboard for the compiler to include.
//!
//! `npm run build` in `dashboard/` leaves them in `dashboard/embed/`, and so do `cargo xtask serve` and
//! `cargo xtask ci`. Where nobody has built it, there is no page in the binary, and no Node.js is needed.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

/// Made by `dashboard/scripts/embed.mjs`: path, type, entity tag, and whether the name has a hash.
const LIST: &str = "files.tsv";

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dashboard/embed");
    println!("cargo::rerun-if-changed={}", folder.display());
    let list = fs::read_to_string(folder.join(LIST)).unwrap_or_default();
    let mut files = String::new();
    for line in list.lines() {
        let columns: Vec<&str> = line.split('\t').collect();
        let [path, kind, tag, hashed] = columns[..] else { panic!("{LIST}: {line:?}") };
        let (whole, packed) = (folder.join(path), folder.join(format!("{path}.gz")));
        let _infallible = write!(
            files,
            "File {{ path: {path:?}, content_type: {kind:?}, etag: {tag:?}, has_hash: {}, \
             bytes: include_bytes!({whole:?}), gzip: include_bytes!({packed:?}) }}, ",
            hashed == "1"
        );
    }
    let code = format!("/// All files.\npub static FILES: &[File] = &[{files}];\n");
    #[expect(clippy::disallowed_methods, reason = "cargo says so where to write")]
    let out = env::var("OUT_DIR").expect("cargo sets it");
    fs::write(Path::new(&out).join("files.rs"), code).expect("cargo made the folder");
}
