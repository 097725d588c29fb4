//! A directory in memory that fails and loses power on command, the same way for the same seed.
//!
//! It loses as much as a real disk may lose: synced data stays. Without a sync, each 512-byte
//! sector holds any of the versions written since, each name is in any of its states, and a length
//! may be the old one. After a failed sync the bytes can still be read, but a later sync does not
//! make them durable (as on Linux, which marks the pages clean).

mod world;

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::embedded::medium::{Lock, Medium, MediumFile};
use world::World;

/// What goes wrong with an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::embedded::journal) enum Fault {
    /// `EIO`, with nothing done.
    Io,
    /// `ENOSPC`, with nothing done.
    Full,
    /// A write stops half way with `ENOSPC`; any other operation fails with it outright.
    ShortWrite,
}

/// How often the fault occurs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::embedded::journal) enum Repeat {
    /// That one operation only.
    Once,
    /// That operation and every later one, until [`SimulatedMedium::heal`].
    FromThenOn,
}

/// Which operation fails, and how. Operations are counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::embedded::journal) struct When {
    /// The operation.
    pub(in crate::embedded::journal) operation: u64,
    /// The fault of that operation.
    pub(in crate::embedded::journal) fault: Fault,
    /// Whether later operations fail too.
    pub(in crate::embedded::journal) repeat: Repeat,
}

/// The simulated directory; clones are the same one.
#[derive(Debug, Clone)]
pub(in crate::embedded::journal) struct SimulatedMedium {
    world: Arc<Mutex<World>>,
}

impl SimulatedMedium {
    /// An empty directory. The seed decides what a failed sync leaves behind.
    pub(in crate::embedded::journal) fn new(seed: u64) -> Self {
        SimulatedMedium { world: Arc::new(Mutex::new(World::new(seed))) }
    }

    /// A directory of its own with the same contents.
    #[must_use]
    pub(in crate::embedded::journal) fn fork(&self) -> Self {
        SimulatedMedium { world: Arc::new(Mutex::new(self.world().clone())) }
    }

    /// How many operations there have been.
    pub(in crate::embedded::journal) fn operations(&self) -> u64 {
        self.world().operations()
    }

    /// Plans a fault, in place of any planned before.
    pub(in crate::embedded::journal) fn fail(&self, when: When) {
        self.world().plan(Some(when));
    }

    /// Ends the planned faults; lost data stays lost.
    pub(in crate::embedded::journal) fn heal(&self) {
        self.world().plan(None);
    }

    /// Carries out the first `operations` operations (counted from the very first); later ones have
    /// no effect until a crash.
    pub(in crate::embedded::journal) fn power_off_after(&self, operations: u64) {
        self.world().power_off_after(operations);
    }

    /// The power fails and comes back: the seed picks which unsynced changes survive. Earlier
    /// handles and locks are invalid; planned faults are dropped.
    pub(in crate::embedded::journal) fn crash(&self, seed: u64) {
        self.world().crash(seed);
    }

    /// The process dies and the machine keeps running: nothing is lost, but handles and locks are
    /// invalid.
    pub(in crate::embedded::journal) fn kill(&self) {
        self.world().kill();
    }

    /// Limits the sum of all lengths; `None` is unlimited.
    pub(in crate::embedded::journal) fn set_capacity_bytes(&self, capacity: Option<u64>) {
        self.world().capacity_bytes = capacity;
    }

    /// The contents of a file as a read returns them.
    pub(in crate::embedded::journal) fn contents(&self, name: &str) -> Option<Vec<u8>> {
        self.world().contents(name)
    }

    /// Writes a file durably, bypassing handles and faults: to simulate bit rot, truncation or a
    /// foreign file.
    pub(in crate::embedded::journal) fn overwrite(&self, name: &str, contents: Vec<u8>) {
        self.world().overwrite(name, contents);
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self, (inode, life): (usize, u64)) -> Arc<dyn MediumFile> {
        Arc::new(SimulatedFile { medium: self.clone(), inode, life })
    }
}

impl Medium for SimulatedMedium {
    fn create(&self, name: &str) -> io::Result<Arc<dyn MediumFile>> {
        let made = self.world().create(name)?;
        Ok(self.file(made))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn MediumFile>> {
        let found = self.world().open(name)?;
        Ok(self.file(found))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.world().rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.world().remove(name)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.world().list()
    }

    fn sync_names(&self) -> io::Result<()> {
        self.world().sync_names()
    }

    fn available_bytes(&self) -> io::Result<u64> {
        Ok(self.world().available_bytes())
    }

    fn lock(&self, name: &str) -> io::Result<Lock> {
        let life = self.world().lock(name)?;
        Ok(Box::new(SimulatedLock { medium: self.clone(), name: name.to_owned(), life }))
    }

    fn describe(&self, name: &str) -> String {
        name.to_owned()
    }
}

#[derive(Debug)]
struct SimulatedFile {
    medium: SimulatedMedium,
    inode: usize,
    life: u64,
}

impl MediumFile for SimulatedFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.medium.world().read((self.inode, self.life), offset, into)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.medium.world().write((self.inode, self.life), offset, bytes)
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.medium.world().allocate((self.inode, self.life), bytes)
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.medium.world().truncate((self.inode, self.life), bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.medium.world().sync_data((self.inode, self.life))
    }

    fn len_bytes(&self) -> io::Result<u64> {
        self.medium.world().len_bytes((self.inode, self.life))
    }
}

struct SimulatedLock {
    medium: SimulatedMedium,
    name: String,
    life: u64,
}

