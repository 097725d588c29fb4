//! Bloom filters: which days may have an event with an identifier that the application chose.
//!
//! Such an identifier says nothing about its day. Every day has a Bloom filter of its indexed
//! events in memory, so that accepting a new event reads no file at all, and accepting a known one
//! reads only the file that has it. **A filter never excludes an event that its file has:** an
//! event enters the filter before it leaves the set of pending identifiers. A day whose filter is
//! not loaded yet, or does not fit in memory, is treated as if it may have any event: its file is
//! read.
//!
//! A filter is saved in its day's file (table `sieve`) when the store is closed orderly. The
//! transaction that next writes an indexed event there deletes the saved filter. After a crash the
//! filter is built anew from the file in the background.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use postrider_domain::ids::{EventId, TenantId};
use rusqlite::{Connection, params};

use super::read_pool::ReadPool;
use super::row_numbers;
use super::rows::{self, Reading};
use super::{At, Day};
use crate::error::StoreError;

/// The most memory that all filters together use. A day without a filter is searched in its file.
const BYTES_MAX: usize = 64 << 20;
/// How many identifiers the first layer of a filter takes; every further layer takes twice as many.
const FIRST_LAYER: usize = 1_024;
const BITS_PER_ID: usize = 12;
/// Bits that are set for an identifier, all in one block of the size of a cache line.
const BITS_SET: u32 = 6;
const BLOCK_WORDS: usize = 8;

/// A layer of a filter. A filter grows by layers: only the last one is still being filled.
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

    /// The first word of the identifier's block, and the bits that are set in it.
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

/// The filter of a day.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::embedded) struct BloomFilter {
    layers: Vec<Layer>,
}

impl BloomFilter {
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

    /// The filter that is saved in a day's file, if it is complete.
    pub(in crate::embedded) fn load(
        connection: &Connection,
        path: &Path,
    ) -> Result<Option<Self>, StoreError> {
        if rows::meta(connection, path, "sieve")?.is_none() {
            return Ok(None);
        }
        let find = "SELECT layer, room, words, crc FROM sieve ORDER BY layer";
        let layers = rows::all(connection, path, "sieve", find, [], |reading| {
            let (room, bytes): (u32, _) = (reading.get(1)?, reading.bytes(2)?);
            reading.check(3, crc32fast::hash(&bytes))?;
            let (words, rest) = bytes.as_chunks::<8>();
            if !rest.is_empty() || words.is_empty() || words.len() % BLOCK_WORDS != 0 {
                return Err(reading.damaged("a Bloom filter cannot have that length"));
            }
            let left = usize::try_from(room).unwrap_or(0);
            Ok(Layer { words: words.iter().map(|w| u64::from_le_bytes(*w)).collect(), left })
        })?;
        Ok(Some(BloomFilter { layers }))
    }

