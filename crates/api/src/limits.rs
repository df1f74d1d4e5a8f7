//! What requests may ask for: `GET /v1/limits`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The least, the default and the most of everything that a request can limit, by the name of its field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LimitRanges {
    /// `limits` of an execution (`WS /ws`).
    pub executions: BTreeMap<String, LimitRange>,
    /// `limits` of a session or a thread. Boxes and agbox.v1 have the same ranges under their own names.
    pub sandboxes: BTreeMap<String, LimitRange>,
}

/// The range of one limit, in the unit that its name ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LimitRange {
    pub min: u64,
    /// What a request gets that does not ask. Without it, such a request shares what there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<u64>,
    /// The operator's maximum.
    pub max: u64,
}
