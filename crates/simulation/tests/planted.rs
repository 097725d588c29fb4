//! Each planted bug is caught. In a file of its own: a planted bug concerns the whole process.

#![cfg(feature = "planted-bugs")]

use postrider_simulation::planted::{BUGS, catch};

#[test]
fn every_planted_bug_is_caught() {
    for bug in BUGS {
        assert!(catch(bug, 300).is_some(), "{bug:?} is not caught");
    }
}
