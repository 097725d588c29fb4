//! The binary as it is shipped: a release build, stripped.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::process::{command, run, target};
use crate::{dashboard, install};

/// The stripped binary may not be larger (docs/performance.md).
const BYTES_MAX: u64 = 30_000_000;

/// Builds it, and strips it into the folder.
pub(super) fn build(root: &Path, folder: &Path) -> Result<PathBuf> {
    dashboard::build(root)?;
    install::make()?;
    run(&mut command(root, "cargo build --locked --release --package postrider"))?;
    let binary = folder.join("postrider");
    let mut strip = command(root, "strip --strip-all -o");
    run(strip.arg(&binary).arg(target(root).join("release/postrider")))?;
    let bytes = fs::metadata(&binary)?.len();
    println!("postrider: {}.{} MB", bytes / 1_000_000, bytes / 100_000 % 10);
    if bytes > BYTES_MAX {
        bail!("the stripped binary has {bytes} bytes, more than {BYTES_MAX}");
    }
    Ok(binary)
}

/// The newest version of glibc that a binary asks for, such as 2.34: what the package depends on.
pub(super) fn glibc_needed(binary: &Path) -> Result<String> {
    let bytes = fs::read(binary).with_context(|| format!("cannot read {}", binary.display()))?;
    newest_glibc(&bytes).with_context(|| format!("{} names no glibc", binary.display()))
}

fn newest_glibc(bytes: &[u8]) -> Option<String> {
    const NAME: &[u8] = b"GLIBC_2.";
    let starts = bytes.windows(NAME.len()).enumerate().filter(|(_, window)| *window == NAME);
    let minors = starts.filter_map(|(at, _)| {
        let rest = bytes.get(at + NAME.len()..)?;
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        std::str::from_utf8(rest.get(..digits)?).ok()?.parse::<u32>().ok()
    });
    minors.max().map(|minor| format!("2.{minor}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_glibc_is_found_by_number_not_by_text() {
        let bytes = b"\0GLIBC_2.4\0x\0GLIBC_2.34\0GLIBC_2.9.1\0GLIBC_PRIVATE\0";
        assert_eq!(newest_glibc(bytes).as_deref(), Some("2.34"));
        assert_eq!(newest_glibc(b"static"), None);
    }
}
