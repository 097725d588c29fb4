//! One suite that every backend must pass: a test for each sentence of the contract, and random
//! sequences that are compared with the model in memory.
//!
//! A backend uses the suite by a file in its `tests/` that opens it, and one line:
//!
//! ```ignore
//! postrider_store_testing::conformance!(MyBackend::new());
//! ```
#![expect(clippy::unwrap_used, reason = "these are tests, though the compiler cannot know it")]

/// Lists the checks of a file, and defines a macro that turns each into a test.
macro_rules! suite {
    ($dollar:tt $module:ident, $export:ident: $($name:ident,)+) => {
        /// Runs the check of this name.
        pub fn run(
            name: &str,
            ground: $crate::conformance::Ground,
        ) -> std::pin::Pin<Box<dyn Future<Output = ()>>> {
            match name {
                $(stringify!($name) => Box::pin($name(ground)),)+
                _ => panic!("there is no check {name}"),
            }
        }

        #[doc(hidden)]
        #[macro_export]
        macro_rules! $export {
            ($dollar backend:expr) => {
                mod $module {
                    use super::*;
                    $(
                        #[tokio::test]
                        async fn $name() {
                            let ground = $crate::conformance::Ground::new($dollar backend).await;
                            $crate::conformance::$module::run(stringify!($name), ground).await;
                        }
                    )+
                }
            };
        }
    };
}

pub mod audit;
pub mod configuration;
pub mod describing;
pub mod documents;
mod dump;
pub mod erasing;
mod ground;
pub mod history;
pub mod intake;
pub mod isolation;
pub mod lists;
pub mod overview;
pub mod passes;
pub mod queues;
pub mod records;
pub mod replays;
pub mod sequences;
pub mod settling;
pub mod statistics;
pub mod subscriptions;
pub mod summaries;
pub mod upkeep;
pub mod usage;

pub use self::ground::{Backend, Ground};

/// Defines a test for every check, for the given backend.
#[macro_export]
macro_rules! conformance {
    ($backend:expr) => {
        $crate::conformance_audit!($backend);
        $crate::conformance_configuration!($backend);
        $crate::conformance_describing!($backend);
        $crate::conformance_documents!($backend);
        $crate::conformance_erasing!($backend);
        $crate::conformance_history!($backend);
        $crate::conformance_intake!($backend);
        $crate::conformance_isolation!($backend);
        $crate::conformance_lists!($backend);
        $crate::conformance_overview!($backend);
        $crate::conformance_passes!($backend);
        $crate::conformance_queues!($backend);
        $crate::conformance_records!($backend);
        $crate::conformance_replays!($backend);
        $crate::conformance_sequences!($backend);
        $crate::conformance_settling!($backend);
        $crate::conformance_statistics!($backend);
        $crate::conformance_subscriptions!($backend);
        $crate::conformance_summaries!($backend);
        $crate::conformance_upkeep!($backend);
        $crate::conformance_usage!($backend);
    };
}
