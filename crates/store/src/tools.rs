//! Tools as they are kept: definitions, runs and sessions.

mod definitions;
mod rows;
mod runs;
mod sessions;

use model::{
    ids::{NodeId, Tenant},
    tool::{
        definition::{DraftConflict, DraftSnapshot, Slug, Tool, ToolVersion},
        ids::{DraftSnapshotId, RunId, ToolId, VersionId},
        run::{Artifact, RunStatus, RunTexts, ToolRun},
        session::{ActionConflict, Context, Reported, ToolSession},
    },
    units::Timestamp,
};
use serde_json::{Map, Value};

use crate::{Store, StoreError, sql::Sql};

/// Which session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionKey {
    pub tool: ToolId,
    pub user: String,
    pub context: Context,
}

/// How a run ended. Its row and its session are changed together.
#[derive(Clone, Debug)]
pub struct RunFinish {
    pub run: RunId,
    pub status: RunStatus,
    pub error_summary: Option<String>,
    pub artifacts: Vec<Artifact>,
    pub texts: RunTexts,
    pub stdout_truncated: bool,
    pub stderr_truncated: bool,
    pub reported: Reported,
    /// When it began to run, if it did. It may not have been kept before.
    pub started_at: Option<Timestamp>,
    pub at: Timestamp,
}

/// What is forgotten: whatever was made before these times.
#[derive(Clone, Copy, Debug)]
pub struct Forget {
    pub snapshots_before: Timestamp,
    pub runs_before: Timestamp,
    /// The most runs in one step.
    pub limit: u32,
}

/// A write of this module. Each is carried out whole or not at all.
#[derive(Debug)]
pub(crate) enum ToolWrite {
    Create { tool: Box<Tool>, version: Box<ToolVersion>, most: u32 },
    SaveDraft { expected: VersionId, version: Box<ToolVersion> },
    Change { tool: Box<Tool> },
    Delete { tool: ToolId },
    AddSnapshot { snapshot: Box<DraftSnapshot> },
    BeginRun { run: Box<ToolRun>, expected: Option<u64> },
    StartRun { run: RunId, at: Timestamp },
    FinishRun { finish: Box<RunFinish> },
    OpenSession { key: SessionKey, at: Timestamp },
    SetState { key: SessionKey, expected: u64, state: Map<String, Value>, at: Timestamp },
    Forget { what: Forget },
}

/// What a write answers. Conflicts are answers, not errors: nothing was changed, and the caller is told why.
#[derive(Debug)]
pub(crate) enum ToolWritten {
    Done,
    Tool(Box<Tool>),
    Draft(Result<Box<Tool>, DraftConflict>),
    Session(Result<ToolSession, ActionConflict>),
    /// The run as it is now, and whether this write ended it.
    Run(Box<ToolRun>, bool),
    Forgotten(Vec<RunId>),
}

impl ToolWrite {
    /// Says whether it asks for something new, rather than ending something.
    pub(crate) const fn is_new_work(&self) -> bool {
        match self {
            Self::Create { .. }
            | Self::SaveDraft { .. }
            | Self::Change { .. }
            | Self::AddSnapshot { .. }
            | Self::BeginRun { .. }
            | Self::OpenSession { .. }
            | Self::SetState { .. } => true,
            Self::Delete { .. }
            | Self::StartRun { .. }
            | Self::FinishRun { .. }
            | Self::Forget { .. } => false,
        }
    }
}

/// Carries out a write in the transaction that the caller has begun.
pub(crate) async fn carry_out(
    sql: &impl Sql,
    write: &ToolWrite,
) -> Result<ToolWritten, StoreError> {
    match write {
        ToolWrite::Create { tool, version, most } => {
            definitions::create(sql, tool, version, *most).await?;
            Ok(ToolWritten::Done)
        }
        ToolWrite::SaveDraft { expected, version } => Ok(ToolWritten::Draft(
            definitions::save_draft(sql, expected, version).await?.map(Box::new),
        )),
        ToolWrite::Change { tool } => {
            Ok(ToolWritten::Tool(Box::new(definitions::change(sql, tool).await?)))
        }
        ToolWrite::Delete { tool } => {
            Ok(ToolWritten::Forgotten(definitions::delete(sql, tool).await?))
        }
        ToolWrite::AddSnapshot { snapshot } => {
            definitions::add_snapshot(sql, snapshot).await?;
            Ok(ToolWritten::Done)
        }
        ToolWrite::BeginRun { run, expected } => {
            Ok(ToolWritten::Session(runs::begin(sql, run, *expected).await?))
        }
        ToolWrite::StartRun { run, at } => {
            let (run, changed) = runs::start(sql, run, *at).await?;
            Ok(ToolWritten::Run(Box::new(run), changed))
        }
        ToolWrite::FinishRun { finish } => {
            let (run, changed) = runs::finish(sql, finish).await?;
            Ok(ToolWritten::Run(Box::new(run), changed))
        }
        ToolWrite::OpenSession { key, at } => {
            Ok(ToolWritten::Session(Ok(sessions::open(sql, key, *at).await?)))
        }
        ToolWrite::SetState { key, expected, state, at } => {
            Ok(ToolWritten::Session(sessions::set_state(sql, key, *expected, state, *at).await?))
        }
        ToolWrite::Forget { what } => Ok(ToolWritten::Forgotten(runs::forget(sql, *what).await?)),
    }
}

