//! Reads processor time, memory and disk statistics from the operating system.
//!
//! A PostgreSQL server is counted as a whole, separately from others on the same machine: its
//! postmaster, its running processes, and those that have ended.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// The usage of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) cpu_us: u64,
    pub(crate) peak_bytes: u64,
}

impl Usage {
    pub(crate) fn of(id: u32) -> Usage {
        let status = read(&format!("/proc/{id}/status"));
        Usage {
            cpu_us: cpu_us(id).unwrap_or(0),
            peak_bytes: field(&status, "VmHWM:").unwrap_or(0) * 1024,
        }
    }
}

/// The disk that holds a folder. The per-process counters count page-cache writes in units of up to
/// megabytes; the disk's counter has the bytes that were really written, by all processes.
#[derive(Debug)]
pub(crate) struct Disk(String);

impl Disk {
    /// `None` if the system has no counters, as for file systems in memory or in a container.
    pub(crate) fn of(folder: &Path) -> Option<Disk> {
        let device = std::fs::metadata(folder).ok()?.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let disk = Disk(format!("/sys/dev/block/{major}:{minor}/stat"));
        disk.written_bytes().map(|_| disk)
    }

    pub(crate) fn written_bytes(&self) -> Option<u64> {
        written_bytes(&read(&self.0))
    }
}

/// The written bytes from the kernel's statistics of a block device, which count sectors of 512
/// bytes.
fn written_bytes(stat: &str) -> Option<u64> {
    let sectors: u64 = stat.split_whitespace().nth(6)?.parse().ok()?;
    Some(sectors * 512)
}

/// The current memory of a process.
pub(crate) fn resident_bytes(id: u32) -> u64 {
    field(&read(&format!("/proc/{id}/status")), "VmRSS:").unwrap_or(0) * 1024
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Processor time of a process with all its threads.
pub(crate) fn cpu_us(id: u32) -> Option<u64> {
    Stat::of(id).map(|stat| stat.cpu_us)
}

/// The needed fields of `/proc/…/stat`.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    name: String,
    parent: u32,
    /// User and system time.
    cpu_us: u64,
    /// User and system time of children that have ended and were waited for.
    ended_us: u64,
}

impl Stat {
    fn of(id: u32) -> Option<Stat> {
        Stat::read(&std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?)
    }

    /// Parses the line, whose times are in hundredths of a second.
    fn read(text: &str) -> Option<Stat> {
        let (before, after) = text.rsplit_once(')')?;
        let name = before.split_once('(')?.1.to_owned();
        let fields: Vec<&str> = after.split_whitespace().collect();
        let number = |place: usize| fields.get(place)?.parse::<u64>().ok();
        let us = |place: usize| Some((number(place)? + number(place + 1)?) * 10_000);
        let parent = u32::try_from(number(1)?).ok()?;
        Some(Stat { name, parent, cpu_us: us(11)?, ended_us: us(13)? })
    }
}

/// A PostgreSQL server on this machine, by its first process (the postmaster).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Postmaster(u32);

impl Postmaster {
    /// The server of a backend process; `None` if it runs on another machine, or is not visible.
    pub(crate) fn of_backend(backend: u32) -> Option<Postmaster> {
        let of_backend = Stat::of(backend).filter(|stat| stat.name == "postgres")?;
        let postmaster = Stat::of(of_backend.parent).filter(|stat| stat.name == "postgres")?;
        // Its parent is not PostgreSQL, so this is the first process.
        let above = Stat::of(postmaster.parent).is_none_or(|stat| stat.name != "postgres");
        above.then_some(Postmaster(of_backend.parent))
    }

    /// Processor time of all its processes, including ended ones.
    pub(crate) fn cpu_us(self) -> u64 {
        let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let ids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let children = ids.filter_map(Stat::of).filter(|stat| stat.parent == self.0);
        let own = Stat::of(self.0).map_or(0, |stat| stat.cpu_us + stat.ended_us);
        own + children.map(|stat| stat.cpu_us).sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_knows_this_process() {
        // In this order, because memory may grow in between.
        let resident = resident_bytes(std::process::id());
        let usage = Usage::of(std::process::id());
        assert!(usage.peak_bytes > 1_000_000, "{usage:?}");
        assert!(resident > 0 && resident <= usage.peak_bytes, "{resident} {usage:?}");
        assert_eq!(Usage::of(0), Usage::default());
    }

    #[test]
    fn a_disk_says_what_was_written_or_there_is_none() {
        let stat = " 541 16 1173 992 2210 166 2909 1798 0 229 2922 19 8 2 39 51 92";
        assert_eq!(written_bytes(stat), Some(2909 * 512));
        assert_eq!(written_bytes(""), None);
        assert!(Disk::of(Path::new("/proc")).is_none());
        assert!(Disk::of(Path::new("/nowhere")).is_none());
    }

    #[test]
    fn a_name_with_spaces_and_brackets_does_not_shift_the_times() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194304 1 0 0 0 12 30 5 6 20 0 1 0 1 1 1";
        let stat = Stat::read(stat).unwrap();
        assert_eq!((stat.name.as_str(), stat.parent, stat.cpu_us), ("a ) b", 1, 420_000));
        assert_eq!(stat.ended_us, 110_000);
    }

    #[test]
    fn process_that_is_not_postgresql_is_rejected() {
        assert_eq!(Postmaster::of_backend(std::process::id()), None);
        assert_eq!(Postmaster::of_backend(0), None);
    }
}
