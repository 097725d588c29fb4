//! Decides whether an IP address may be contacted: only global unicast addresses, minus a list of
//! networks.
//!
//! This is checked before every connection. It knows nothing of URLs or names. Only public
//! addresses pass, unless the policy allows others.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::{EgressPolicy, nat64};
use crate::attempt::FailureClass;

/// The IPv4 networks that are not public.
const IPV4_REFUSED: [Ipv4Net; 19] = [
    v4([0, 0, 0, 0], 8),        // this network
    v4([10, 0, 0, 0], 8),       // private
    v4([100, 64, 0, 0], 10),    // carrier-grade NAT
    v4([127, 0, 0, 0], 8),      // loopback
    v4([169, 254, 0, 0], 16),   // link-local, cloud metadata
    v4([172, 16, 0, 0], 12),    // private
    v4([192, 0, 0, 0], 24),     // protocol assignments
    v4([192, 0, 2, 0], 24),     // documentation
    v4([192, 31, 196, 0], 24),  // AS112
    v4([192, 52, 193, 0], 24),  // automatic multicast tunnelling
    v4([192, 88, 99, 0], 24),   // 6to4 relays
    v4([192, 168, 0, 0], 16),   // private
    v4([192, 175, 48, 0], 24),  // AS112
    v4([198, 18, 0, 0], 15),    // benchmarks
    v4([198, 51, 100, 0], 24),  // documentation
    v4([203, 0, 113, 0], 24),   // documentation
    v4([224, 0, 0, 0], 4),      // multicast
    v4([240, 0, 0, 0], 4),      // reserved, broadcast
    v4([168, 63, 129, 16], 32), // a cloud's host agent on a public address
];

/// The only public part of IPv6. IPv4-mapped and -compatible, NAT64, unique local, link-local and
/// multicast addresses are outside it and need no list.
const IPV6_GLOBAL_UNICAST: Ipv6Net = v6([0x2000, 0], 3);

/// The networks within [`IPV6_GLOBAL_UNICAST`] that are not public.
const IPV6_REFUSED: [Ipv6Net; 4] = [
    v6([0x2001, 0], 23),      // Teredo, ORCHID, benchmarks
    v6([0x2001, 0x0db8], 32), // documentation
    v6([0x2002, 0], 16),      // 6to4, which carries an IPv4 address
    v6([0x3fff, 0], 20),      // documentation
];

const fn v4([a, b, c, d]: [u8; 4], length: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), length)
}

const fn v6([a, b]: [u16; 2], length: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, 0, 0, 0, 0, 0, 0), length)
}

/// Why no connection is made. Its `Display` text is for a tenant and never contains an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AddressRefusal {
    /// The name resolved to nothing.
    #[error("the name has no address")]
    NoAddress,
    /// An address that may not be contacted.
    #[error("blocked: this destination may not be contacted")]
    Blocked {
        /// The address; for the operator only.
        address: IpAddr,
        /// The reason; for the operator only.
        reason: BlockReason,
    },
}

impl AddressRefusal {
    /// The failure class, which is all that the tenant is shown.
    pub const fn class(&self) -> FailureClass {
        match self {
            AddressRefusal::NoAddress => FailureClass::Dns,
            AddressRefusal::Blocked { .. } => FailureClass::Blocked,
        }
    }

    /// The refusal with the address and the reason, for the operator's log.
    pub fn for_operator(&self) -> String {
        match self {
            AddressRefusal::NoAddress => self.to_string(),
            AddressRefusal::Blocked { address, reason } => {
                format!("{address} may not be contacted: {reason}")
            }
        }
    }
}

/// Why an address is blocked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockReason {
    /// It is in a network that is not public.
    Network(IpNet),
    /// It is an IPv6 address outside of `2000::/3`.
    NotGlobalUnicast,
    /// It is an IPv4 address in IPv6 notation. No policy permits these.
    Ipv4Mapped,
    /// It is one of this server's own addresses.
    Own,
    /// It is a NAT64 address of an IPv4 address that may not be contacted.
    Nat64(Ipv4Addr),
    /// It is in the NAT64 prefix but contains no valid IPv4 address.
    Nat64Malformed,
}