impl Drop for SimulatedLock {
    fn drop(&mut self) {
        self.medium.world().unlock(&self.name, self.life);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The states that a crash can leave `contents` in, over many seeds.
    fn after_crashes(medium: &SimulatedMedium, name: &str) -> BTreeSet<Option<Vec<u8>>> {
        (0..300)
            .map(|seed| {
                let fork = medium.fork();
                fork.crash(seed);
                fork.contents(name)
            })
            .collect()
    }

    #[test]
    fn synced_data_survives_a_crash_and_unsynced_data_may_be_torn_at_sectors() {
        let medium = SimulatedMedium::new(1);
        let file = medium.create("a").unwrap();
        file.write_at(0, &[1; 1024]).unwrap();
        file.sync_data().unwrap();
        medium.sync_names().unwrap();
        file.write_at(256, &[2; 768]).unwrap();
        file.write_at(512, &[3; 512]).unwrap();

        let seen: BTreeSet<(u8, u8, u8)> = after_crashes(&medium, "a")
            .into_iter()
            .map(|contents| {
                let contents = contents.unwrap();
                assert_eq!(contents[..256], [1; 256], "synced bytes beside unsynced ones stay");
                assert_eq!(contents[512..], vec![contents[512]; 512], "a sector is never torn");
                (contents[0], contents[256], contents[512])
            })
            .collect();
        let expected: BTreeSet<_> =
            [1, 2].iter().flat_map(|&a| [1, 2, 3].map(|b| (1, a, b))).collect();
        assert_eq!(seen, expected, "every combination of versions can be left");
    }

    #[test]
    fn unsynced_names_may_vanish_and_unsynced_renames_may_be_undone() {
        let medium = SimulatedMedium::new(1);
        medium.create("kept").unwrap();
        medium.sync_names().unwrap();
        medium.rename("kept", "renamed").unwrap();
        medium.create("new").unwrap();
        let seen: BTreeSet<Vec<String>> = (0..300)
            .map(|seed| {
                let fork = medium.fork();
                fork.crash(seed);
                fork.list().unwrap()
            })
            .collect();
        let expected: BTreeSet<Vec<String>> =
            [vec!["kept"], vec!["kept", "new"], vec!["renamed"], vec!["new", "renamed"]]
                .into_iter()
                .map(|names| names.into_iter().map(str::to_owned).collect())
                .collect();
        assert_eq!(seen, expected);
    }

    #[test]
    fn unsynced_length_may_be_lost() {
        let medium = SimulatedMedium::new(1);
        let file = medium.create("a").unwrap();
        medium.sync_names().unwrap();
        file.allocate(2048).unwrap();
        let lengths: BTreeSet<usize> =
            after_crashes(&medium, "a").into_iter().map(|c| c.unwrap().len()).collect();
        assert_eq!(lengths, BTreeSet::from([0, 2048]));
    }

    #[test]
    fn bytes_of_a_failed_sync_are_readable_but_a_later_sync_does_not_make_them_durable() {
        let mut lost = 0;
        for seed in 0..64 {
            let medium = SimulatedMedium::new(seed);
            let file = medium.create("a").unwrap();
            file.write_at(0, &[0; 512]).unwrap();
            file.sync_data().unwrap();
            medium.sync_names().unwrap();
            file.write_at(0, &[7; 512]).unwrap();
            let operation = medium.operations() + 1;
            medium.fail(When { operation, fault: Fault::Io, repeat: Repeat::Once });
            assert!(file.sync_data().is_err());
            assert!(file.sync_data().is_ok());
            assert_eq!(medium.contents("a").unwrap(), [7; 512]);
            medium.crash(seed);
            lost += u32::from(medium.contents("a").unwrap() == [0; 512]);
        }
        assert!((10..54).contains(&lost), "{lost} of 64 lost");
    }

    #[test]
    fn planned_fault_hits_the_planned_operation() {
        let medium = SimulatedMedium::new(1);
        let file = medium.create("a").unwrap();
        let operation = medium.operations() + 2;
        medium.fail(When { operation, fault: Fault::ShortWrite, repeat: Repeat::Once });
        file.write_at(0, b"1234").unwrap();
        let error = file.write_at(0, b"abcd").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(medium.contents("a").unwrap(), b"ab34");
        file.write_at(0, b"5").unwrap();
        medium.fail(When { operation: 0, fault: Fault::Io, repeat: Repeat::FromThenOn });
        assert!(file.write_at(0, b"6").is_err() && medium.list().is_err());
        medium.heal();
        assert!(file.write_at(0, b"6").is_ok());
    }

    #[test]
    fn a_full_medium_refuses_growth_only() {
        let medium = SimulatedMedium::new(1);
        medium.set_capacity_bytes(Some(1000));
        let file = medium.create("a").unwrap();
        file.allocate(800).unwrap();
        assert_eq!(medium.available_bytes().unwrap(), 200);
        assert_eq!(file.allocate(1001).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert!(file.write_at(700, &[1; 100]).is_ok());
        medium.create("b").unwrap().allocate(200).unwrap();
        medium.remove("a").unwrap();
        assert_eq!(medium.available_bytes().unwrap(), 800);
    }

    #[test]
    fn handles_and_locks_are_invalid_after_a_crash() {
        let medium = SimulatedMedium::new(1);
        let file = medium.create("a").unwrap();
        medium.sync_names().unwrap();
        let held = medium.lock("lock").unwrap();
        assert_eq!(medium.lock("lock").err().unwrap().kind(), io::ErrorKind::WouldBlock);
        medium.power_off_after(medium.operations());
        assert!(file.write_at(0, b"x").is_err());
        medium.crash(3);
        assert!(file.write_at(0, b"x").is_err());
        let again = medium.lock("lock").unwrap();
        drop(held);
        assert!(medium.lock("lock").is_err(), "a dead holder cannot let go of a new lock");
        drop(again);
        assert!(medium.open("a").unwrap().write_at(0, b"x").is_ok());
    }
}
