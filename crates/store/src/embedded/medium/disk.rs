//! Real files in a real directory.
//!
//! `sync_data` is `fdatasync`, which also makes a grown length durable; it is never retried here.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::{Lock, Medium, MediumFile};

/// A directory of the file system.
#[derive(Debug)]
pub struct Disk {
    path: PathBuf,
    directory: File,
}

impl Disk {
    /// Opens the directory; creates it and its parents if they are missing.
    pub fn open(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        make_directory(&path)?;
        let directory = File::open(&path)?;
        Ok(Disk { path, directory })
    }

    fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

/// Creates a directory and its parents, and makes each name durable.
fn make_directory(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) | None => Path::new("."),
    };
    make_directory(parent)?;
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => File::open(parent)?.sync_all(),
        Err(_) if path.is_dir() => Ok(()),
        Err(error) => Err(error),
    }
}

impl Medium for Disk {
    fn create(&self, name: &str) -> io::Result<Arc<dyn MediumFile>> {
        let mut options = OpenOptions::new();
        let file =
            options.read(true).write(true).create_new(true).mode(0o600).open(self.at(name))?;
        Ok(Arc::new(DiskFile(file)))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn MediumFile>> {
        let file = OpenOptions::new().read(true).write(true).open(self.at(name))?;
        Ok(Arc::new(DiskFile(file)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.at(from), self.at(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.at(name))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            // A name that is not UTF-8 is not one of our files.
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn sync_names(&self) -> io::Result<()> {
        self.directory.sync_all()
    }

    fn available_bytes(&self) -> io::Result<u64> {
        let space = rustix::fs::fstatvfs(&self.directory)?;
        Ok(space.f_bavail.saturating_mul(space.f_frsize))
    }

    fn lock(&self, name: &str) -> io::Result<Lock> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(self.at(name))?;
        match file.try_lock() {
            Ok(()) => Ok(Box::new(file)),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn describe(&self, name: &str) -> String {
        self.at(name).display().to_string()
    }
}

#[derive(Debug)]
struct DiskFile(File);

impl MediumFile for DiskFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(into, offset)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        if self.len_bytes()? >= bytes {
            return Ok(());
        }
        match rustix::fs::fallocate(&self.0, FallocateFlags::empty(), 0, bytes) {
            Ok(()) => Ok(()),
            // The file system cannot reserve space: only set the length; the space is taken by
            // writing.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => self.0.set_len(bytes),
            Err(error) => Err(error.into()),
        }
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn len_bytes(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{read_small, replace_small};
    use super::*;

    #[test]
    fn files_are_created_written_renamed_listed_and_removed() {
        let directory = tempfile::tempdir().unwrap();
        let disk = Disk::open(directory.path().join("a/b")).unwrap();
        let file = disk.create("one").unwrap();
        assert!(disk.create("one").is_err(), "an existing file is never truncated");
        file.allocate(10_000).unwrap();
        file.write_at(9_000, b"postrider").unwrap();
        file.sync_data().unwrap();
        assert_eq!(file.len_bytes().unwrap(), 10_000);
        let mut read = [0; 9];
        disk.open("one").unwrap().read_at(9_000, &mut read).unwrap();
        assert_eq!(&read, b"postrider");
        assert!(file.read_at(9_995, &mut read).is_err());

        disk.rename("one", "two").unwrap();
        disk.sync_names().unwrap();
        assert_eq!(disk.list().unwrap(), ["two"]);
        disk.remove("two").unwrap();
        assert_eq!(disk.list().unwrap(), Vec::<String>::new());
        assert!(disk.available_bytes().unwrap() > 0);
    }

    #[test]
    fn a_lock_has_one_holder_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let disk = Disk::open(directory.path()).unwrap();
        let held = disk.lock("lock").unwrap();
        assert_eq!(disk.lock("lock").unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(held);
        assert!(disk.lock("lock").is_ok());
    }

    #[test]
    fn small_file_is_replaced_atomically() {
        let directory = tempfile::tempdir().unwrap();
        let disk = Disk::open(directory.path()).unwrap();
        replace_small(&disk, "manifest", b"one").unwrap();
        disk.create("manifest.new").unwrap(); // left behind by a crash
        replace_small(&disk, "manifest", b"three").unwrap();
        assert_eq!(read_small(&disk, "manifest").unwrap(), b"three");
        assert_eq!(disk.list().unwrap(), ["manifest"]);
    }
}
