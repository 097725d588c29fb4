//! Room that is kept for a full disk.
//!
//! A file that holds nothing. When SQLite finds no room it is removed, so that what is accepted can
//! be brought to its end; **until it is there again, nothing new is accepted.**

use std::fs::{self, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::FallocateFlags;

/// The file, or its absence.
#[derive(Debug)]
pub(super) struct Ballast {
    path: PathBuf,
    bytes: u64,
    is_there: AtomicBool,
}

impl Ballast {
    /// Makes the file if there is room for it.
    pub(super) fn new(path: PathBuf, bytes: u64) -> Self {
        let ballast = Ballast { path, bytes, is_there: AtomicBool::new(false) };
        ballast.take_back();
        ballast
    }

    /// Gives the room up; `false` where that was done already.
    pub(super) fn give_up(&self) -> bool {
        self.is_there.swap(false, Ordering::AcqRel) && fs::remove_file(&self.path).is_ok()
    }

    /// Whether the room is there; it is taken again where the disk has twice as much.
    pub(super) fn take_back(&self) -> bool {
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
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(&self.path)?;
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
    fn room_is_given_up_once_and_taken_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("reserve");
        let ballast = Ballast::new(path.clone(), 4096);
        assert_eq!(fs::metadata(&path).unwrap().len(), 4096);
        assert!(ballast.give_up());
        assert!(!ballast.give_up());
        assert!(!path.exists());
        assert!(ballast.take_back());
        assert!(path.exists());
        let too_much = Ballast::new(directory.path().join("much"), u64::MAX / 4);
        assert!(!too_much.take_back());
        assert!(!directory.path().join("much").exists());
    }
}
