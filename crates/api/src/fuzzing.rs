//! The bodies of the API's fuzz targets: properties that hold for any bytes in a request.
//!
//! **Nothing may panic. A refusal is a 4xx problem, and accepted input is what was sent.** Never
//! part of a release build.

use bytes::Bytes;
use postrider_domain::fuzzing::Target;

use crate::body::Patch;
use crate::problem::Problem;
use crate::routes::events::{read_array, read_lines};
use crate::wire::event::{self, Keep};
use crate::wire::subscription::{self, SubscriptionBody};
use crate::{body, paging};

/// The fuzz targets of this crate.
pub const TARGETS: &[Target] = &[
    Target {
        name: "event_body",
        run: event_body,
        seeds: &[
            b"{\"type\":\"task.updated\",\"data\":{\"a\":1},\"old\":null,\"object\":\"o\",\"id\":\"e1\",\"time\":\"2026-11-15T14:47:18Z\"}",
            b"{\"type\":\"a\",\"data\":\"\\ud800\"}",
        ],
    },
    Target {
        name: "event_batch",
        run: event_batch,
        seeds: &[
            b"{\"type\":\"a.b\",\"data\":1}\n\r\n{\"type\":\"a.b\",\"data\":[]}",
            b"[{\"type\":\"a.b\",\"data\":1},{\"type\":\"a.b\",\"data\":{}}]",
        ],
    },
    Target {
        name: "subscription_body",
        run: subscription_body,
        seeds: &[
            b"{\"url\":\"https://hooks.example.com/\",\"types\":[\"task.*\"],\"filter\":{\"all\":[]},\"headers\":{\"x-a\":\"b\"},\"secret\":\"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\",\"rate_limit\":1.5,\"enabled\":true,\"format\":\"raw\",\"auth_token\":\"t\"}",
            b"{\"headers\":{\"a\":\"1\",\"A\":\"2\"},\"rate_limit\":1e999}",
        ],
    },
    Target {
        name: "cursor",
        run: cursor,
        seeds: &[b"10\0MTc5NDczNTAwMDAwMCBldnRfMQ", b"1000\0", b"-1\0===="],
    },
];

/// Checks that a refusal is a client error.
fn assert_is_the_callers(problem: &Problem) {
    assert!(problem.status().is_client_error(), "{problem:?}");
}

fn event_body(bytes: &[u8]) {
    let request = Bytes::copy_from_slice(bytes);
    match event::read(&request, Keep::Shared(&request)) {
        Err(problem) => assert_is_the_callers(&problem),
        Ok(event) => {
            let data = event.data.as_bytes();
            let is_there = bytes.windows(data.len().max(1)).any(|window| window == data);
            assert!(is_there, "the payload is a part of what was sent");
            assert!(!event.kind.is_reserved());
        }
    }
}

fn event_batch(bytes: &[u8]) {
    let request = Bytes::copy_from_slice(bytes);
    for read in [read_lines(&request), read_array(&request)] {
        match read {
            Err(problem) => assert_is_the_callers(&problem),
            Ok(events) => assert!(events.len() <= 1_000),
        }
    }
}

fn subscription_body(bytes: &[u8]) {
    let request = Bytes::copy_from_slice(bytes);
    let subscription: SubscriptionBody = match body::parse(&request) {
        Ok(subscription) => subscription,
        Err(problem) => return assert_is_the_callers(&problem),
    };
    let mut problems = Vec::new();
    let mut keep = |problem: Option<Problem>| problems.extend(problem);
    if let Patch::Value(types) = &subscription.types {
        keep(subscription::check_types(types).err());
    }
    if let Patch::Value(filter) = &subscription.filter {
        keep(subscription::check_filter(filter).err());
    }
    if let Patch::Value(format) = &subscription.format {
        keep(subscription::check_format(format).err());
    }
    if let Patch::Value(rate) = &subscription.rate_limit {
        keep(subscription::check_rate_limit(*rate).err());
    }
    if let Patch::Value(headers) = &subscription.headers {
        keep(subscription::check_headers(headers).err());
    }
    if let Patch::Value(token) = &subscription.auth_token {
        keep(subscription::check_token(token).err());
    }
    if let Patch::Value(secret) = &subscription.secret {
        keep(subscription::check_secret(secret).err());
    }
    problems.iter().for_each(assert_is_the_callers);
}

fn cursor(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (limit, cursor) = text.split_once('\0').unwrap_or((text, ""));
    let list = paging::ListOf { name: "fuzzed", tenant: None, filters: &[] };
    match paging::page(list, Some(limit), Some(cursor)) {
        Err(problem) => assert_is_the_callers(&problem),
        Ok(asked) => assert!((1..=1_000).contains(&asked.request.limit)),
    }
}

#[cfg(test)]
mod tests {
    use postrider_domain::fuzzing::run_all;

    use super::*;

    #[test]
    fn mutated_requests_break_no_parser() {
        let runs = run_all(TARGETS, 10_000);
        println!("fuzz: api, {} targets, {runs} runs, 0 failures", TARGETS.len());
    }
}
