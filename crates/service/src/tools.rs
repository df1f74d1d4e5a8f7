//! Use cases of tools. Tools belong to a tenant; runs, sessions and settings to one user of it.

mod authoring;
mod reading;
mod running;
mod settings;

use engine::{
    tasks::Tasks,
    tools::{Tools, Upload},
};
use model::{
    tool::{
        definition::{Content, DraftSnapshot, Slug, Tool, ToolVersion},
        ids::{DraftSnapshotId, RunId, ToolId, VersionId},
        run::{RunTexts, ToolRun},
        session::{Context, ToolSession},
    },
    units::Timestamp,
};
use serde_json::{Map, Value};
use store::{Store, tools::SessionKey};

pub use self::{authoring::check_schemas, running::Started, settings::ResolvedSettings};
pub use crate::recorded::Journal;
use crate::{principal::Principal, problem::Problem, recorded::UseCases};

/// The most tools of a tenant.
const MOST_TOOLS: u32 = 1000;

/// The use cases. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ToolService {
    use_cases: UseCases,
    tools: Tools,
}

/// Which tool a caller means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolName {
    Id(ToolId),
    Slug(Slug),
}

/// A tool that is to be created.
#[derive(Clone, Debug)]
pub struct NewTool {
    pub slug: Slug,
    pub title: String,
    pub content: Content,
}

/// A first run that is to begin.
#[derive(Clone, Debug, Default)]
pub struct FirstRun {
    pub inputs: Map<String, Value>,
    pub files: Vec<Upload>,
}

/// Where the files of a run in the editor come from, if none are uploaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FilesFrom {
    #[default]
    Nowhere,
    /// From the session of an earlier run of the same user and tool.
    Session(Context),
    /// From nowhere, and those of that session are removed.
    Cleared(Context),
}

/// An action that is to begin.
#[derive(Clone, Debug)]
pub struct StartAction {
    pub action_id: String,
    pub input: Map<String, Value>,
    pub expected_revision: u64,
}

/// A session as its user sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionView {
    pub tool: ToolId,
    pub context: Context,
    pub session: ToolSession,
}

/// A run with what it wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunView {
    pub run: ToolRun,
    pub texts: RunTexts,
}

impl ToolService {
    pub fn new(tools: Tools, tasks: Tasks, journal: Journal) -> Self {
        Self { use_cases: UseCases { tasks, journal }, tools }
    }

    fn store(&self) -> &Store {
        self.tools.store()
    }

    fn now(&self) -> Timestamp {
        self.use_cases.journal.now()
    }

    /// Returns the tool that the caller means.
    async fn find_tool(&self, caller: &Principal, name: &ToolName) -> Result<Tool, Problem> {
        let found = match name {
            ToolName::Id(id) => self.store().tool(&caller.tenant, id).await?,
            ToolName::Slug(slug) => self.store().tool_by_slug(&caller.tenant, slug).await?,
        };
        found.ok_or_else(|| Problem::not_found("the tool"))
    }

    /// Returns a version of a tool of the caller's tenant.
    async fn find_version(
        &self,
        caller: &Principal,
        id: &VersionId,
    ) -> Result<(Tool, ToolVersion), Problem> {
        let found = self.store().tool_version(&caller.tenant, id).await?;
        found.ok_or_else(|| Problem::not_found("the version of a tool"))
    }

    /// Returns a snapshot of this user and tool that can still be used.
    async fn find_snapshot(
        &self,
        caller: &Principal,
        tool: &Tool,
        id: &DraftSnapshotId,
    ) -> Result<DraftSnapshot, Problem> {
        let found = self.store().draft_snapshot(id).await?;
        let found = found.filter(|snapshot| snapshot.user == caller.user());
        let snapshot = found.ok_or_else(|| Problem::not_found("the snapshot of a draft"))?;
        if snapshot.tool != tool.id {
            return Err(Problem::conflict("the snapshot is of another tool"));
        }
        if snapshot.is_expired(self.now()) {
            return Err(Problem::conflict("the snapshot has expired; run the draft again"));
        }
        Ok(snapshot)
    }

    /// Returns a run of this user; admins see those of all users of their tenant.
    async fn find_run(&self, caller: &Principal, id: &RunId) -> Result<RunView, Problem> {
        let found = self.store().tool_run(&caller.tenant, id).await?;
        let is_visible =
            |run: &ToolRun| run.user == caller.user() || caller.role == store::keys::Role::Admin;
        match found.filter(|(run, _)| is_visible(run)) {
            Some((run, texts)) => Ok(RunView { run, texts }),
            None => Err(Problem::not_found("the run")),
        }
    }
}

fn session_key(caller: &Principal, tool: &ToolId, context: Context) -> SessionKey {
    SessionKey { tool: tool.clone(), user: caller.user(), context }
}

/// Returns 128 random bits for an id.
fn random() -> Result<[u8; 16], Problem> {
    let mut bytes = [0; 16];
    match rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty()) {
        Ok(16) => Ok(bytes),
        Ok(_) | Err(_) => Err(Problem::internal()),
    }
}
