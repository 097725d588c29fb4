//! Which days may have an event with an identifier that somebody chose.
//!
//! Such an identifier says nothing about its day. Every day has a sieve in memory (a Bloom filter of
//! its odd events), so that bringing a new one asks no file at all, and bringing a known one asks the
//! one file that has it. **A sieve never says no of an event that its file has:** an event enters the
//! sieve before it leaves the memory of those on their way. A day whose sieve is not known yet, or
//! for which there is no memory, may have anything: then its file is asked.
//!
//! A sieve is kept in its day's file when that is closed orderly; the transaction that next writes an
//! odd event there throws the kept one away. After a crash a sieve is made anew from its file, while
//! work goes on.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use postrider_domain::ids::{EventId, TenantId};
use rusqlite::{Connection, params};

use super::files::{At, Day};
use super::numbering;
use super::pool::Pool;
use super::rows::{self, Reading};
use crate::error::StoreError;

/// What all sieves together may take; days for which nothing is left are asked by file.
const BYTES_MAX: usize = 64 << 20;
/// Identifiers of the first layer of a sieve; every further one takes twice as many.
const FIRST_LAYER: usize = 1_024;
const BITS_PER_ID: usize = 12;
/// Bits that are set for an identifier, all in one block, which is one line of the cache.
const BITS_SET: u32 = 6;
const BLOCK_WORDS: usize = 8;

/// A part of a sieve that is full, or being filled.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Layer {
    words: Vec<u64>,
    left: usize,
}

impl Layer {
    fn new(ids: usize) -> Self {
        let blocks = (ids * BITS_PER_ID).div_ceil(64 * BLOCK_WORDS).max(1);
        Layer { words: vec![0; blocks * BLOCK_WORDS], left: ids }
    }

    /// The first word of the block, and the bits that are set in it.
    fn place(&self, hash: u64) -> (usize, [u64; BLOCK_WORDS]) {
        let blocks = u64::try_from(self.words.len() / BLOCK_WORDS).unwrap_or(1).max(1);
        let block = usize::try_from((hash >> 32) % blocks).unwrap_or(0);
        let mut bits = [0; BLOCK_WORDS];
        let mut rest = hash.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        for _ in 0..BITS_SET {
            let bit = rest >> 55;
            if let Some(word) = usize::try_from(bit >> 6).ok().and_then(|n| bits.get_mut(n)) {
                *word |= 1 << (bit & 63);
            }
            rest = rest.rotate_left(9).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        }
        (block * BLOCK_WORDS, bits)
    }

    fn add(&mut self, hash: u64) {
        let (first, bits) = self.place(hash);
        for (word, bits) in self.words.iter_mut().skip(first).zip(bits) {
            *word |= bits;
        }
        self.left = self.left.saturating_sub(1);
    }

    fn may_have(&self, hash: u64) -> bool {
        let (first, bits) = self.place(hash);
        self.words.iter().skip(first).zip(bits).all(|(word, bits)| word & bits == bits)
    }
}

/// The sieve of a day.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Sieve {
    layers: Vec<Layer>,
}

impl Sieve {
    fn add(&mut self, hash: u64) {
        if self.layers.last().is_none_or(|last| last.left == 0) {
            let doublings = u32::try_from(self.layers.len()).unwrap_or(u32::MAX).min(20);
            self.layers.push(Layer::new(FIRST_LAYER << doublings));
        }
        if let Some(last) = self.layers.last_mut() {
            last.add(hash);
        }
    }

    fn may_have(&self, hash: u64) -> bool {
        self.layers.iter().any(|layer| layer.may_have(hash))
    }

    fn bytes(&self) -> usize {
        self.layers.iter().map(|layer| layer.words.len() * 8).sum()
    }

    /// The sieve that a day's file keeps, if it keeps one that has everything.
    pub(super) fn load(connection: &Connection, path: &Path) -> Result<Option<Self>, StoreError> {
        if rows::meta(connection, path, "sieve")?.is_none() {
            return Ok(None);
        }
        let find = "SELECT layer, room, words, crc FROM sieve ORDER BY layer";
        let layers = rows::all(connection, path, "sieve", find, [], |reading| {
            let (room, bytes): (u32, _) = (reading.get(1)?, reading.bytes(2)?);
            reading.check(3, crc32fast::hash(&bytes))?;
            let (words, rest) = bytes.as_chunks::<8>();
            if !rest.is_empty() || words.is_empty() || words.len() % BLOCK_WORDS != 0 {
                return Err(reading.damaged("a sieve of that length is none"));
            }
            let left = usize::try_from(room).unwrap_or(0);
            Ok(Layer { words: words.iter().map(|w| u64::from_le_bytes(*w)).collect(), left })
        })?;
        Ok(Some(Sieve { layers }))
    }

