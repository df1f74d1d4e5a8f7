//! The daemon in this process, on a port of its own, with real sockets.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on is red")]

mod admin;
mod agbox;
mod bounds;
mod caller;
mod connections;
mod exec;
mod exec_clients;
mod exec_outputs;
mod exec_rows;
mod executions;
mod files;
mod floods;
mod frames;
mod framing;
mod gone;
mod health;
mod http2;
mod listing;
mod messages;
mod metrics;
mod paths;
mod peer;
mod ports;
mod previews;
mod real;
mod refusals;
mod sandboxed;
mod scripted;
mod secrets;
mod served;
mod shutdown;
mod support;
mod tokens;
mod tunnel;
mod upgrade;
