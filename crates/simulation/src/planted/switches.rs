//! The switches of the planted bugs: an empty list. `cargo xtask planted` plants bugs in a copy of
//! the sources and replaces this file there.

/// All bugs: the name of each and what it breaks.
pub const BUGS: &[(&str, &str)] = &[];

/// Activates the bug of this name on this thread, instead of the previous one.
pub(super) fn plant(_name: Option<&str>) {}
