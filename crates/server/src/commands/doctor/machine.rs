//! The checks of `postrider doctor` on this machine: files and their permissions, disk, limits, clock,
//! resolver, and the embedded store.
//!
//! A store of an older version is not opened: that would migrate it. Nor is one that belongs to another
//! user: what is written would belong to the wrong one.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use postrider_domain::signature::TOLERANCE;
use postrider_domain::time::Timestamp;
use postrider_store::embedded::{EmbeddedOptions, EmbeddedStore};
use postrider_store::{StoreError, Upkeep as _};

use super::{Finding, Said, found};
use crate::commands::backup::in_words;
use crate::config::Config;
use crate::serve::{files_needed, saved_clock};
use crate::times;

/// With less free space nothing more is accepted soon.
const FREE_BYTES_MIN: u64 = 256 << 20;
/// With less free space an outage of receivers may fill the disk.
const FREE_BYTES_LOW: u64 = 2 << 30;
/// A clock that is off by more is reported.
const CLOCK_OFF_MAX_MS: u64 = 1_000;

/// Checks the data directory: that it can be written, and that only its owner can read it.
pub(super) fn data_directory(path: &Path) -> Said {
    let shown = path.display();
    let directory = match std::fs::metadata(path) {
        Ok(directory) => directory,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Said::Ok(format!("{shown} does not exist yet; `postrider serve` creates it"));
        }
        Err(error) => {
            return Said::Fault(format!("{shown}: {error}\nrun this as the user of the server"));
        }
    };
    if !directory.is_dir() {
        return Said::Fault(format!("{shown} is not a directory\nname another by --data-dir"));
    }
    if rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_err() {
        let (owner, me) = (directory.uid(), rustix::process::geteuid().as_raw());
        return Said::Fault(format!(
            "{shown} cannot be written by user {me}; it belongs to user {owner}\nrun this and the server \
             as that user, or change the owner: chown -R {me} {shown}"
        ));
    }
    match exposed(path) {
        Ok(files) if files.is_empty() => Said::Ok(shown.to_string()),
        Ok(files) => Said::Fault(format!(
            "others can read or change {} ({} in all)\nrun: chmod -R go= {shown}",
            files[0].display(),
            files.len()
        )),
        Err(error) => Said::Fault(format!("{shown}: {error}\nrun this as the user of the server")),
    }
}

/// The files of a data directory, and the directory itself, that others than the owner may use.
fn exposed(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut all = vec![directory.to_owned()];
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        all.push(entry.path());
        if entry.file_type()?.is_dir() {
            for inner in std::fs::read_dir(entry.path())? {
                all.push(inner?.path());
            }
        }
    }
    let is_exposed = |path: &PathBuf| {
        // A file may be removed by the server meanwhile; links are not followed.
        let found = std::fs::symlink_metadata(path);
        found.is_ok_and(|found| !found.is_symlink() && found.mode() & 0o077 != 0)
    };
    all.retain(is_exposed);
    Ok(all)
}

/// Checks the free space of the disk with the data directory, or of the place where it will be.
pub(super) fn disk(data_dir: &Path) -> Said {
    let place = data_dir.ancestors().find(|place| place.exists()).unwrap_or(Path::new("."));
    let place = if place.as_os_str().is_empty() { Path::new(".") } else { place };
    match rustix::fs::statvfs(place) {
        Ok(space) => {
            let free = space.f_bavail.saturating_mul(space.f_frsize);
            let total = space.f_blocks.saturating_mul(space.f_frsize);
            let said = judge_disk(free, total);
            if space.f_files > 0 && space.f_favail == 0 {
                let advice = "remove files, or put the data directory on another disk";
                return Said::Fault(format!("the disk has no room for another file\n{advice}"));
            }
            said
        }
        Err(error) => Said::Note(format!("the free space cannot be read: {error}")),
    }
}

fn judge_disk(free: u64, total: u64) -> Said {
    let words = format!("{} of {} free", in_words(free), in_words(total));
    let advice = "make room, or put the data directory on a larger disk; how long finished deliveries are \
                  kept is the setting retention.finished";
    if free < FREE_BYTES_MIN {
        return Said::Fault(format!("{words}: nothing is accepted when it is full\n{advice}"));
    }
    if free < FREE_BYTES_LOW || free < total / 20 {
        return Said::Note(format!("{words}\n{advice}"));
    }
    Said::Ok(words)
}