impl fmt::Display for BlockReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BlockReason::Network(network) => write!(f, "in {network}, which is not public"),
            BlockReason::NotGlobalUnicast => {
                write!(f, "outside {IPV6_GLOBAL_UNICAST}, so not public")
            }
            BlockReason::Ipv4Mapped => f.write_str("an IPv4-mapped address"),
            BlockReason::Own => f.write_str("an address of this server"),
            BlockReason::Nat64(address) => write!(f, "stands for {address} by NAT64"),
            BlockReason::Nat64Malformed => {
                f.write_str("in the NAT64 prefix, but stands for no address")
            }
        }
    }
}

/// Whether this address may be contacted.
///
/// # Errors
///
/// [`AddressRefusal::Blocked`] where it may not.
pub fn vet_address(address: IpAddr, policy: &EgressPolicy) -> Result<(), AddressRefusal> {
    let judged = match address {
        IpAddr::V4(v4) => judge_v4(v4, policy, policy.dev),
        IpAddr::V6(v6) => judge_v6(v6, policy),
    };
    judged.map_err(|reason| AddressRefusal::Blocked { address, reason })
}

/// Whether a name with these addresses may be contacted. A single blocked address refuses the name;
/// otherwise a name could hide one among good ones. Returns the addresses in order, each once.
///
/// # Errors
///
/// The refusal of the first blocked address; [`AddressRefusal::NoAddress`] where there is none at
/// all.
pub fn vet_answers(
    answers: &[IpAddr],
    policy: &EgressPolicy,
) -> Result<Vec<IpAddr>, AddressRefusal> {
    let mut vetted = Vec::with_capacity(answers.len());
    for &address in answers {
        vet_address(address, policy)?;
        if !vetted.contains(&address) {
            vetted.push(address);
        }
    }
    if vetted.is_empty() { Err(AddressRefusal::NoAddress) } else { Ok(vetted) }
}

/// `loopback_allowed` is the policy's `dev`, except for an address inside a NAT64 address: that
/// loopback is not this machine's.
fn judge_v4(
    address: Ipv4Addr,
    policy: &EgressPolicy,
    loopback_allowed: bool,
) -> Result<(), BlockReason> {
    if address.is_loopback() && loopback_allowed {
        return Ok(());
    }
    if !address.is_loopback() && policy.owns(address.into()) {
        return Err(BlockReason::Own);
    }
    if policy.trusts(address.into()) {
        return Ok(());
    }
    match IPV4_REFUSED.iter().find(|network| network.contains(&address)) {
        Some(&network) => Err(BlockReason::Network(network.into())),
        None => Ok(()),
    }
}

