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
}
