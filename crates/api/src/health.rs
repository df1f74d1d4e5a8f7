//! Whether the server is there and takes work.

use serde::Serialize;
use utoipa::ToSchema;

/// The answer to `GET /healthz` and `GET /readyz`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Health {
    /// `ok` or `ready`.
    pub status: &'static str,
}
