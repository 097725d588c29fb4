//! Every decision that Postrider makes, as functions over values and an explicit `now`.
//!
//! **No IO, no async, no clock, no randomness**: the crate's dependency list is the proof. Other
//! crates carry the decisions out; they make none of their own.
//!
//! | question | module |
//! |---|---|
//! | is this event wanted? | [`matching`], [`filter`] |
//! | what bytes are sent, and with which signature? | [`payload`], [`signature`] |
//! | what may be contacted? | [`egress`] |
//! | how did that attempt end? | [`attempt`] |
//! | how did a destination's attempts end lately? | [`attempt_tally`] |
//! | when is the next retry? | [`retry`] |
//! | who disables a URL, probes it, freezes it? | [`circuit`] |
//! | do so many destinations fail at once that the fault is ours? | [`mass_failure`] |
//! | what does one outcome change? | [`settlement`] |
//! | where does a delivery stand, and why? | [`delivery`], [`explain`] |
//! | does an event fit the catalogue of types? | [`catalogue`] |
//! | is anything lost? | [`ledger`] |
//! | how far is the erasure of payloads? | [`erasure`] |
//! | what would all this do in an outage? | [`forecast`] |
//! | what time is it, when somebody sets the clock? | [`steady`] |
//! | who is told of it, and how often? | [`alerts`] |
//! | which trace does an attempt belong to? | [`trace`] |
//! | what makes a subscription one of Workfront's? | [`workfront`] |
//! | which numbers? | [`policy`], [`limits`] |

pub mod access;
pub mod alerts;
pub mod attempt;
pub mod attempt_tally;
pub mod catalogue;
pub mod circuit;
pub mod credentials;
pub mod delivery;
pub mod destination;
pub mod egress;
pub mod erasure;
pub mod event;
pub mod explain;
pub mod filter;
pub mod forecast;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod hex;
pub mod http_date;
pub mod ids;
pub mod job_outcomes;
pub mod ledger;
pub mod limits;
pub mod mass_failure;
pub mod matching;
pub mod mixing;
pub mod payload;
pub mod policy;
pub mod retry;
pub mod schedule;
pub mod settlement;
pub mod signature;
pub mod steady;
pub mod subscription;
pub mod thresholds;
pub mod time;
pub mod token_bucket;
pub mod trace;
pub mod workfront;
