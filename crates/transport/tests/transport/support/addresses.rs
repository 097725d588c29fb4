//! Addresses that must never be connected to, listed independently of the code under test.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// IPv4 networks that are not public: first address and prefix length.
const IPV4: [(&str, u32); 19] = [
    ("0.0.0.0", 8),
    ("10.0.0.0", 8),
    ("100.64.0.0", 10),
    ("127.0.0.0", 8),
    ("169.254.0.0", 16),
    ("172.16.0.0", 12),
    ("192.0.0.0", 24),
    ("192.0.2.0", 24),
    ("192.31.196.0", 24),
    ("192.52.193.0", 24),
    ("192.88.99.0", 24),
    ("192.168.0.0", 16),
    ("192.175.48.0", 24),
    ("198.18.0.0", 15),
    ("198.51.100.0", 24),
    ("203.0.113.0", 24),
    ("224.0.0.0", 4),
    ("240.0.0.0", 4),
    ("168.63.129.16", 32),
];

/// IPv6 networks that are not public.
const IPV6: [(&str, u32); 23] = [
    ("::", 128),
    ("::1", 128),
    ("::ffff:127.0.0.1", 128),
    ("::ffff:10.0.0.1", 128),
    ("::ffff:169.254.169.254", 128),
    ("::ffff:8.8.8.8", 128),
    ("::ffff:0:127.0.0.1", 128),
    ("::127.0.0.1", 128),
    ("::8.8.8.8", 128),
    ("64:ff9b::127.0.0.1", 128),
    ("64:ff9b::8.8.8.8", 128),
    ("64:ff9b:1::", 48),
    ("100::", 64),
    ("1fff::", 16),
    ("2001::", 23),
    ("2001:db8::", 32),
    ("2002::", 16),
    ("3fff::", 20),
    ("4000::", 3),
    ("fc00::", 7),
    ("fe80::", 10),
    ("fec0::", 10),
    ("ff00::", 8),
];

/// Further addresses that attackers use.
const FAVOURITES: [&str; 12] = [
    "127.0.0.1",
    "127.1.2.3",
    "169.254.169.254",
    "169.254.170.2",
    "100.100.100.200",
    "192.0.0.192",
    "10.96.0.1",
    "172.17.0.1",
    "192.168.1.1",
    "255.255.255.255",
    "fd00:ec2::254",
    "2002:7f00:1::",
];

/// The first, a middle and the last address of every network that is not public.
pub(crate) fn forbidden() -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    for (first, length) in IPV4 {
        let first = u32::from(first.parse::<Ipv4Addr>().unwrap());
        let last = first | u32::MAX.checked_shr(length).unwrap_or(0);
        let middle = first + (last - first) / 2;
        addresses.extend([first, middle, last].map(|bits| IpAddr::from(Ipv4Addr::from(bits))));
    }
    for (first, length) in IPV6 {
        let first = u128::from(first.parse::<Ipv6Addr>().unwrap());
        let last = first | u128::MAX.checked_shr(length).unwrap_or(0);
        let middle = first + (last - first) / 2;
        addresses.extend([first, middle, last].map(|bits| IpAddr::from(Ipv6Addr::from(bits))));
    }
    addresses.extend(FAVOURITES.map(|text| text.parse::<IpAddr>().unwrap()));
    addresses.sort();
    addresses.dedup();
    addresses
}

/// A URL with this address in it.
pub(crate) fn literal_url(address: IpAddr, port: u16) -> String {
    match address {
        IpAddr::V4(v4) => format!("http://{v4}:{port}/"),
        IpAddr::V6(v6) => format!("http://[{v6}]:{port}/"),
    }
}
