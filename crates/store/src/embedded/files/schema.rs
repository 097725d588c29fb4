//! The tables, and the migrations of older files.
//!
//! A file's version is its `user_version`. **A migration is one transaction that also raises the
//! version**, so every file is at a definite version.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rusqlite::Connection;

use super::{At, place};
use crate::error::StoreError;

/// The migrations of `main.db`; the n-th leads to version n.
pub(in crate::embedded) const MAIN: &[&str] = &[
    "
    CREATE TABLE meta (key TEXT PRIMARY KEY, value, crc INTEGER NOT NULL) WITHOUT ROWID;

    CREATE TABLE tenants (
        id TEXT PRIMARY KEY, name TEXT, created_at INTEGER NOT NULL, crc INTEGER NOT NULL
    ) WITHOUT ROWID;

    CREATE TABLE keys (
        id TEXT PRIMARY KEY, tenant TEXT, name TEXT, scopes TEXT NOT NULL, hash BLOB NOT NULL,
        created_at INTEGER NOT NULL, expires_at INTEGER, last_used_at INTEGER, crc INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX keys_of_tenant ON keys (tenant, created_at, id);

    CREATE TABLE subscriptions (
        id BLOB PRIMARY KEY, tenant TEXT NOT NULL, destination BLOB NOT NULL,
        created_at INTEGER NOT NULL, deleted_at INTEGER, body TEXT NOT NULL,
        credentials BLOB NOT NULL, crc INTEGER NOT NULL
    );
    CREATE INDEX subscriptions_of_tenant ON subscriptions (tenant, created_at, id);
    CREATE INDEX subscriptions_of_destination ON subscriptions (destination);

    CREATE TABLE destinations (
        id BLOB PRIMARY KEY, tenant TEXT NOT NULL, url TEXT NOT NULL, created_at INTEGER NOT NULL,
        circuit TEXT NOT NULL, crc INTEGER NOT NULL, circuit_crc INTEGER NOT NULL
    );
    CREATE INDEX destinations_of_tenant ON destinations (tenant, created_at, id);

    CREATE TABLE transitions (
        n INTEGER PRIMARY KEY, tenant TEXT NOT NULL, destination BLOB NOT NULL,
        body TEXT NOT NULL, crc INTEGER NOT NULL
    );
    CREATE INDEX transitions_of_destination ON transitions (destination, n);

    CREATE TABLE answers (
        tenant TEXT NOT NULL, key TEXT NOT NULL, request BLOB NOT NULL, status INTEGER NOT NULL,
        body BLOB NOT NULL, created_at INTEGER NOT NULL, crc INTEGER NOT NULL,
        PRIMARY KEY (tenant, key)
    );
    CREATE INDEX answers_by_time ON answers (created_at);

    CREATE TABLE replays (
        id BLOB PRIMARY KEY, tenant TEXT NOT NULL, created_at INTEGER NOT NULL,
        running INTEGER NOT NULL, body BLOB NOT NULL, crc INTEGER NOT NULL
    );
    CREATE INDEX replays_of_tenant ON replays (tenant, created_at, id);
    CREATE INDEX replays_running ON replays (id) WHERE running = 1;

    -- Unfinished deliveries only: those of the first lane, which come and go quickly, and those
    -- that wait for their retry.
    CREATE TABLE fresh (
        created_at INTEGER NOT NULL, id BLOB NOT NULL, tenant TEXT NOT NULL, event TEXT NOT NULL,
        kind TEXT NOT NULL, subscription BLOB NOT NULL, destination BLOB NOT NULL,
        attempts INTEGER NOT NULL, last_attempt_at INTEGER, detail BLOB NOT NULL,
        crc INTEGER NOT NULL, PRIMARY KEY (created_at, id)
    ) WITHOUT ROWID;
    CREATE INDEX fresh_of_destination ON fresh (destination, created_at, id);
    CREATE TABLE waiting (
        id BLOB PRIMARY KEY, tenant TEXT NOT NULL, event TEXT NOT NULL, kind TEXT NOT NULL,
        subscription BLOB NOT NULL, destination BLOB NOT NULL, created_at INTEGER NOT NULL,
        due_at INTEGER NOT NULL, attempts INTEGER NOT NULL, last_attempt_at INTEGER,
        detail BLOB NOT NULL, crc INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX waiting_due ON waiting (due_at, id);
    CREATE INDEX waiting_oldest ON waiting (destination, created_at, id);
    CREATE INDEX waiting_due_of ON waiting (destination, due_at, id);
    CREATE INDEX waiting_probe ON waiting (destination, last_attempt_at, id);
    CREATE INDEX waiting_of_subscription ON waiting (subscription, id);

    -- How many wait at a destination.
    CREATE TABLE backlog (
        destination BLOB PRIMARY KEY, waiting INTEGER NOT NULL, crc INTEGER NOT NULL
    ) WITHOUT ROWID;

    CREATE TABLE ledger (
        tenant TEXT PRIMARY KEY, accepted INTEGER NOT NULL, queued INTEGER NOT NULL,
        waiting INTEGER NOT NULL, delivered INTEGER NOT NULL, dead INTEGER NOT NULL,
        cancelled INTEGER NOT NULL, crc INTEGER NOT NULL
    ) WITHOUT ROWID;

    -- The tenant '' is all of them together.
    CREATE TABLE tallies (
        tenant TEXT NOT NULL, minute INTEGER NOT NULL, accepted INTEGER NOT NULL,
        delivered INTEGER NOT NULL, failed INTEGER NOT NULL, dead INTEGER NOT NULL,
        crc INTEGER NOT NULL, PRIMARY KEY (tenant, minute)
    ) WITHOUT ROWID;
    CREATE INDEX tallies_by_time ON tallies (minute);
",
    "
    -- How much the file of a day has, so that nobody needs to count. `whole` where that is all of
    -- it: what a file had before this table, or before a crash that parted the two, is not in it.
    CREATE TABLE days (
        day INTEGER PRIMARY KEY, whole INTEGER NOT NULL, events INTEGER NOT NULL,
        deliveries INTEGER NOT NULL, attempts INTEGER NOT NULL, crc INTEGER NOT NULL
    );
",
    "
    -- How many transactions the file of a day has at least; see check.rs.
    CREATE TABLE marks (
        day INTEGER PRIMARY KEY, writes INTEGER NOT NULL, crc INTEGER NOT NULL
    );
",
    "
    -- The audit log. The indexes are those of its filters; all end with the identifier, which begins
    -- with the time.
    CREATE TABLE audit (
        id BLOB PRIMARY KEY, tenant TEXT, actor TEXT NOT NULL, action TEXT NOT NULL, target TEXT,
        refused INTEGER NOT NULL, body TEXT NOT NULL, crc INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX audit_of_tenant ON audit (tenant, id);
    CREATE INDEX audit_of_actor ON audit (tenant, actor, id);
    CREATE INDEX audit_of_action ON audit (tenant, action, id);
    CREATE INDEX audit_by_actor ON audit (actor, id);
    CREATE INDEX audit_by_action ON audit (action, id);
    CREATE INDEX audit_by_target ON audit (target, id);
    CREATE INDEX audit_refused ON audit (tenant, id) WHERE refused = 1;
",
    // No table changes, but the encoding of a waiting delivery may have one time more, which an
    // earlier version could not read.
    "",
    "
    -- Sessions, links that are exchanged for one, and the logos of portal links.
    CREATE TABLE passes (
        id TEXT PRIMARY KEY, kind INTEGER NOT NULL, owner TEXT NOT NULL, tenant TEXT,
        created_at INTEGER NOT NULL, expires_at INTEGER NOT NULL, used_at INTEGER,
        body BLOB NOT NULL, crc INTEGER NOT NULL
    );
    CREATE INDEX passes_of_owner ON passes (kind, owner, created_at, id);
    CREATE INDEX passes_of_tenant ON passes (tenant, kind, created_at, id);
    CREATE INDEX passes_by_time ON passes (expires_at);
",
    "
    -- The description and the own limits of a tenant, as JSON.
    ALTER TABLE tenants ADD COLUMN details TEXT;

    -- The application's own identifier, which is in `body` too.
    ALTER TABLE subscriptions ADD COLUMN uid TEXT;
    CREATE UNIQUE INDEX subscriptions_by_uid ON subscriptions (tenant, uid)
        WHERE uid IS NOT NULL AND deleted_at IS NULL;

    -- Since when nothing uses a destination, and whether it is disabled or frozen.
    ALTER TABLE destinations ADD COLUMN unused_since INTEGER;
    ALTER TABLE destinations ADD COLUMN failing INTEGER NOT NULL DEFAULT 0;
    UPDATE destinations SET failing = 1 WHERE json_extract(circuit, '$.state.state') <> 'closed';
    CREATE INDEX destinations_listed ON destinations (tenant, created_at, id)
        WHERE unused_since IS NULL;
    CREATE INDEX destinations_unused ON destinations (unused_since) WHERE unused_since IS NOT NULL;

    -- Lists of all tenants together.
    CREATE INDEX keys_of_all ON keys (created_at, id);
    CREATE INDEX subscriptions_of_all ON subscriptions (created_at, id);
    CREATE INDEX destinations_of_all ON destinations (created_at, id) WHERE unused_since IS NULL;
    CREATE INDEX destinations_failing ON destinations (created_at, id)
        WHERE failing = 1 AND unused_since IS NULL;
",
    "
    -- Event types, what tenants do with events that do not fit them, and jobs that erase payloads. The tenant ''
    -- is the server. From this version on, the column `trace` of a day's events may also have what is noted about
    -- an event, which an earlier version could not read.
    CREATE TABLE documents (
        kind INTEGER NOT NULL, tenant TEXT NOT NULL, name TEXT NOT NULL, open INTEGER NOT NULL,
        body TEXT NOT NULL, crc INTEGER NOT NULL, PRIMARY KEY (kind, tenant, name)
    );
    CREATE INDEX documents_open ON documents (kind) WHERE open = 1;
",
    "
    -- What the attempts of a destination came to, by the hour in which they began; see attempt_codec.rs.
    CREATE TABLE attempt_hours (
        destination BLOB NOT NULL, hour INTEGER NOT NULL, counts BLOB NOT NULL,
        recent BLOB NOT NULL, crc INTEGER NOT NULL, PRIMARY KEY (destination, hour)
    ) WITHOUT ROWID;
    CREATE INDEX attempt_hours_by_time ON attempt_hours (hour);
",
    // No table changes, but the encoding of a waiting delivery may have the job that sent it, and that of a job
    // what became of its deliveries, which an earlier version could not read.
    "",
];

/// The first migration of a day's file.
const DAY_FIRST: &str = "
    CREATE TABLE meta (key TEXT PRIMARY KEY, value, crc INTEGER NOT NULL) WITHOUT ROWID;

    -- Tenants and event types, by number.
    CREATE TABLE names (n INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);

    -- For which subscription, where to, and of which type: what many deliveries have in common.
    CREATE TABLE routes (
        n INTEGER PRIMARY KEY, tenant INTEGER NOT NULL, subscription BLOB NOT NULL,
        destination BLOB NOT NULL, kind INTEGER NOT NULL,
        UNIQUE (tenant, subscription, destination, kind)
    );
    CREATE INDEX routes_of_destination ON routes (tenant, destination);
    CREATE INDEX routes_of_kind ON routes (tenant, kind);

    -- What the numbers of rows say is told in row_numbers.rs. An identifier that Postrider made is
    -- kept as its sixteen bytes. `trace` has the trace context, and what is noted about the event.
    CREATE TABLE events (
        n INTEGER PRIMARY KEY, odd INTEGER, tenant INTEGER NOT NULL, id NOT NULL,
        kind INTEGER NOT NULL, object TEXT, time INTEGER NOT NULL, accepted_at INTEGER NOT NULL,
        fingerprint BLOB NOT NULL, deliveries BLOB NOT NULL, crc INTEGER NOT NULL,
        data BLOB NOT NULL, old BLOB, trace BLOB
    );
    CREATE UNIQUE INDEX events_odd ON events (tenant, id) WHERE odd = 1;

    -- Which events stand in events_odd, roughly, where meta has `sieve`; see bloom.rs.
    CREATE TABLE sieve (
        layer INTEGER PRIMARY KEY, room INTEGER NOT NULL, words BLOB NOT NULL,
        crc INTEGER NOT NULL
    );

    -- In which seconds of the day a tenant had events of a type: lists by type look only there.
    CREATE TABLE seconds (
        tenant INTEGER NOT NULL, kind INTEGER NOT NULL, second INTEGER NOT NULL,
        PRIMARY KEY (tenant, kind, second)
    ) WITHOUT ROWID;

    -- State 0 is queued, 1 waiting, 2 delivered, 3 dead, 4 cancelled. `at` is when it falls due, or
    -- when it ended. `event` is the number of the event's row; where that was not at hand, event_id
    -- names it. `first` is the first attempt, after its checksum; the others are in their table.
    CREATE TABLE deliveries (
        n INTEGER PRIMARY KEY, odd INTEGER, id BLOB NOT NULL, state INTEGER NOT NULL,
        route INTEGER NOT NULL, event INTEGER, event_id TEXT, created_at INTEGER NOT NULL,
        at INTEGER, attempts INTEGER NOT NULL, last_attempt_at INTEGER, detail BLOB NOT NULL,
        first BLOB, crc INTEGER NOT NULL
    );
    CREATE UNIQUE INDEX deliveries_odd ON deliveries (id) WHERE odd = 1;
    CREATE INDEX deliveries_by_state ON deliveries (state) WHERE state <> 2;
    CREATE INDEX deliveries_by_route ON deliveries (route);

    CREATE TABLE attempts (
        delivery BLOB NOT NULL, number INTEGER NOT NULL, started_at INTEGER NOT NULL,
        status INTEGER, error TEXT, body BLOB NOT NULL, crc INTEGER NOT NULL,
        PRIMARY KEY (delivery, number)
    ) WITHOUT ROWID;
";

/// The second migration: an index of deliveries by route, state and time.
const DAY_SECOND: &str = "
    DROP INDEX deliveries_by_route;
    CREATE INDEX deliveries_of_route ON deliveries (route, state);
";

/// The third migration: an index of events by object and time.
const DAY_THIRD: &str = "
    CREATE INDEX events_of_object ON events (tenant, object) WHERE object IS NOT NULL;
";

/// The migrations of a day's file.
pub(in crate::embedded) const DAY: &[&str] = &[DAY_FIRST, DAY_SECOND, DAY_THIRD];

/// The migrations of a large day's file that an earlier version created. Building an index over
/// millions of rows would stop the applier for many seconds, so the file keeps the indexes that it
/// has. Lists in it are slower until it is removed by retention.
const DAY_LARGE: &[&str] = &[DAY_FIRST, "", ""];
/// A file of at least this size is large.
const DAY_LARGE_BYTES: u64 = 64 << 20;

/// The migrations that apply to the file of a day.
pub(in crate::embedded) fn day_steps(path: &Path) -> &'static [&'static str] {
    let bytes = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    if bytes > DAY_LARGE_BYTES { DAY_LARGE } else { DAY }
}

/// The version of a file: how many migrations were applied.
pub(in crate::embedded) fn version(
    connection: &Connection,
    path: &Path,
) -> Result<u32, StoreError> {
    connection.query_row("PRAGMA user_version", [], |row| row.get(0)).at(path)
}

/// The version in a file's header; `None` where the file is missing or too short to have one.
pub(in crate::embedded) fn stored_version(path: &Path) -> Option<u32> {
    let mut header = [0; 64];
    File::open(path).and_then(|file| file.read_exact_at(&mut header, 0)).ok()?;
    header.last_chunk::<4>().map(|version| u32::from_be_bytes(*version))
}

/// Refuses a day's file that a newer version of the program has written. Reads only the file's
/// header.
pub(in crate::embedded) fn check_day(path: &Path) -> Result<(), StoreError> {
    // Without a version it was just created, and its first page is still in its write-ahead log.
    let Some(found) = stored_version(path) else { return Ok(()) };
    let known = u32::try_from(DAY.len()).unwrap_or(u32::MAX);
    if found > known {
        return Err(StoreError::NewerVersion { place: place(path), found, known });
    }
    Ok(())
}

/// Applies the missing migrations.
pub(in crate::embedded) fn migrate(
    connection: &mut Connection,
    path: &Path,
    steps: &[&str],
) -> Result<(), StoreError> {
    let known = u32::try_from(steps.len()).unwrap_or(u32::MAX);
    let found = version(connection, path)?;
    if found > known {
        return Err(StoreError::NewerVersion { place: place(path), found, known });
    }
    for (next, step) in (1u32..).zip(steps).skip(usize::try_from(found).unwrap_or(usize::MAX)) {
        let transaction = connection.transaction().at(path)?;
        transaction.execute_batch(step).at(path)?;
        transaction.pragma_update(None, "user_version", next).at(path)?;
        transaction.commit().at(path)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn migrations_run_once_and_a_newer_file_is_refused() {
        for steps in [MAIN, DAY] {
            let mut connection = Connection::open_in_memory().unwrap();
            let path = Path::new("some.db");
            migrate(&mut connection, path, steps).unwrap();
            migrate(&mut connection, path, steps).unwrap();
            let more = [steps, &["CREATE TABLE more (a)", "CREATE TABLE bad (a"]].concat();
            assert!(migrate(&mut connection, path, &more).is_err());
            let known = u32::try_from(steps.len()).unwrap();
            assert_eq!(version(&connection, path).unwrap(), known + 1, "the whole step was taken");
            let error = migrate(&mut connection, path, steps).unwrap_err();
            assert!(matches!(error, StoreError::NewerVersion { found, .. } if found == known + 1));
        }
    }
}
