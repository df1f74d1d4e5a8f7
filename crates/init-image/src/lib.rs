//! The init program of slots: a static binary, embedded as bytes.

/// The program, as it is executed from a sealed memory file.
pub static INIT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/ringfence-init"));
