//! The checks of `postrider doctor` on a cluster: the database, its settings, and the nodes.
//!
//! Read-only: it neither joins the cluster nor migrates the schema.

use std::path::Path;
use std::time::Duration;

use postrider_api::vault::{KeyRing, Vault};
use postrider_store::postgres::{ClusterSight, NodeSight, ServerSight, Visitor, shown};
use postrider_transport::{Clock as _, SystemClock};

use super::{Finding, Said};
use crate::config::Config;
use crate::serve::ring_mark;

/// A clock that differs by more is reported.
const CLOCK_OFF_MAX_MS: u64 = 1_000;

/// Checks the database at this address.
pub(super) async fn look(config: &Config, url: &str) -> Vec<Finding> {
    let visitor = match Visitor::connect(url).await {
        Ok(visitor) => visitor,
        Err(error) => {
            let advice = "is it running, does it let this role in, and is the address right?";
            let said = Said::Fault(format!("{}: {error}\n{advice}", shown(url)));
            return vec![Finding { what: "database", said }];
        }
    };
    let mut findings = Vec::new();
    let before = SystemClock.now();
    let server = match visitor.server().await {
        Ok(server) => server,
        Err(error) => {
            let said = Said::Fault(format!("{}: {error}", shown(url)));
            return vec![Finding { what: "database", said }];
        }
    };
    let after = SystemClock.now();
    let middle = before.as_unix_ms().midpoint(after.as_unix_ms());
    findings.extend(of_server(&server, url, config));
    let off = middle.saturating_sub(server.now.as_unix_ms());
    findings.push(Finding { what: "clock", said: clock(off) });
    match visitor.cluster().await {
        Ok(cluster) => findings.extend(of_cluster(&cluster, &config.keyring_path())),
        Err(error) => {
            let said = Said::Fault(format!(
                "what is there cannot be read: {error}\nthe role must own the schema `postrider`"
            ));
            findings.push(Finding { what: "schema", said });
        }
    }
    findings
}

fn of_server(server: &ServerSight, url: &str, config: &Config) -> Vec<Finding> {
    let reached = if server.version_number < Visitor::OLDEST_SERVER {
        Said::Fault(format!(
            "PostgreSQL {} at {} is too old: 15 or newer is needed",
            server.version,
            shown(url)
        ))
    } else if server.is_standby {
        Said::Fault(format!(
            "{} is a standby and takes no writes: give all hosts with \
             target_session_attrs=read-write, or promote it",
            shown(url)
        ))
    } else {
        Said::Ok(format!("PostgreSQL {} at {}", server.version, shown(url)))
    };
    let wall = if server.is_walled {
        Said::Ok("row-level security binds it".to_owned())
    } else {
        Said::Note(
            "row-level security does not bind this role (superuser or BYPASSRLS): use an ordinary \
             one, as the second wall between tenants"
                .to_owned(),
        )
    };
    vec![
        Finding { what: "database", said: reached },
        Finding { what: "database role", said: wall },
        Finding { what: "durability", said: durability(server) },
        Finding { what: "connections", said: connections(server, config) },
        Finding { what: "pooler", said: pooler(server, config) },
    ]
}

fn durability(server: &ServerSight) -> Said {
    let names = &server.synchronous_standby_names;
    if !server.syncs {
        return Said::Fault(
            "fsync is off: a power cut loses what was acknowledged, or the whole database; set \
             fsync = on"
                .to_owned(),
        );
    }
    if names.is_empty() {
        let detached = match server.standbys {
            0 => "no standby".to_owned(),
            n => format!("{n} standbys, none synchronous: do not promote them after a crash"),
        };
        return Said::Ok(format!("commits are synced; {detached}"));
    }
    if server.standbys == 0 {
        return Said::Fault(format!(
            "synchronous_standby_names is '{names}', and no standby is connected: every commit waits, \
             and nothing is accepted; connect one, or empty the setting"
        ));
    }
    match server.synchronous_commit.as_str() {
        "local" => Said::Note(format!(
            "synchronous_commit is local: commits do not wait for '{names}', and a promotion may lose \
             what was acknowledged"
        )),
        setting => Said::Ok(format!("commits are synced here and at '{names}' ({setting})")),
    }
}

