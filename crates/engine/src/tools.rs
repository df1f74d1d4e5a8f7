//! Runs of tools: each is an execution in a fresh environment, whose files and report are collected at its end.
//!
//! The row of a run and the state of its session are written together, so a server that is killed at any point
//! leaves the revision of the session as it was, or one higher with the new state.

mod artifacts;
mod execution;
mod files;
mod live;
mod payload;
mod utf8;

use std::{
    collections::HashMap,
    io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use model::{
    ids::NodeId,
    tool::{
        definition::{Content, ToolLimits},
        ids::RunId,
        run::{RunEnd, RunTexts, ToolRun, broken, interrupted},
        session::{ActionConflict, ToolSession},
    },
    units::{ByteSize, Timestamp},
};
use serde_json::{Map, Value};
use store::{
    Store, StoreError,
    tools::{Forget, RunFinish, SessionKey},
};

use self::{artifacts::Artifacts, files::SessionFiles};
pub use self::{
    artifacts::OpenArtifact,
    files::{SessionFile, Upload},
    live::{LiveRun, Progress, ProgressEvent},
};
use crate::{Engine, executions::CollectedSubmission, sandboxes::clock::now};

/// What runs of tools may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolSettings {
    pub memory: ByteSize,
    /// The most time for a draft that is tried.
    pub sandbox_timeout: Duration,
    pub production_timeout: Duration,
    pub max_artifacts: u32,
    pub max_artifact_bytes: u64,
    /// How long runs and their artifacts are kept.
    pub keep_runs: Duration,
    /// How long files of a session are kept after their last use.
    pub keep_files: Duration,
}

impl Default for ToolSettings {
    fn default() -> Self {
        Self {
            memory: ByteSize::mib(1024),
            sandbox_timeout: Duration::from_mins(1),
            production_timeout: Duration::from_mins(2),
            max_artifacts: 200,
            max_artifact_bytes: 50 << 20,
            keep_runs: Duration::from_hours(7 * 24),
            keep_files: Duration::from_hours(24),
        }
    }
}

/// The tools of this node. Cheap to clone; all clones are the same.
#[derive(Clone, Debug)]
pub struct Tools {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    engine: Engine,
    store: Store,
    node: NodeId,
    settings: ToolSettings,
    files: SessionFiles,
    artifacts: Artifacts,
    live: Mutex<HashMap<RunId, Arc<LiveRun>>>,
}

/// A run that is to begin.
#[derive(Clone, Debug)]
pub struct NewRun {
    pub run: ToolRun,
    pub content: Content,
    pub limits: ToolLimits,
    pub inputs: Map<String, Value>,
    /// The settings of the user for this tool.
    pub settings: Map<String, Value>,
    pub files: InputFiles,
    /// What an action is told; `None` for a first run.
    pub action: Option<NewAction>,
    pub timeout: Duration,
}

/// An action of a form that the user has filled in.
#[derive(Clone, Debug)]
pub struct NewAction {
    pub action_id: String,
    pub input: Map<String, Value>,
    pub expected_revision: u64,
}

/// Which files a run gets.
#[derive(Clone, Debug)]
pub enum InputFiles {
    /// Those of its session, as they are.
    Kept,
    /// These, which take the place of those of its session.
    Uploaded(Vec<Upload>),
    /// Those of another session of the same user and tool, which become those of its own.
    CopiedFrom(SessionKey),
}