/// Asks either backend the same question.
macro_rules! ask {
    ($store:expr, $sql:ident => $question:expr) => {
        match $store {
            Store::Sqlite(backend) => {
                backend.read(move |$sql| crate::sql::at_once($question)).await
            }
            Store::Postgres(backend) => {
                let $sql = &*backend.reading_session().await?;
                match $question.await {
                    // A connection that broke under the question: reading again does no harm.
                    Err(StoreError::Postgres(_)) if $sql.is_closed() => {
                        let $sql = &*backend.reading_session().await?;
                        $question.await
                    }
                    answer => answer,
                }
            }
        }
    };
}

impl Store {
    /// Keeps a new tool with its first version. A slug that is taken is [`StoreError::Conflict`]; if the tenant
    /// has as many tools as it may, [`StoreError::TooMany`].
    pub async fn create_tool(
        &self,
        tool: Tool,
        version: ToolVersion,
        most: u32,
    ) -> Result<(), StoreError> {
        let (tool, version) = (Box::new(tool), Box::new(version));
        self.write_tool(ToolWrite::Create { tool, version, most }).await.map(drop)
    }

    /// Keeps a version as the new head of its tool's draft, if the present head is the expected one. Its number is given
    /// here.
    pub async fn save_draft(
        &self,
        expected: VersionId,
        version: ToolVersion,
    ) -> Result<Result<Tool, DraftConflict>, StoreError> {
        match self.write_tool(ToolWrite::SaveDraft { expected, version: Box::new(version) }).await?
        {
            ToolWritten::Draft(saved) => Ok(saved.map(|tool| *tool)),
            other => Err(unexpected(&other)),
        }
    }

    /// Keeps the slug, title, limits and published version of a tool. The head of its draft stays as it is.
    pub async fn change_tool(&self, tool: Tool) -> Result<Tool, StoreError> {
        match self.write_tool(ToolWrite::Change { tool: Box::new(tool) }).await? {
            ToolWritten::Tool(tool) => Ok(*tool),
            other => Err(unexpected(&other)),
        }
    }

    /// Deletes a tool with all that belongs to it. Returns its runs, whose artifacts are to be removed.
    pub async fn delete_tool(&self, tool: ToolId) -> Result<Vec<RunId>, StoreError> {
        self.forgetting(ToolWrite::Delete { tool }).await
    }

    /// Keeps a snapshot of a draft.
    pub async fn add_draft_snapshot(&self, snapshot: DraftSnapshot) -> Result<(), StoreError> {
        let snapshot = Box::new(snapshot);
        self.write_tool(ToolWrite::AddSnapshot { snapshot }).await.map(drop)
    }

    /// Keeps a new run. With an expected revision it is an action: it begins if that is the revision of its session and no
    /// other action runs. A missing session is [`StoreError::NotFound`]. Returns the session.
    pub async fn begin_run(
        &self,
        run: ToolRun,
        expected: Option<u64>,
    ) -> Result<Result<ToolSession, ActionConflict>, StoreError> {
        self.in_session(ToolWrite::BeginRun { run: Box::new(run), expected }).await
    }

    /// Keeps that a queued run has started. Returns the run, and false if it had ended meanwhile.
    pub async fn start_run(
        &self,
        run: RunId,
        at: Timestamp,
    ) -> Result<(ToolRun, bool), StoreError> {
        self.to_run(ToolWrite::StartRun { run, at }).await
    }

    /// Keeps how a run ended, and with it the state of its session. A run ends once: false if it had ended before.
    pub async fn finish_run(&self, finish: RunFinish) -> Result<(ToolRun, bool), StoreError> {
        self.to_run(ToolWrite::FinishRun { finish: Box::new(finish) }).await
    }

    /// Returns a session, which is created with an empty state if it is missing.
    pub async fn open_tool_session(
        &self,
        key: SessionKey,
        at: Timestamp,
    ) -> Result<ToolSession, StoreError> {
        self.in_session(ToolWrite::OpenSession { key, at })
            .await?
            .map_err(|_never| StoreError::Unmet)
    }

    /// Sets the state of a session, if its revision is the expected one. A session that is not there has revision 0.
    pub async fn set_tool_state(
        &self,
        key: SessionKey,
        expected: u64,
        state: Map<String, Value>,
        at: Timestamp,
    ) -> Result<Result<ToolSession, ActionConflict>, StoreError> {
        self.in_session(ToolWrite::SetState { key, expected, state, at }).await
    }

