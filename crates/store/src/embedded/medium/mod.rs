//! The file layer: one directory with flat names. The tests of the journal have one that fails and loses
//! power on command.
//!
//! Nothing above this module touches a file by other means (SQLite aside, which brings its own).
//! What has not been synced may be lost, wholly or in part and in any order: the bytes of a file
//! until [`MediumFile::sync_data`], names until [`Medium::sync_names`].

mod disk;

use std::any::Any;
use std::fmt;
use std::io;
use std::sync::Arc;

pub use disk::Disk;

/// Held for as long as nobody else may use the directory; dropping it lets go.
pub type Lock = Box<dyn Any + Send>;

/// A directory of files.
pub trait Medium: fmt::Debug + Send + Sync {
    /// Makes a new, empty file; an existing one of that name is an error.
    fn create(&self, name: &str) -> io::Result<Arc<dyn MediumFile>>;
    /// Opens an existing file for reading and writing.
    fn open(&self, name: &str) -> io::Result<Arc<dyn MediumFile>>;
    /// Gives a file another name, replacing what had it.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a name, and the file with it once no handle is left.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Every name, sorted.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Makes every creation, renaming and removal so far durable.
    fn sync_names(&self) -> io::Result<()>;
    /// How many bytes could still be written.
    fn available_bytes(&self) -> io::Result<u64>;
    /// Takes the exclusive lock of that name; `WouldBlock` where somebody else holds it.
    fn lock(&self, name: &str) -> io::Result<Lock>;
    /// The directory or file as a person would name it, for error messages.
    fn describe(&self, name: &str) -> String;
}

/// An open file. Reads and writes carry their offset, so that a handle can be shared.
pub trait MediumFile: fmt::Debug + Send + Sync {
    /// Fills the buffer from `offset`; `UnexpectedEof` where the file ends before.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;
    /// Writes all the bytes. After an error any part of them may have been written.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Makes the file at least `bytes` long and reserves the space where the system can.
    fn allocate(&self, bytes: u64) -> io::Result<()>;
    /// Cuts or extends the file to exactly `bytes`.
    fn truncate(&self, bytes: u64) -> io::Result<()>;
    /// Makes the contents and the length durable. After an error nothing is known about either.
    fn sync_data(&self) -> io::Result<()>;
    /// The length in bytes.
    fn len_bytes(&self) -> io::Result<u64>;
}

/// Reads a small file whole.
pub fn read_small(medium: &dyn Medium, name: &str) -> io::Result<Vec<u8>> {
    let file = medium.open(name)?;
    let bytes = usize::try_from(file.len_bytes()?).map_err(io::Error::other)?;
    let mut contents = vec![0; bytes];
    file.read_at(0, &mut contents)?;
    Ok(contents)
}

/// Replaces a small file: after a crash it has the old contents or the new ones, nothing between.
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

/// Whether an error says that there is no room, on the disk or in the quota.
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
