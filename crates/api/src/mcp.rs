//! Messages of the Model Context Protocol, for the document alone: the library that speaks it has its own.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// One message of JSON-RPC 2.0, as the Model Context Protocol has them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(value_type = Object)]
pub struct Message(pub Map<String, Value>);
