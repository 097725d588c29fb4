//! The bodies of the fuzz targets: properties that hold for any bytes that somebody sends.
//!
//! With a nightly toolchain libFuzzer runs them (`fuzz/`). On stable the tests of each crate run
//! them with [`stir`]: known inputs with random mutations. **Nothing may panic, and accepted input
//! must satisfy its checks.** Never part of a release build.

use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;

use crate::attempt::RetryAfter;
use crate::egress::{EgressPolicy, vet_address, vet_url};
use crate::event::{Event, EventType, RawJson};
use crate::filter::{Budget, EventView, Filter, OverBudget};
use crate::ids::{DeliveryId, EventId, ObjectId, SubscriptionId, TenantId};
use crate::mixing::STEP;
use crate::signature::{SignedHeaders, SigningSecret, VerifyKey, verify};
use crate::subscription::{CustomHeader, TypePattern};
use crate::time::Timestamp;
use crate::trace::TraceContext;
use crate::workfront::filters::{Connector, compile};
use crate::workfront::payload::{Encoding, body, states};
use crate::workfront::{Happening, Version};

/// A fuzz target.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name, which is the name of its file in `fuzz/fuzz_targets`.
    pub name: &'static str,
    /// Runs the target on any bytes; panics if a property does not hold.
    pub run: fn(&[u8]),
    /// The initial inputs.
    pub seeds: &'static [&'static [u8]],
}

/// The fuzz targets of this crate.
pub const TARGETS: &[Target] = &[
    Target {
        name: "event_json",
        run: event_json,
        seeds: &[b"{\"a\":[1,2.5e3,null,true,\"\\ud83d\\ude00\"],\"b\":{}}", b"[[[[[[]]]]]]", b"1e999"],
    },
    Target {
        name: "filter",
        run: filter,
        seeds: &[
            b"{\"all\":[{\"field\":\"data.status\",\"op\":\"eq\",\"value\":\"CUR\"}]}\0{\"status\":\"CUR\"}",
            b"{\"any\":[{\"field\":\"data.n\",\"op\":\"gte\",\"value\":3},{\"field\":\"data.t\",\"op\":\"lt\",\"value\":\"2026-01-01T00:00:00Z\"}]}\0{\"n\":3,\"t\":\"2025-01-01T00:00:00Z\"}",
            b"{\"field\":\"data.tags\",\"op\":\"contains_only\",\"value\":[\"a\"]}\0{\"tags\":[\"a\",\"a\"]}",
            b"{\"field\":\"data.x\",\"op\":\"changed\"}\0{\"x\":1e400}",
        ],
    },
    Target {
        name: "workfront",
        run: workfront,
        seeds: &[
            b"[{\"fieldName\":\"a\",\"fieldValue\":\"1\",\"comparison\":\"lt\"},{\"type\":\"group\",\"connector\":\"OR\",\"filters\":[{\"fieldName\":\"b\",\"fieldValue\":{\"c\":{\"d\":1,\"e\":2}}},{\"fieldName\":\"f\",\"comparison\":\"changed\"}]}]\0{\"a\":[\"x\"],\"b\":[ \"y\" ]}",
            b"[{\"fieldName\":\"t\",\"fieldValue\":\"2022-12-11T16:00:00.000-0800\",\"comparison\":\"gte\",\"state\":\"oldState\"}]\0{\"t\":\"2022-12-11T16:00:00.000-0700\"}",
        ],
    },
    Target {
        name: "url",
        run: url,
        seeds: &[
            b"https://hooks.example.com/in?a=b",
            b"https://[2606:4700::1111]:8443/",
            b"https://0x7f.1/",
            b"https://[::ffff:10.0.0.1]/",
            b"http://user:pw@host.example.com:80/#f",
            "https://bücher.example/\u{200b}".as_bytes(),
        ],
    },
    Target {
        name: "header",
        run: header,
        seeds: &[b"x-team: a value", b"content-length: 3", b"x\r\nhost: a", b"proxy-x: y"],
    },
    Target {
        name: "secret",
        run: secret,
        seeds: &[
            b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            b"whsk_VEVTVFNJR05JTkdLRVlET05PVFVTRVRISVNGT1JBTlk=",
            b"whpk_ZlN4eg7dSSqi0moX9hQUk3orrOouK3QVQSlJa248c/g=",
        ],
    },
    Target {
        name: "signature",
        run: signature,
        seeds: &[
            b"msg_1\x001614265330\0v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=\0{}",
            b"msg_1\x001614265330\0v1a,AAAA v1, v2,x\0body",
        ],
    },
    Target {
        name: "retry_after",
        run: retry_after,
        seeds: &[b"120", b"Sun, 06 Nov 1994 08:49:37 GMT", b"99999999999999999999", b"-1"],
    },
    Target {
        name: "ids_and_times",
        run: ids_and_times,
        seeds: &[
            b"dlv_01a1dfad4bae78048cb509c2768520c9",
            b"2026-11-15T14:47:18.719Z",
            b"2026-11-15T24:00:60+23:59",
            b"task.updated",
            b"task.*",
            b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ],
    },
];

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

