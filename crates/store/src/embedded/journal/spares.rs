//! The pool of spare segment files: recycled ones, new ones, and the reserve that new events may
//! not use.
//!
//! A spare's contents are never read. The removal of its old name is durable before its header is
//! overwritten, so no crash can bring back a segment's name over another segment's bytes.

use std::io;
use std::sync::Arc;

use super::error::Trouble;
use super::format::SegmentHeader;
use super::segment::{self, Segment};
use crate::embedded::medium::{Medium, MediumFile, is_full};

/// How much of a new file is written and synced at a time, so that no commit waits long for it.
const SLICE_BYTES: u64 = 1 << 20;

/// The number in the name of a spare, complete or not.
fn number_in(name: &str) -> Option<u64> {
    let rest = name.strip_prefix("spare-")?;
    rest.strip_suffix(".seg").or_else(|| rest.strip_suffix(".new"))?.parse().ok()
}

#[derive(Debug)]
struct Spare {
    name: String,
    file: Arc<dyn MediumFile>,
}

/// A spare file that is being filled.
#[derive(Debug)]
struct Unfinished {
    number: u64,
    file: Arc<dyn MediumFile>,
    filled: u64,
}

#[derive(Debug)]
pub(super) struct Spares {
    medium: Arc<dyn Medium>,
    segment_bytes: u64,
    spares_max: usize,
    reserve: usize,
    ready: Vec<Spare>,
    /// New files that are to replace all spares.
    fresh: Vec<Spare>,
    unfinished: Option<Unfinished>,
    next_number: u64,
    /// Names in the directory have changed since the last sync.
    names_dirty: bool,
    /// Preparing spares failed; it is tried again after the next change.
    paused: bool,
}

impl Spares {
    /// Finds the spare files of an earlier run, and removes unusable ones.
    pub(super) fn open(
        medium: Arc<dyn Medium>,
        names: &[String],
        segment_bytes: u64,
        spares_max: usize,
        reserve: usize,
    ) -> io::Result<Self> {
        let mut spares = Spares {
            medium,
            segment_bytes,
            spares_max,
            reserve,
            ready: Vec::new(),
            fresh: Vec::new(),
            unfinished: None,
            next_number: 1,
            names_dirty: false,
            paused: false,
        };
        for name in names {
            let Some(number) = number_in(name) else { continue };
            spares.next_number = spares.next_number.max(number + 1);
            if name.ends_with(".seg") && spares.ready.len() < spares_max {
                let file = spares.medium.open(name)?;
                if file.len_bytes()? == segment_bytes {
                    spares.ready.push(Spare { name: name.clone(), file });
                    continue;
                }
            }
            spares.medium.remove(name)?;
        }
        Ok(spares)
    }

    /// Whether the reserve has all its files.
    pub(super) fn reserve_is_whole(&self) -> bool {
        self.ready.len() >= self.reserve
    }

    /// Fills up the reserve, if the disk has space.
    pub(super) fn restore_reserve(&mut self) -> Result<(), Trouble> {
        while !self.reserve_is_whole() {
            self.prepare_one()?;
        }
        Ok(())
    }

    /// Does a small part of the work for the next segment, so that a rotation need not wait for it.
    pub(super) fn prepare_ahead(&mut self) -> Result<(), Trouble> {
        if self.paused || self.ready.len() > self.reserve {
            return Ok(());
        }
        self.prepare_slice().inspect_err(|_| self.paused = true)
    }

    /// Turns a spare into the segment with this header. Uses the reserve only where that is
    /// allowed.
    pub(super) fn begin_segment(
        &mut self,
        header: &SegmentHeader,
        may_use_reserve: bool,
    ) -> Result<Segment, Trouble> {
        let reserved = if may_use_reserve { 0 } else { self.reserve };
        let mut prepared = Ok(());
        while prepared.is_ok() && self.ready.len() <= self.reserve {
            prepared = self.prepare_one();
        }
        if let Err(trouble @ Trouble::Sync(_)) = prepared {
            return Err(trouble);
        }
        if self.ready.len() <= reserved {
            return Err(prepared.err().unwrap_or(Trouble::Full));
        }
        self.sync_names()?;
        let Some(spare) = self.ready.last() else { return Err(Trouble::Full) };
        spare.file.write_at(0, &header.encode()).map_err(Trouble::of)?;
        spare.file.sync_data().map_err(Trouble::Sync)?;
        let name = segment::name_of(header.number);
        self.medium.rename(&spare.name, &name).map_err(Trouble::of)?;
        self.names_dirty = true;
        let segment = Segment::new(header, Arc::clone(&spare.file));
        self.ready.pop();
        self.paused = false;
        self.sync_names()?;
        Ok(segment)
    }

