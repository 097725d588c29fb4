//! The IPv4 address that a NAT64 address carries (RFC 6052, section 2.2).
//!
//! An address that does not have exactly that form contains no IPv4 address.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::Ipv6Net;

/// Whether a NAT64 prefix can have this length.
pub const fn is_nat64_length(length: u8) -> bool {
    matches!(length, 32 | 40 | 48 | 56 | 64 | 96)
}

/// The IPv4 address carried by `address`, which lies in `prefix`.
///
/// It follows the prefix directly, but skips octet 8, which must be zero. Later octets are ignored,
/// as a translator does.
pub(super) fn decode(address: Ipv6Addr, prefix: Ipv6Net) -> Option<Ipv4Addr> {
    let length = prefix.prefix_len();
    let octets = address.octets();
    if !is_nat64_length(length) || (length < 96 && octets[8] != 0) {
        return None;
    }
    let mut carried =
        (usize::from(length / 8)..octets.len()).filter(|&at| at != 8).map(|at| octets[at]);
    let mut next = || carried.next();
    Some(Ipv4Addr::new(next()?, next()?, next()?, next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_decoded_at_every_length() {
        // 192.0.2.33 in each of the forms that section 2.4 of the RFC tabulates.
        let cases = [
            ("2001:db8::/32", "2001:db8:c000:221::"),
            ("2001:db8:100::/40", "2001:db8:1c0:2:21::"),
            ("2001:db8:122::/48", "2001:db8:122:c000:2:2100::"),
            ("2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::"),
            ("2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::"),
            ("2001:db8:122:344::/96", "2001:db8:122:344::c000:221"),
            ("64:ff9b::/96", "64:ff9b::c000:221"),
        ];
        for (prefix, address) in cases {
            let prefix: Ipv6Net = prefix.parse().unwrap();
            let address: Ipv6Addr = address.parse().unwrap();
            assert!(prefix.contains(&address), "{address}");
            assert_eq!(decode(address, prefix), Some(Ipv4Addr::new(192, 0, 2, 33)), "{address}");
        }
    }

    #[test]
    fn bits_after_a_nat64_address_are_ignored_but_octet_eight_must_be_zero() {
        let prefix: Ipv6Net = "2001:db8::/32".parse().unwrap();
        let decoded = |text: &str| decode(text.parse().unwrap(), prefix);
        assert_eq!(decoded("2001:db8:c000:221:00ff::1"), Some(Ipv4Addr::new(192, 0, 2, 33)));
        assert_eq!(decoded("2001:db8:c000:221:0100::"), None);
    }

    #[test]
    fn only_six_lengths_are_of_nat64() {
        let lengths: Vec<u8> = (0..=128).filter(|&length| is_nat64_length(length)).collect();
        assert_eq!(lengths, [32, 40, 48, 56, 64, 96]);
        for length in (0..=128).filter(|&length| !is_nat64_length(length)) {
            let prefix = Ipv6Net::new(Ipv6Addr::UNSPECIFIED, length).unwrap();
            assert_eq!(decode(Ipv6Addr::UNSPECIFIED, prefix), None, "{length}");
        }
    }
}