/// An event with this payload, if it is valid JSON.
fn event_of(data: &[u8]) -> Option<Event> {
    Some(Event {
        id: EventId::new(Timestamp::EPOCH, [0; 10]),
        tenant: TenantId::default_tenant(),
        kind: "task.updated".parse().ok()?,
        object: None,
        data: RawJson::parse(Bytes::copy_from_slice(data)).ok()?,
        old: RawJson::parse(Bytes::from_static(b"{\"x\":1}")).ok(),
        time: Timestamp::EPOCH,
        trace: None,
    })
}

fn event_json(bytes: &[u8]) {
    let Some(event) = event_of(bytes) else { return };
    assert_eq!(event.data.as_bytes(), bytes, "kept byte for byte");
    // A filter can evaluate every accepted event, whatever numbers and texts it has.
    let exists = serde_json::json!({ "field": "data", "op": "exists" });
    if let Ok(filter) = Filter::compile(&exists) {
        let verdict = filter.evaluate(&EventView::new(&event), &mut Budget::unlimited());
        assert_eq!(verdict, Ok(true), "accepted, and nothing is there");
    }
}

fn filter(bytes: &[u8]) {
    let mut parts = bytes.splitn(2, |byte| *byte == 0);
    let (Some(source), Some(data)) = (parts.next(), parts.next()) else { return };
    let Ok(source) = serde_json::from_slice::<Value>(source) else { return };
    match Filter::compile(&source) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(filter) => {
            if let Some(event) = event_of(data) {
                let verdict = |mut budget: Budget| {
                    let verdict = filter.evaluate(&EventView::new(&event), &mut budget);
                    (verdict, budget)
                };
                let (first, left) = verdict(Budget::unlimited());
                let taken = Budget::unlimited().left() - left.left();
                assert!(first.is_ok(), "no filter needs more steps than there are");
                assert_eq!(verdict(Budget::new(taken)), (first, Budget::new(0)), "every time");
                if taken > 0 {
                    assert_eq!(verdict(Budget::new(taken - 1)).0, Err(OverBudget), "one too few");
                }
            }
        }
    }
}

