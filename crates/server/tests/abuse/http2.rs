//! HTTP/2 floods, which need a special client.

use std::time::Duration;

use crate::kit::{ATTACKER, Verdict, count};
use crate::scene::Scene;
use crate::wire::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, Http2, INITIAL_WINDOW, PING, RST_STREAM,
    SETTINGS, WINDOW_UPDATE, frame, literal, request,
};

/// Runs a flood on several connections beside the victim: the victim must be answered, and memory
/// may grow by at most 200 MiB.
fn flood(name: &'static str, connections: usize, attack: impl Fn(&Scene, &mut Http2) -> String) {
    let mut verdict = Verdict::of(name);
    let scene = Scene::start();
    let quiet = scene.quiet();
    let before = scene.memory();
    let watch = scene.watch();
    let mut open = Vec::new();
    for _ in 0..connections {
        let settings = if name.contains("window") { vec![(INITIAL_WINDOW, 0)] } else { vec![] };
        let Ok(mut http2) = Http2::open(scene.address(), ATTACKER, &settings) else { continue };
        let said = attack(&scene, &mut http2);
        if open.is_empty() {
            verdict.figure(said);
        }
        open.push(http2);
    }
    let grown = scene.memory().saturating_sub(before);
    let peak = scene.peak().saturating_sub(before);
    verdict.victim(&quiet, &watch.end());
    let open = open.len();
    verdict.figure(format!("{open} connections, memory +{grown} MiB (peak +{peak})"));
    verdict.must(peak < 200, format!("memory grew by {peak} MiB"));
    verdict.must(scene.is_sound(), "the server is not sound afterwards");
    verdict.end();
}

#[test]
fn rapid_reset_does_not_stall_others() {
    flood("HTTP/2 rapid reset", count(4, 20), |scene, http2| {
        let block = request("POST", "/v1/events", &scene.mallory);
        let (mut sent, streams) = (0, count(5_000, 50_000));
        for n in 0..u32::try_from(streams).unwrap() {
            let stream = 2 * n + 1;
            let mut bytes = frame(HEADERS, END_HEADERS, stream, &block);
            bytes.extend(frame(RST_STREAM, 0, stream, &8u32.to_be_bytes()));
            if http2.send(&bytes).is_err() {
                break;
            }
            sent += 1;
        }
        let (_, closed) = http2.drain(Duration::from_millis(500));
        format!("{sent} of {streams} streams before {}", ended(closed))
    });
}

#[test]
fn continuation_flood_is_cut() {
    flood("HTTP/2 CONTINUATION flood", count(4, 20), |scene, http2| {
        let block = request("GET", "/healthz", &scene.mallory);
        let mut sent = 0;
        let mut going = http2.send(&frame(HEADERS, END_STREAM, 1, &block)).is_ok();
        let mut piece = Vec::new();
        for n in 0..100 {
            literal(&mut piece, 0, format!("x-{n}").as_bytes(), &[b'y'; 150]);
        }
        for _ in 0..count(1_000, 10_000) {
            going = going && http2.send(&frame(CONTINUATION, 0, 1, &piece)).is_ok();
            if !going {
                break;
            }
            sent += piece.len();
        }
        let (_, closed) = http2.drain(Duration::from_millis(500));
        format!("{} KiB of one head before {}", sent / 1024, ended(closed || !going))
    });
}

#[test]
fn hpack_bomb_is_bounded() {
    flood("HPACK bomb", count(4, 20), |scene, http2| {
        let mut sent = 0;
        for n in 0..200u32 {
            let mut block = request("GET", "/healthz", &scene.mallory);
            // One entry of the table, then one byte for each repetition of it.
            literal(&mut block, 0x40, b"x-bomb", &[b'z'; 3_900]);
            block.extend(std::iter::repeat_n(0x80 | 62, 10_000));
            if http2.send(&frame(HEADERS, END_HEADERS | END_STREAM, 2 * n + 1, &block)).is_err() {
                break;
            }
            sent += 1;
        }
        let (_, closed) = http2.drain(Duration::from_millis(500));
        format!("{sent} of 200 heads of 39 MB each before {}", ended(closed))
    });
}

#[test]
fn closed_window_holds_no_unbounded_answers() {
    flood("HTTP/2 window never opened", count(10, 100), |scene, http2| {
        let block = request("GET", "/openapi.json", &scene.mallory);
        let mut sent = 0;
        for n in 0..250u32 {
            let bytes = frame(HEADERS, END_HEADERS | END_STREAM, 2 * n + 1, &block);
            sent += u32::from(http2.send(&bytes).is_ok());
        }
        http2.drain(Duration::from_millis(200));
        format!("{sent} answers of a large document asked for on each connection")
    });
}

#[test]
fn ping_and_settings_floods_are_bounded() {
    flood("HTTP/2 PING and SETTINGS flood, answers unread", count(4, 20), |_, http2| {
        let mut bytes = Vec::new();
        for n in 0..500u64 {
            bytes.extend(frame(PING, 0, 0, &n.to_be_bytes()));
            bytes.extend(frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100]));
        }
        let mut sent = 0;
        for _ in 0..count(200, 2_000) {
            if http2.send(&bytes).is_err() {
                break;
            }
            sent += 1_000;
        }
        format!("{sent} frames before the server stopped reading")
    });
}

#[test]
fn empty_frames_and_window_updates_do_not_stall_others() {
    flood("HTTP/2 empty DATA and WINDOW_UPDATE flood", count(4, 20), |scene, http2| {
        let block = request("POST", "/v1/events", &scene.mallory);
        drop(http2.send(&frame(HEADERS, END_HEADERS, 1, &block)));
        let mut bytes = Vec::new();
        for _ in 0..500 {
            bytes.extend(frame(DATA, 0, 1, b""));
            bytes.extend(frame(WINDOW_UPDATE, 0, 0, &1u32.to_be_bytes()));
        }
        let mut sent = 0;
        for _ in 0..count(200, 2_000) {
            if http2.send(&bytes).is_err() {
                break;
            }
            sent += 1_000;
        }
        let (_, closed) = http2.drain(Duration::from_millis(500));
        format!("{sent} frames before {}", ended(closed))
    });
}

#[test]
fn malformed_frames_end_their_connection_only() {
    flood("HTTP/2 malformed frames", 1, |scene, _| {
        let bad: [Vec<u8>; 8] = [
            frame(HEADERS, END_HEADERS, 0, b"\x82"),
            frame(DATA, 0, 1, b"x"),
            frame(SETTINGS, 0, 1, b""),
            frame(SETTINGS, 0, 0, b"\0"),
            frame(WINDOW_UPDATE, 0, 0, &0u32.to_be_bytes()),
            frame(PING, 0, 0, b"short"),
            frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f"),
            vec![0xff; 64],
        ];
        let closed = bad.iter().filter(|bytes| {
            let Ok(mut http2) = Http2::open(scene.address(), ATTACKER, &[]) else { return false };
            drop(http2.send(bytes));
            http2.drain(Duration::from_secs(20)).1
        });
        format!("{} of {} closed", closed.count(), bad.len())
    });
}

fn ended(closed: bool) -> &'static str {
    if closed { "the server closed" } else { "the end, unclosed" }
}
