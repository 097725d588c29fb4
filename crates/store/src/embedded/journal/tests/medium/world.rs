//! The state of a simulated directory: what reads see, what is durable, and the unsynced changes.
//!
//! Every operation is counted here, and every fault and crash is decided here.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use postrider_domain::mixing::Sequence;

use super::{Fault, Repeat, When};

const SECTOR_BYTES: usize = 512;

/// Which unsynced changes survive a crash.
#[derive(Debug, Clone, Copy)]
enum Keep {
    Nothing,
    Everything,
    /// The changes up to this operation, in order.
    Until(u64),
    /// Any of the versions, for each sector and name independently.
    Any,
}

/// One sector as it was after one of the writes since the last sync.
#[derive(Debug, Clone)]
struct Version {
    operation: u64,
    bytes: Vec<u8>,
}

#[derive(Debug, Clone, Default)]
struct Inode {
    /// What reads see.
    cached: Vec<u8>,
    /// What survives every crash.
    durable: Vec<u8>,
    /// The versions of each sector written since the last sync, oldest first.
    unsynced: BTreeMap<usize, Vec<Version>>,
    /// The operation that last changed the length, if there was no sync since.
    length_changed: Option<u64>,
}

#[derive(Debug, Clone)]
enum NameChange {
    Create(String, usize),
    Rename(String, String),
    Remove(String),
}

/// A file's number, and the number of crashes before the handle was opened.
pub(super) type Handle = (usize, u64);

#[derive(Debug, Clone)]
pub(super) struct World {
    numbers: Sequence,
    operations: u64,
    planned: Option<When>,
    power_off_after: u64,
    life: u64,
    inodes: Vec<Inode>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    name_changes: Vec<(u64, NameChange)>,
    locks: BTreeSet<String>,
    pub(super) capacity_bytes: Option<u64>,
}

fn input_output_error() -> io::Error {
    io::Error::other("simulated input/output error")
}

fn not_found(name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("no file {name}"))
}

