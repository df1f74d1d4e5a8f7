//! Reading tools, sessions and runs. What is another tenant's, or another user's, is not there.

use std::sync::Arc;

use engine::tools::{LiveRun, OpenArtifact, SessionFile};
use model::{
    audit::Action,
    tool::{
        definition::{Tool, ToolVersion},
        ids::{DraftSnapshotId, RunId, ToolId, VersionId},
        run::ToolRun,
        session::Context,
    },
};

use super::{RunView, SessionView, ToolName, ToolService, running::check_production, session_key};
use crate::{principal::Principal, problem::Problem};

/// The most runs that are listed.
const MOST_RUNS: u32 = 100;

impl ToolService {
    /// Lists the tools of the caller's tenant, by slug.
    pub async fn list_tools(&self, caller: &Principal) -> Result<Vec<Tool>, Problem> {
        let (this, principal) = (self.clone(), caller.clone());
        self.use_cases
            .run(caller, Action::ToolRead, |_record| async move {
                Ok(this.store().tools(&principal.tenant).await?)
            })
            .await
    }

    pub async fn tool(&self, caller: &Principal, name: ToolName) -> Result<Tool, Problem> {
        let (this, principal) = (self.clone(), caller.clone());
        self.use_cases
            .run(caller, Action::ToolRead, |record| async move {
                let tool = this.find_tool(&principal, &name).await?;
                record.about(&tool.id);
                Ok(tool)
            })
            .await
    }

    pub async fn version(
        &self,
        caller: &Principal,
        id: VersionId,
    ) -> Result<(Tool, ToolVersion), Problem> {
        let (this, principal) = (self.clone(), caller.clone());
        self.use_cases
            .run(caller, Action::ToolRead, |record| async move {
                let (tool, version) = this.find_version(&principal, &id).await?;
                record.about(&tool.id);
                Ok((tool, version))
            })
            .await
    }

    /// Lists the versions of a tool, newest first.
    pub async fn versions(
        &self,
        caller: &Principal,
        name: ToolName,
    ) -> Result<Vec<ToolVersion>, Problem> {
        let (this, principal) = (self.clone(), caller.clone());
        self.use_cases
            .run(caller, Action::ToolRead, |record| async move {
                let tool = this.find_tool(&principal, &name).await?;
                record.about(&tool.id);
                Ok(this.store().tool_versions(&tool.id).await?)
            })
            .await
    }

    /// Returns the caller's session in production, which is created if it is missing.
    pub async fn session(
        &self,
        caller: &Principal,
        tool: ToolId,
        context: Context,
    ) -> Result<SessionView, Problem> {
        let (this, principal) = (self.clone(), caller.clone());
        self.use_cases
            .run(caller, Action::ToolRead, |record| async move {
                check_production(&context)?;
                let tool = this.find_tool(&principal, &ToolName::Id(tool)).await?.id;
                record.about(&tool);
                let key = session_key(&principal, &tool, context.clone());
                let session = this.store().open_tool_session(key, this.now()).await?;
                Ok(SessionView { tool, context, session })
            })
            .await
    }

    /// Returns the caller's session with a snapshot, or else with a version.
    pub async fn draft_session(
        &self,
        caller: &Principal,
        version: VersionId,
        snapshot: Option<DraftSnapshotId>,
    ) -> Result<SessionView, Problem> {
        let (this, principal) = (self.clone(), caller.clone());
        self.use_cases
            .run(caller, Action::ToolRead, |record| async move {
                let (tool, context) =
                    this.draft_context(&principal, &version, snapshot.as_ref()).await?;
                record.about(&tool);
                let found = this
                    .store()
                    .tool_session(&session_key(&principal, &tool, context.clone()))
                    .await?;
                let session = found.ok_or_else(|| {
                    let message = "there is no session yet: run the tool first";
                    Problem::new(api::errors::ErrorCode::SessionNotFound, message)
                })?;
                Ok(SessionView { tool, context, session })
            })
            .await
    }

