//! How a store can fail. Each message says what to do.

use postrider_domain::ids::Shard;

/// The store failed. The requested write did not happen, unless the variant says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The disk is full: nothing was written. Writes succeed again when there is space.
    #[error("the disk is full: make room in {place}; acceptance resumes by itself")]
    DiskFull {
        /// The directory or file.
        place: String,
    },
    /// The data directory cannot be written.
    #[error("cannot write to {place}: {cause}")]
    NotWritable {
        /// The directory or file.
        place: String,
        /// The operating system's error.
        cause: String,
    },
    /// Another process has the data directory open.
    #[error("{place} is in use by another postrider process; stop it, or use another --data-dir")]
    Locked {
        /// The directory.
        place: String,
    },
    /// The data was written by a newer version.
    #[error(
        "{place} was written by a newer version (schema {found}, this one knows {known}); upgrade postrider"
    )]
    NewerVersion {
        /// The file or database.
        place: String,
        /// The version that was found.
        found: u32,
        /// The newest version that is understood.
        known: u32,
    },
    /// Stored data is not what was written.
    #[error("{place} is damaged: {what}; restore it from a backup")]
    Corrupt {
        /// File and offset, or table and key.
        place: String,
        /// A description of the damage.
        what: String,
    },
    /// Another node owns the shard now: nothing of this commit was applied.
    #[error("shard {} is owned by another node now", shard.0)]
    Fenced {
        /// The shard that is owned by another node.
        shard: Shard,
    },
    /// The cursor was not issued for this list. Cursors come from API clients, so this is a
    /// client's error.
    #[error("not a cursor of this list: begin again without one")]
    UnknownCursor,
    /// Too many reads of this tenant wait already. Nothing was read.
    #[error("too many reads of this tenant wait already: ask again in a moment")]
    Busy,
    /// A read was stopped because it took too long.
    #[error("the read was ended after {} s: ask for less", .0.as_secs())]
    TooSlow(std::time::Duration),
    /// The store cannot be reached now; whether the last write happened is unknown. All writes can
    /// be repeated.
    #[error("the store cannot be reached: {0}")]
    Unavailable(String),
    /// The store has stopped for good, for example after a failed sync: the process must end.
    #[error("the store has stopped: {0}")]
    Stopped(String),
    /// A bug, or data that only a bug can produce.
    #[error("internal error of the store: {0}")]
    Internal(String),
}