fn index(offset: u64) -> io::Result<usize> {
    usize::try_from(offset).map_err(io::Error::other)
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        World {
            numbers: Sequence::new(seed),
            operations: 0,
            planned: None,
            power_off_after: u64::MAX,
            life: 0,
            inodes: Vec::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            name_changes: Vec::new(),
            locks: BTreeSet::new(),
            capacity_bytes: None,
        }
    }

    pub(super) fn operations(&self) -> u64 {
        self.operations
    }

    pub(super) fn plan(&mut self, when: Option<When>) {
        self.planned = when;
    }

    pub(super) fn power_off_after(&mut self, operations: u64) {
        self.power_off_after = operations;
    }

    /// Counts an operation; returns its fault, if one is planned.
    fn count(&mut self) -> io::Result<Option<Fault>> {
        if self.operations >= self.power_off_after {
            return Err(io::Error::other("the power is off"));
        }
        self.operations += 1;
        let Some(when) = self.planned else { return Ok(None) };
        let strikes = match when.repeat {
            Repeat::Once => self.operations == when.operation,
            Repeat::FromThenOn => self.operations >= when.operation,
        };
        Ok(strikes.then_some(when.fault))
    }

    /// Counts an operation that either happens or fails as a whole.
    fn step(&mut self) -> io::Result<()> {
        match self.count()? {
            None => Ok(()),
            Some(Fault::Io) => Err(input_output_error()),
            Some(Fault::Full | Fault::ShortWrite) => Err(io::ErrorKind::StorageFull.into()),
        }
    }

    fn alive(&self, (_, life): Handle) -> io::Result<()> {
        if life == self.life { Ok(()) } else { Err(io::Error::other("a handle from before")) }
    }

    pub(super) fn create(&mut self, name: &str) -> io::Result<Handle> {
        self.step()?;
        if self.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let inode = self.inodes.len();
        self.inodes.push(Inode::default());
        self.names.insert(name.to_owned(), inode);
        self.name_changes.push((self.operations, NameChange::Create(name.to_owned(), inode)));
        Ok((inode, self.life))
    }

    pub(super) fn open(&mut self, name: &str) -> io::Result<Handle> {
        self.step()?;
        let inode = *self.names.get(name).ok_or_else(|| not_found(name))?;
        Ok((inode, self.life))
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.step()?;
        let inode = self.names.remove(from).ok_or_else(|| not_found(from))?;
        self.names.insert(to.to_owned(), inode);
        let change = NameChange::Rename(from.to_owned(), to.to_owned());
        self.name_changes.push((self.operations, change));
        Ok(())
    }

    pub(super) fn remove(&mut self, name: &str) -> io::Result<()> {
        self.step()?;
        self.names.remove(name).ok_or_else(|| not_found(name))?;
        self.name_changes.push((self.operations, NameChange::Remove(name.to_owned())));
        Ok(())
    }

    pub(super) fn list(&mut self) -> io::Result<Vec<String>> {
        self.step()?;
        Ok(self.names.keys().cloned().collect())
    }

    pub(super) fn sync_names(&mut self) -> io::Result<()> {
        self.step()?;
        self.durable_names = self.names.clone();
        self.name_changes.clear();
        Ok(())
    }

    fn used_bytes(&self) -> u64 {
        self.names.values().map(|&inode| self.inodes[inode].cached.len() as u64).sum()
    }

    pub(super) fn available_bytes(&self) -> u64 {
        self.capacity_bytes.map_or(u64::MAX, |capacity| capacity.saturating_sub(self.used_bytes()))
    }

    /// Fails if the capacity is exceeded; otherwise makes the file at least that long.
    fn grow(&mut self, (inode, _): Handle, bytes: usize) -> io::Result<()> {
        let more = bytes.saturating_sub(self.inodes[inode].cached.len());
        if more == 0 {
            return Ok(());
        }
        if more as u64 > self.available_bytes() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let operation = self.operations;
        let file = &mut self.inodes[inode];
        file.cached.resize(bytes, 0);
        file.length_changed = Some(operation);
        Ok(())
    }

    pub(super) fn read(&mut self, file: Handle, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.alive(file)?;
        self.step()?;
        let start = index(offset)?;
        let found = start
            .checked_add(into.len())
            .and_then(|end| self.inodes[file.0].cached.get(start..end))
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        into.copy_from_slice(found);
        Ok(())
    }

    pub(super) fn write(&mut self, file: Handle, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.alive(file)?;
        let (bytes, outcome) = match self.count()? {
            None => (bytes, Ok(())),
            Some(Fault::Io) => return Err(input_output_error()),
            Some(Fault::Full) => return Err(io::ErrorKind::StorageFull.into()),
            Some(Fault::ShortWrite) => {
                (&bytes[..bytes.len() / 2], Err(io::ErrorKind::StorageFull.into()))
            }
        };
        if bytes.is_empty() {
            return outcome;
        }
        let start = index(offset)?;
        let end = start.checked_add(bytes.len()).ok_or(io::ErrorKind::InvalidInput)?;
        self.grow(file, end)?;
        let operation = self.operations;
        let file = &mut self.inodes[file.0];
        file.cached[start..end].copy_from_slice(bytes);
        for sector in start / SECTOR_BYTES..=(end - 1) / SECTOR_BYTES {
            let from = sector * SECTOR_BYTES;
            let to = (from + SECTOR_BYTES).min(file.cached.len());
            let bytes = file.cached[from..to].to_vec();
            file.unsynced.entry(sector).or_default().push(Version { operation, bytes });
        }
        outcome
    }

    pub(super) fn allocate(&mut self, file: Handle, bytes: u64) -> io::Result<()> {
        self.alive(file)?;
        self.step()?;
        self.grow(file, index(bytes)?)
    }

    pub(super) fn truncate(&mut self, file: Handle, bytes: u64) -> io::Result<()> {
        self.alive(file)?;
        self.step()?;
        let bytes = index(bytes)?;
        self.grow(file, bytes)?;
        let operation = self.operations;
        let file = &mut self.inodes[file.0];
        file.cached.truncate(bytes);
        file.unsynced.retain(|sector, _| sector * SECTOR_BYTES < bytes);
        file.length_changed = Some(operation);
        Ok(())
    }

    pub(super) fn sync_data(&mut self, file: Handle) -> io::Result<()> {
        self.alive(file)?;
        let outcome = match self.count()? {
            None => Ok(()),
            Some(Fault::Io) => Err(input_output_error()),
            Some(Fault::Full | Fault::ShortWrite) => Err(io::ErrorKind::StorageFull.into()),
        };
        // A failed sync may have written anything; the rest is no longer marked as unsynced.
        let numbers = &mut self.numbers;
        let failed = outcome.is_err();
        self.inodes[file.0].settle(|versions| {
            (!failed || numbers.below(2) == 0).then(|| versions.len().saturating_sub(1))
        });
        outcome
    }

    pub(super) fn len_bytes(&mut self, file: Handle) -> io::Result<u64> {
        self.alive(file)?;
        self.step()?;
        Ok(self.inodes[file.0].cached.len() as u64)
    }

    pub(super) fn lock(&mut self, name: &str) -> io::Result<u64> {
        if !self.locks.insert(name.to_owned()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(self.life)
    }

    pub(super) fn unlock(&mut self, name: &str, life: u64) {
        if life == self.life {
            self.locks.remove(name);
        }
    }

    pub(super) fn contents(&self, name: &str) -> Option<Vec<u8>> {
        self.names.get(name).map(|&inode| self.inodes[inode].cached.clone())
    }

    pub(super) fn overwrite(&mut self, name: &str, contents: Vec<u8>) {
        let inode = Inode { cached: contents.clone(), durable: contents, ..Inode::default() };
        self.inodes.push(inode);
        let inode = self.inodes.len() - 1;
        self.names.insert(name.to_owned(), inode);
        self.durable_names.insert(name.to_owned(), inode);
    }

    pub(super) fn kill(&mut self) {
        self.life += 1;
        self.locks.clear();
        self.planned = None;
        self.power_off_after = u64::MAX;
    }

    pub(super) fn crash(&mut self, seed: u64) {
        self.kill();
        self.numbers = Sequence::new(seed);
        let keep = match self.numbers.below(6) {
            0 => Keep::Nothing,
            1 => Keep::Everything,
            2 => Keep::Until(self.operations.saturating_sub(self.numbers.below(12))),
            _ => Keep::Any,
        };
        self.settle_names(keep);
        let numbers = &mut self.numbers;
        for inode in &mut self.inodes {
            inode.settle(|versions| kept(numbers, keep, versions));
            inode.cached.clone_from(&inode.durable);
        }
    }

    /// Applies the surviving changes of names to the durable names.
    fn settle_names(&mut self, keep: Keep) {
        let mut names = std::mem::take(&mut self.durable_names);
        for (operation, change) in std::mem::take(&mut self.name_changes) {
            if kept(&mut self.numbers, keep, &[operation]).is_none() {
                continue;
            }
            match change {
                NameChange::Create(name, inode) => {
                    names.insert(name, inode);
                }
                NameChange::Rename(from, to) => {
                    if let Some(inode) = names.remove(&from) {
                        names.insert(to, inode);
                    }
                }
                NameChange::Remove(name) => {
                    names.remove(&name);
                }
            }
        }
        self.names.clone_from(&names);
        self.durable_names = names;
    }
}

