//! A short form of the simulation: the edge cases, a few lives, and the seeds that once found a
//! bug.

use postrider_simulation::edges::EDGES;
use postrider_simulation::scenes::SCENES;
use postrider_simulation::seeds;
use postrider_simulation::world::life::live;

fn check(seed: u64, hours: Option<u64>) {
    let outcome = live(seed, hours).expect("the world can be made");
    let first = outcome.violations.first();
    assert!(first.is_none(), "seed {seed}: {first:?}\n{}", outcome.trace);
}

#[test]
fn simulated_lives_have_no_violation() {
    for seed in 1..=12 {
        check(seed, Some(8));
    }
}

#[test]
fn same_seed_gives_the_same_trace() {
    for seed in 20..26 {
        let (one, other) = (live(seed, Some(10)).unwrap(), live(seed, Some(10)).unwrap());
        assert_eq!(one.hash, other.hash, "seed {seed}");
        assert_eq!((one.attempts, one.crashes), (other.attempts, other.crashes));
    }
}

#[test]
fn other_seeds_give_other_traces() {
    assert_ne!(live(1, Some(4)).unwrap().hash, live(2, Some(4)).unwrap().hash);
}

#[test]
fn circuit_and_schedule_change_exactly_at_the_edges_of_the_contract() {
    // The case with 50,000 failures, and the scenes, are for the optimised build of `cargo xtask
    // ci`.
    for (name, edge) in EDGES.iter().filter(|(name, _)| !name.contains("50,000")) {
        let outcome = edge().unwrap_or_else(|error| panic!("{name}: {error}"));
        let first = outcome.violations.first();
        assert!(first.is_none(), "{name}: {first:?}\n{}", outcome.trace);
    }
}

#[test]
fn subscriptions_with_policies_of_their_own_have_no_violation() {
    for (name, scene) in SCENES.iter().filter(|(name, _)| name.contains("subscription")) {
        let outcome = scene().unwrap_or_else(|error| panic!("{name}: {error}"));
        let first = outcome.violations.first();
        assert!(first.is_none(), "{name}: {first:?}\n{}", outcome.trace);
    }
    // The subscriptions of these seeds have policies of their own.
    for seed in [300, 309, 316, 319] {
        check(seed, Some(8));
    }
}

#[test]
fn seeds_that_found_a_bug_have_no_violation_now() {
    for (seed, hours) in seeds::read(seeds::SHORT).unwrap() {
        check(seed, hours);
    }
}
