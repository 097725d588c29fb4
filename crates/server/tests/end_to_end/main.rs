//! The real binary, on loopback, from outside.

mod command_line;
mod crash;
mod first_steps;
mod lifecycle;
mod refusals;
mod support;
