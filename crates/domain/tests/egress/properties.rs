//! Properties of the address checks, compared with the oracle.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::Ipv6Net;
use postrider_domain::egress::{EgressPolicy, vet_address, vet_answers};
use proptest::prelude::*;

use crate::oracle;

/// Any address, with many close to the edge of a listed network.
fn v4_bits() -> impl Strategy<Value = u32> {
    let near = (0..oracle::IPV4_NOT_PUBLIC.len(), any::<bool>(), 0u32..600).prop_map(
        |(network, at_first, distance)| {
            let (first, last) = oracle::IPV4_NOT_PUBLIC[network];
            (if at_first { first } else { last }).wrapping_add(distance).wrapping_sub(300)
        },
    );
    prop_oneof![any::<u32>(), near]
}

/// Any address, with many in the public part or under a special prefix.
fn v6_bits() -> impl Strategy<Value = u128> {
    let high: Vec<u128> = vec![
        0x0000_0000,
        0x0064_ff9b,
        0x0100_0000,
        0x1fff_ffff,
        0x2000_0000,
        0x2000_ffff,
        0x2001_0000,
        0x2001_01ff,
        0x2001_0200,
        0x2001_0db7,
        0x2001_0db8,
        0x2001_0db9,
        0x2001_ffff,
        0x2002_0000,
        0x2002_ffff,
        0x2003_0000,
        0x3ffe_ffff,
        0x3fff_0000,
        0x3fff_0fff,
        0x3fff_1000,
        0x3fff_ffff,
        0x4000_0000,
        0xfc00_0000,
        0xfe80_0000,
        0xff02_0000,
    ];
    let low = any::<u128>().prop_map(|bits| bits >> 32);
    let special = (prop::sample::select(high), low).prop_map(|(high, low)| high << 96 | low);
    let mapped = any::<u32>().prop_map(|v4| 0xffff << 32 | u128::from(v4));
    let public = any::<u128>().prop_map(|bits| bits >> 3 | 1 << 125);
    prop_oneof![any::<u128>(), special, mapped, public]
}

fn address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        v4_bits().prop_map(|bits| Ipv4Addr::from_bits(bits).into()),
        v6_bits().prop_map(|bits| Ipv6Addr::from_bits(bits).into()),
    ]
}

/// An IPv4 address in a NAT64 prefix, computed by shifting bits, where the code under test picks
/// octets.
fn nat64(prefix: u128, length: u32, v4: u32, suffix: u128) -> u128 {
    let v4 = u128::from(v4);
    let kept = prefix & (u128::MAX << (128 - length));
    if length == 96 {
        return kept | v4;
    }
    // First the 120 bits without octet 8 (prefix, address, suffix); then octet 8 is inserted.
    let tail = suffix & (u128::MAX >> (length + 32 + 8));
    let squeezed = (kept >> 8 & (u128::MAX << (120 - length))) | v4 << (120 - length - 32) | tail;
    (squeezed >> 56) << 64 | (squeezed & ((1 << 56) - 1))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn ipv4_agrees_with_the_oracle(bits in v4_bits()) {
        let address = Ipv4Addr::from_bits(bits).into();
        let vetted = vet_address(address, &EgressPolicy::default());
        prop_assert_eq!(vetted.is_ok(), oracle::is_public_v4(bits), "{}", address);
    }

    #[test]
    fn ipv6_agrees_with_the_oracle(bits in v6_bits()) {
        let address = Ipv6Addr::from_bits(bits).into();
        let vetted = vet_address(address, &EgressPolicy::default());
        prop_assert_eq!(vetted.is_ok(), oracle::is_public_v6(bits), "{}", address);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_policy_opens_what_it_names_and_nothing_else(
        address in address(),
        trusted in address(),
        length in 0u8..=32,
        own in prop::collection::vec(address(), 0..3),
        owns_this in any::<bool>(),
        dev in any::<bool>(),
    ) {
        let length = if trusted.is_ipv6() { length * 4 } else { length };
        let network = ipnet::IpNet::new(trusted, length).unwrap();
        let mut own = own;
        own.extend(owns_this.then_some(address));
        let is_own = own.iter().any(|own| own.to_canonical() == address);
        let policy =
            EgressPolicy { allow: vec![network], own_addresses: own, dev, ..EgressPolicy::default() };
        let is_mapped = address.to_canonical() != address;
        let expected = !is_mapped
            && (address.is_loopback() || !is_own)
            && (oracle::is_public(address)
                || network.contains(&address)
                || (dev && address.is_loopback()));
        prop_assert_eq!(vet_address(address, &policy).is_ok(), expected);
    }

    #[test]
    fn a_nat64_address_is_judged_as_what_it_carries(
        prefix in any::<u128>(),
        length in prop::sample::select(vec![32u8, 40, 48, 56, 64, 96]),
        carried in v4_bits(),
        suffix in any::<u128>(),
    ) {
        let bits = nat64(prefix, length.into(), carried, suffix);
        let address = Ipv6Addr::from_bits(bits);
        prop_assume!(address.to_ipv4_mapped().is_none());
        let network = Ipv6Net::new(address, length).unwrap().trunc();
        let policy = EgressPolicy { nat64_prefix: Some(network), ..EgressPolicy::default() };
        let expected = oracle::is_public_v4(carried);
        prop_assert_eq!(vet_address(address.into(), &policy).is_ok(), expected, "{}", address);
    }

    #[test]
    fn a_name_passes_only_with_all_its_addresses(answers in prop::collection::vec(address(), 0..5)) {
        let vetted = vet_answers(&answers, &EgressPolicy::default());
        let all_public = answers.iter().all(|&address| oracle::is_public(address));
        prop_assert_eq!(vetted.is_ok(), !answers.is_empty() && all_public);
        if let Ok(vetted) = vetted {
            prop_assert!(answers.iter().all(|address| vetted.contains(address)));
            prop_assert!(vetted.iter().all(|address| answers.contains(address)));
        }
    }

    #[test]
    fn no_refusal_shows_a_tenant_the_address(address in address()) {
        if let Err(refusal) = vet_address(address, &EgressPolicy::default()) {
            prop_assert!(!refusal.to_string().contains(&address.to_string()));
            prop_assert!(refusal.for_operator().contains(&address.to_string()));
        }
    }
}
