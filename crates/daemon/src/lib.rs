//! The surfaces of the server, who may use them, and how it is configured.
//!
//! Decides nothing about an execution or a sandbox: that is `model`, carried out by `engine`.

pub mod audit;
pub mod auth;
pub mod clock;
pub mod config;
pub mod dataplane;
pub mod executor;
mod forward;
mod from_wire;
pub mod grpc;
mod guesses;
mod http;
pub mod key_file;
pub mod keys;
pub mod logging;
mod metrics;
mod node;
pub mod openapi;
pub mod run;
pub mod serve;
pub mod tls;
mod to_wire;
pub mod tokens;
pub mod ws;