/// Checks how many files may be open, for a server that is started like this command.
pub(super) fn open_files(config: &Config) -> Said {
    match rlimit::Resource::NOFILE.get() {
        Ok((_, hard)) => judge_files(hard, files_needed(config)),
        Err(error) => Said::Note(format!("the limit of open files cannot be read: {error}")),
    }
}

fn judge_files(hard: u64, needed: u64) -> Said {
    let advice = "raise it (ulimit -n; LimitNOFILE= of a systemd unit), or lower engine.in_flight_max, \
                  transport.idle_max and http.connections_max";
    if hard < 1_024 {
        let words = format!("only {hard} files may be open, and up to {needed} are needed");
        return Said::Fault(format!("{words}\n{advice}"));
    }
    if hard < needed {
        return Said::Note(format!(
            "{hard} files may be open, and up to {needed} are needed\n{advice}"
        ));
    }
    Said::Ok(format!("{needed} are needed, and as many may be open"))
}

/// Compares the machine's clock with the time of the server: of the running one, or where it stopped.
pub(super) fn clock(data_dir: &Path, server: Option<Timestamp>, now: Timestamp) -> Said {
    if let Some(server) = server {
        return judge_clock("the server's time", server.ms_from(now));
    }
    match saved_clock(data_dir) {
        Ok(None) => Said::Ok(times::exact(now)),
        // The time at which the server stopped lies in the past.
        Ok(Some(saved)) => {
            judge_clock("the time at which the server stopped", saved.at.ms_from(now).max(0))
        }
        Err(error) => Said::Note(format!(
            "{}: {error}\nremove it: the server then starts with the time of day",
            data_dir.join("clock").display()
        )),
    }
}

fn judge_clock(what: &str, ahead_ms: i64) -> Said {
    let off = ahead_ms.unsigned_abs();
    if off <= CLOCK_OFF_MAX_MS {
        return Said::Ok(format!("{what} and this machine's clock agree"));
    }
    let direction = if ahead_ms > 0 { "ahead of" } else { "behind" };
    let words = format!("{what} is {:.1} s {direction} this machine's clock", seconds(off));
    let advice = "keep the clock right by NTP (chrony, systemd-timesyncd). The server goes on at the pace \
                  of real time: no slot is lost, and a restart does not change that";
    let tolerance = u64::try_from(TOLERANCE.as_millis()).unwrap_or(u64::MAX);
    if off > tolerance {
        return Said::Fault(format!(
            "{words}: receivers may refuse its signatures as too old or new\n{advice}"
        ));
    }
    Said::Note(format!("{words}\n{advice}"))
}

fn seconds(ms: u64) -> f64 {
    std::time::Duration::from_millis(ms).as_secs_f64()
}

/// Asks the resolver. With `--dev`, where receivers may be on this machine, it is not needed.
pub(super) async fn resolver(config: &Config) -> Said {
    let options = match config.transport_options() {
        Ok(options) => options,
        Err(error) => return Said::Fault(error.to_string()),
    };
    let advice = "no delivery to a name works: see /etc/resolv.conf, or set dns.nameservers";
    let why = match postrider_transport::resolver_answers(&options.dns).await {
        Ok(true) => return Said::Ok("it answers".to_owned()),
        Ok(false) => "it does not answer".to_owned(),
        Err(error) => error.to_string(),
    };
    let words = format!("{why}\n{advice}");
    if config.dev { Said::Note(words) } else { Said::Fault(words) }
}

/// Checks the embedded store: its schema, and, if no server is running, that it opens.
pub(super) async fn store(data_dir: &Path) -> Vec<Finding> {
    if !data_dir.join("main.db").is_file() {
        return Vec::new();
    }
    let Some((schema, known)) = EmbeddedStore::schema(data_dir) else {
        return vec![Finding { what: "store", said: open_store(data_dir).await }];
    };
    if schema > known {
        let words = format!(
            "version {schema}, of which this program knows {known}\na newer program has written it: \
             upgrade this one"
        );
        return vec![found("schema", Err(words))];
    }
    if schema < known {
        let words = format!(
            "version {schema}; this program needs {known}\nthe next start migrates it: make a backup before \
             (postrider backup --to DIRECTORY)"
        );
        return vec![Finding { what: "schema", said: Said::Note(words) }];
    }
    let schema = found("schema", Ok(format!("version {schema}")));
    vec![schema, Finding { what: "store", said: open_store(data_dir).await }]
}

