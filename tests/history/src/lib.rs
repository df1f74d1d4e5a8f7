//! Judges what clients saw while the server was being killed.
//!
//! A run records what its clients did and were told ([`entry`], [`recorder`]); [`check`] reads that
//! twice and says which promise was broken, by which lines. The first reading finds out what the
//! events of each sandbox are (`truth`), the second holds every answer against them (`judge`).
//!
//! Nothing here talks to a server, knows the wire, or reads a clock but to stamp what is recorded.
#![warn(clippy::wildcard_enum_match_arm)]

pub mod check;
pub mod entry;
pub mod event;
pub mod path;
pub mod recorder;
pub mod report;
pub mod rule;
pub mod show;

mod floor;
mod judge;
mod truth;
