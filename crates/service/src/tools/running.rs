//! Running tools: first runs and actions, in production and in the editor.

use std::{sync::Arc, time::Duration};

use engine::tools::{InputFiles, LiveRun, NewAction, NewRun};
use model::{
    audit::Action,
    tool::{
        definition::{Content, DraftSnapshot, Tool, ToolVersion},
        ids::{DraftSnapshotId, RunId, ToolId, VersionId},
        inputs::{check_files, fit_inputs},
        run::ToolRun,
        session::{Context, Step},
    },
};
use serde_json::Map;

use super::{FilesFrom, FirstRun, StartAction, ToolName, ToolService, random, session_key};
use crate::{principal::Principal, problem::Problem};

/// The longest id of an action, in characters.
const MAX_ACTION_ID: usize = 64;

/// A run that has begun.
#[derive(Clone, Debug)]
pub struct Started {
    pub live: Arc<LiveRun>,
    /// The snapshot that is run.
    pub snapshot: Option<DraftSnapshotId>,
}

/// What is run, and in which session.
struct Target {
    tool: Tool,
    version: VersionId,
    snapshot: Option<DraftSnapshotId>,
    content: Content,
    context: Context,
    timeout: Duration,
}

impl ToolService {
    /// Runs the published version of a tool. Without uploads, the files of the session stay.
    pub async fn run_tool(
        &self,
        caller: &Principal,
        tool: ToolName,
        first: FirstRun,
    ) -> Result<Started, Problem> {
        let (this, principal) = (self.clone(), caller.clone());
        self.use_cases
            .run(caller, Action::ToolRun, |record| async move {
                let tool = this.find_tool(&principal, &tool).await?;
                let target = this.published(&principal, tool, Context::production()).await?;
                let files = if first.files.is_empty() {
                    InputFiles::Kept
                } else {
                    InputFiles::Uploaded(first.files.clone())
                };
                let started = this.begin_first(&principal, target, first, files).await?;
                record.about(&started.live.run().id);
                Ok(started)
            })
            .await
    }

    /// Runs an action of a session in production.
    pub async fn start_action(
        &self,
        caller: &Principal,
        tool: ToolId,
        context: Context,
        action: StartAction,
    ) -> Result<Started, Problem> {
        let (this, principal) = (self.clone(), caller.clone());
        self.use_cases
            .run(caller, Action::ToolRun, |record| async move {
                check_production(&context)?;
                let tool = this.find_tool(&principal, &ToolName::Id(tool)).await?;
                let target = this.published(&principal, tool, context).await?;
                let key = session_key(&principal, &target.tool.id, target.context.clone());
                this.store().open_tool_session(key, this.now()).await?;
                let started = this.begin_action(&principal, target, action).await?;
                record.about(&started.live.run().id);
                Ok(started)
            })
            .await
    }

    /// Tries a version, or a draft that was not saved: then a snapshot of it is kept, and the session is that of the
    /// snapshot.
    pub async fn run_draft(
        &self,
        caller: &Principal,
        version: VersionId,
        draft: Option<Content>,
        first: FirstRun,
        files: FilesFrom,
    ) -> Result<Started, Problem> {
        let (this, principal) = (self.clone(), caller.clone());
        self.use_cases
            .run(caller, Action::ToolTry, |record| async move {
                let (tool, version) = this.find_version(&principal, &version).await?;
                let files = this.draft_files(&principal, &tool, files, &first).await?;
                let target = this.draft_target(&principal, tool, version, draft).await?;
                let started = this.begin_first(&principal, target, first, files).await?;
                record.about(&started.live.run().id);
                Ok(started)
            })
            .await
    }

