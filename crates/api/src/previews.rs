//! Previews: a server in a sandbox, seen by a browser.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Asks for a link to a port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CreatePreview {
    /// For how long the port can be seen, counted from now: 60 to 3600; 900 if nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_in_seconds: Option<u64>,
    /// The path that the link leads to; `/` if nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// A link that can be opened once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Preview {
    pub url: String,
    /// Until when the link can be opened.
    pub url_expires_at: String,
    /// Until when whoever has opened it sees the port.
    pub expires_at: String,
}

/// Whoever has the link is let in.
impl std::fmt::Debug for Preview {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Preview").field("expires_at", &self.expires_at).finish_non_exhaustive()
    }
}
