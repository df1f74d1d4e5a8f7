//! Hostile archives, overlays made of real layers, and images from a real registry.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on is red")]

mod differential;
mod hostile;
mod imaging;
mod killing;
mod local;
mod overlay;
mod packing;
mod pulling;
mod random;
mod server;
mod store;
mod tls;
mod tree;
mod unpacking;