    /// Runs an action of a session in the editor.
    pub async fn start_draft_action(
        &self,
        caller: &Principal,
        version: VersionId,
        snapshot: Option<DraftSnapshotId>,
        action: StartAction,
    ) -> Result<Started, Problem> {
        let (this, principal) = (self.clone(), caller.clone());
        self.use_cases
            .run(caller, Action::ToolTry, |record| async move {
                let (tool, version) = this.find_version(&principal, &version).await?;
                let snapshot = match &snapshot {
                    Some(id) => Some(this.find_snapshot(&principal, &tool, id).await?),
                    None => None,
                };
                let timeout = this.tools.settings().sandbox_timeout;
                let target = match snapshot {
                    Some(snapshot) => {
                        check_head(&tool, &snapshot.version)?;
                        Target {
                            context: Context::of_snapshot(&snapshot.id),
                            version: snapshot.version,
                            snapshot: Some(snapshot.id),
                            content: snapshot.content,
                            tool,
                            timeout,
                        }
                    }
                    None => Target {
                        context: Context::of_version(&version.id),
                        version: version.id,
                        snapshot: None,
                        content: version.content,
                        tool,
                        timeout,
                    },
                };
                let started = this.begin_action(&principal, target, action).await?;
                record.about(&started.live.run().id);
                Ok(started)
            })
            .await
    }

    /// Cancels a run. One that has ended stays as it is.
    pub async fn cancel_run(&self, caller: &Principal, id: RunId) -> Result<(), Problem> {
        let (this, principal) = (self.clone(), caller.clone());
        self.use_cases
            .run(caller, Action::ToolCancel, |record| async move {
                record.about(&id);
                let found = this.find_run(&principal, &id).await?;
                let is_here = found.run.node == *this.tools.node();
                if this.tools.cancel(&id) || is_here || found.run.status.is_terminal() {
                    return Ok(());
                }
                Err(Problem::conflict("the run is on another server; cancel it there"))
            })
            .await
    }

    async fn published(
        &self,
        caller: &Principal,
        tool: Tool,
        context: Context,
    ) -> Result<Target, Problem> {
        let Some(version) = tool.published.clone() else {
            return Err(Problem::not_found("a published version of the tool"));
        };
        let (tool, version) = self.find_version(caller, &version).await?;
        let timeout = self.tools.settings().production_timeout;
        Ok(Target {
            tool,
            version: version.id,
            snapshot: None,
            content: version.content,
            context,
            timeout,
        })
    }

    async fn draft_target(
        &self,
        caller: &Principal,
        tool: Tool,
        version: ToolVersion,
        draft: Option<Content>,
    ) -> Result<Target, Problem> {
        let timeout = self.tools.settings().sandbox_timeout;
        let Some(content) = draft else {
            let context = Context::of_version(&version.id);
            let (version, content) = (version.id, version.content);
            return Ok(Target { tool, version, snapshot: None, content, context, timeout });
        };
        check_head(&tool, &version.id)?;
        content.check()?;
        let snapshot = DraftSnapshot {
            id: DraftSnapshotId::from_random(random()?),
            tool: tool.id.clone(),
            version: version.id.clone(),
            user: caller.user(),
            content: content.clone(),
            created_at: self.now(),
        };
        let (id, context) = (snapshot.id.clone(), Context::of_snapshot(&snapshot.id));
        self.store().add_draft_snapshot(snapshot).await?;
        Ok(Target { tool, version: version.id, snapshot: Some(id), content, context, timeout })
    }

    async fn draft_files(
        &self,
        caller: &Principal,
        tool: &Tool,
        from: FilesFrom,
        first: &FirstRun,
    ) -> Result<InputFiles, Problem> {
        if !first.files.is_empty() {
            return Ok(InputFiles::Uploaded(first.files.clone()));
        }
        match from {
            FilesFrom::Nowhere => Ok(InputFiles::Uploaded(Vec::new())),
            FilesFrom::Session(context) => {
                check_editor(&context)?;
                Ok(InputFiles::CopiedFrom(session_key(caller, &tool.id, context)))
            }
            FilesFrom::Cleared(context) => {
                check_editor(&context)?;
                self.tools.clear_session_files(&session_key(caller, &tool.id, context)).await?;
                Ok(InputFiles::Uploaded(Vec::new()))
            }
        }
    }

