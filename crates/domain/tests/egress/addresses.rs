//! The edges of every listed network: its first and last address, and the neighbours of both.

use std::net::IpAddr;

use postrider_domain::egress::{EgressPolicy, vet_address, vet_url};

/// A network; the address before it, its first, its last, the address after it. A `!` marks a
/// neighbour that is refused too, a `-` that there is no neighbour.
const EDGES: [[&str; 5]; 23] = [
    ["0.0.0.0/8", "-", "0.0.0.0", "0.255.255.255", "1.0.0.0"],
    ["10.0.0.0/8", "9.255.255.255", "10.0.0.0", "10.255.255.255", "11.0.0.0"],
    ["100.64.0.0/10", "100.63.255.255", "100.64.0.0", "100.127.255.255", "100.128.0.0"],
    ["127.0.0.0/8", "126.255.255.255", "127.0.0.0", "127.255.255.255", "128.0.0.0"],
    ["168.63.129.16/32", "168.63.129.15", "168.63.129.16", "168.63.129.16", "168.63.129.17"],
    ["169.254.0.0/16", "169.253.255.255", "169.254.0.0", "169.254.255.255", "169.255.0.0"],
    ["172.16.0.0/12", "172.15.255.255", "172.16.0.0", "172.31.255.255", "172.32.0.0"],
    ["192.0.0.0/24", "191.255.255.255", "192.0.0.0", "192.0.0.255", "192.0.1.0"],
    ["192.0.2.0/24", "192.0.1.255", "192.0.2.0", "192.0.2.255", "192.0.3.0"],
    ["192.31.196.0/24", "192.31.195.255", "192.31.196.0", "192.31.196.255", "192.31.197.0"],
    ["192.52.193.0/24", "192.52.192.255", "192.52.193.0", "192.52.193.255", "192.52.194.0"],
    ["192.88.99.0/24", "192.88.98.255", "192.88.99.0", "192.88.99.255", "192.88.100.0"],
    ["192.168.0.0/16", "192.167.255.255", "192.168.0.0", "192.168.255.255", "192.169.0.0"],
    ["192.175.48.0/24", "192.175.47.255", "192.175.48.0", "192.175.48.255", "192.175.49.0"],
    ["198.18.0.0/15", "198.17.255.255", "198.18.0.0", "198.19.255.255", "198.20.0.0"],
    ["198.51.100.0/24", "198.51.99.255", "198.51.100.0", "198.51.100.255", "198.51.101.0"],
    ["203.0.113.0/24", "203.0.112.255", "203.0.113.0", "203.0.113.255", "203.0.114.0"],
    ["224.0.0.0/4", "223.255.255.255", "224.0.0.0", "239.255.255.255", "!240.0.0.0"],
    ["240.0.0.0/4", "!239.255.255.255", "240.0.0.0", "255.255.255.255", "-"],
    [
        "2001::/23",
        "2000:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        "2001::",
        "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff",
        "2001:200::",
    ],
    [
        "2001:db8::/32",
        "2001:db7:ffff:ffff:ffff:ffff:ffff:ffff",
        "2001:db8::",
        "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff",
        "2001:db9::",
    ],
    [
        "2002::/16",
        "2001:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        "2002::",
        "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        "2003::",
    ],
    [
        "3fff::/20",
        "3ffe:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        "3fff::",
        "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff",
        "3fff:1000::",
    ],
];

/// Checks that both functions return this verdict.
fn check(address: &str, is_allowed: bool) {
    let strict = EgressPolicy::default();
    let ip: IpAddr = address.parse().expect("an address");
    assert_eq!(vet_address(ip, &strict).is_ok(), is_allowed, "{address} as an address");
    let url = if ip.is_ipv6() { format!("https://[{ip}]/") } else { format!("https://{ip}/") };
    assert_eq!(vet_url(&url, &strict).is_ok(), is_allowed, "{url}");
}

#[test]
fn networks_are_refused_from_their_first_to_their_last_address_and_no_further() {
    for [network, before, first, last, after] in EDGES {
        let parsed: ipnet::IpNet = network.parse().unwrap();
        assert_eq!((parsed.network(), parsed.broadcast()), {
            (first.parse().unwrap(), last.parse().unwrap())
        });
        check(first, false);
        check(last, false);
        for neighbour in [before, after] {
            match neighbour.strip_prefix('!') {
                Some(refused) => check(refused, false),
                None if neighbour == "-" => {}
                None => check(neighbour, true),
            }
        }
    }
    println!("address edges: {} networks, every edge as listed", EDGES.len() + 1);
}

#[test]
fn ipv6_is_allowed_from_the_first_to_the_last_global_unicast_address_and_no_further() {
    check("1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", false);
    check("2000::", true);
    check("3fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", true);
    check("4000::", false);
    check("::", false);
    check("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", false);
}

#[test]
fn no_form_of_ipv4_in_ipv6_is_a_way_around() {
    for carried in ["127.0.0.1", "10.0.0.1", "169.254.169.254", "8.8.8.8"] {
        for prefix in ["::", "::ffff:", "::ffff:0:", "64:ff9b::", "64:ff9b:1::"] {
            check(&format!("{prefix}{carried}"), false);
        }
        let ip: std::net::Ipv4Addr = carried.parse().unwrap();
        let (high, low) = (ip.to_bits() >> 16, ip.to_bits() & 0xffff);
        check(&format!("2002:{high:x}:{low:x}::1"), false); // 6to4
        check(&format!("2001:0:{high:x}:{low:x}::1"), false); // Teredo, server
        check(&format!("fe80::5efe:{high:x}:{low:x}"), false); // ISATAP
    }
}
