//! Artifacts of runs, on this server's disk. Files are named by their place in the list of the run, so the names that
//! a tool chose are never names here.

use std::{
    fs::{self, File},
    io::{self, ErrorKind, Read as _},
    os::fd::OwnedFd,
    path::PathBuf,
};

use model::tool::{
    artifact::artifact_ids,
    ids::RunId,
    run::{Artifact, ToolRun},
};

use super::files::{blocking, or_missing};

/// A file that was collected from a run.
#[derive(Debug)]
pub(super) struct CollectedArtifact {
    pub(super) path: String,
    pub(super) bytes: u64,
    pub(super) file: OwnedFd,
}

/// An artifact, ready to be read.
#[derive(Debug)]
pub struct OpenArtifact {
    pub artifact: Artifact,
    pub file: File,
}

/// The folder of all runs.
#[derive(Clone, Debug)]
pub(super) struct Artifacts {
    folder: PathBuf,
}

impl Artifacts {
    pub(super) fn open(folder: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&folder)?;
        Ok(Self { folder })
    }

    /// Copies what was collected. Returns the artifacts with their ids.
    pub(super) async fn keep(
        &self,
        run: &RunId,
        collected: Vec<CollectedArtifact>,
    ) -> io::Result<Vec<Artifact>> {
        if collected.is_empty() {
            return Ok(Vec::new());
        }
        let folder = self.folder.join(run.as_str());
        blocking(move || {
            fs::create_dir_all(&folder)?;
            let paths: Vec<&str> =
                collected.iter().map(|artifact| artifact.path.as_str()).collect();
            let ids = artifact_ids(&paths);
            let mut kept = Vec::new();
            for (index, (artifact, id)) in collected.into_iter().zip(ids).enumerate() {
                let mut from = File::from(artifact.file).take(artifact.bytes);
                let mut to = File::create(folder.join(index.to_string()))?;
                let bytes = io::copy(&mut from, &mut to)?;
                kept.push(Artifact { id, path: artifact.path, bytes });
            }
            Ok(kept)
        })
        .await
    }

    /// Opens an artifact of a run. `None`: the run has none of this id, or it is kept no longer.
    pub(super) async fn read(&self, run: &ToolRun, id: &str) -> io::Result<Option<OpenArtifact>> {
        let Some(index) = run.artifacts.iter().position(|artifact| artifact.id == id) else {
            return Ok(None);
        };
        let Some(artifact) = run.artifacts.get(index).cloned() else { return Ok(None) };
        let path = self.folder.join(run.id.as_str()).join(index.to_string());
        blocking(move || match File::open(path) {
            Ok(file) => Ok(Some(OpenArtifact { artifact, file })),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        })
        .await
    }

    /// Removes the artifacts of a run.
    pub(super) fn remove(&self, run: &RunId) {
        if let Err(error) = or_missing(fs::remove_dir_all(self.folder.join(run.as_str()))) {
            tracing::warn!(%run, %error, "cannot remove the artifacts of a run");
        }
    }
}