    /// Forgets expired snapshots with their sessions, and old runs. Returns the runs, whose artifacts are to be removed.
    pub async fn forget_tool_runs(&self, what: Forget) -> Result<Vec<RunId>, StoreError> {
        self.forgetting(ToolWrite::Forget { what }).await
    }

    /// Returns a tool of this tenant.
    pub async fn tool(&self, tenant: &Tenant, id: &ToolId) -> Result<Option<Tool>, StoreError> {
        let (tenant, id) = (tenant.clone(), id.clone());
        ask!(self, sql => definitions::tool(sql, &tenant, &id))
    }

    /// Returns the tool of this tenant that has this slug.
    pub async fn tool_by_slug(
        &self,
        tenant: &Tenant,
        slug: &Slug,
    ) -> Result<Option<Tool>, StoreError> {
        let (tenant, slug) = (tenant.clone(), slug.clone());
        ask!(self, sql => definitions::tool_by_slug(sql, &tenant, &slug))
    }

    /// Returns the tools of a tenant, by slug.
    pub async fn tools(&self, tenant: &Tenant) -> Result<Vec<Tool>, StoreError> {
        let tenant = tenant.clone();
        ask!(self, sql => definitions::tools(sql, &tenant))
    }

    /// Returns a version of a tool of this tenant.
    pub async fn tool_version(
        &self,
        tenant: &Tenant,
        id: &VersionId,
    ) -> Result<Option<(Tool, ToolVersion)>, StoreError> {
        let (tenant, id) = (tenant.clone(), id.clone());
        ask!(self, sql => definitions::version(sql, &tenant, &id))
    }

    /// Returns the versions of a tool, newest first.
    pub async fn tool_versions(&self, tool: &ToolId) -> Result<Vec<ToolVersion>, StoreError> {
        let tool = tool.clone();
        ask!(self, sql => definitions::versions(sql, &tool))
    }

    /// Returns a snapshot of a draft, expired or not, until it is forgotten.
    pub async fn draft_snapshot(
        &self,
        id: &DraftSnapshotId,
    ) -> Result<Option<DraftSnapshot>, StoreError> {
        let id = id.clone();
        ask!(self, sql => definitions::snapshot(sql, &id))
    }

    /// Returns a run of this tenant with what it wrote.
    pub async fn tool_run(
        &self,
        tenant: &Tenant,
        id: &RunId,
    ) -> Result<Option<(ToolRun, RunTexts)>, StoreError> {
        let (tenant, id) = (tenant.clone(), id.clone());
        ask!(self, sql => runs::run(sql, &tenant, &id))
    }

    /// Returns the last runs of a user of a tool, newest first.
    pub async fn tool_runs(
        &self,
        tool: &ToolId,
        user: &str,
        limit: u32,
    ) -> Result<Vec<ToolRun>, StoreError> {
        let (tool, user) = (tool.clone(), user.to_owned());
        ask!(self, sql => runs::of_user(sql, &tool, &user, limit))
    }

    /// Returns the runs of a node that have not ended.
    pub async fn unfinished_tool_runs(&self, node: &NodeId) -> Result<Vec<ToolRun>, StoreError> {
        let node = node.clone();
        ask!(self, sql => runs::unfinished(sql, &node))
    }

    /// Returns a session.
    pub async fn tool_session(&self, key: &SessionKey) -> Result<Option<ToolSession>, StoreError> {
        let key = key.clone();
        ask!(self, sql => sessions::session(sql, &key))
    }

    async fn write_tool(&self, write: ToolWrite) -> Result<ToolWritten, StoreError> {
        match self {
            Self::Sqlite(backend) => backend.commands().write_tool(write).await,
            Self::Postgres(backend) => backend.commands().write_tool(write).await,
        }
    }

    async fn in_session(
        &self,
        write: ToolWrite,
    ) -> Result<Result<ToolSession, ActionConflict>, StoreError> {
        match self.write_tool(write).await? {
            ToolWritten::Session(session) => Ok(session),
            other => Err(unexpected(&other)),
        }
    }

    async fn to_run(&self, write: ToolWrite) -> Result<(ToolRun, bool), StoreError> {
        match self.write_tool(write).await? {
            ToolWritten::Run(run, changed) => Ok((*run, changed)),
            other => Err(unexpected(&other)),
        }
    }

    async fn forgetting(&self, write: ToolWrite) -> Result<Vec<RunId>, StoreError> {
        match self.write_tool(write).await? {
            ToolWritten::Forgotten(runs) => Ok(runs),
            other => Err(unexpected(&other)),
        }
    }
}

fn unexpected(written: &ToolWritten) -> StoreError {
    StoreError::Commit { report: format!("the writer of the store answered {written:?}") }
}
