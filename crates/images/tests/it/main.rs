//! Hostile archives, overlays made of real layers, and images from a real registry.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on is red")]

mod differential;
mod hostile;
mod killing;
mod local;
mod overlay;
mod pulling;
mod random;
mod store;
mod tls;
mod tree;
mod unpacking;

use harness::{imaging, packing, registry as server};