    /// Lists the files of the caller's session in production.
    pub async fn session_files(
        &self,
        caller: &Principal,
        tool: ToolId,
        context: Context,
    ) -> Result<Vec<SessionFile>, Problem> {
        let (this, principal) = (self.clone(), caller.clone());
        self.use_cases
            .run(caller, Action::ToolRead, |record| async move {
                check_production(&context)?;
                let tool = this.find_tool(&principal, &ToolName::Id(tool)).await?.id;
                record.about(&tool);
                Ok(this.tools.session_files(&session_key(&principal, &tool, context)).await?)
            })
            .await
    }

    /// Lists the files of the caller's session with a snapshot, or else with a version.
    pub async fn draft_session_files(
        &self,
        caller: &Principal,
        version: VersionId,
        snapshot: Option<DraftSnapshotId>,
    ) -> Result<(ToolId, Vec<SessionFile>), Problem> {
        let (this, principal) = (self.clone(), caller.clone());
        self.use_cases
            .run(caller, Action::ToolRead, |record| async move {
                let (tool, context) =
                    this.draft_context(&principal, &version, snapshot.as_ref()).await?;
                record.about(&tool);
                let files =
                    this.tools.session_files(&session_key(&principal, &tool, context)).await?;
                Ok((tool, files))
            })
            .await
    }

    async fn draft_context(
        &self,
        caller: &Principal,
        version: &VersionId,
        snapshot: Option<&DraftSnapshotId>,
    ) -> Result<(ToolId, Context), Problem> {
        let (tool, version) = self.find_version(caller, version).await?;
        let context = match snapshot {
            Some(id) => Context::of_snapshot(&self.find_snapshot(caller, &tool, id).await?.id),
            None => Context::of_version(&version.id),
        };
        Ok((tool.id, context))
    }

    /// Returns a run with what it wrote; while it runs here, with what it has written so far.
    pub async fn run(&self, caller: &Principal, id: RunId) -> Result<RunView, Problem> {
        let (this, principal) = (self.clone(), caller.clone());
        self.use_cases
            .run(caller, Action::ToolRead, |record| async move {
                record.about(&id);
                let mut found = this.find_run(&principal, &id).await?;
                let live = this.tools.follow(&id).filter(|_| !found.run.status.is_terminal());
                if let Some(live) = live {
                    let current = live.run();
                    if !current.status.is_terminal() {
                        found.run = current;
                        (found.texts.stdout, found.texts.stderr) = live.written();
                    }
                }
                Ok(found)
            })
            .await
    }

    /// Lists the caller's last runs of a tool, newest first.
    pub async fn runs(&self, caller: &Principal, name: ToolName) -> Result<Vec<ToolRun>, Problem> {
        let (this, principal) = (self.clone(), caller.clone());
        self.use_cases
            .run(caller, Action::ToolRead, |record| async move {
                let tool = this.find_tool(&principal, &name).await?;
                record.about(&tool.id);
                Ok(this.store().tool_runs(&tool.id, &principal.user(), MOST_RUNS).await?)
            })
            .await
    }

    /// Returns the progress of a run. `None`: it has ended, or another server carries it out.
    pub async fn follow_run(
        &self,
        caller: &Principal,
        id: RunId,
    ) -> Result<(RunView, Option<Arc<LiveRun>>), Problem> {
        let (this, principal) = (self.clone(), caller.clone());
        self.use_cases
            .run(caller, Action::ToolRead, |record| async move {
                record.about(&id);
                // Before the run is read: one that ends in between is read as ended.
                let live = this.tools.follow(&id);
                Ok((this.find_run(&principal, &id).await?, live))
            })
            .await
    }

    /// Opens an artifact of a run.
    pub async fn artifact(
        &self,
        caller: &Principal,
        run: RunId,
        artifact: String,
    ) -> Result<OpenArtifact, Problem> {
        let (this, principal) = (self.clone(), caller.clone());
        self.use_cases
            .run(caller, Action::ToolRead, |record| async move {
                record.about(&run);
                let found = this.find_run(&principal, &run).await?;
                let opened = this.tools.open_artifact(&found.run, &artifact).await?;
                opened.ok_or_else(|| Problem::not_found("the artifact"))
            })
            .await
    }
}