fn judge_v6(address: Ipv6Addr, policy: &EgressPolicy) -> Result<(), BlockReason> {
    if address.to_ipv4_mapped().is_some() {
        return Err(BlockReason::Ipv4Mapped);
    }
    if address.is_loopback() && policy.dev {
        return Ok(());
    }
    if !address.is_loopback() && policy.owns(address.into()) {
        return Err(BlockReason::Own);
    }
    if let Some(prefix) = policy.nat64_prefix.filter(|prefix| prefix.contains(&address)) {
        let carried = nat64::decode(address, prefix).ok_or(BlockReason::Nat64Malformed)?;
        return judge_v4(carried, policy, false).map_err(|_| BlockReason::Nat64(carried));
    }
    if policy.trusts(address.into()) {
        return Ok(());
    }
    if !IPV6_GLOBAL_UNICAST.contains(&address) {
        return Err(BlockReason::NotGlobalUnicast);
    }
    match IPV6_REFUSED.iter().find(|network| network.contains(&address)) {
        Some(&network) => Err(BlockReason::Network(network.into())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn check(policy: &EgressPolicy, allowed: &[&str], refused: &[&str]) {
        for address in allowed {
            assert_eq!(vet_address(ip(address), policy), Ok(()), "{address}");
        }
        for address in refused {
            assert!(vet_address(ip(address), policy).is_err(), "{address}");
        }
    }

    #[test]
    fn public_addresses_pass_and_the_rest_is_refused_with_its_network() {
        let strict = EgressPolicy::default();
        check(&strict, &["1.1.1.1", "8.8.8.8", "2606:4700:4700::1111", "2a00:1450::1"], &[]);
        for network in IPV4_REFUSED {
            let reason = BlockReason::Network(network.into());
            for address in [network.network(), network.broadcast()] {
                let address = address.into();
                let refusal = AddressRefusal::Blocked { address, reason };
                assert_eq!(vet_address(address, &strict), Err(refusal), "{network}");
            }
        }
        for network in IPV6_REFUSED {
            let reason = BlockReason::Network(network.into());
            for address in [network.network(), network.broadcast()] {
                let address = address.into();
                let refusal = AddressRefusal::Blocked { address, reason };
                assert_eq!(vet_address(address, &strict), Err(refusal), "{network}");
            }
        }
    }

    #[test]
    fn dev_allows_loopback_and_nothing_else() {
        let dev = EgressPolicy { dev: true, ..EgressPolicy::default() };
        check(
            &dev,
            &["127.0.0.1", "127.255.255.255", "::1", "8.8.8.8"],
            &["0.0.0.0", "10.0.0.1", "169.254.169.254", "::", "::ffff:127.0.0.1", "::2", "fd00::1"],
        );
        let http = EgressPolicy { allow_http: true, ..EgressPolicy::default() };
        check(&http, &["8.8.8.8"], &["127.0.0.1", "::1", "10.0.0.1"]);
    }

    #[test]
    fn a_trusted_network_is_allowed_but_never_as_ipv4_mapped() {
        let policy = EgressPolicy {
            allow: vec![
                "10.1.0.0/16".parse().unwrap(),
                "fd00:1::/32".parse().unwrap(),
                "::ffff:0:0/96".parse().unwrap(),
            ],
            ..EgressPolicy::default()
        };
        check(
            &policy,
            &["10.1.0.0", "10.1.255.255", "fd00:1::1", "8.8.8.8"],
            &["10.0.255.255", "10.2.0.0", "fd00:2::1", "::ffff:10.1.0.1", "::ffff:8.8.8.8"],
        );
    }

    #[test]
    fn our_own_addresses_are_refused_also_where_they_are_public_or_trusted() {
        let own = ["198.41.0.4", "10.0.0.5", "2606:4700::5", "::ffff:9.9.9.9", "127.0.0.1", "::1"];
        let policy = EgressPolicy {
            allow: vec!["10.0.0.0/8".parse().unwrap()],
            own_addresses: own.iter().map(|text| ip(text)).collect(),
            ..EgressPolicy::default()
        };
        check(&policy, &["10.0.0.4", "198.41.0.5", "9.9.9.8"], &own);
        check(&policy, &[], &["9.9.9.9"]);
        // Loopback addresses do not count as own addresses: a receiver on the same machine may be
        // meant.
        let dev = EgressPolicy { dev: true, ..policy.clone() };
        check(&dev, &["127.0.0.1", "::1"], &["10.0.0.5"]);
        let loopback = vec!["127.0.0.1/32".parse().unwrap(), "::1/128".parse().unwrap()];
        check(&EgressPolicy { allow: loopback, ..policy }, &["127.0.0.1", "::1"], &["127.0.0.2"]);
    }

    #[test]
    fn nat64_is_refused_unless_configured_and_then_judged_as_ipv4() {
        let (public, private) = ("64:ff9b::808:808", "64:ff9b::a00:1");
        check(&EgressPolicy::default(), &[], &[public, private]);
        let prefix = Some("64:ff9b::/96".parse().unwrap());
        let policy = EgressPolicy { nat64_prefix: prefix, dev: true, ..EgressPolicy::default() };
        let loopback = "64:ff9b::7f00:1";
        check(&policy, &[public, "2606:4700::1"], &[private, loopback, "64:ff9b:1::808:808"]);
        let refusal = vet_address(ip(private), &policy).unwrap_err();
        let carried = BlockReason::Nat64(Ipv4Addr::new(10, 0, 0, 1));
        assert_eq!(refusal, AddressRefusal::Blocked { address: ip(private), reason: carried });

        // The IPv4 network must be trusted; trusting the NAT64 prefix is not enough.
        let allow = vec!["10.0.0.0/8".parse().unwrap(), "64:ff9b::/96".parse().unwrap()];
        let own_addresses = vec![ip("9.9.9.9")];
        let policy = EgressPolicy { allow, own_addresses, ..policy };
        check(&policy, &[private], &["64:ff9b::c0a8:1", loopback, "64:ff9b::909:909"]);
    }

    #[test]
    fn a_nat64_prefix_in_public_space_hides_nothing() {
        let prefix = |text: &str| EgressPolicy {
            nat64_prefix: Some(text.parse().unwrap()),
            ..EgressPolicy::default()
        };
        let policy = prefix("2a00:64:64::/48");
        check(&policy, &["2a00:64:64:808:8:800::"], &["2a00:64:64:a00:0:100::"]);
        // Not a valid NAT64 address: bits 64 to 71 are not zero, or the prefix length is not one of
        // NAT64.
        let refusal = vet_address(ip("2a00:64:64:808:108:800::"), &policy).unwrap_err();
        assert!(refusal.for_operator().contains("stands for no address"));
        check(&prefix("2a00:64::/33"), &["2a00:65::1"], &["2a00:64::1"]);
    }

    #[test]
    fn one_bad_answer_refuses_the_name() {
        let strict = EgressPolicy::default();
        let (good, other, bad) = (ip("8.8.8.8"), ip("2606:4700::1"), ip("10.0.0.1"));
        assert_eq!(vet_answers(&[good, other, good], &strict), Ok(vec![good, other]));
        for answers in [vec![bad], vec![good, bad], vec![bad, good], vec![good, other, bad]] {
            let refusal = vet_answers(&answers, &strict).unwrap_err();
            assert!(matches!(refusal, AddressRefusal::Blocked { address, .. } if address == bad));
        }
        assert_eq!(vet_answers(&[], &strict), Err(AddressRefusal::NoAddress));
    }

    #[test]
    fn a_tenant_sees_a_class_and_the_operator_an_address() {
        let policy = EgressPolicy {
            own_addresses: vec![ip("9.9.9.9")],
            nat64_prefix: Some("64:ff9b::/96".parse().unwrap()),
            ..EgressPolicy::default()
        };
        let cases = [
            ("10.0.0.1", "in 10.0.0.0/8, which is not public"),
            ("2002::1", "in 2002::/16, which is not public"),
            ("fe80::1", "outside 2000::/3, so not public"),
            ("::ffff:8.8.8.8", "an IPv4-mapped address"),
            ("9.9.9.9", "an address of this server"),
            ("64:ff9b::a00:1", "stands for 10.0.0.1 by NAT64"),
        ];
        for (address, reason) in cases {
            let refusal = vet_address(ip(address), &policy).unwrap_err();
            assert_eq!(refusal.to_string(), "blocked: this destination may not be contacted");
            assert_eq!(refusal.class(), FailureClass::Blocked);
            let full = format!("{address} may not be contacted: {reason}");
            assert_eq!(refusal.for_operator(), full);
        }
        assert_eq!(AddressRefusal::NoAddress.class(), FailureClass::Dns);
        assert_eq!(AddressRefusal::NoAddress.for_operator(), "the name has no address");
    }
}