fn workfront(bytes: &[u8]) {
    let mut parts = bytes.splitn(2, |byte| *byte == 0);
    let (Some(source), Some(data)) = (parts.next(), parts.next()) else { return };
    if let Some(event) = event_of(data) {
        for version in Version::ALL {
            for base64 in [false, true] {
                let states = states(&event, Encoding { version, base64 });
                let id = SubscriptionId::from_bytes([7; 16]);
                let body = body(&event, id, (version, version), &states.body).body.to_bytes();
                let json = serde_json::from_slice::<&serde_json::value::RawValue>(&body);
                assert!(json.is_ok(), "the body of an event is JSON");
            }
        }
    }
    let Ok(source) = serde_json::from_slice::<Value>(source) else { return };
    for connector in [Connector::And, Connector::Or] {
        match compile(&source, connector, Happening::Update) {
            Err(error) => assert!(!error.why.is_empty()),
            Ok(None) => {}
            Ok(Some(filter)) => {
                let stored = filter.source().to_string();
                assert!(serde_json::from_str::<Filter>(&stored).is_ok(), "what is stored is read");
            }
        }
    }
}

fn url(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    for allow_http in [false, true] {
        let policy = EgressPolicy { allow_http, ..EgressPolicy::default() };
        let Ok(url) = vet_url(text, &policy) else { continue };
        // An accepted URL is accepted again, unchanged, and contains no forbidden address.
        assert_eq!(vet_url(url.as_str(), &policy).as_ref(), Ok(&url), "{text:?}");
        assert!(allow_http || url.is_https());
        match url.host() {
            url::Host::Ipv4(address) => assert_eq!(vet_address(address.into(), &policy), Ok(())),
            url::Host::Ipv6(address) => assert_eq!(vet_address(address.into(), &policy), Ok(())),
            url::Host::Domain(name) => assert!(name.contains('.'), "{text:?}"),
        }
        assert!(url.as_str().bytes().all(|byte| byte.is_ascii_graphic()), "{text:?}");
    }
}

fn header(bytes: &[u8]) {
    let Some((name, value)) = text(bytes).and_then(|text| text.split_once(':')) else { return };
    if let Ok(header) = CustomHeader::new(name, value.trim_start()) {
        let is_plain = |text: &str| !text.bytes().any(|byte| byte < 0x20 || byte == 0x7f);
        assert!(is_plain(header.name()) && is_plain(header.value()), "{header:?}");
        let name = header.name().to_ascii_lowercase();
        let refused = ["host", "content-length", "transfer-encoding", "connection", "content-type"];
        assert!(!refused.contains(&name.as_str()) && !name.starts_with("webhook-"), "{name}");
    }
}

fn secret(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    if let Ok(secret) = text.parse::<SigningSecret>() {
        let again = secret.expose().parse::<SigningSecret>();
        assert!(again.is_ok_and(|again| again.expose() == secret.expose()));
        assert!(!format!("{secret:?}").contains(&secret.expose()[6..]), "a secret is never shown");
    }
    drop(text.parse::<VerifyKey>());
}

fn signature(bytes: &[u8]) {
    let mut parts = bytes.splitn(4, |byte| *byte == 0);
    let mut next = || parts.next();
    let (id, timestamp, signature) =
        (next().and_then(text), next().and_then(text), next().and_then(text));
    let body = next().unwrap_or_default();
    let key = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=".parse::<VerifyKey>();
    if let Ok(key) = key {
        let headers = SignedHeaders { id, timestamp, signature };
        let now = Timestamp::from_unix_ms(1_614_265_330_000);
        let verdict = verify([&key], headers, body, now, Duration::from_secs(300));
        assert!(verdict.is_err(), "nobody has this key");
    }
}

fn retry_after(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    if let Some(wish) = RetryAfter::parse(text, Timestamp::EPOCH) {
        let now = Timestamp::from_unix_ms(1_700_000_000_000);
        if let RetryAfter::Delay(_) = wish {
            assert!(wish.at(now) >= now);
        }
    }
}

/// A value that is parsed and displayed parses to the same value again.
fn round_trip<T>(text: &str)
where
    T: std::str::FromStr + std::fmt::Display + PartialEq + std::fmt::Debug,
{
    if let Ok(value) = text.parse::<T>() {
        let again = value.to_string().parse::<T>().ok();
        assert_eq!(again.as_ref(), Some(&value), "{text:?}");
    }
}

