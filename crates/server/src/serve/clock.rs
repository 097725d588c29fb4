//! The clock of the server: all times come from it.
//!
//! It is a [`Steady`] clock: it advances with the time since the machine was started, which nobody
//! can set, and is compared with the time of day at intervals. The time of day is the machine's, or
//! the database's in a cluster. When somebody sets that, the operator is alerted, and the clock
//! does not follow.
//!
//! Its state is saved every few seconds, so that it continues after a restart: in the file `clock`
//! of the data directory, or in the database, where starting nodes read it too.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use postrider_domain::steady::{Reading, Saved, Steady, Step};
use postrider_domain::time::Timestamp;
use postrider_engine::EngineHandle;
use postrider_store::StoreError;
use postrider_store::postgres::{ClockSight, PostgresStore};
use postrider_transport::{Clock, SystemClock};

use super::alerts::AlertFeed;

/// The file with the saved clock.
const FILE: &str = "clock";
/// How often the machine's clock is read.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The clock is saved after this many readings.
const SAVE_AFTER_LOOKS: u32 = 5;
/// How often the database is asked for the time.
const ASK_EVERY: Duration = Duration::from_secs(2);
/// An answer that took longer is too imprecise to use.
const SLOW: Duration = Duration::from_millis(200);
/// If other nodes are ahead by more than this in several answers in a row, this node was suspended.
const BEHIND_MS: i64 = 1_000;
const BEHIND_ANSWERS: u32 = 5;
/// How long a starting node waits for other nodes to report their clocks.
const OTHERS: Duration = Duration::from_secs(3);

/// The clock.
pub(super) struct ServerClock {
    steady: RwLock<Steady>,
    source: Source,
    boot: Option<String>,
    /// A step that was found at the start, before the engine could be told.
    first_step: Option<Step>,
}

/// The source of the time of day.
enum Source {
    /// The machine; the clock is saved in this file.
    Machine(PathBuf),
    /// The database.
    Database(Arc<PostgresStore>),
}

impl ServerClock {
    /// The clock of a server with the embedded store.
    pub(super) fn of_machine(data_dir: &Path) -> Arc<ServerClock> {
        let path = data_dir.join(FILE);
        let saved = read(&path).unwrap_or_else(|error| {
            let path = path.display();
            tracing::warn!(%error, %path, "cannot read the saved clock: the time of day is used");
            None
        });
        let reading = Reading { boot: boot(), elapsed: elapsed(), reference: SystemClock.now() };
        let (steady, first_step) = Steady::start(saved.as_ref(), None, &reading);
        let source = Source::Machine(path);
        let steady = RwLock::new(steady);
        let clock = ServerClock { steady, source, boot: reading.boot, first_step };
        clock.save();
        Arc::new(clock)
    }

    /// The clock of a node: the time of the running nodes, or the last saved time.
    #[expect(clippy::disallowed_methods, reason = "waits for what others say every two seconds")]
    pub(super) async fn of_database(store: Arc<PostgresStore>) -> anyhow::Result<Arc<ServerClock>> {
        let (mut asked, _, mut sight) = ask(&store).await?;
        if sight.others_ahead_ms.is_none() && sight.has_others {
            // The database's clock may have been set a moment ago: wait until other nodes report
            // their time.
            tokio::time::sleep(OTHERS).await;
            (asked, _, sight) = ask(&store).await?;
        }
        let off = SystemClock.now().ms_from(sight.now);
        if off.unsigned_abs() > 1000 {
            tracing::warn!(
                off_ms = off,
                "this machine's clock differs from the database's clock, which is the one that is used"
            );
        }
        let saved = |at, ahead_ms| Saved { at, ahead_ms, boot: None, elapsed_us: 0 };
        let saved = match (sight.others_ahead_ms, sight.last) {
            (Some(ahead_ms), _) => Some(saved(sight.now.moved_ms(ahead_ms), ahead_ms)),
            (None, Some((at, ahead_ms))) => Some(saved(at, ahead_ms)),
            (None, None) => None,
        };
        let reading = Reading { boot: None, elapsed: asked, reference: sight.now };
        let (steady, first_step) = Steady::start(saved.as_ref(), None, &reading);
        let (steady, source) = (RwLock::new(steady), Source::Database(store));
        Ok(Arc::new(ServerClock { steady, source, boot: None, first_step }))
    }

    /// Compares the clock with the time of day until the server ends.
    pub(super) async fn follow(self: Arc<Self>, engine: EngineHandle, alerts: Option<AlertFeed>) {
        let listeners = Listeners { engine, alerts };
        self.first_step.iter().for_each(|step| listeners.tell(*step));
        match &self.source {
            Source::Machine(_) => self.follow_machine(&listeners).await,
            Source::Database(store) => self.follow_database(store, &listeners).await,
        }
    }

    async fn follow_machine(&self, listeners: &Listeners) {
        let mut ticks = ticks(LOOK_EVERY);
        let mut looks = 0;
        loop {
            ticks.tick().await;
            let (before, wall, after) = (elapsed(), SystemClock.now(), elapsed());
            if after.saturating_sub(before) > SLOW {
                continue;
            }
            let step = self.write(|steady| steady.compare(before, wall));
            looks += 1;
            if let Some(step) = step {
                listeners.tell(step);
            }
            if step.is_some() || looks >= SAVE_AFTER_LOOKS {
                looks = 0;
                self.save();
            }
        }
    }

