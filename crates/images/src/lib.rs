//! Images: names, hostile archives, a store of layers that all sandboxes share, and registries.
//!
//! It is a crate of its own because `unpack` reads what strangers packed: a worker process with
//! reduced rights runs it, over nothing but a reader and the descriptor of an empty directory. That
//! process is [`worker`]. It knows nothing of sandboxes, of surfaces, or of the database.

pub mod archive;
pub mod beneath;
pub mod config;
pub mod digest;
pub mod pull;
pub mod reference;
pub mod store;
pub mod unpack;
pub mod worker;
