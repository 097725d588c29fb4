//! The disk reserve: disk space that is set aside for the time when the disk is full.
//!
//! It is a file without contents. When SQLite finds the disk full, the file is removed, so that
//! accepted deliveries can be finished. **Nothing new is accepted until the file exists again.** An
//! event for which SQLite would have no space is refused too: a journal record needs its size once
//! more in a write-ahead log and once more in the database file.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use rustix::fs::FallocateFlags;

use super::open_private;

/// The reserve file, or the fact that it was released.
#[derive(Debug)]
pub(in crate::embedded) struct DiskReserve {
    path: PathBuf,
    bytes: u64,
    is_there: AtomicBool,
    /// Bytes that may be accepted before the free space is read again.
    allowance: AtomicI64,
}

/// Bytes of disk space for each byte in the journal, with a margin.
const ROOM_PER_BYTE: u64 = 3;
/// Nothing is accepted with less free space than this, or than the reserve if that is smaller.
const FREE_BYTES_MIN: u64 = 16 << 20;

impl DiskReserve {
    /// Makes the file if there is room for it.
    pub(in crate::embedded) fn new(path: PathBuf, bytes: u64) -> Self {
        let disk_reserve = DiskReserve {
            path,
            bytes,
            is_there: AtomicBool::new(false),
            allowance: AtomicI64::new(0),
        };
        disk_reserve.take_back();
        disk_reserve
    }

    /// Whether there is space to accept `bytes` while `waiting_bytes` of records wait to be
    /// applied.
    pub(in crate::embedded) fn has_room(&self, bytes: u64, waiting_bytes: u64) -> bool {
        if !self.take_back() {
            return false;
        }
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        if self.allowance.fetch_sub(bytes, Ordering::Relaxed) >= bytes {
            return true;
        }
        let Some(directory) = self.path.parent() else { return true };
        let Ok(space) = rustix::fs::statvfs(directory) else { return true };
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        let least = FREE_BYTES_MIN.min(self.bytes / 2);
        let needed = waiting_bytes.saturating_mul(ROOM_PER_BYTE).saturating_add(least);
        let spare = free.saturating_sub(needed);
        // Other programs use the disk too: read the free space again before half of it can be used
        // up.
        let allowance = i64::try_from(spare / (2 * ROOM_PER_BYTE)).unwrap_or(i64::MAX);
        self.allowance.store(allowance.min(64 << 20), Ordering::Relaxed);
        free >= needed && spare / ROOM_PER_BYTE >= bytes.unsigned_abs()
    }

    /// Releases the reserve; `false` where it is released already.
    pub(in crate::embedded) fn give_up(&self) -> bool {
        self.is_there.swap(false, Ordering::AcqRel) && fs::remove_file(&self.path).is_ok()
    }

    /// Whether the reserve exists. It is created again once twice its size is free.
    pub(in crate::embedded) fn take_back(&self) -> bool {
        if self.is_there.load(Ordering::Acquire) || self.bytes == 0 {
            return true;
        }
        let is_there = self.make().is_ok();
        self.is_there.store(is_there, Ordering::Release);
        is_there
    }

    fn make(&self) -> std::io::Result<()> {
        if fs::metadata(&self.path).is_ok_and(|found| found.len() == self.bytes) {
            return Ok(());
        }
        let file = open_private(&self.path).map_err(std::io::Error::other)?;
        file.set_len(0)?;
        let space = rustix::fs::fstatvfs(&file)?;
        let room = space.f_bavail.saturating_mul(space.f_frsize);
        if room < self.bytes.saturating_mul(2) {
            drop(file);
            fs::remove_file(&self.path)?;
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, self.bytes) {
            Ok(()) => Ok(()),
            Err(error) => {
                fs::remove_file(&self.path)?;
                Err(error.into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserve_is_released_once_and_created_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("reserve");
        let disk_reserve = DiskReserve::new(path.clone(), 4096);
        assert_eq!(fs::metadata(&path).unwrap().len(), 4096);
        assert!(disk_reserve.give_up());
        assert!(!disk_reserve.give_up());
        assert!(!path.exists());
        assert!(disk_reserve.take_back());
        assert!(path.exists());
        let too_much = DiskReserve::new(directory.path().join("much"), u64::MAX / 4);
        assert!(!too_much.take_back());
        assert!(!directory.path().join("much").exists());
    }
}
