//! What is wrong with a request, and where.

use std::fmt;

use api::errors::agbox::Reason;

/// A field that is missing, malformed or out of range. The text never repeats a value, because it
/// can be a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Invalid {
    pub(crate) reason: Reason,
    /// The path of the field, such as `create_spec.mounts[0].target`.
    pub(crate) field: String,
    /// What it must be, or what to do.
    pub(crate) problem: String,
}

impl Invalid {
    pub(crate) fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { reason: Reason::InvalidArgument, field: field.into(), problem: problem.into() }
    }

    pub(crate) fn because(self, reason: Reason) -> Self {
        Self { reason, ..self }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.problem)
    }
}
