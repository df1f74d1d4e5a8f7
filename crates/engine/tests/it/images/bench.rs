//! A node with images: its folder, its engine, and its worker seen from outside.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
    path::{Path, PathBuf},
};

use crate::home::tenant;
use engine::{
    Engine, Settings,
    images::{Allowed, Found, ImageError, Images, InUse, Kind, Listener, Pinned},
    languages::Languages,
};
use harness::{SpawnerProcess, start_spawner_of_images};
use isolate::spawner::IdRange;
use tempfile::TempDir;

pub(crate) struct Bench {
    pub(crate) folder: TempDir,
    pub(crate) engine: Engine,
    pub(crate) images: Images,
    pub(crate) spawner: SpawnerProcess,
}

impl Bench {
    pub(crate) async fn new() -> Self {
        Self::with(engine::images::Settings::default()).await
    }

    /// A node whose operator lists these registries, which are on the loopback of this machine.
    pub(crate) async fn listing(addresses: &[String]) -> Self {
        Self::with(listing(addresses)).await
    }

    pub(crate) async fn with(settings: engine::images::Settings) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (socket, spawner) = start_spawner_of_images(&folder.path().join("images")).unwrap();
        let none = Settings { languages: Languages::installed().only(&[]), ..Settings::default() };
        let engine = Engine::start(none, socket.into_fd()).await.unwrap();
        let images = engine.open_images(settings);
        Self { folder, engine, images, spawner }
    }

    /// A node whose callers may name files in its folder.
    pub(crate) async fn of_files() -> (Self, PathBuf) {
        let place = tempfile::tempdir().unwrap().keep();
        let kinds = BTreeSet::from([Kind::Host, Kind::Dir, Kind::Tar, Kind::Oci]);
        let prefixes = vec![place.display().to_string()];
        let allowed = Allowed { kinds, prefixes };
        let settings = engine::images::Settings { allowed, ..Default::default() };
        (Self::with(settings).await, place)
    }

    pub(crate) async fn get(&self, name: &str) -> Result<Pinned, ImageError> {
        match self.images.get(&tenant(), name.parse()?, &Listener::default()).await? {
            Found::Image(image) => Ok(image),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn pull(&self, name: &str) -> Result<Pinned, ImageError> {
        self.images.pull(&tenant(), name.parse()?, &Listener::default()).await
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.folder.path().join("images")
    }

    /// Returns what is in each layer of an image, lowest first.
    pub(crate) fn layers(&self, image: &Pinned) -> Vec<Vec<String>> {
        let layers = image.layer_names();
        layers.iter().map(|it| tree(&self.layer(it))).collect()
    }

    pub(crate) fn layer(&self, name: &str) -> PathBuf {
        self.root().join("layers").join(name).join("fs")
    }

    /// Returns the process of the worker, if there is one.
    pub(crate) fn worker(&self) -> Option<u32> {
        let spawner = self.spawner.id();
        let children = fs::read_to_string(format!("/proc/{spawner}/task/{spawner}/children"));
        let children: Vec<u32> =
            children.unwrap().split_whitespace().map(|it| it.parse().unwrap()).collect();
        let is_worker = |pid: &u32| {
            let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.contains("image-worker")
        };
        children.into_iter().find(is_worker)
    }

    /// Asserts that nothing is left of pulls that failed: no image, no layer, nothing unfinished.
    pub(crate) async fn assert_empty(&self) {
        self.images.collect(&InUse::default()).await.unwrap();
        assert_eq!(self.images.list(&tenant()).await.unwrap(), []);
        for folder in ["layers", "images", "tags", "trash"] {
            assert_eq!(names(&self.root().join(folder)), Vec::<String>::new(), "{folder}");
        }
        assert_eq!(self.unfinished(), Vec::<String>::new());
    }

    /// Returns what sessions of workers have unfinished. The living worker has one.
    pub(crate) fn unfinished(&self) -> Vec<String> {
        let work = self.root().join("work");
        let sessions = names(&work);
        assert!(sessions.len() <= 1, "{sessions:?}");
        sessions.iter().flat_map(|it| names(&work.join(it))).collect()
    }

    pub(crate) fn end(mut self) {
        self.engine.close();
        self.spawner.wait().unwrap();
    }
}

/// Settings of a node whose operator lists these registries.
pub(crate) fn listing(addresses: &[String]) -> engine::images::Settings {
    let listed = addresses.iter().map(|it| (it.clone(), engine::images::Registry::default()));
    engine::images::Settings { registries: listed.collect(), ..Default::default() }
}

pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|it| it.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns what user of an image a file belongs to.
fn inside(owner: u32) -> u32 {
    if is_root() { owner.wrapping_sub(IdRange::ON_DISK.first) } else { 0 }
}

/// One line for each thing below a directory: path, kind, mode, owner, content.
fn tree(root: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(folder) = waiting.pop() {
        for name in names(&folder) {
            let path = folder.join(name);
            let data = fs::symlink_metadata(&path).unwrap();
            let (kind, mode) = (data.file_type(), data.mode() & 0o7777);
            let what = if kind.is_dir() {
                waiting.push(path.clone());
                format!("directory {mode:o}")
            } else if kind.is_symlink() {
                format!("link {}", fs::read_link(&path).unwrap().display())
            } else if kind.is_char_device() {
                format!("device {}", data.rdev())
            } else {
                format!("file {mode:o} {}", fs::read(&path).unwrap().escape_ascii())
            };
            let (user, group) = (inside(data.uid()), inside(data.gid()));
            let path = path.strip_prefix(root).unwrap().display().to_string();
            lines.push(format!("{path} {user}:{group} {what}"));
        }
    }
    lines.sort();
    lines
}
