//! Works on the files of a sandbox from inside it.
//!
//! No path of a client is ever looked up on the machine's side, and never by PID 1: an *agent* does
//! it, a process among the sandbox's own, with the rights of a command, in its root and its control
//! groups. It is asked over a socket pair, does one thing after the other, and ends with its socket.
//! What comes out is a descriptor of a regular file, or a stream of entries. An agent is as little
//! trusted as any command: whoever asks looks at what it is given.

mod fault;
mod list;
mod pattern;
mod resolve;
mod search;
mod serve;
mod temporary;
mod tree;
mod walk;
mod watch;
pub mod wire;
mod write;

pub use serve::serve;