fn connections(server: &ServerSight, config: &Config) -> Said {
    let ServerSight { connections, connections_max, .. } = server;
    let wanted = config.postgres.connections + 1;
    let room = usize::try_from(connections_max.saturating_sub(*connections)).unwrap_or(usize::MAX);
    let all = format!("{connections} of {connections_max} are used; a node takes up to {wanted}");
    if room < wanted && !server.is_pooled {
        Said::Note(format!(
            "{all}: raise max_connections, lower postgres.connections, or put PgBouncer in between"
        ))
    } else {
        Said::Ok(all)
    }
}

fn pooler(server: &ServerSight, config: &Config) -> Said {
    let listens_past = config.postgres.listen_url.is_some();
    match (server.is_pooled, server.is_said_to_be_pooled) {
        (true, false) => Said::Note(
            "sessions are shared by a pooler: give pgbouncer=true in the address, unless it is \
             PgBouncer 1.21 or newer with max_prepared_statements above 0"
                .to_owned(),
        ),
        (_, true) if !listens_past => Said::Note(
            "nobody can listen through a pooler: work that other nodes accept is found by polling, up \
             to a second later; set postgres.listen_url to a direct address"
                .to_owned(),
        ),
        (_, true) => Said::Ok("in between; nodes listen past it".to_owned()),
        (false, false) => Said::Ok("none".to_owned()),
    }
}

fn clock(off_ms: i64) -> Said {
    let off = format!("this machine's clock is {off_ms} ms ahead of the database's");
    if off_ms.unsigned_abs() > CLOCK_OFF_MAX_MS {
        Said::Note(format!(
            "{off}: only the times in this machine's log go by its clock, and do not agree with those of \
             others; run a time service on both"
        ))
    } else {
        Said::Ok(off)
    }
}

/// The clock of the cluster: due times and every time that is shown are counted on it. Leases and the time in
/// signatures go by the database's clock.
fn cluster_clock(cluster: &ClusterSight) -> Said {
    let Some(ahead_ms) = cluster.clock_ahead_ms else {
        return Said::Ok(
            "no node runs; the next one goes on from what the last one stored".to_owned(),
        );
    };
    let off = ahead_ms.unsigned_abs();
    if off <= CLOCK_OFF_MAX_MS {
        return Said::Ok("the cluster's time and the database's clock agree".to_owned());
    }
    let direction = if ahead_ms > 0 { "ahead of" } else { "behind" };
    Said::Note(format!(
        "the cluster's time is {:.1} s {direction} the database's clock, which was set while nodes ran: due times \
         go on at the pace of real time, so no slot is lost; leases and signatures go by the database's clock\nrun \
         a time service on the database's machine",
        Duration::from_millis(off).as_secs_f64()
    ))
}

fn of_cluster(cluster: &ClusterSight, keyring: &Path) -> Vec<Finding> {
    let known = Visitor::SCHEMA;
    let (schema, is_readable) = match cluster.schema {
        None => (Said::Ok("not there yet; the first server makes it".to_owned()), false),
        Some(found) if found > known => {
            let what = format!(
                "version {found}, of which this program knows {known}\na newer program has made it: use the \
                 one that the others run"
            );
            (Said::Fault(what), false)
        }
        Some(found) if found < known => {
            let what = format!(
                "version {found}; this program needs {known}\nthe next server to start migrates it: make a \
                 backup of the database before (pg_dump); nodes of the version before go on meanwhile, and cannot \
                 start again"
            );
            (Said::Note(what), false)
        }
        Some(found) if cluster.is_being_filled => {
            let what = format!(
                "version {found}, and a move into it is not finished: run the same `postrider \
                 migrate` again"
            );
            (Said::Fault(what), true)
        }
        Some(found) => (Said::Ok(format!("version {found}")), true),
    };
    let mut findings = vec![Finding { what: "schema", said: schema }];
    if is_readable {
        findings.push(Finding { what: "cluster's ring", said: ring(cluster, keyring) });
        findings.push(Finding { what: "cluster's clock", said: cluster_clock(cluster) });
        findings.push(Finding { what: "nodes", said: nodes(&cluster.nodes) });
        findings.push(Finding { what: "shards", said: shards(cluster) });
    }
    findings
}

