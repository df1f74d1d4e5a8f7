//! Settings of a user for a tool: values of the fields that its settings schema asks for.

use model::{
    audit::Action,
    tool::{
        contract::Field,
        definition::{Content, Tool},
        ids::{ToolId, VersionId},
        inputs::fit_settings,
        schema::SettingsSchema,
        session::Context,
    },
};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::{ToolService, session_key};
use crate::{principal::Principal, problem::Problem};

/// The settings of a user under one schema.
#[derive(Clone, Debug, PartialEq)]
pub struct ResolvedSettings {
    pub tool: ToolId,
    /// The digest of the schema: settings of another schema are other settings.
    pub schema_version: String,
    pub schema: SettingsSchema,
    pub values: Map<String, Value>,
    pub revision: u64,
}

impl ToolService {
    /// Returns the settings that the caller has under this schema.
    pub async fn settings(
        &self,
        caller: &Principal,
        version: VersionId,
        schema: SettingsSchema,
    ) -> Result<ResolvedSettings, Problem> {
        let (this, principal) = (self.clone(), caller.clone());
        self.use_cases
            .run(caller, Action::ToolRead, |record| async move {
                let (tool, _) = this.find_version(&principal, &version).await?;
                record.about(&tool.id);
                this.resolve(&principal, &tool, schema).await
            })
            .await
    }

    /// Saves settings, if the caller has seen the present ones.
    pub async fn save_settings(
        &self,
        caller: &Principal,
        version: VersionId,
        schema: SettingsSchema,
        values: Map<String, Value>,
        expected_revision: u64,
    ) -> Result<ResolvedSettings, Problem> {
        let (this, principal) = (self.clone(), caller.clone());
        self.use_cases
            .run(caller, Action::ToolSession, |record| async move {
                let (tool, _) = this.find_version(&principal, &version).await?;
                record.about(&tool.id);
                let values = fit_settings(&schema, values)?;
                let key = session_key(&principal, &tool.id, context_of(&schema));
                this.store().set_tool_state(key, expected_revision, values, this.now()).await??;
                this.resolve(&principal, &tool, schema).await
            })
            .await
    }

    async fn resolve(
        &self,
        caller: &Principal,
        tool: &Tool,
        schema: SettingsSchema,
    ) -> Result<ResolvedSettings, Problem> {
        let key = session_key(caller, &tool.id, context_of(&schema));
        let session = self.store().tool_session(&key).await?.unwrap_or_default();
        let (schema_version, revision) = (digest(&schema), session.revision);
        Ok(ResolvedSettings {
            tool: tool.id.clone(),
            schema_version,
            schema,
            values: session.state,
            revision,
        })
    }

    /// Returns the settings that a run gets.
    pub(super) async fn settings_for(
        &self,
        caller: &Principal,
        tool: &Tool,
        content: &Content,
    ) -> Result<Map<String, Value>, Problem> {
        match &content.settings_schema {
            Some(schema) => Ok(self.resolve(caller, tool, schema.clone()).await?.values),
            None => Ok(Map::new()),
        }
    }
}

fn context_of(schema: &[Field]) -> Context {
    Context::of_settings(&digest(schema))
}

fn digest(schema: &[Field]) -> String {
    let text = serde_json::to_vec(schema).unwrap_or_default();
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}
