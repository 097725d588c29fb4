//! The client's address, and whether it came over TLS, as trusted proxies tell it.
//!
//! `X-Forwarded-For` and `Forwarded` are read from the right, because each proxy appends the address
//! that it saw: what stands to the left of the first address that is not a trusted proxy was written by
//! a client or a proxy that is not trusted. Where the two headers disagree, one of them came from the
//! client, so neither is used.

use std::net::{IpAddr, SocketAddr};

use axum::http::HeaderMap;
use axum::http::header::FORWARDED;
use ipnet::IpNet;

/// Who is behind this peer, which is a trusted proxy.
pub(super) fn client(peer: IpAddr, headers: &HeaderMap, trusted: &[IpNet]) -> IpAddr {
    let peer = peer.to_canonical();
    let common = hops(headers, "x-forwarded-for", address);
    let standard = hops(headers, FORWARDED.as_str(), element);
    match (common, standard) {
        (None, None) => peer,
        (Some(hops), None) | (None, Some(hops)) => farthest(peer, hops, trusted),
        (Some(common), Some(standard)) => {
            let common = farthest(peer, common, trusted);
            if common == farthest(peer, standard, trusted) { common } else { peer }
        }
    }
}

/// Whether the nearest proxy was asked over TLS: it says so by the last `X-Forwarded-Proto`, or by `proto=` in
/// the last element of `Forwarded`. Where the two disagree, one of them came from the client: it was not.
pub(super) fn is_tls(headers: &HeaderMap) -> bool {
    let last = |name: &str| {
        let value = headers.get_all(name).iter().next_back()?;
        Some(value.to_str().unwrap_or_default().rsplit(',').next().unwrap_or_default().trim())
    };
    let is_https = |text: &str| text.eq_ignore_ascii_case("https");
    let common = last("x-forwarded-proto").map(is_https);
    let standard = last(FORWARDED.as_str()).and_then(|element| {
        let pairs = element.split(';').filter_map(|pair| pair.trim().split_once('='));
        let mut named = pairs.filter(|(name, _)| name.eq_ignore_ascii_case("proto"));
        named.next().map(|(_, value)| is_https(value.trim().trim_matches('"')))
    });
    match (common, standard) {
        (None, None) => false,
        (Some(said), None) | (None, Some(said)) => said,
        (Some(common), Some(standard)) => common && standard,
    }
}

/// The addresses that a header names, nearest first; `None` for an entry that names none.
type Hops = Vec<Option<IpAddr>>;

fn hops(headers: &HeaderMap, name: &str, parse: fn(&str) -> Option<IpAddr>) -> Option<Hops> {
    let mut hops: Hops = Vec::new();
    for value in headers.get_all(name) {
        let Ok(text) = value.to_str() else {
            hops.push(None);
            continue;
        };
        hops.extend(text.split(',').map(|entry| parse(entry.trim())));
    }
    hops.reverse();
    (!hops.is_empty()).then_some(hops)
}

/// Walks from proxy to proxy, up to the first address that is not a trusted proxy or cannot be parsed.
fn farthest(peer: IpAddr, hops: Hops, trusted: &[IpNet]) -> IpAddr {
    let mut known = peer;
    for hop in hops {
        let Some(hop) = hop else { break };
        known = hop;
        if !trusted.iter().any(|network| network.contains(&hop)) {
            break;
        }
    }
    known
}

/// `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]` or `[2001:db8::1]:80`.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    bare.parse().ok().or_else(with_port).map(|address: IpAddr| address.to_canonical())
}

/// The address in `for=…` of an element such as `for="[2001:db8::1]:80";proto=https`.
fn element(text: &str) -> Option<IpAddr> {
    let pairs = text.split(';').filter_map(|pair| pair.trim().split_once('='));
    let mut named = pairs.filter(|(name, _)| name.eq_ignore_ascii_case("for"));
    let (_, value) = named.next()?;
    address(value.trim().trim_matches('"'))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderName;

    use super::*;

    fn check(headers: &[(&str, &str)], expected: &str) {
        let trusted: Vec<IpNet> =
            vec!["192.0.2.0/24".parse().unwrap(), "fd00::/8".parse().unwrap()];
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        }
        let found = client("192.0.2.1".parse().unwrap(), &map, &trusted);
        assert_eq!(found.to_string(), expected, "{headers:?}");
    }

    #[test]
    fn forwarded_addresses_are_read_from_the_right() {
        let xff = "x-forwarded-for";
        check(&[], "192.0.2.1");
        check(&[(xff, "198.51.100.7")], "198.51.100.7");
        check(&[(xff, "203.0.113.9, 198.51.100.7")], "198.51.100.7");
        check(&[(xff, "203.0.113.9, 198.51.100.7, 192.0.2.4")], "198.51.100.7");
        check(&[(xff, "203.0.113.9"), (xff, "198.51.100.7:4711")], "198.51.100.7");
        check(&[(xff, "192.0.2.9, 192.0.2.4")], "192.0.2.9");
        check(&[(xff, "203.0.113.9, nonsense, 192.0.2.4")], "192.0.2.4");
        check(&[(xff, "nonsense")], "192.0.2.1");
        check(&[(xff, "")], "192.0.2.1");
        check(&[(xff, "[2001:db8::1]:80, fd00::2")], "2001:db8::1");
        check(&[(xff, "::ffff:198.51.100.7")], "198.51.100.7");
    }

    #[test]
    fn the_standard_header_is_read_in_the_same_way() {
        check(
            &[("forwarded", "for=203.0.113.9, For=\"198.51.100.7:80\";proto=https")],
            "198.51.100.7",
        );
        check(&[("forwarded", "proto=https;for=\"[2001:db8::1]\"")], "2001:db8::1");
        check(&[("forwarded", "for=unknown")], "192.0.2.1");
    }

    #[test]
    fn nearest_proxy_says_whether_it_was_asked_over_tls() {
        let check = |headers: &[(&str, &str)], expected: bool| {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
            }
            assert_eq!(is_tls(&map), expected, "{headers:?}");
        };
        let proto = "x-forwarded-proto";
        check(&[], false);
        check(&[(proto, "https")], true);
        check(&[(proto, "HTTPS")], true);
        check(&[(proto, "http")], false);
        check(&[(proto, "https, http")], false);
        check(&[(proto, "https"), (proto, "http")], false);
        check(&[("forwarded", "for=1.2.3.4;proto=https")], true);
        check(&[("forwarded", "for=1.2.3.4;proto=https, for=5.6.7.8;proto=http")], false);
        check(&[("forwarded", "for=1.2.3.4")], false);
        check(&[(proto, "https"), ("forwarded", "proto=http")], false);
        check(&[(proto, "https"), ("forwarded", "for=1.2.3.4")], true);
    }

    #[test]
    fn headers_that_disagree_are_not_believed() {
        let xff = ("x-forwarded-for", "198.51.100.7");
        check(&[xff, ("forwarded", "for=198.51.100.7")], "198.51.100.7");
        check(&[xff, ("forwarded", "for=203.0.113.9")], "192.0.2.1");
    }
}