/// Whether the local key ring is the one of the cluster.
fn ring(cluster: &ClusterSight, path: &Path) -> Said {
    let shown = path.display();
    let copy = "copy the file `keyring` from the data directory of another node, or name it by \
                POSTRIDER_KEYRING";
    let Some(theirs) = &cluster.key_ring else {
        return Said::Ok("none yet; the first node decides".to_owned());
    };
    if !path.exists() {
        return Said::Fault(format!("{shown} is missing, and the cluster has one: {copy}"));
    }
    match KeyRing::read(path).map(|ring| ring_mark(&Vault::new(ring))) {
        Err(error) => Said::Fault(format!("{error}: {copy}")),
        Ok(mine) if mine == *theirs => Said::Ok(format!("{shown} is the cluster's")),
        Ok(_) => Said::Fault(format!("{shown} is not the cluster's: {copy}")),
    }
}

fn nodes(nodes: &[NodeSight]) -> Said {
    let of = |node: &NodeSight| {
        let (name, shards, ago) = (&node.name, node.shards, node.renewed_ago.as_secs_f64());
        let lease = if node.is_leased { "" } else { ", its lease has ended" };
        let version = match &node.program {
            Some(program) => format!("version {program} (format {})", node.format),
            None => format!("an older version (format {})", node.format),
        };
        format!("{name}: {version}, {shards} shards, heard of {ago:.1} s ago{lease}")
    };
    let all: Vec<String> = nodes.iter().map(of).collect();
    if nodes.is_empty() {
        return Said::Note("none runs: start one by `postrider serve --store …`".to_owned());
    }
    let all = all.join("\n");
    if nodes.iter().all(|node| node.is_leased) {
        Said::Ok(all)
    } else {
        Said::Note(format!(
            "{all}\na node whose lease has ended is stopped, cut off or dead: others take its shards \
             within seconds, if one runs"
        ))
    }
}

fn shards(cluster: &ClusterSight) -> Said {
    let living = cluster.nodes.iter().filter(|node| node.is_leased);
    let held: u64 = living.map(|node| node.shards).sum();
    let others = cluster.nodes.iter().filter(|node| !node.is_leased);
    let stale: u64 = others.map(|node| node.shards).sum();
    let counts = format!("{held} held, {stale} of ended leases, {} unowned", cluster.unowned);
    match (cluster.nodes.is_empty(), stale + cluster.unowned) {
        (true, _) | (false, 0) => Said::Ok(counts),
        (false, _) => Said::Note(format!(
            "{counts}: what is due there waits until a node takes them; that lasts seconds, so ask \
             again"
        )),
    }
}

#[cfg(test)]
mod tests {
    use postrider_domain::time::Timestamp;

    use super::*;

    fn good() -> ServerSight {
        ServerSight {
            version: "15.9".to_owned(),
            version_number: 150_009,
            is_standby: false,
            syncs: true,
            synchronous_commit: "on".to_owned(),
            synchronous_standby_names: String::new(),
            standbys: 0,
            connections_max: 100,
            connections: 3,
            is_walled: true,
            is_pooled: false,
            is_said_to_be_pooled: false,
            now: Timestamp::EPOCH,
        }
    }