    /// Saves the filter in its day's file.
    pub(in crate::embedded) fn keep(&self, connection: &mut Connection) -> rusqlite::Result<()> {
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

    /// Deletes the saved filter, in the transaction that makes it incomplete.
    pub(in crate::embedded) fn forget_kept(connection: &Connection) -> rusqlite::Result<()> {
        connection.execute("DELETE FROM meta WHERE key = 'sieve'", []).map(drop)
    }
}

#[derive(Debug)]
enum State {
    /// All events of the file are in the filter; `is_kept` where the file has a saved copy of it.
    Known { bloom: BloomFilter, is_kept: bool },
    /// The filter has only the events since the start; the older ones are still being read.
    Partial(BloomFilter),
}

/// The filters of all days.
#[derive(Debug, Default)]
pub(in crate::embedded) struct BloomFilters {
    days: RwLock<BTreeMap<Day, State>>,
    is_stopped: AtomicBool,
}

impl BloomFilters {
    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<Day, State>> {
        self.days.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<Day, State>> {
        self.days.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells [`BloomFilters::fill`] to end, because the store is being closed.
    pub(in crate::embedded) fn stop_filling(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    /// The hash of an event's identifier.
    pub(in crate::embedded) fn hash(tenant: &TenantId, id: &EventId) -> u64 {
        row_numbers::hash_of(tenant, id.as_str())
    }

    /// The days that may have an event with this identifier, newest first.
    pub(in crate::embedded) fn days_of(
        &self,
        days: impl DoubleEndedIterator<Item = Day>,
        tenant: &TenantId,
        id: &EventId,
    ) -> Vec<Day> {
        let hash = BloomFilters::hash(tenant, id);
        let made_on =
            row_numbers::made(id.as_str()).map(|bytes| Day::of(row_numbers::made_at(&bytes)));
        let blooms = self.read();
        let may_have = |day: &Day| {
            Some(*day) == made_on
                || match blooms.get(day) {
                    Some(State::Known { bloom, .. }) => bloom.may_have(hash),
                    Some(State::Partial(_)) | None => true,
                }
        };
        let mut found: Vec<Day> = days.rev().filter(may_have).collect();
        // The day in which the identifier was made comes first.
        found.sort_by_key(|day| Some(*day) != made_on);
        found
    }

    /// Adds events that were just written to a day's file.
    pub(in crate::embedded) fn add(&self, day: Day, hashes: &[u64]) {
        if hashes.is_empty() {
            return;
        }
        let mut blooms = self.write();
        match blooms.get_mut(&day) {
            Some(State::Known { bloom, is_kept }) => {
                *is_kept = false;
                hashes.iter().for_each(|hash| bloom.add(*hash));
            }
            Some(State::Partial(bloom)) => hashes.iter().for_each(|hash| bloom.add(*hash)),
            None => {}
        }
        let bytes: usize = blooms.values().map(State::bytes).sum();
        if bytes > BYTES_MAX {
            // Drop the filter of the oldest day, which is searched least; from now on its file is
            // read instead.
            blooms.pop_first();
        }
    }

    /// Adds an empty filter for a day whose file is new.
    pub(in crate::embedded) fn begin(&self, day: Day) {
        self.write().insert(day, State::Known { bloom: BloomFilter::default(), is_kept: false });
    }

    /// Drops the filter of a day whose file was removed.
    pub(in crate::embedded) fn forget(&self, day: Day) {
        self.write().remove(&day);
    }

    /// The filters that are not saved in their files.
    pub(in crate::embedded) fn not_kept(&self) -> Vec<(Day, BloomFilter)> {
        let blooms = self.read();
        let not_kept = blooms.iter().filter_map(|(day, state)| match state {
            State::Known { bloom, is_kept: false } => Some((*day, bloom.clone())),
            State::Known { .. } | State::Partial(_) => None,
        });
        not_kept.collect()
    }

    /// Records that the filter of the day is saved in its file.
    pub(in crate::embedded) fn is_kept(&self, day: Day) {
        if let Some(State::Known { is_kept, .. }) = self.write().get_mut(&day) {
            *is_kept = true;
        }
    }

    /// Loads the saved filters and builds the others, newest day first, while there is memory for
    /// them. The store is in use meanwhile, and files can be removed between two days.
    pub(in crate::embedded) fn fill(&self, pool: &ReadPool) -> Result<(), StoreError> {
        let days = pool.read().days();
        for day in days.into_iter().rev() {
            let guard = pool.read();
            if !guard.days().contains(&day) {
                continue;
            }
            if self.is_stopped.load(Ordering::Relaxed) {
                break;
            }
            {
                let mut blooms = self.write();
                let bytes: usize = blooms.values().map(State::bytes).sum();
                if blooms.contains_key(&day) || bytes > BYTES_MAX / 2 {
                    continue;
                }
                // From here on the applier adds new events to the filter.
                blooms.insert(day, State::Partial(BloomFilter::default()));
            }
            let made =
                guard.day(day, |connection, path| match BloomFilter::load(connection, path)? {
                    Some(bloom) => Ok((bloom, true)),
                    None => Ok((BloomFilter::of_file(connection, path, &self.is_stopped)?, false)),
                });
            let mut blooms = self.write();
            match (made, blooms.remove(&day)) {
                (Ok((mut bloom, is_kept)), Some(State::Partial(added))) => {
                    let is_kept = is_kept && added.layers.is_empty();
                    bloom.layers.extend(added.layers);
                    blooms.insert(day, State::Known { bloom, is_kept });
                }
                (Ok(_), Some(other)) => drop(blooms.insert(day, other)),
                // The day was removed meanwhile, or there is no memory for its filter.
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
            State::Known { bloom, .. } | State::Partial(bloom) => bloom.bytes(),
        }
    }
}

impl BloomFilter {
    /// Builds a filter from every indexed event of a day's file.
    fn of_file(
        connection: &Connection,
        path: &Path,
        is_stopped: &AtomicBool,
    ) -> Result<Self, StoreError> {
        let count = "SELECT count(*) FROM events INDEXED BY events_odd WHERE odd = 1";
        let count: u32 = connection.query_row(count, [], |row| row.get(0)).at(path)?;
        let count = usize::try_from(count).unwrap_or(0);
        let mut bloom = BloomFilter { layers: vec![Layer::new(count.max(FIRST_LAYER))] };
        let find = "SELECT e.id, t.name FROM events AS e INDEXED BY events_odd
            CROSS JOIN names AS t ON t.n = e.tenant WHERE e.odd = 1";
        let mut statement = connection.prepare(find).at(path)?;
        let mut rows = statement.query([]).at(path)?;
        while let Some(row) = rows.next().at(path)? {
            let reading = Reading { row, path, table: "events" };
            bloom.add(BloomFilters::hash(&reading.parse(1)?, &reading.event_id(0)?));
            if is_stopped.load(Ordering::Relaxed) {
                return Err(StoreError::Stopped("the store is closed".into()));
            }
        }
        Ok(bloom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_domain::time::Timestamp;

    fn hash(n: u64) -> u64 {
        let id = format!("order-{n}").parse().unwrap();
        BloomFilters::hash(&TenantId::default_tenant(), &id)
    }

    #[test]
    fn bloom_filter_has_no_false_negatives_and_few_false_positives() {
        let mut bloom = BloomFilter::default();
        (0..50_000).for_each(|n| bloom.add(hash(n)));
        assert!((0..50_000).all(|n| bloom.may_have(hash(n))));
        let wrong = (50_000..150_000).filter(|n| bloom.may_have(hash(*n))).count();
        println!(
            "Bloom filter: {wrong} of 100,000 wrongly sent to the file; {} bytes",
            bloom.bytes()
        );
        assert!(wrong < 4_000, "{wrong}");
        assert!(bloom.bytes() < 50_000 * 4);
    }

    #[test]
    fn day_without_a_complete_filter_may_have_any_event() {
        let day = |n: i64| Day::of(Timestamp::from_unix_ms(n * 86_400_000));
        let blooms = BloomFilters::default();
        let tenant = TenantId::default_tenant();
        let (known, new) = ("order-1".parse().unwrap(), "order-2".parse().unwrap());
        let days = || (1..=3).map(day);
        assert_eq!(blooms.days_of(days(), &tenant, &known), [day(3), day(2), day(1)]);
        days().for_each(|day| blooms.begin(day));
        blooms.add(day(2), &[hash(1)]);
        assert_eq!(blooms.days_of(days(), &tenant, &known), [day(2)]);
        assert_eq!(blooms.days_of(days(), &tenant, &new), []);
        blooms.forget(day(1));
        assert_eq!(blooms.days_of(days(), &tenant, &new), [day(1)]);
        let made = EventId::new(Timestamp::from_unix_ms(3 * 86_400_000), [0; 10]);
        assert_eq!(blooms.days_of(days(), &tenant, &made), [day(3), day(1)], "its own day first");
    }
}