    /// Does a small part of making new files in place of all spares. Returns whether there are enough of them.
    pub(super) fn renew_slice(&mut self) -> Result<bool, Trouble> {
        if self.fresh.len() <= self.reserve {
            let before = self.ready.len();
            self.prepare_slice()?;
            if self.ready.len() > before {
                self.fresh.extend(self.ready.pop());
            }
        }
        Ok(self.fresh.len() > self.reserve)
    }

    /// Removes all spares and takes the new files instead.
    pub(super) fn renew(&mut self) -> io::Result<()> {
        self.names_dirty = true;
        while let Some(old) = self.ready.last() {
            self.medium.remove(&old.name)?;
            self.ready.pop();
        }
        self.ready.append(&mut self.fresh);
        Ok(())
    }

    /// Removes the new files: there is no room for them.
    pub(super) fn give_up_renewing(&mut self) {
        for fresh in self.fresh.drain(..) {
            self.names_dirty = true;
            // One that cannot be removed now is a spare after the next open.
            self.medium.remove(&fresh.name).ok();
        }
    }

    /// Turns the file of a segment that is no longer needed into a spare, or removes it: always where its stale
    /// bytes are not to be kept.
    pub(super) fn recycle(&mut self, number: u64, keeps_stale: bool) -> io::Result<()> {
        let old = segment::name_of(number);
        self.names_dirty = true;
        self.paused = false;
        let file = self.medium.open(&old)?;
        if !keeps_stale
            || self.ready.len() >= self.spares_max
            || file.len_bytes()? != self.segment_bytes
        {
            return self.medium.remove(&old);
        }
        let name = format!("spare-{}.seg", self.next_number);
        self.medium.rename(&old, &name)?;
        self.next_number += 1;
        // The newest spare is used first; the oldest ones are the reserve.
        self.ready.push(Spare { name, file });
        Ok(())
    }

    pub(super) fn sync_names(&mut self) -> Result<(), Trouble> {
        if self.names_dirty {
            self.medium.sync_names().map_err(Trouble::Sync)?;
            self.names_dirty = false;
        }
        Ok(())
    }

    fn prepare_one(&mut self) -> Result<(), Trouble> {
        let before = self.ready.len();
        while self.ready.len() == before {
            self.prepare_slice()?;
        }
        Ok(())
    }

    /// Fills one more slice of a new file; when it is full, it is a spare. After an error it is
    /// removed.
    fn prepare_slice(&mut self) -> Result<(), Trouble> {
        let mut unfinished = match self.unfinished.take() {
            Some(unfinished) => unfinished,
            None => self.start_file()?,
        };
        if let Err(trouble) = self.fill(&mut unfinished) {
            self.discard(unfinished.number);
            return Err(trouble);
        }
        if unfinished.filled < self.segment_bytes {
            self.unfinished = Some(unfinished);
            return Ok(());
        }
        let Unfinished { number, file, .. } = unfinished;
        let name = format!("spare-{number}.seg");
        if let Err(error) = self.medium.rename(&format!("spare-{number}.new"), &name) {
            self.discard(number);
            return Err(Trouble::of(error));
        }
        self.names_dirty = true;
        self.ready.push(Spare { name, file });
        Ok(())
    }

    fn start_file(&mut self) -> Result<Unfinished, Trouble> {
        let number = self.next_number;
        self.next_number += 1;
        let file = self.medium.create(&format!("spare-{number}.new")).map_err(Trouble::of)?;
        self.names_dirty = true;
        if let Err(error) = file.allocate(self.segment_bytes) {
            self.discard(number);
            return Err(Trouble::of(error));
        }
        Ok(Unfinished { number, file, filled: 0 })
    }

    /// Writes zeros instead of only reserving blocks: a later sync of reserved blocks costs twice
    /// as much.
    fn fill(&self, unfinished: &mut Unfinished) -> Result<(), Trouble> {
        let slice = SLICE_BYTES.min(self.segment_bytes - unfinished.filled);
        let zeros = vec![0; usize::try_from(slice).unwrap_or(0)];
        unfinished.file.write_at(unfinished.filled, &zeros).map_err(Trouble::of)?;
        unfinished.file.sync_data().map_err(|error| {
            // The file has no data yet, so a full disk at this point loses nothing.
            if is_full(&error) { Trouble::Full } else { Trouble::Sync(error) }
        })?;
        unfinished.filled += slice;
        Ok(())
    }

    /// Removes an unfinished file. One that cannot be removed now is removed by the next open.
    fn discard(&mut self, number: u64) {
        self.names_dirty = true;
        self.medium.remove(&format!("spare-{number}.new")).ok();
    }
}
