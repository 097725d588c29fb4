//! Decides which URLs and addresses may be contacted.
//!
//! There are two independent checks: [`vet_url`] when a subscription is created, so that a mistake
//! gets a helpful error, and [`vet_again`] with [`vet_address`] (or [`vet_answers`]) before each
//! request, which is the one that protects. Nothing here resolves a name or opens a connection, and
//! no address that is not public passes unless the operator's [`EgressPolicy`] names it.

mod address;
mod destination;
mod name;
mod nat64;
mod vetting;

use std::net::IpAddr;

use ipnet::{IpNet, Ipv6Net};

pub use address::{AddressRefusal, BlockReason, vet_address, vet_answers};
pub use destination::DestinationUrl;
pub use nat64::is_nat64_length;
pub use url::Host;
pub use vetting::{UrlRefusal, vet_again, vet_url};

/// What the operator permits beyond https to public addresses. The default permits nothing more.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EgressPolicy {
    /// Plain http to public addresses, and nothing else.
    pub allow_http: bool,
    /// Networks that the operator trusts: their addresses are allowed although they are not public.
    /// Nothing else changes: plain http still needs `allow_http` or `dev`, the refused ports stay
    /// refused, and so do our own addresses and IPv4-mapped ones.
    pub allow: Vec<IpNet>,
    /// The addresses of this server, refused although they may be public or lie in `allow`.
    /// Loopback addresses in this list change nothing: `dev` and `allow` alone decide on them.
    pub own_addresses: Vec<IpAddr>,
    /// The prefix of this network's NAT64 (RFC 6052). Addresses in it are judged as the IPv4
    /// address that they carry; without it they are refused like everything that is not public.
    /// A length for which [`is_nat64_length`] is false refuses every address in it.
    pub nat64_prefix: Option<Ipv6Net>,
    /// For development: loopback addresses and `localhost` names on any port, and plain http.
    pub dev: bool,
}

impl EgressPolicy {
    /// Whether plain http is permitted at all.
    const fn permits_http(&self) -> bool {
        self.allow_http || self.dev
    }

    /// Whether the operator trusts a network that has this address.
    fn trusts(&self, address: IpAddr) -> bool {
        self.allow.iter().any(|network| network.contains(&address))
    }

    /// Whether this is an address of this server, however it was written.
    fn owns(&self, address: IpAddr) -> bool {
        self.own_addresses.iter().any(|own| own.to_canonical() == address)
    }
}
