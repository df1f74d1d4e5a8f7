//! What a sandbox is made from, once the names in its spec were looked up.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::spec::Variables;

/// The image that is the machine itself. It is the same for everybody, so nobody looks it up.
pub const HOST: &str = "host";

/// Images by the names that the spec has for them.
pub type UsedImages = BTreeMap<String, UsedImage>;

/// An image as it was when the sandbox was made. A name may lead to another one later; what the
/// sandbox has written lies over the layers of this one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UsedImage {
    /// Its digest.
    pub id: String,
    /// The names of its layers, lowest first.
    pub layers: Vec<String>,
    /// The variables that it wants its programs to have.
    pub env: Variables,
    /// What it runs if nobody says otherwise.
    pub command: Vec<String>,
    /// What it runs whatever else is said, with that behind it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub entrypoint: Vec<String>,
    /// Who runs it, as the image says it. Empty: root.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// Where. Empty: in the root.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub working_directory: String,
}
