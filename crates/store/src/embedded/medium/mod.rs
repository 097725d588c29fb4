//! The file layer of the journal: one directory without subdirectories. The journal's tests have an
//! implementation that fails and loses power on command.
//!
//! The journal accesses files only through this module. Unsynced data may be lost, wholly or in
//! part and in any order: the bytes of a file until [`MediumFile::sync_data`], names until
//! [`Medium::sync_names`].

mod disk;

use std::any::Any;
use std::fmt;
use std::io;
use std::sync::Arc;

pub use disk::Disk;

/// An exclusive lock on the directory; dropping it releases the lock.
pub type Lock = Box<dyn Any + Send>;

/// A directory of files.
pub trait Medium: fmt::Debug + Send + Sync {
    /// Makes a new, empty file; an existing one of that name is an error.
    fn create(&self, name: &str) -> io::Result<Arc<dyn MediumFile>>;
    /// Opens an existing file for reading and writing.
    fn open(&self, name: &str) -> io::Result<Arc<dyn MediumFile>>;
    /// Renames a file; replaces an existing file of the new name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a name; the file is removed once no handle is left.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Every name, sorted.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Makes every creation, renaming and removal so far durable.
    fn sync_names(&self) -> io::Result<()>;
    /// How many bytes could still be written.
    fn available_bytes(&self) -> io::Result<u64>;
    /// Takes the exclusive lock of that name; `WouldBlock` if another process holds it.
    fn lock(&self, name: &str) -> io::Result<Lock>;
    /// The path of the directory or file, for error messages.
    fn describe(&self, name: &str) -> String;
}

/// An open file. Reads and writes carry their offset, so that a handle can be shared.
pub trait MediumFile: fmt::Debug + Send + Sync {
    /// Fills the buffer from `offset`; `UnexpectedEof` if the file is shorter.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;
    /// Writes all the bytes. After an error any part of them may have been written.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Makes the file at least `bytes` long and reserves the space where the system can.
    fn allocate(&self, bytes: u64) -> io::Result<()>;
    /// Cuts or extends the file to exactly `bytes`.
    fn truncate(&self, bytes: u64) -> io::Result<()>;
    /// Makes the contents and the length durable. After an error the state of both is unknown.
    fn sync_data(&self) -> io::Result<()>;
    /// The length in bytes.
    fn len_bytes(&self) -> io::Result<u64>;
}

/// Reads a whole file, which must be small.
pub fn read_small(medium: &dyn Medium, name: &str) -> io::Result<Vec<u8>> {
    let file = medium.open(name)?;
    let bytes = usize::try_from(file.len_bytes()?).map_err(io::Error::other)?;
    let mut contents = vec![0; bytes];
    file.read_at(0, &mut contents)?;
    Ok(contents)
}

/// Replaces a small file atomically: after a crash it has the old contents or the new ones.
pub fn replace_small(medium: &dyn Medium, name: &str, contents: &[u8]) -> io::Result<()> {
    let temporary = format!("{name}.new");
    match medium.remove(&temporary) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let file = medium.create(&temporary)?;
    file.write_at(0, contents)?;
    file.sync_data()?;
    medium.rename(&temporary, name)?;
    medium.sync_names()
}

/// Whether an error means that the disk, or the quota, is full.
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
