//! The lifecycle protocol, `agbox.v1`, over gRPC: on the Unix socket and on the main port.

pub mod accounts;
mod authority;
mod call;
pub mod door;
mod errors;
mod events;
mod from_wire;
mod health;
mod hpack;
mod images;
mod invalid;
mod progress;
mod service;
pub mod socket;
mod spec;
pub(crate) mod to_wire;
mod units;
mod yaml;

use engine::{sandboxes::Sandboxes, sessions::Sessions};

use crate::{audit::Sealer, tokens::Tokens};
use door::Door;

#[doc(hidden)]
pub use authority::fuzz_one as fuzz_authority;
pub(crate) use call::{Entrance, Grpc, astray, is_call, overloaded};
pub(crate) use service::Surface;
pub(crate) use spec::HostPaths;
#[doc(hidden)]
pub use yaml::fuzz_one as fuzz_yaml;

/// What the lifecycle protocol works on, as far as it is there.
#[derive(Debug, Default)]
pub struct Lifecycle {
    /// A server that keeps nothing has none.
    pub sandboxes: Option<Sandboxes>,
    /// What signs the tokens of sandboxes. Without it there is no data plane.
    pub tokens: Option<Tokens>,
    /// Who has which sandbox. Without it there is no data plane either.
    pub sessions: Option<Sessions>,
    /// The Unix socket, beside the main port.
    pub socket: Option<Door>,
    /// Seals the audit log. A server that keeps nothing has none.
    pub sealer: Option<Sealer>,
}
