//! Who calls, and what the caller may do.

use model::{actor::Actor, audit::Action, ids::Tenant};
use store::keys::Role;

/// The caller of a use case, as its credential says.
#[derive(Clone, Debug)]
pub struct Principal {
    pub tenant: Tenant,
    pub actor: Actor,
    /// The API key that was shown.
    pub key: Option<String>,
    pub role: Role,
    /// Names the request in the audit log.
    pub request: Option<String>,
}

/// What a use case needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// To run tools, and to see one's own runs and sessions.
    UseTools,
    /// To write tools and try drafts.
    AuthorTools,
}

impl Principal {
    /// Returns the user that runs and sessions belong to: `human:ada`.
    pub fn user(&self) -> String {
        format!("{}:{}", self.actor.kind.text(), self.actor.id)
    }

    pub fn may(&self, right: Right) -> bool {
        match (self.role, right) {
            (Role::Admin | Role::User, Right::UseTools | Right::AuthorTools) => true,
            (Role::Broker, Right::UseTools | Right::AuthorTools) => false,
        }
    }
}

/// Returns the right that an action needs. `None`: it is no action of a use case.
pub(crate) const fn right_for(action: Action) -> Option<Right> {
    match action {
        Action::ToolCreate | Action::ToolUpdate | Action::ToolDelete | Action::ToolTry => {
            Some(Right::AuthorTools)
        }
        Action::ToolRead | Action::ToolRun | Action::ToolCancel | Action::ToolSession => {
            Some(Right::UseTools)
        }
        _ => None,
    }
}
