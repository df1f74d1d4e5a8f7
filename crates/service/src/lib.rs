//! Use cases: each authorises, acts and records in one place, so that no surface can forget one of them.
//!
//! Knows no HTTP: a surface makes a [`Principal`](principal::Principal) of a credential, calls a use case, and renders
//! what it returns or the [`Problem`](problem::Problem).

pub mod principal;
pub mod problem;
mod recorded;
pub mod tools;
