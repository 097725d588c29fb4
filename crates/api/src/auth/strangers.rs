//! Budgets for look-ups of keys and sessions that this node does not know.
//!
//! Anybody can make up a well-formed key, and finding out that it does not exist takes a read of the
//! store, in a place that the engine and all tenants share. **A look-up that finds nothing is paid
//! by the address that asked**; one that finds something costs nothing, and keys that were seen
//! before need no budget: so an address that tries keys neither delays others nor locks out the
//! clients behind the same address.

use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use postrider_domain::time::Timestamp;
use postrider_domain::token_bucket::TokenBuckets;

use crate::problem::{Code, Problem};
use crate::settings::{REMEMBERED_MAX, Rate, STRANGER_FIRST_RATE, STRANGER_RATE, STRANGERS_RATE};

/// Whose budget it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Whose {
    /// That of one network.
    Network(String),
    /// The first look-ups of a network, which need nothing of the total: so that many attackers
    /// cannot keep out a client whose key was not seen yet.
    First(String),
    /// That of all networks.
    All,
}

/// The budgets.
#[derive(Debug)]
pub(crate) struct Strangers(Mutex<TokenBuckets<Whose>>);

/// A look-up that is paid for.
#[derive(Debug)]
#[must_use = "give it back where the look-up found something"]
pub(crate) struct Stranger {
    paid_by: [Whose; 2],
}

impl Default for Strangers {
    fn default() -> Self {
        Strangers(Mutex::new(TokenBuckets::new(REMEMBERED_MAX)))
    }
}

impl Strangers {
    /// Pays for a look-up by this address; refuses it where a budget is used up.
    pub(crate) fn admit(&self, peer: Option<IpAddr>, now: Timestamp) -> Result<Stranger, Problem> {
        let network = network_of(peer);
        let (own, first) = (Whose::Network(network.clone()), Whose::First(network));
        let mut buckets = self.buckets();
        let mut take = |whose: &Whose, rate: Rate| {
            buckets.take(whose.clone(), (rate.per_second, rate.burst), 1, now)
        };
        take(&own, STRANGER_RATE).map_err(|at| {
            let detail = "too many unknown keys came from this address: send a key that exists";
            refused(Code::RateLimited, detail, at, now)
        })?;
        if take(&first, STRANGER_FIRST_RATE).is_ok() {
            return Ok(Stranger { paid_by: [own, first] });
        }
        match take(&Whose::All, STRANGERS_RATE) {
            Ok(()) => Ok(Stranger { paid_by: [own, Whose::All] }),
            Err(at) => {
                buckets.give_back(&own, 1);
                let detail =
                    "too many unknown keys are being sent to the server: repeat the request";
                Err(refused(Code::Overloaded, detail, at, now))
            }
        }
    }

    /// The look-up has found something, or failed: it costs nothing.
    pub(crate) fn give_back(&self, stranger: &Stranger) {
        let mut buckets = self.buckets();
        stranger.paid_by.iter().for_each(|whose| buckets.give_back(whose, 1));
    }

    fn buckets(&self) -> MutexGuard<'_, TokenBuckets<Whose>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn refused(code: Code, detail: &str, at: Timestamp, now: Timestamp) -> Problem {
    let ms = u64::try_from(at.since(now).as_millis()).unwrap_or(u64::MAX);
    Problem::new(code, detail).retry_after(ms.div_ceil(1000))
}

/// The name under which an address is counted: an IPv4 address, or the /64 network of an IPv6
/// address, because one client can use every address of that network.
pub(crate) fn network_of(address: Option<IpAddr>) -> String {
    match address.map(|address| address.to_canonical()) {
        None => String::new(),
        Some(IpAddr::V4(address)) => address.to_string(),
        Some(IpAddr::V6(address)) => {
            let [a, b, c, d, ..] = address.segments();
            format!("{a:x}:{b:x}:{c:x}:{d:x}")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::EPOCH.saturating_add(Duration::from_millis(ms))
    }

    fn address(n: u32) -> Option<IpAddr> {
        Some(IpAddr::V4(n.into()))
    }

    /// How many look-ups of an address are admitted, and with which problem the next is refused.
    fn admitted(strangers: &Strangers, peer: Option<IpAddr>, now: Timestamp) -> (u32, Problem) {
        let mut count = 0;
        loop {
            match strangers.admit(peer, now) {
                Ok(_) => count += 1,
                Err(problem) => return (count, problem),
            }
        }
    }

    #[test]
    fn addresses_are_counted_and_networks_with_ipv6() {
        let of = |text: &str| network_of(Some(text.parse().unwrap()));
        assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
    }

    #[test]
    fn each_address_has_a_budget_and_so_have_all_together() {
        let strangers = Strangers::default();
        let (count, problem) = admitted(&strangers, address(1), at(0));
        assert_eq!((count, problem.code()), (STRANGER_RATE.burst, Code::RateLimited));
        let (count, _) = admitted(&strangers, address(1), at(1_000));
        assert_eq!(count, STRANGER_RATE.per_second);
        let refused = (2..100).find(|n| {
            let (_, problem) = admitted(&strangers, address(*n), at(1_000));
            problem.code() == Code::Overloaded
        });
        let n = refused.expect("the total is used up at some time");
        // Another address has its first look-ups all the same.
        let (count, problem) = admitted(&strangers, address(n + 1), at(1_000));
        assert_eq!((count, problem.code()), (STRANGER_FIRST_RATE.burst, Code::Overloaded));
        // A refusal by the total costs the address nothing.
        let (count, problem) = admitted(&strangers, address(n + 1), at(1_500));
        assert_eq!((count, problem.code()), (STRANGERS_RATE.per_second / 2, Code::Overloaded));
    }

    #[test]
    fn look_ups_that_find_something_cost_nothing() {
        let strangers = Strangers::default();
        for _ in 0..10 * STRANGERS_RATE.burst {
            let stranger = strangers.admit(address(1), at(0)).unwrap();
            strangers.give_back(&stranger);
        }
        assert_eq!(admitted(&strangers, address(1), at(0)).0, STRANGER_RATE.burst);
    }
}
