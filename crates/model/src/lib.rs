//! What is allowed, as pure code over values.
//!
//! Nothing here does I/O, reads a clock, or knows the wire, the store or Linux.
#![warn(clippy::wildcard_enum_match_arm)]

pub mod activity;
pub mod actor;
pub mod adjustment;
pub mod admission;
pub mod audit;
pub mod capability;
pub mod event;
pub mod exec;
pub mod execution;
pub mod failed_creation;
pub mod file;
pub mod guesses;
pub mod health;
pub mod holder;
pub mod ids;
pub mod image;
pub mod lease;
pub mod life;
pub mod limits;
pub mod listing;
pub mod outbound;
pub mod outputs;
pub mod path;
pub mod policy;
pub mod pools;
pub mod reach;
pub mod resources;
pub mod revocation;
pub mod sandbox;
pub mod scope;
pub mod session;
pub mod snapshot;
pub mod spec;
pub mod text;
pub mod token;
pub mod tool;
pub mod transition;
pub mod units;