    /// Keeps the sieve in its day's file.
    pub(super) fn keep(&self, connection: &mut Connection) -> rusqlite::Result<()> {
        let transaction = connection.transaction()?;
        transaction.execute("DELETE FROM sieve", [])?;
        for (n, layer) in (0i64..).zip(&self.layers) {
            let words: Vec<u8> = layer.words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let insert = "INSERT INTO sieve (layer, room, words, crc) VALUES (?1, ?2, ?3, ?4)";
            let room = u32::try_from(layer.left).unwrap_or(0);
            transaction.execute(insert, params![n, room, words, crc32fast::hash(&words)])?;
        }
        let yes = rusqlite::types::Value::Integer(1);
        rows::put_meta(&transaction, "sieve", &yes)?;
        transaction.commit()
    }

    /// Throws the kept one away, in the transaction that makes it wrong.
    pub(super) fn forget_kept(connection: &Connection) -> rusqlite::Result<()> {
        connection.execute("DELETE FROM meta WHERE key = 'sieve'", []).map(drop)
    }
}

#[derive(Debug)]
enum State {
    /// Has everything. Whether its file keeps the same.
    Known { sieve: Sieve, is_kept: bool },
    /// Has what was added since; the rest is being read.
    Partial(Sieve),
}

/// The sieves of all days.
#[derive(Debug, Default)]
pub(super) struct Sieves {
    days: RwLock<BTreeMap<Day, State>>,
    is_stopped: AtomicBool,
}

