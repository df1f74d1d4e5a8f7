//! Wire messages, stream frames and error codes, as the contracts state them.
//!
//! Holds no behaviour beyond reading and writing messages, and does no I/O.
#![warn(clippy::wildcard_enum_match_arm)]

pub mod a2a;
pub mod agbox;
pub mod audit;
pub mod boxes;
pub mod errors;
pub mod events;
pub mod exec;
pub mod fathom;
pub mod files;
pub mod health;
pub mod keys;
pub mod langsmith;
pub mod limits;
pub mod mcp;
pub mod previews;
pub mod ringfence;
mod schema;
pub mod sessions;
pub mod shell;
pub mod tokens;
