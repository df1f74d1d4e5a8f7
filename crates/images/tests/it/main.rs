//! Hostile archives, overlays made of real layers, and images from a real registry.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on is red")]

mod differential;
mod hostile;
mod overlay;
mod packing;
mod random;
mod store;
mod tree;
mod unpacking;
