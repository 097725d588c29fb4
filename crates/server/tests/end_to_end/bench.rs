//! `postrider bench` measures and verifies; the speed of this machine is not checked.

use std::process::{Command, Stdio};

use serde_json::Value as Json;

use crate::support::{Deadline, postrider, run, stderr, stdout};

#[test]
fn a_quick_run_tells_every_figure_and_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let output = postrider(&["bench", "--quick", "--json", "--only", "fan-out 5"])
        .args(["--only", "100/s", "--connections", "4", "--dir"])
        .arg(directory.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let report: Json = serde_json::from_str(&stdout(&output)).unwrap();
    let scenarios = report["scenarios"].as_array().unwrap();
    let names: Vec<_> = scenarios.iter().map(|one| one["scenario"]["name"].clone()).collect();
    assert_eq!(names, ["single, fan-out 5", "batch, fan-out 5", "100/s"]);
    for one in scenarios {
        for figure in [
            "events_per_second",
            "deliveries_per_second",
            "ceiling_per_second",
            "ratio",
            "ceiling_us",
            "peak_bytes",
            "deliveries",
        ] {
            assert!(one[figure].as_f64().unwrap() > 0.0, "{figure}: {one}");
        }
        for cost in ["server_us", "load_us", "receiver_us", "written_bytes"] {
            assert!(one["per_delivery"][cost].as_f64().unwrap() >= 0.0, "{cost}: {one}");
        }
        for latency in [&one["arrived"], &one["accepted"]] {
            let at = |name: &str| latency[name].as_u64().unwrap();
            assert!(0 < at("p50") && at("p50") <= at("p90") && at("p90") <= at("p99"), "{one}");
            assert!(at("p99") <= at("max"), "{one}");
        }
        assert_eq!((&one["lost"], &one["repeated"]), (&0.into(), &0.into()), "{one}");
        let fan_out = one["scenario"]["fan_out"].as_u64().unwrap();
        assert_eq!(one["deliveries"].as_u64().unwrap() % fan_out, 0, "{one}");
    }
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
    assert!(left.is_empty(), "the data is gone: {left:?}");
}

#[test]
fn growth_is_measured_on_stores_that_were_filled() {
    let directory = tempfile::tempdir().unwrap();
    let output = postrider(&["bench", "growth", "--json", "--subscriptions", "10"])
        .args(["--destinations", "5", "--waiting", "500", "--seconds", "0.1", "--dir"])
        .arg(directory.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let report: Json = serde_json::from_str(&stdout(&output)).unwrap();
    let points = report["points"].as_array().unwrap();
    let names: Vec<_> = points.iter().map(|one| one["name"].clone()).collect();
    assert_eq!(names, ["1 of each", "10 subscriptions", "5 destinations", "500 waiting"]);
    for one in points {
        for figure in ["deliveries_per_second", "resident_bytes", "peak_bytes", "first_delivery_ms"]
        {
            assert!(one[figure].as_f64().unwrap() > 0.0, "{figure}: {one}");
        }
        assert_eq!(one["lost"], 0, "{one}");
    }
}

#[test]
fn unknown_scenario_and_part_without_a_task_are_usage_errors() {
    assert_eq!(run(&["bench", "--only", "nonsense"]).status.code(), Some(2));
    assert_eq!(run(&["bench", "--seconds", "0"]).status.code(), Some(2));
    let output = run(&["bench", "--nodes", "2"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("give --store"), "{}", stderr(&output));
    for part in ["load", "ceiling"] {
        let output = run(&["bench", part]);
        assert_eq!(output.status.code(), Some(2), "{part}");
        assert!(stderr(&output).contains("a part of `postrider bench`"), "{}", stderr(&output));
    }
}

/// An interrupted measurement leaves no process and no file behind.
#[test]
fn a_measurement_that_is_broken_off_leaves_nothing_behind() {
    for (signal, code) in [("TERM", 143), ("INT", 130)] {
        let directory = tempfile::tempdir().unwrap();
        let mut bench = postrider(&["bench", "--only", "single", "--seconds", "600", "--dir"])
            .arg(directory.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let deadline = Deadline::new();
        // The receiver, a server, and the sender or the bare client.
        let mut children = Vec::new();
        while children.len() < 3 {
            assert!(!deadline.has_passed(), "it did not begin");
            children = children_of(bench.id());
            std::thread::yield_now();
        }
        let kill = format!("kill -s {signal} {}", bench.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
        assert_eq!(bench.wait().unwrap().code(), Some(code), "{signal}");
        while let Some(left) = children.iter().find(|id| is_alive(**id)) {
            assert!(!deadline.has_passed(), "process {left} is left behind by {signal}");
            std::thread::yield_now();
        }
        let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
        assert!(left.is_empty(), "the data is gone: {left:?}");
    }
}

fn children_of(parent: u32) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let ids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter(|id| stat(*id).is_some_and(|(_, of)| of == parent)).collect()
}

/// Whether a process runs; a zombie does not count.
fn is_alive(id: u32) -> bool {
    stat(id).is_some_and(|(state, _)| state != "Z")
}

/// State and parent of a process.
fn stat(id: u32) -> Option<(String, u32)> {
    let text = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
}