impl Sieves {
    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<Day, State>> {
        self.days.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<Day, State>> {
        self.days.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store is to be closed: what is not known yet need not be.
    pub(super) fn stop_filling(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    /// The hash of an event's identifier.
    pub(super) fn hash(tenant: &TenantId, id: &EventId) -> u64 {
        numbering::hash_of(tenant, id.as_str())
    }

    /// Those of the days that may have an event with this identifier, newest first.
    pub(super) fn days_of(
        &self,
        days: impl DoubleEndedIterator<Item = Day>,
        tenant: &TenantId,
        id: &EventId,
    ) -> Vec<Day> {
        let hash = Sieves::hash(tenant, id);
        let made_on = numbering::made(id.as_str()).map(|bytes| Day::of(numbering::made_at(&bytes)));
        let sieves = self.read();
        let may_have = |day: &Day| {
            Some(*day) == made_on
                || match sieves.get(day) {
                    Some(State::Known { sieve, .. }) => sieve.may_have(hash),
                    Some(State::Partial(_)) | None => true,
                }
        };
        let mut found: Vec<Day> = days.rev().filter(may_have).collect();
        // The likely one first.
        found.sort_by_key(|day| Some(*day) != made_on);
        found
    }

    /// Odd events are in a day's file now.
    pub(super) fn add(&self, day: Day, hashes: &[u64]) {
        if hashes.is_empty() {
            return;
        }
        let mut sieves = self.write();
        match sieves.get_mut(&day) {
            Some(State::Known { sieve, is_kept }) => {
                *is_kept = false;
                hashes.iter().for_each(|hash| sieve.add(*hash));
            }
            Some(State::Partial(sieve)) => hashes.iter().for_each(|hash| sieve.add(*hash)),
            None => {}
        }
        let bytes: usize = sieves.values().map(State::bytes).sum();
        if bytes > BYTES_MAX {
            // The oldest is asked for least; from now on its file is asked.
            sieves.pop_first();
        }
    }

    /// A new day begins, with an empty file.
    pub(super) fn begin(&self, day: Day) {
        self.write().insert(day, State::Known { sieve: Sieve::default(), is_kept: false });
    }

    /// A day is gone.
    pub(super) fn forget(&self, day: Day) {
        self.write().remove(&day);
    }

    /// Sieves that their files do not keep.
    pub(super) fn not_kept(&self) -> Vec<(Day, Sieve)> {
        let sieves = self.read();
        let not_kept = sieves.iter().filter_map(|(day, state)| match state {
            State::Known { sieve, is_kept: false } => Some((*day, sieve.clone())),
            State::Known { .. } | State::Partial(_) => None,
        });
        not_kept.collect()
    }

    /// A day's file keeps this one now.
    pub(super) fn is_kept(&self, day: Day) {
        if let Some(State::Known { is_kept, .. }) = self.write().get_mut(&day) {
            *is_kept = true;
        }
    }

    /// Takes the sieves that are kept, and makes those that are not, newest first, while there is
    /// memory for them. Others go on working meanwhile, and files are removed between two days.
    pub(super) fn fill(&self, pool: &Pool) -> Result<(), StoreError> {
        let days = pool.look().days();
        for day in days.into_iter().rev() {
            let looking = pool.look();
            if !looking.days().contains(&day) {
                continue;
            }
            if self.is_stopped.load(Ordering::Relaxed) {
                break;
            }
            {
                let mut sieves = self.write();
                let bytes: usize = sieves.values().map(State::bytes).sum();
                if sieves.contains_key(&day) || bytes > BYTES_MAX / 2 {
                    continue;
                }
                // From here on the applier adds to it.
                sieves.insert(day, State::Partial(Sieve::default()));
            }
            let made = looking.day(day, |connection, path| match Sieve::load(connection, path)? {
                Some(sieve) => Ok((sieve, true)),
                None => Ok((Sieve::of_file(connection, path, &self.is_stopped)?, false)),
            });
            let mut sieves = self.write();
            match (made, sieves.remove(&day)) {
                (Ok((mut sieve, is_kept)), Some(State::Partial(added))) => {
                    let is_kept = is_kept && added.layers.is_empty();
                    sieve.layers.extend(added.layers);
                    sieves.insert(day, State::Known { sieve, is_kept });
                }
                (Ok(_), Some(other)) => drop(sieves.insert(day, other)),
                // Gone meanwhile: pruned, or no memory.
                (Ok(_), None) => {}
                (Err(error), _) => return Err(error),
            }
        }
        Ok(())
    }
}

impl State {
    fn bytes(&self) -> usize {
        match self {
            State::Known { sieve, .. } | State::Partial(sieve) => sieve.bytes(),
        }
    }
}

impl Sieve {
    /// Reads every odd event of a day's file.
    fn of_file(
        connection: &Connection,
        path: &Path,
        is_stopped: &AtomicBool,
    ) -> Result<Self, StoreError> {
        let count = "SELECT count(*) FROM events INDEXED BY events_odd WHERE odd = 1";
        let count: u32 = connection.query_row(count, [], |row| row.get(0)).at(path)?;
        let count = usize::try_from(count).unwrap_or(0);
        let mut sieve = Sieve { layers: vec![Layer::new(count.max(FIRST_LAYER))] };
        let find = "SELECT e.id, t.name FROM events AS e INDEXED BY events_odd
            CROSS JOIN names AS t ON t.n = e.tenant WHERE e.odd = 1";
        let mut statement = connection.prepare(find).at(path)?;
        let mut rows = statement.query([]).at(path)?;
        while let Some(row) = rows.next().at(path)? {
            let reading = Reading { row, path, table: "events" };
            sieve.add(Sieves::hash(&reading.parse(1)?, &reading.event_id(0)?));
            if is_stopped.load(Ordering::Relaxed) {
                return Err(StoreError::Stopped("the store is closed".into()));
            }
        }
        Ok(sieve)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_domain::time::Timestamp;

    fn hash(n: u64) -> u64 {
        let id = format!("order-{n}").parse().unwrap();
        Sieves::hash(&TenantId::default_tenant(), &id)
    }

    #[test]
    fn a_sieve_never_says_no_of_what_it_has_and_rarely_yes_of_anything_else() {
        let mut sieve = Sieve::default();
        (0..50_000).for_each(|n| sieve.add(hash(n)));
        assert!((0..50_000).all(|n| sieve.may_have(hash(n))));
        let wrong = (50_000..150_000).filter(|n| sieve.may_have(hash(*n))).count();
        println!("sieve: {wrong} of 100,000 wrongly sent to the file; {} bytes", sieve.bytes());
        assert!(wrong < 4_000, "{wrong}");
        assert!(sieve.bytes() < 50_000 * 4);
    }

    #[test]
    fn days_that_are_not_known_may_have_anything() {
        let day = |n: i64| Day::of(Timestamp::from_unix_ms(n * 86_400_000));
        let sieves = Sieves::default();
        let tenant = TenantId::default_tenant();
        let (known, new) = ("order-1".parse().unwrap(), "order-2".parse().unwrap());
        let days = || (1..=3).map(day);
        assert_eq!(sieves.days_of(days(), &tenant, &known), [day(3), day(2), day(1)]);
        days().for_each(|day| sieves.begin(day));
        sieves.add(day(2), &[hash(1)]);
        assert_eq!(sieves.days_of(days(), &tenant, &known), [day(2)]);
        assert_eq!(sieves.days_of(days(), &tenant, &new), []);
        sieves.forget(day(1));
        assert_eq!(sieves.days_of(days(), &tenant, &new), [day(1)]);
        let made = EventId::new(Timestamp::from_unix_ms(3 * 86_400_000), [0; 10]);
        assert_eq!(sieves.days_of(days(), &tenant, &made), [day(3), day(1)], "its own day first");
    }
}