/// Which version survives a crash, given the operations that made the versions; `None` is the
/// durable one.
fn kept(numbers: &mut Sequence, keep: Keep, operations: &[u64]) -> Option<usize> {
    match keep {
        Keep::Nothing => None,
        Keep::Everything => operations.len().checked_sub(1),
        Keep::Until(last) => {
            operations.iter().filter(|&&operation| operation <= last).count().checked_sub(1)
        }
        Keep::Any => {
            let picked = numbers.below(operations.len() as u64 + 1);
            usize::try_from(picked).ok()?.checked_sub(1)
        }
    }
}

impl Inode {
    /// Makes one version of each unsynced sector, and of the length, durable.
    fn settle(&mut self, mut pick: impl FnMut(&[u64]) -> Option<usize>) {
        if let Some(operation) = self.length_changed.take()
            && pick(&[operation]).is_some()
        {
            self.durable.resize(self.cached.len(), 0);
        }
        for (sector, versions) in std::mem::take(&mut self.unsynced) {
            let operations: Vec<u64> = versions.iter().map(|version| version.operation).collect();
            let Some(version) = pick(&operations).and_then(|picked| versions.get(picked)) else {
                continue;
            };
            let from = sector * SECTOR_BYTES;
            let room = self.durable.len().saturating_sub(from).min(version.bytes.len());
            if let Some(place) = self.durable.get_mut(from..from + room) {
                place.copy_from_slice(&version.bytes[..room]);
            }
        }
    }
}
