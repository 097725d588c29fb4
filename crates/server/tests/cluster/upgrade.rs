//! A rolling upgrade: nodes of two neighbouring versions in one cluster.
//!
//! `POSTRIDER_PREVIOUS` names the binary of the previous version; `cargo xtask previous` builds it
//! from its pinned commit, and `cargo xtask ci` does both.

use std::path::PathBuf;

use serde_json::json;

use crate::scene::{PLACES, Scene, now};

/// The binary of the previous version.
#[expect(clippy::disallowed_methods, reason = "the other binary is named by the environment")]
fn previous() -> Option<PathBuf> {
    std::env::var_os("POSTRIDER_PREVIOUS").map(PathBuf::from).filter(|path| path.is_file())
}

/// Counts rows of the nodes.
fn nodes(scene: &Scene, which: &str) -> String {
    scene.postgres.sql("cluster", &format!("SELECT count(*) FROM postrider.nodes WHERE {which}"))
}

#[test]
fn nodes_are_replaced_one_by_one_by_a_newer_version_under_load() {
    let Some(previous) = previous() else {
        return println!(
            "rolling upgrade: skipped, POSTRIDER_PREVIOUS names no binary of the version before \
             (cargo xtask previous)"
        );
    };
    let mut scene = Scene::of_program(&previous, 2);
    let old_schema = scene.postgres.sql("cluster", "SELECT max(version) FROM postrider.migrations");
    let load = scene.load();
    scene.receiver.wait_for_more(PLACES * 10);

    // The first node of the new version migrates the database while the old nodes run.
    scene.program = None;
    scene.join();
    scene.wait_for_shares();
    let mixed = scene.load();
    assert_eq!(
        (nodes(&scene, "format = 0"), nodes(&scene, "format > 0")),
        ("2".into(), "1".into())
    );
    // The old nodes match, send and show what the new one writes, and the other way round.
    for (at, name) in [(2, "by-new"), (0, "by-old")] {
        let body = json!({"url": scene.receiver.url(&format!("/good-{name}")), "types": [name],
                          "auth_token": "a-token-for-both", "headers": {"x-both": "yes"}});
        scene.node(at).ask("POST", "/v1/subscriptions", Some(&body), 201);
    }
    scene.receiver.wait_for_more(PLACES * 20);
    for (at, kind) in [(0, "by-new"), (1, "by-new"), (2, "by-old"), (2, "by-new")] {
        let event = json!({"type": kind, "data": {"mark": format!("{kind} at {at};")}});
        let sent = scene.node(at).ask("POST", "/v1/events", Some(&event), 202);
        assert_eq!(sent["deliveries"], 1, "{kind} at {at}");
        scene.receiver.wait_for_event(&format!("{kind} at {at};"), 1);
        scene.others += 1;
    }

    // One node shuts down in order, the other is killed; both are replaced.
    let log = scene.leave(0);
    assert!(!log.contains("\"level\":\"ERROR\""), "{log}");
    scene.start(0);
    scene.wait_for_shares();
    let began = now();
    scene.kill(1);
    let in_flight = scene.in_flight();
    let took = scene.takeover(began, "upgraded-");
    scene.start(1);
    scene.wait_for_shares();
    assert_eq!(
        (nodes(&scene, "format = 0"), nodes(&scene, "format > 0")),
        ("0".into(), "3".into())
    );

    // A version that is older than the database does not start.
    scene.program = Some(previous);
    let output = scene.how(3).command(&scene.directory(1)).output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{words}");
    let schema = scene.postgres.sql("cluster", "SELECT max(version) FROM postrider.migrations");
    let refused =
        format!("was written by a newer version (schema {schema}, this one knows {old_schema})");
    assert!(words.contains(&refused), "{words}");

    let mut acknowledged = load.end();
    acknowledged.extend(mixed.end());
    let ended = scene.settle(&acknowledged, &in_flight);
    println!("rolling upgrade, schema {old_schema} to {schema}: takeover {took:?}, {ended}");
}
