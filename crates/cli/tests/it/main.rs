//! The real command, as a user would call it.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on is red")]

mod agbox;
mod audit;
mod command;
mod descriptors;
mod faults;
mod images;
mod keeper;
mod key;
mod mcp;
mod pty;
mod run;
mod sandboxes;
mod serve;
mod sessions;
mod shell;
mod slow;
mod terminal;
mod tls;
mod token;
mod websocket;
