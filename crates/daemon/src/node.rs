//! Who this node is: a number that nobody else has, kept in the data directory.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use engine::sandboxes::Key;
use model::ids::NodeId;
use rustix::rand::{GetRandomFlags, getrandom};
use sha2::{Digest as _, Sha256};

/// What a node is known by, and the key that its supervisors know it by.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) key: Key,
}

/// The file of the node's key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    #[error("cannot use the node's key in {path}")]
    File { path: PathBuf, source: io::Error },
    #[error("others can read {path}: chmod 600 it")]
    TooOpen { path: PathBuf },
    #[error("{path} does not hold a node's key: restore it, or remove it if no sandbox lives")]
    Malformed { path: PathBuf },
}

const KEY: usize = 32;

impl Node {
    /// Reads who this node is; at the first start that is made up.
    pub(crate) fn open(data: &Path) -> Result<Self, NodeError> {
        let path = data.join("node.key");
        let failed = |source| NodeError::File { path: path.clone(), source };
        let key = match read(&path) {
            Ok(key) => key,
            Err(error) if error.kind() == io::ErrorKind::NotFound => make(&path).map_err(failed)?,
            Err(error) => return Err(failed(error)),
        };
        let is_open_to_others = path.metadata().map_err(failed)?.permissions().mode() & 0o077 != 0;
        if is_open_to_others {
            return Err(NodeError::TooOpen { path });
        }
        let Ok(key) = <[u8; KEY]>::try_from(key) else { return Err(NodeError::Malformed { path }) };
        // From the key, so that the two are never of different nodes.
        let digest = Sha256::digest(key);
        let name: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        match format!("node_{name}").parse() {
            Ok(id) => Ok(Self { id, key: Key(key) }),
            Err(_) => Err(NodeError::Malformed { path }),
        }
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut key = Vec::new();
    File::open(path)?.take(1024).read_to_end(&mut key)?;
    Ok(key)
}

/// Makes a key and has it on disk, as a whole or not at all.
fn make(path: &Path) -> io::Result<Vec<u8>> {
    let mut key = vec![0; KEY];
    getrandom(&mut key, GetRandomFlags::empty())?;
    let unfinished = path.with_extension("key.new");
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
    file.write_all(&key)?;
    file.sync_all()?;
    std::fs::rename(&unfinished, path)?;
    if let Some(folder) = path.parent() {
        File::open(folder)?.sync_all()?;
    }
    Ok(key)
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

    #[test]
    fn a_key_that_is_cut_or_open_to_others_is_refused() {
        let data = tempfile::tempdir().unwrap();
        let path = data.path().join("node.key");
        Node::open(data.path()).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(Node::open(data.path()), Err(NodeError::TooOpen { .. })));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::write(&path, "short").unwrap();
        assert!(matches!(Node::open(data.path()), Err(NodeError::Malformed { .. })));
    }
}