fn ids_and_times(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    round_trip::<DeliveryId>(text);
    round_trip::<EventId>(text);
    round_trip::<ObjectId>(text);
    round_trip::<TenantId>(text);
    round_trip::<Timestamp>(text);
    round_trip::<EventType>(text);
    round_trip::<TypePattern>(text);
    if let Some(trace) = TraceContext::parse(text) {
        assert_eq!(TraceContext::from_bytes(trace.to_bytes()), Some(trace));
    }
}

/// Mutates a known input pseudo-randomly: the same number gives the same bytes.
pub fn stir(seeds: &[&[u8]], number: u64) -> Vec<u8> {
    let mut random = Stirred(number.wrapping_mul(STEP) | 1);
    let mut bytes = random.choice(seeds).map(|seed| seed.to_vec()).unwrap_or_default();
    for _ in 0..=random.below(6) {
        random.change(&mut bytes, seeds);
    }
    bytes
}

/// Byte sequences that often break parsers.
const PIECES: [&[u8]; 20] = [
    b"\0",
    b"\r\n",
    b"\xff",
    b"\xc0\x80",
    b"\xed\xa0\x80",
    b"\\u0000",
    b"\\ud800",
    b"[[[[[[[[",
    b"{\"\":",
    b"1e999",
    b"-0",
    b"18446744073709551616",
    b"\xe2\x80\xae",
    b"%00",
    b"..",
    b"//",
    b"@",
    b"#",
    b"[::1]",
    b"\"",
];

struct Stirred(u64);

impl Stirred {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let end = u64::try_from(end).unwrap_or(1).max(1);
        usize::try_from((self.0 >> 11) % end).unwrap_or(0)
    }

    fn choice<'a>(&mut self, from: &[&'a [u8]]) -> Option<&'a [u8]> {
        let index = self.below(from.len());
        from.get(index).copied()
    }

    fn change(&mut self, bytes: &mut Vec<u8>, seeds: &[&[u8]]) {
        let at = self.below(bytes.len() + 1);
        match self.below(6) {
            0 => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << self.below(8);
                }
            }
            1 => bytes.truncate(at),
            2 => {
                let end = (at + 1 + self.below(8)).min(bytes.len());
                drop(bytes.drain(at.min(end)..end));
            }
            3 => {
                let piece = self.choice(&PIECES).unwrap_or_default();
                drop(bytes.splice(at..at, piece.iter().copied()));
            }
            4 => {
                let end = (at + 1 + self.below(16)).min(bytes.len());
                let piece = bytes[at.min(end)..end].to_vec();
                for _ in 0..=self.below(9) {
                    drop(bytes.splice(at..at, piece.iter().copied()));
                }
            }
            _ => {
                let other = self.choice(seeds).unwrap_or_default();
                let from = self.below(other.len() + 1);
                bytes.truncate(at);
                bytes.extend(&other[from..]);
            }
        }
    }
}

/// Runs every target on its seeds and on `each` mutations of them; returns the number of runs.
pub fn run_all(targets: &[Target], each: u64) -> u64 {
    let mut runs = 0;
    for target in targets {
        for seed in target.seeds {
            (target.run)(seed);
        }
        for number in 0..each {
            (target.run)(&stir(target.seeds, number));
            runs += 1;
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mutated_inputs_break_no_parser() {
        let runs = run_all(TARGETS, 20_000);
        println!("fuzz: domain, {} targets, {runs} runs, 0 failures", TARGETS.len());
    }

    #[test]
    fn mutations_are_repeatable_and_diverse() {
        let seeds: &[&[u8]] = &[b"abc", b"xyz"];
        assert_eq!(stir(seeds, 7), stir(seeds, 7));
        let different: std::collections::BTreeSet<_> = (0..1_000).map(|n| stir(seeds, n)).collect();
        assert!(different.len() > 500, "{}", different.len());
    }
}
