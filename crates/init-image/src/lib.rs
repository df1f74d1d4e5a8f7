//! What runs inside: the init program of slots, a static binary, and the library of zygotes, both
//! embedded as bytes.

/// The program, as it is executed from a sealed memory file.
pub static INIT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/ringfence-init"));

/// The library that makes a zygote of a runtime which loads it.
pub static ZYGOTE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/zygote.so"));
