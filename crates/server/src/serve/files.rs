//! Limits of open files, and permissions of the data directory.
//!
//! **Only their owner can read Postrider's files**, whatever the umask and the directory's mode.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;

use crate::config::Config;

/// Names of Postrider's files in a data directory, without the suffixes that SQLite adds.
const OURS: [&str; 12] = [
    "admin.key",
    "admin.key.new",
    "clock",
    "clock.new",
    "history",
    "journal",
    "keyring",
    "keyring.new",
    "main.db",
    "node",
    "postrider.lock",
    "reserve",
];

/// Sets the umask so that all files of this process, also those of libraries, are private.
pub(crate) fn keep_private() {
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
}

/// Removes the permissions of others from the data directory, and logs that. A key ring that others
/// could read is refused elsewhere.
pub(super) fn tighten(data_dir: &Path) {
    match tightened(data_dir) {
        Ok(closed) if closed.is_empty() => {}
        Ok(closed) => tracing::warn!(
            files = closed.len(),
            first = %closed[0].display(),
            "others could read the data directory; it is closed to them now"
        ),
        Err(error) => tracing::warn!(
            data_dir = %data_dir.display(),
            %error,
            "others can read the data directory: run chmod -R go= on it"
        ),
    }
}

/// Removes the permissions of group and others from Postrider's files; returns the paths that had
/// any. A directory with other files in it keeps its mode, and links are not followed.
fn tightened(data_dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut closed = Vec::new();
    let entries = match fs::read_dir(data_dir) {
        Ok(entries) => entries.collect::<io::Result<Vec<_>>>()?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(closed),
        Err(error) => return Err(error),
    };
    let mut has_others = false;
    for entry in entries {
        let name = entry.file_name();
        let name = name.to_str().unwrap_or_default();
        if !OURS.contains(&name.trim_end_matches("-wal").trim_end_matches("-shm")) {
            has_others = true;
            continue;
        }
        let path = entry.path();
        // Not the key ring: it is refused if others could have read it.
        if name == "keyring" {
            continue;
        }
        if entry.file_type()?.is_dir() {
            for inner in fs::read_dir(&path)? {
                close(inner?.path(), &mut closed)?;
            }
        }
        close(path, &mut closed)?;
    }
    let is_shared = fs::metadata(data_dir)?.mode() & 0o077 != 0;
    if has_others && is_shared {
        let why = "it has other files beside Postrider's, so its own mode stays";
        return Err(io::Error::other(why));
    }
    close(data_dir.to_owned(), &mut closed)?;
    Ok(closed)
}

fn close(path: PathBuf, closed: &mut Vec<PathBuf>) -> io::Result<()> {
    let found = fs::symlink_metadata(&path)?;
    if found.is_symlink() || found.mode() & 0o077 == 0 {
        return Ok(());
    }
    fs::set_permissions(&path, Permissions::from_mode(found.mode() & 0o700))?;
    closed.push(path);
    Ok(())
}

/// Open files beside connections: store, log, resolver.
const BESIDE: u64 = 256;

/// Raises the limit of open files as far as needed and permitted.
pub(super) fn raise_limit(config: &Config) {
    let needed = needed(config);
    match rlimit::increase_nofile_limit(needed) {
        Ok(limit) if limit < needed => tracing::warn!(
            limit,
            needed,
            "few files may be open: raise the limit (ulimit -n), or lower engine.in_flight_max, \
             transport.idle_max and http.connections_max"
        ),
        Ok(_) => {}
        Err(error) => tracing::warn!(%error, needed, "cannot raise the limit of open files"),
    }
}

/// One file for every attempt, idle connection and client.
pub(crate) fn needed(config: &Config) -> u64 {
    let all = config
        .engine
        .in_flight_max
        .saturating_add(config.transport.pool.idle_max)
        .saturating_add(config.http.connections_max);
    u64::try_from(all).unwrap_or(u64::MAX).saturating_add(BESIDE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn data_directory_that_others_can_read_is_closed_to_them() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        fs::create_dir_all(data.join("history")).unwrap();
        for name in ["main.db", "main.db-wal", "history/2026-11-16.db", "admin.key", "keyring"] {
            fs::write(data.join(name), "").unwrap();
            fs::set_permissions(data.join(name), Permissions::from_mode(0o644)).unwrap();
        }
        for name in [data.clone(), data.join("history")] {
            fs::set_permissions(name, Permissions::from_mode(0o755)).unwrap();
        }
        assert_eq!(tightened(&data).unwrap().len(), 6);
        assert_eq!(tightened(&data).unwrap().len(), 0, "the second time there is nothing to do");
        assert_eq!((mode(&data), mode(&data.join("history"))), (0o700, 0o700));
        for name in ["main.db", "main.db-wal", "history/2026-11-16.db", "admin.key"] {
            assert_eq!(mode(&data.join(name)), 0o600, "{name}");
        }
        assert_eq!(mode(&data.join("keyring")), 0o644, "its reader refuses it");
        assert!(tightened(&folder.path().join("none")).unwrap().is_empty());
    }

    #[test]
    fn directory_with_other_files_keeps_its_mode_and_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let theirs = folder.path().join("theirs");
        fs::write(&theirs, "").unwrap();
        fs::set_permissions(&theirs, Permissions::from_mode(0o644)).unwrap();
        std::os::unix::fs::symlink(&theirs, folder.path().join("main.db")).unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        assert!(tightened(folder.path()).is_err());
        assert_eq!((mode(folder.path()), mode(&theirs)), (0o755, 0o644));
    }

    #[test]
    fn the_defaults_need_fewer_files_than_common_systems_permit() {
        assert!(needed(&Config::default()) < 65_536);
    }
}