    async fn begin_first(
        &self,
        caller: &Principal,
        target: Target,
        first: FirstRun,
        files: InputFiles,
    ) -> Result<Started, Problem> {
        let inputs = fit_inputs(&target.content.input_schema, first.inputs)?;
        let names = self.file_names(caller, &target, &files).await?;
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        check_files(target.content.input_schema.file_rule(), &names)?;
        let settings = self.settings_for(caller, &target.tool, &target.content).await?;
        let run = self.new_run(caller, &target, Step::Initial)?;
        let snapshot = target.snapshot.clone();
        let new = NewRun {
            run,
            limits: target.tool.limits,
            content: target.content,
            inputs,
            settings,
            files,
            action: None,
            timeout: target.timeout,
        };
        let (_, live) = self.tools.begin(new).await?;
        Ok(Started { live, snapshot })
    }

    async fn begin_action(
        &self,
        caller: &Principal,
        target: Target,
        action: StartAction,
    ) -> Result<Started, Problem> {
        let action_id = action.action_id.trim().to_owned();
        if !(1..=MAX_ACTION_ID).contains(&action_id.chars().count()) {
            return Err(Problem::invalid(format!("action_id has 1 to {MAX_ACTION_ID} characters")));
        }
        let key = session_key(caller, &target.tool.id, target.context.clone());
        if self.store().tool_session(&key).await?.is_none() {
            let problem = Problem::new(
                api::errors::ErrorCode::SessionNotFound,
                "there is no session yet: run the tool first",
            );
            return Err(problem);
        }
        let settings = self.settings_for(caller, &target.tool, &target.content).await?;
        let run = self.new_run(caller, &target, Step::Action { action_id: action_id.clone() })?;
        let snapshot = target.snapshot.clone();
        let new = NewRun {
            run,
            limits: target.tool.limits,
            content: target.content,
            inputs: Map::new(),
            settings,
            files: InputFiles::Kept,
            action: Some(NewAction {
                action_id,
                input: action.input,
                expected_revision: action.expected_revision,
            }),
            timeout: target.timeout,
        };
        let (_, live) = self.tools.begin(new).await?;
        Ok(Started { live, snapshot })
    }

    /// Names the files that a first run will have.
    async fn file_names(
        &self,
        caller: &Principal,
        target: &Target,
        files: &InputFiles,
    ) -> Result<Vec<String>, Problem> {
        let kept = match files {
            InputFiles::Uploaded(uploads) => {
                return Ok(uploads.iter().map(|upload| upload.name.clone()).collect());
            }
            InputFiles::Kept => session_key(caller, &target.tool.id, target.context.clone()),
            InputFiles::CopiedFrom(other) => other.clone(),
        };
        let files = self.tools.session_files(&kept).await?;
        Ok(files.into_iter().map(|file| file.name).collect())
    }

    fn new_run(&self, caller: &Principal, target: &Target, step: Step) -> Result<ToolRun, Problem> {
        let (id, node) = (RunId::from_random(random()?), self.tools.node().clone());
        let version = target.version.clone();
        let run = ToolRun::queued(id, &target.tool, version, caller.user(), node, self.now());
        let (snapshot, context) = (target.snapshot.clone(), target.context.clone());
        Ok(ToolRun { snapshot, context, step, ..run })
    }
}

/// Refuses a draft that was made from a version that is not the head any more.
fn check_head(tool: &Tool, version: &VersionId) -> Result<(), Problem> {
    if tool.draft_head == *version {
        return Ok(());
    }
    let problem = Problem::conflict("the draft has a newer version; reload it, then run it again");
    Err(problem.with("draft_head_id", tool.draft_head.as_str()))
}

/// Production cannot name the sessions of the editor.
pub(super) fn check_production(context: &Context) -> Result<(), Problem> {
    if context.is_of_editor() {
        return Err(Problem::invalid("contexts that begin with \"sandbox\" belong to the editor"));
    }
    Ok(())
}

fn check_editor(context: &Context) -> Result<(), Problem> {
    if context.as_str().starts_with("sandbox:") {
        return Ok(());
    }
    Err(Problem::invalid("session_context is sandbox: and the id of a snapshot or version"))
}
