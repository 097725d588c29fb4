//! An independent check of addresses, deliberately simple: ranges of integers, typed from the
//! rules, that share nothing with the code under test.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// First and last address of each IPv4 network that is not public.
pub(crate) const IPV4_NOT_PUBLIC: [(u32, u32); 19] = [
    (0x0000_0000, 0x00ff_ffff), // 0.0.0.0/8
    (0x0a00_0000, 0x0aff_ffff), // 10.0.0.0/8
    (0x6440_0000, 0x647f_ffff), // 100.64.0.0/10
    (0x7f00_0000, 0x7fff_ffff), // 127.0.0.0/8
    (0xa83f_8110, 0xa83f_8110), // 168.63.129.16/32
    (0xa9fe_0000, 0xa9fe_ffff), // 169.254.0.0/16
    (0xac10_0000, 0xac1f_ffff), // 172.16.0.0/12
    (0xc000_0000, 0xc000_00ff), // 192.0.0.0/24
    (0xc000_0200, 0xc000_02ff), // 192.0.2.0/24
    (0xc01f_c400, 0xc01f_c4ff), // 192.31.196.0/24
    (0xc034_c100, 0xc034_c1ff), // 192.52.193.0/24
    (0xc058_6300, 0xc058_63ff), // 192.88.99.0/24
    (0xc0a8_0000, 0xc0a8_ffff), // 192.168.0.0/16
    (0xc0af_3000, 0xc0af_30ff), // 192.175.48.0/24
    (0xc612_0000, 0xc613_ffff), // 198.18.0.0/15
    (0xc633_6400, 0xc633_64ff), // 198.51.100.0/24
    (0xcb00_7100, 0xcb00_71ff), // 203.0.113.0/24
    (0xe000_0000, 0xefff_ffff), // 224.0.0.0/4
    (0xf000_0000, 0xffff_ffff), // 240.0.0.0/4
];

pub(crate) fn is_public_v4(bits: u32) -> bool {
    IPV4_NOT_PUBLIC.iter().all(|&(first, last)| bits < first || bits > last)
}

pub(crate) fn is_public_v6(bits: u128) -> bool {
    let in_2000_3 = bits >> 125 == 0b001;
    let in_2001_23 = bits >> 105 == 0x2001_0000 >> 9;
    let in_2001_db8_32 = bits >> 96 == 0x2001_0db8;
    let in_2002_16 = bits >> 112 == 0x2002;
    let in_3fff_20 = bits >> 108 == 0x3fff0;
    in_2000_3 && !in_2001_23 && !in_2001_db8_32 && !in_2002_16 && !in_3fff_20
}

pub(crate) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4.to_bits()),
        IpAddr::V6(v6) => is_public_v6(v6.to_bits()),
    }
}

/// Whether a resolver might take this name for an IPv4 address, as `inet_aton` would: one to four
/// decimal, octal or hexadecimal numbers between dots, however large.
pub(crate) fn might_be_read_as_v4(name: &str) -> bool {
    let name = name.trim_end_matches('.');
    name.split('.').count() <= 4
        && name.split('.').all(|part| {
            let is_decimal = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
            let hex = part.strip_prefix("0x").or_else(|| part.strip_prefix("0X"));
            is_decimal || hex.is_some_and(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()))
        })
}

#[test]
fn the_oracle_itself_knows_well_known_addresses() {
    let public = ["1.1.1.1", "8.8.8.8", "168.63.129.17", "2606:4700::1", "2001:4860::8888"];
    let not =
        ["127.0.0.1", "10.0.0.1", "::1", "::ffff:8.8.8.8", "2001:db8::1", "2002::1", "3fff::"];
    assert!(public.iter().all(|text| is_public(text.parse().unwrap())));
    assert!(not.iter().all(|text| !is_public(text.parse().unwrap())));
    assert_eq!(Ipv4Addr::from_bits(IPV4_NOT_PUBLIC[4].0).to_string(), "168.63.129.16");
    assert!(!is_public_v6(Ipv6Addr::LOCALHOST.to_bits()));
    assert!(["127.1", "0x7f.1", "2130706433", "0X7F.0.0.1."].into_iter().all(might_be_read_as_v4));
    assert!(!["127.0.0.1.nip.io", "a.b", "1.2.3.4.5"].into_iter().any(might_be_read_as_v4));
}
