//! Who this node is: a number that nobody else has, kept in the data directory.

use std::path::Path;

use engine::sandboxes::Key;
use model::ids::NodeId;
use sha2::{Digest as _, Sha256};

use crate::key_file::{self, KeyFileError};

/// What a node is known by, and the key that its supervisors know it by.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) key: Key,
}

const WITHOUT_IT: &str = "if no sandbox lives";

impl Node {
    /// Reads who this node is; at the first start that is made up.
    pub(crate) fn open(data: &Path) -> Result<Self, KeyFileError> {
        let path = data.join("node.key");
        let key = key_file::open(&path, WITHOUT_IT)?;
        // From the key, so that the two are never of different nodes.
        let digest = Sha256::digest(key);
        let name: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        match format!("node_{name}").parse() {
            Ok(id) => Ok(Self { id, key: Key(key) }),
            Err(_) => Err(KeyFileError::Malformed { path, without_it: WITHOUT_IT }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_the_same_at_every_start() {
        let data = tempfile::tempdir().unwrap();
        let (one, other) = (Node::open(data.path()).unwrap(), Node::open(data.path()).unwrap());
        assert_eq!((one.id, one.key), (other.id, other.key));
    }
}