/// Why a run does not begin.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    #[error(transparent)]
    Conflict(#[from] ActionConflict),
    #[error("the server has no Python; install python3")]
    NoPython,
    #[error("the server has no room for another run; try again in a moment")]
    Busy,
    #[error("cannot keep the files of a session")]
    Files(#[source] io::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Tools {
    /// Opens the tools of this node. Runs that a server before this one did not end are ended as interrupted.
    pub async fn open(
        engine: Engine,
        store: Store,
        node: NodeId,
        folder: PathBuf,
        settings: ToolSettings,
    ) -> Result<Self, ToolError> {
        let files = SessionFiles::open(folder.join("files")).map_err(ToolError::Files)?;
        let artifacts = Artifacts::open(folder.join("artifacts")).map_err(ToolError::Files)?;
        let inner =
            Inner { engine, store, node, settings, files, artifacts, live: Mutex::default() };
        let tools = Self { inner: Arc::new(inner) };
        tools.end_interrupted_runs().await?;
        Ok(tools)
    }

    async fn end_interrupted_runs(&self) -> Result<(), ToolError> {
        for run in self.inner.store.unfinished_tool_runs(&self.inner.node).await? {
            self.inner.artifacts.remove(&run.id);
            self.finish(
                &run.id,
                interrupted(),
                RunTexts::default(),
                &execution::Written::default(),
            )
            .await?;
            tracing::warn!(run = %run.id, "a run of a tool was interrupted");
        }
        Ok(())
    }

    pub fn store(&self) -> &Store {
        &self.inner.store
    }

    pub fn node(&self) -> &NodeId {
        &self.inner.node
    }

    pub fn settings(&self) -> &ToolSettings {
        &self.inner.settings
    }

    /// Begins a run. Returns its session and its progress; the run goes on whether that is followed or not.
    pub async fn begin(&self, new: NewRun) -> Result<(ToolSession, Arc<LiveRun>), ToolError> {
        if self.inner.engine.language("python").is_none() {
            return Err(ToolError::NoPython);
        }
        let (live, cancelled) = LiveRun::new(new.run.clone());
        let live = Arc::new(live);
        // Before its row is there: a run that is listed can be followed.
        self.live().insert(new.run.id.clone(), Arc::clone(&live));
        match self.accept(&new).await {
            Ok((session, submission)) => {
                let (tools, followed) = (self.clone(), Arc::clone(&live));
                self.inner.engine.inner.tasks.start("tool run", async move {
                    tools.carry_out(&new, submission, &followed, cancelled).await;
                });
                Ok((session, live))
            }
            Err(error) => {
                live.finish(live.run());
                self.live().remove(&new.run.id);
                Err(error)
            }
        }
    }

    /// Keeps a new run and puts it into the queue. One for which there is no room has failed.
    async fn accept(&self, new: &NewRun) -> Result<(ToolSession, CollectedSubmission), ToolError> {
        let expected = new.action.as_ref().map(|action| action.expected_revision);
        let session = self.inner.store.begin_run(new.run.clone(), expected).await??;
        match self.submit(new, &session.state).await {
            Ok(submission) => Ok((session, submission)),
            Err(error) => {
                let written = execution::Written::default();
                self.finish(&new.run.id, broken(), RunTexts::default(), &written).await?;
                Err(error)
            }
        }
    }

    /// Returns the progress of a run that this server carries out now.
    pub fn follow(&self, run: &RunId) -> Option<Arc<LiveRun>> {
        self.live().get(run).cloned()
    }

    /// Cancels a run that this server carries out now. Its end follows.
    pub fn cancel(&self, run: &RunId) -> bool {
        self.follow(run).is_some_and(|live| {
            live.cancel();
            true
        })
    }

    /// Returns the files of a session.
    pub async fn session_files(&self, key: &SessionKey) -> Result<Vec<SessionFile>, ToolError> {
        self.inner.files.list(key).await.map_err(ToolError::Files)
    }

    /// Removes the files of a session.
    pub async fn clear_session_files(&self, key: &SessionKey) -> Result<(), ToolError> {
        self.inner.files.replace(key, Vec::new()).await.map_err(ToolError::Files)
    }

    /// Opens an artifact of a run.
    pub async fn open_artifact(
        &self,
        run: &ToolRun,
        id: &str,
    ) -> Result<Option<OpenArtifact>, ToolError> {
        self.inner.artifacts.read(run, id).await.map_err(ToolError::Files)
    }

    /// Deletes a tool with everything that belongs to it.
    pub async fn delete(&self, tool: model::tool::ids::ToolId) -> Result<(), ToolError> {
        let runs = self.inner.store.delete_tool(tool.clone()).await?;
        for run in &runs {
            self.cancel(run);
            self.inner.artifacts.remove(run);
        }
        self.inner.files.remove_tool(&tool).await.map_err(ToolError::Files)
    }

    /// Forgets what is kept no longer.
    pub async fn forget_old(&self) -> Result<(), ToolError> {
        let (now, settings) = (now(), &self.inner.settings);
        let before = |kept: Duration| {
            let millis = i64::try_from(kept.as_millis()).unwrap_or(i64::MAX);
            Timestamp::from_millis(now.as_millis().saturating_sub(millis))
        };
        let snapshots_before = before(model::tool::definition::SNAPSHOT_LIFETIME);
        let what = Forget { snapshots_before, runs_before: before(settings.keep_runs), limit: 500 };
        for run in self.inner.store.forget_tool_runs(what).await? {
            self.inner.artifacts.remove(&run);
        }
        self.inner.files.forget(settings.keep_files).await.map_err(ToolError::Files)
    }

    /// Writes how a run ended. Returns the run as it is kept, and whether this ended it.
    async fn finish(
        &self,
        run: &RunId,
        end: RunEnd,
        texts: RunTexts,
        written: &execution::Written,
    ) -> Result<(ToolRun, bool), StoreError> {
        let payload = end.payload.as_ref().and_then(|payload| serde_json::to_string(payload).ok());
        let finish = RunFinish {
            run: run.clone(),
            status: end.status,
            error_summary: end.error_summary,
            artifacts: written.artifacts.clone(),
            texts: RunTexts { payload, ..texts },
            stdout_truncated: written.stdout_truncated,
            stderr_truncated: written.stderr_truncated,
            reported: end.reported,
            started_at: written.started_at,
            at: now(),
        };
        self.inner.store.finish_run(finish).await
    }

    fn live(&self) -> MutexGuard<'_, HashMap<RunId, Arc<LiveRun>>> {
        // No code panics while it holds the lock, so a poisoned one is as good as any.
        self.inner.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
