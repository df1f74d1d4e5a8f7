//! Images through a real worker, which a real spawner has started.

mod bench;
mod confinement;
mod files;
mod forgery;
mod hostile;
mod pulls;
mod sandboxes;
mod store;

pub(crate) use bench::listing;