    async fn follow_database(&self, store: &PostgresStore, listeners: &Listeners) {
        let mut ticks = ticks(ASK_EVERY);
        let mut behind = 0;
        loop {
            ticks.tick().await;
            // Without an answer the clock continues with the elapsed time.
            let Ok((asked, took, sight)) = ask(store).await else { continue };
            if took > SLOW {
                continue;
            }
            if let Some(step) = self.write(|steady| steady.compare(asked, sight.now)) {
                listeners.tell(step);
            }
            let ahead_ms = self.read(Steady::ahead_ms);
            let others = sight.others_ahead_ms.filter(|others| others - ahead_ms > BEHIND_MS);
            behind = if others.is_some() { behind + 1 } else { 0 };
            if let Some(others) = others.filter(|_| behind >= BEHIND_ANSWERS) {
                behind = 0;
                let by_ms = self.write(|steady| steady.catch_up(elapsed(), others));
                tracing::warn!(
                    by_ms,
                    "this node was suspended while others ran: its clock catches up with theirs"
                );
            }
            // If it fails, the next call reports it.
            drop(store.tell_clock(self.now()).await);
        }
    }

    /// Saves the clock for the next process.
    fn save(&self) {
        let Source::Machine(path) = &self.source else { return };
        let saved = self.read(|steady| steady.save(self.boot.clone(), elapsed()));
        if let Err(error) = write(path, &saved) {
            let path = path.display();
            tracing::warn!(%error, %path, "cannot save the clock: after a restart the time of day is used");
        }
    }

    fn read<T>(&self, look: impl FnOnce(&Steady) -> T) -> T {
        look(&self.steady.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write<T>(&self, change: impl FnOnce(&mut Steady) -> T) -> T {
        change(&mut self.steady.write().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Clock for ServerClock {
    fn now(&self) -> Timestamp {
        self.read(|steady| steady.now(elapsed()))
    }

    fn wall(&self) -> Timestamp {
        match &self.source {
            Source::Machine(_) => SystemClock.now(),
            Source::Database(_) => self.read(|steady| {
                let now = steady.now(elapsed());
                now.moved_ms(-steady.ahead_ms())
            }),
        }
    }
}

/// Those who are told of a step.
struct Listeners {
    engine: EngineHandle,
    alerts: Option<AlertFeed>,
}

impl Listeners {
    /// Logs a step, and alerts the operator.
    fn tell(&self, step: Step) {
        let Step { at, by_ms, ahead_ms } = step;
        tracing::warn!(
            %at,
            by_ms,
            ahead_ms,
            "the time of day was set: times go on at the pace of real time, so no slot is lost and no \
             attempt is early; ahead_ms is how far they are ahead of the time of day from now on"
        );
        self.engine.clock_stepped(step);
        if let Some(alerts) = &self.alerts {
            alerts.clock_stepped(step);
        }
    }
}

fn ticks(every: Duration) -> tokio::time::Interval {
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    ticks
}

/// The database's time, the elapsed time at which it was read, and how long the answer took.
async fn ask(store: &PostgresStore) -> Result<(Duration, Duration, ClockSight), StoreError> {
    let before = elapsed();
    let sight = store.look_at_clock().await?;
    let took = elapsed().saturating_sub(before);
    Ok((before + took / 2, took, sight))
}

/// The time since the machine was started, including suspension.
#[cfg(target_os = "linux")]
fn elapsed() -> Duration {
    let at = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(at.tv_sec.unsigned_abs(), u32::try_from(at.tv_nsec).unwrap_or(0))
}

/// The time since the process was started.
#[cfg(not(target_os = "linux"))]
#[expect(
    clippy::disallowed_methods,
    reason = "the source of the clock that is handed in elsewhere"
)]
fn elapsed() -> Duration {
    static BEGIN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    BEGIN.get_or_init(std::time::Instant::now).elapsed()
}

/// The identifier of this boot of the machine, if the system has one.
fn boot() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned())
}

/// The clock that the last server saved in its data directory, if there was one.
pub(crate) fn saved(data_dir: &Path) -> anyhow::Result<Option<Saved>> {
    read(&data_dir.join(FILE))
}

fn read(path: &Path) -> anyhow::Result<Option<Saved>> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Replaces the file atomically.
fn write(path: &Path, saved: &Saved) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;

    let new = path.with_extension("new");
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Err(_) | Ok(()) => {}
    }
    let mut file =
        std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(&serde_json::to_vec(saved)?)?;
    file.sync_data()?;
    std::fs::rename(&new, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_continues_from_the_saved_one_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let first = ServerClock::of_machine(folder.path());
        assert_eq!(first.first_step, None);
        // An hour ahead of the time of day, as after a setback.
        let mut saved = read(&folder.path().join(FILE)).unwrap().unwrap();
        saved.at = saved.at.moved_ms(3_600_000);
        saved.ahead_ms += 3_600_000;
        write(&folder.path().join(FILE), &saved).unwrap();
        let second = ServerClock::of_machine(folder.path());
        assert_eq!(second.first_step, None);
        let ahead = second.now().ms_from(second.wall());
        assert!((3_599_000..3_601_000).contains(&ahead), "{ahead} ms ahead");
    }

    #[test]
    fn unreadable_clock_file_falls_back_to_the_time_of_day() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(FILE), "soon").unwrap();
        let clock = ServerClock::of_machine(folder.path());
        assert!(clock.now().ms_from(clock.wall()).abs() < 1_000);
    }
}