    #[test]
    fn each_trouble_of_the_server_is_named_with_what_to_do() {
        let config = Config::default();
        let said = |change: &dyn Fn(&mut ServerSight)| {
            let mut server = good();
            change(&mut server);
            let findings = of_server(&server, "postgres://u:secret@h/d", &config);
            let all = findings.iter().map(|f| format!("{:?}", f.said)).collect::<Vec<_>>();
            assert!(all.iter().all(|line| !line.contains("secret")), "{all:?}");
            all.join("\n")
        };
        let quiet = said(&|_| {});
        assert!(!quiet.contains("Note") && !quiet.contains("Fault"), "{quiet}");
        type Change = fn(&mut ServerSight);
        let table: [(Change, &str); 9] = [
            (
                |s| s.version_number = 140_005,
                "Fault(\"PostgreSQL 15.9 at postgres://u@h/d is too old",
            ),
            (|s| s.is_standby = true, "target_session_attrs=read-write"),
            (|s| s.syncs = false, "set fsync = on"),
            (|s| s.synchronous_standby_names = "b".to_owned(), "no standby is connected"),
            (|s| s.is_walled = false, "Note(\"row-level security"),
            (|s| s.connections = 98, "raise max_connections"),
            (|s| s.is_pooled = true, "give pgbouncer=true"),
            (|s| s.is_said_to_be_pooled = true, "set postgres.listen_url"),
            (
                |s| {
                    s.synchronous_standby_names = "b".to_owned();
                    s.standbys = 1;
                    s.synchronous_commit = "local".to_owned();
                },
                "a promotion may lose",
            ),
        ];
        for (change, expected) in table {
            let found = said(&change);
            assert!(found.contains(expected), "{expected}: {found}");
        }
    }

    #[test]
    fn doctor_reports_nodes_and_shards_with_their_problems() {
        let node = |name: &str, is_leased, shards| NodeSight {
            name: name.to_owned(),
            renewed_ago: Duration::from_millis(1_250),
            is_leased,
            shards,
            program: (name == "a").then(|| "0.1.0".to_owned()),
            format: u32::from(name == "a"),
        };
        let sight = |nodes: Vec<NodeSight>, unowned| ClusterSight {
            schema: Some(Visitor::SCHEMA),
            nodes,
            unowned,
            ..ClusterSight::default()
        };
        let said = |cluster: &ClusterSight| {
            let findings = of_cluster(cluster, Path::new("/nonexistent/keyring"));
            findings.iter().map(|f| format!("{}: {:?}", f.what, f.said)).collect::<Vec<_>>()
        };
        let good = said(&sight(vec![node("a", true, 128), node("b", true, 128)], 0));
        assert!(good.iter().all(|line| line.contains("Ok(")), "{good:?}");
        assert!(good.join(" ").contains("a: version 0.1.0 (format 1), 128 shards"), "{good:?}");
        let ended = said(&sight(vec![node("a", true, 128), node("b", false, 128)], 0));
        let b =
            "b: an older version (format 0), 128 shards, heard of 1.2 s ago, its lease has ended";
        assert!(ended.join(" ").contains(b), "{ended:?}");
        assert!(ended.join(" ").contains("128 held, 128 of ended leases, 0 unowned"), "{ended:?}");
        assert!(said(&sight(Vec::new(), 256)).join(" ").contains("none runs"));
        assert!(said(&sight(Vec::new(), 256)).join(" ").contains("no node runs"));
        for (ahead_ms, expected) in [
            (900, "cluster's clock: Ok(\"the cluster's time and the database's clock agree"),
            (
                3_600_000,
                "cluster's clock: Note(\"the cluster's time is 3600.0 s ahead of the database's",
            ),
            (-2_500, "cluster's clock: Note(\"the cluster's time is 2.5 s behind the database's"),
        ] {
            let clock_ahead_ms = Some(ahead_ms);
            let off = said(&ClusterSight { clock_ahead_ms, ..sight(Vec::new(), 256) }).join(" ");
            assert!(off.contains(expected), "{off}");
        }
        let newer = ClusterSight { schema: Some(Visitor::SCHEMA + 1), ..ClusterSight::default() };
        let newer = said(&newer).join(" ");
        let version = format!("Fault(\"version {}, of which", Visitor::SCHEMA + 1);
        assert!(newer.contains(&version), "{newer}");
        let older = ClusterSight { schema: Some(Visitor::SCHEMA - 1), ..ClusterSight::default() };
        let older = said(&older).join(" ");
        for words in ["schema: Note(", "this program needs", "migrates it: make a backup"] {
            assert!(older.contains(words), "{words}: {older}");
        }
        let ring = ClusterSight { key_ring: Some(vec![1]), ..sight(Vec::new(), 256) };
        assert!(said(&ring).join(" ").contains("is missing, and the cluster has one"));
    }
}