async fn open_store(data_dir: &Path) -> Said {
    let me = rustix::process::geteuid().as_raw();
    match std::fs::metadata(data_dir.join("main.db")) {
        Ok(file) if file.uid() != me => {
            return Said::Note(format!(
                "not looked at: it belongs to user {}\nrun this as that user",
                file.uid()
            ));
        }
        Ok(_) => {}
        Err(error) => return Said::Fault(format!("main.db: {error}")),
    }
    let directory = data_dir.to_owned();
    let open = || EmbeddedStore::open(directory, EmbeddedOptions::default());
    match tokio::task::spawn_blocking(open).await {
        Ok(Ok(store)) => match store.close().await {
            Ok(()) => Said::Ok(
                "it opens, and its newest files are sound; --verify reads all of it".to_owned(),
            ),
            Err(error) => Said::Fault(error.to_string()),
        },
        Ok(Err(StoreError::Locked { .. })) => Said::Ok("a server has it open".to_owned()),
        Ok(Err(error @ StoreError::Corrupt { .. })) => Said::Fault(format!(
            "{error}\na backup: postrider restore --from BACKUP --data-dir NEW; without one, see what is \
             left: postrider doctor --verify --data-dir {}",
            data_dir.display()
        )),
        Ok(Err(error)) => Said::Fault(error.to_string()),
        Err(error) => Said::Fault(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[track_caller]
    fn check(said: &Said, level: &str, words: &str) {
        let text = format!("{said:?}");
        assert!(text.starts_with(level) && text.contains(words), "{text}");
    }

    #[test]
    fn disk_that_is_nearly_full_is_reported_with_what_to_do() {
        let (tera, giga) = (1 << 40, 1 << 30);
        check(&judge_disk(tera / 2, tera), "Ok", "free");
        check(&judge_disk(tera / 21, tera), "Note", "make room");
        check(&judge_disk(giga, 10 * giga), "Note", "make room");
        check(&judge_disk(giga / 8, 10 * giga), "Fault", "nothing is accepted when it is full");
        check(&disk(Path::new("/nonexistent/folder")), "", "free");
    }

    #[test]
    fn limit_of_open_files_is_compared_with_what_is_needed() {
        check(&judge_files(100_000, 12_000), "Ok", "12000 are needed");
        check(&judge_files(4_096, 12_000), "Note", "ulimit -n");
        check(&judge_files(256, 12_000), "Fault", "only 256");
    }

    #[test]
    fn clock_that_is_off_is_reported_and_faulty_beyond_the_tolerance_of_receivers() {
        check(&judge_clock("it", 900), "Ok", "agree");
        check(&judge_clock("it", 2_500), "Note", "2.5 s ahead of");
        check(&judge_clock("it", -2_500), "Note", "2.5 s behind");
        check(&judge_clock("it", 301_000), "Fault", "signatures");
        let folder = tempfile::tempdir().unwrap();
        let now = "2026-11-18T02:14:57Z".parse().unwrap();
        check(&clock(folder.path(), None, now), "Ok", "2026-11-18 02:14:57 UTC");
        std::fs::write(folder.path().join("clock"), "soon").unwrap();
        check(&clock(folder.path(), None, now), "Note", "remove it");
        let saved =
            r#"{"at": "2026-11-18T03:14:57.000Z", "ahead_ms": 0, "boot": null, "elapsed_us": 0}"#;
        std::fs::write(folder.path().join("clock"), saved).unwrap();
        check(&clock(folder.path(), None, now), "Fault", "3600.0 s ahead of");
        let saved = saved.replace("18T03", "17T03");
        std::fs::write(folder.path().join("clock"), saved).unwrap();
        check(&clock(folder.path(), None, now), "Ok", "agree");
    }

    #[test]
    fn directory_that_others_can_read_is_a_fault() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)).unwrap();
        check(&data_directory(path), "Ok", "");
        std::fs::create_dir(path.join("history")).unwrap();
        std::fs::set_permissions(path.join("history"), std::fs::Permissions::from_mode(0o700))
            .unwrap();
        std::fs::write(path.join("history/2026-11-16.db"), "").unwrap();
        let file = path.join("history/2026-11-16.db");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
        check(&data_directory(path), "Fault", "run: chmod -R go=");
        check(&data_directory(&path.join("none")), "Ok", "does not exist yet");
        check(&data_directory(&file), "Fault", "is not a directory");
    }
}
