//! Why a use case did not do what it was asked.

use api::errors::ErrorCode;
use engine::tools::ToolError;
use model::tool::{
    definition::{DefinitionError, DraftConflict},
    inputs::InputIssue,
    session::ActionConflict,
};
use serde_json::{Map, Value, json};
use store::StoreError;

/// A code of the one table, a message for a person, and details for a program. Each surface renders it in its own
/// format.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    pub code: ErrorCode,
    pub message: String,
    pub details: Map<String, Value>,
}

impl Problem {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: Map::new() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidRequest, message)
    }

    pub(crate) fn not_found(what: &str) -> Self {
        Self::new(ErrorCode::NotFound, format!("{what} does not exist"))
    }

    pub(crate) fn conflict(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Conflict, message)
    }

    /// Our own failure. The cause is in the log.
    pub(crate) fn internal() -> Self {
        Self::new(ErrorCode::InternalError, "the server failed; its log says more")
    }

    #[must_use]
    pub(crate) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.details.insert(name.to_owned(), value.into());
        self
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Conflict { .. } | StoreError::TooMany { .. } => {
                Self::conflict(error.to_string())
            }
            StoreError::NotFound { .. } => Self::new(ErrorCode::NotFound, error.to_string()),
            StoreError::Full
            | StoreError::ReadOnly { .. }
            | StoreError::Commit { .. }
            | StoreError::Audit { .. }
            | StoreError::Unreachable { .. }
            | StoreError::Closed => Self::new(ErrorCode::Unavailable, error.to_string()),
            other => {
                tracing::error!(error = %other, "a use case cannot be carried out");
                Self::internal()
            }
        }
    }
}

impl From<ToolError> for Problem {
    fn from(error: ToolError) -> Self {
        match error {
            ToolError::Conflict(conflict) => conflict.into(),
            ToolError::NoPython | ToolError::Busy => {
                Self::new(ErrorCode::Unavailable, error.to_string())
            }
            ToolError::Store(error) => error.into(),
            ToolError::Files(source) => {
                tracing::error!(error = %source, "files of a tool cannot be read or written");
                Self::internal()
            }
        }
    }
}

impl From<ActionConflict> for Problem {
    fn from(conflict: ActionConflict) -> Self {
        let problem = Self::conflict(conflict.to_string());
        match conflict {
            ActionConflict::Revision { expected, current } => {
                problem.with("expected_state_rev", expected).with("current_state_rev", current)
            }
            ActionConflict::Running { expected, current, run } => problem
                .with("expected_state_rev", expected)
                .with("current_state_rev", current)
                .with("running_run_id", run.as_str()),
        }
    }
}

impl From<DraftConflict> for Problem {
    fn from(conflict: DraftConflict) -> Self {
        Self::conflict(conflict.to_string())
            .with("expected_parent_version_id", conflict.expected.as_str())
            .with("draft_head_id", conflict.head.as_str())
    }
}

impl From<DefinitionError> for Problem {
    fn from(error: DefinitionError) -> Self {
        Self::invalid(error.to_string())
    }
}

impl From<Vec<InputIssue>> for Problem {
    fn from(issues: Vec<InputIssue>) -> Self {
        let first = issues.first();
        let message =
            first.map_or_else(String::new, |issue| format!("{}: {}", issue.name, issue.message));
        Self::invalid(message).with("issues", json!(issues))
    }
}
