//! Tools: what a Python tool may report, what of it is kept and shown, and how its sessions change.
//!
//! A tool reports through `result.json` ([`contract`]). The server keeps what fits the policy
//! ([`policy`], [`normalise`]) and says in system notices what it left out ([`report`]).

pub mod artifact;
pub mod canonical;
pub mod contract;
pub mod definition;
pub mod ids;
pub mod inputs;
pub mod normalise;
pub mod policy;
pub mod prefill;
pub mod report;
pub mod run;
pub mod schema;
pub mod session;
