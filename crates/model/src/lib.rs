//! What is allowed, as pure code over values.
//!
//! Nothing here does I/O, reads a clock, or knows the wire, the store or Linux.
#![warn(clippy::wildcard_enum_match_arm)]

pub mod admission;
pub mod execution;
pub mod limits;
pub mod pools;
pub mod units;
