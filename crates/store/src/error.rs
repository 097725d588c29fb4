//! How a store can fail. Each message says what to do.

use postrider_domain::ids::Shard;

/// The store failed. The requested write did not happen, unless the variant says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// No room: nothing was written, and writing resumes by itself when there is room again.
    #[error("the disk is full: make room in {place}; acceptance resumes by itself")]
    DiskFull {
        /// Where.
        place: String,
    },
    /// The data directory cannot be written.
    #[error("cannot write to {place}: {cause}")]
    NotWritable {
        /// Where.
        place: String,
        /// What the system says.
        cause: String,
    },
    /// Another process has the data directory.
    #[error("{place} is in use by another postrider process; stop it, or use another --data-dir")]
    Locked {
        /// Where.
        place: String,
    },
    /// The data was written by a newer version.
    #[error(
        "{place} was written by a newer version (schema {found}, this one knows {known}); upgrade postrider"
    )]
    NewerVersion {
        /// Where.
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
        /// What is wrong.
        what: String,
    },
    /// Another node owns the shard now: nothing of this commit was applied.
    #[error("shard {} is owned by another node now", shard.0)]
    Fenced {
        /// Which one.
        shard: Shard,
    },
    /// The cursor is not one of this list. Cursors come from API clients, so this is a client's error.
    #[error("not a cursor of this list: begin again without one")]
    UnknownCursor,
    /// The tenant has as many reads waiting as it may have. Nothing was read.
    #[error("too many reads of this tenant wait already: ask again in a moment")]
    Busy,
    /// A read was ended because it took too long.
    #[error("the read was ended after {} s: ask for less", .0.as_secs())]
    TooSlow(std::time::Duration),
    /// The store cannot be reached now; whether the last write happened is unknown. All writes can
    /// be repeated.
    #[error("the store cannot be reached: {0}")]
    Unavailable(String),
    /// The store has stopped for good, for example after a failed sync: the process must end.
    #[error("the store has stopped: {0}")]
    Stopped(String),
    /// Something that should not happen.
    #[error("internal error of the store: {0}")]
    Internal(String),
}
