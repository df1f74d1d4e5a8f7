//! Writing tools: create, save, publish, rename, delete.

use model::{
    audit::Action,
    tool::{
        definition::{Content, Slug, Tool, ToolLimits, ToolVersion, check_title},
        ids::{ToolId, VersionId},
        schema::{InputSchema, SchemaIssue, read_settings_schema},
    },
};
use serde_json::Value;

use super::{MOST_TOOLS, NewTool, ToolName, ToolService, random};
use crate::{principal::Principal, problem::Problem};

impl ToolService {
    /// Creates a tool with its first version, which is the head of its draft.
    pub async fn create_tool(
        &self,
        caller: &Principal,
        new: NewTool,
    ) -> Result<(Tool, ToolVersion), Problem> {
        let (this, principal) = (self.clone(), caller.clone());
        self.use_cases
            .run(caller, Action::ToolCreate, |record| async move {
                let title = check_title(&new.title)?;
                new.content.check()?;
                let (now, user) = (this.now(), principal.user());
                let (id, version) =
                    (ToolId::from_random(random()?), VersionId::from_random(random()?));
                record.about(&id);
                let tool = Tool {
                    id: id.clone(),
                    tenant: principal.tenant.clone(),
                    slug: new.slug,
                    title,
                    limits: ToolLimits::Default,
                    draft_head: version.clone(),
                    published: None,
                    created_at: now,
                    updated_at: now,
                    created_by: user.clone(),
                };
                let version = ToolVersion {
                    id: version,
                    tool: id,
                    number: 1,
                    parent: None,
                    content: new.content,
                    created_at: now,
                    created_by: user,
                };
                this.store().create_tool(tool.clone(), version.clone(), MOST_TOOLS).await?;
                Ok((tool, version))
            })
            .await
    }

    /// Saves a draft as a new version after the one that the author has seen.
    pub async fn save_draft(
        &self,
        caller: &Principal,
        tool: ToolName,
        expected_parent: VersionId,
        content: Content,
    ) -> Result<(Tool, ToolVersion), Problem> {
        let (this, principal) = (self.clone(), caller.clone());
        self.use_cases
            .run(caller, Action::ToolUpdate, |record| async move {
                let tool = this.find_tool(&principal, &tool).await?;
                record.about(&tool.id);
                content.check()?;
                let version = ToolVersion {
                    id: VersionId::from_random(random()?),
                    tool: tool.id,
                    // The store numbers it.
                    number: 0,
                    parent: Some(expected_parent.clone()),
                    content,
                    created_at: this.now(),
                    created_by: principal.user(),
                };
                let id = version.id.clone();
                this.store().save_draft(expected_parent, version).await??;
                this.find_version(&principal, &id).await
            })
            .await
    }

    /// Makes a version the one that users run; without one, the tool is not published any more.
    pub async fn publish(
        &self,
        caller: &Principal,
        tool: ToolName,
        version: Option<VersionId>,
    ) -> Result<Tool, Problem> {
        let (this, principal) = (self.clone(), caller.clone());
        self.use_cases
            .run(caller, Action::ToolUpdate, |record| async move {
                let tool = this.find_tool(&principal, &tool).await?;
                record.about(&tool.id);
                if let Some(id) = &version {
                    let (of, _) = this.find_version(&principal, id).await?;
                    if of.id != tool.id {
                        return Err(Problem::conflict("the version is of another tool"));
                    }
                }
                let updated_at = this.now();
                Ok(this
                    .store()
                    .change_tool(Tool { published: version, updated_at, ..tool })
                    .await?)
            })
            .await
    }

    /// Changes the slug or the title of a tool.
    pub async fn rename_tool(
        &self,
        caller: &Principal,
        tool: ToolName,
        slug: Option<Slug>,
        title: Option<String>,
    ) -> Result<Tool, Problem> {
        let (this, principal) = (self.clone(), caller.clone());
        self.use_cases
            .run(caller, Action::ToolUpdate, |record| async move {
                let tool = this.find_tool(&principal, &tool).await?;
                record.about(&tool.id);
                let title = title.map_or(Ok(tool.title.clone()), |title| check_title(&title))?;
                let slug = slug.unwrap_or_else(|| tool.slug.clone());
                let updated_at = this.now();
                Ok(this.store().change_tool(Tool { slug, title, updated_at, ..tool }).await?)
            })
            .await
    }

    /// Deletes a tool with its versions, runs, sessions and files.
    pub async fn delete_tool(&self, caller: &Principal, tool: ToolName) -> Result<(), Problem> {
        let (this, principal) = (self.clone(), caller.clone());
        self.use_cases
            .run(caller, Action::ToolDelete, |record| async move {
                let tool = this.find_tool(&principal, &tool).await?;
                record.about(&tool.id);
                Ok(this.tools.delete(tool.id).await?)
            })
            .await
    }
}

/// Says everything that is wrong with two schemas; nothing if both are good.
pub fn check_schemas(settings_schema: &Value, input_schema: &Value) -> Vec<SchemaIssue> {
    let settings = match settings_schema {
        Value::Null => Vec::new(),
        schema => read_settings_schema(schema).err().unwrap_or_default(),
    };
    let inputs = InputSchema::read(input_schema).err().unwrap_or_default();
    settings.into_iter().chain(inputs).collect()
}
