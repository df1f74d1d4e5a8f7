//! Tools, their versions, and snapshots of drafts.
//!
//! ```text
//! version 1 ◀─parent─ version 2 ◀─parent─ version 3 = the head of the draft
//!                        ▲ published
//! ```
//!
//! A version never changes: saving a draft adds one after the head, if the caller has seen the head.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    ids::Tenant,
    tool::{
        canonical::json_bytes,
        ids::{DraftSnapshotId, ToolId, VersionId},
        policy::UiPolicy,
        schema::{InputSchema, SettingsSchema},
    },
    units::Timestamp,
};

/// The most bytes that the content of a version has as JSON.
pub const MAX_CONTENT_BYTES: usize = 2_000_000;
/// How long a snapshot of a draft can be used.
pub const SNAPSHOT_LIFETIME: Duration = Duration::from_hours(24);
/// The entrypoint of a tool that names none.
pub const DEFAULT_ENTRYPOINT: &str = "run_tool";
/// The longest entrypoint, title and slug, in characters.
const MAX_ENTRYPOINT: usize = 128;
const MAX_TITLE: usize = 200;
const MAX_SLUG: usize = 64;

/// Why a tool or a version is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DefinitionError {
    #[error(
        "a slug has 1 to {MAX_SLUG} lower-case letters, digits and single hyphens between them"
    )]
    Slug,
    #[error("a title has 1 to {MAX_TITLE} characters, none of them a control character")]
    Title,
    #[error(
        "an entrypoint is the name of a Python function, with at most {MAX_ENTRYPOINT} characters"
    )]
    Entrypoint,
    #[error("the source code is empty")]
    NoSource,
    #[error("the source code has a zero byte")]
    ZeroByte,
    #[error("a version has at most {MAX_CONTENT_BYTES} bytes, this one has {0}")]
    TooLarge(usize),
}

/// The name of a tool in addresses: unique in its tenant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Slug(String);

impl Slug {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Slug {
    type Err = DefinitionError;

    fn from_str(text: &str) -> Result<Self, DefinitionError> {
        let is_good = text.len() <= MAX_SLUG
            && text.split('-').all(|part| {
                !part.is_empty()
                    && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
            });
        if is_good { Ok(Self(text.to_owned())) } else { Err(DefinitionError::Slug) }
    }
}

impl TryFrom<String> for Slug {
    type Error = DefinitionError;

    fn try_from(text: String) -> Result<Self, DefinitionError> {
        text.parse()
    }
}

impl From<Slug> for String {
    fn from(slug: Slug) -> Self {
        slug.0
    }
}

impl fmt::Display for Slug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A tool as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tool {
    pub id: ToolId,
    pub tenant: Tenant,
    pub slug: Slug,
    pub title: String,
    pub limits: ToolLimits,
    pub draft_head: VersionId,
    pub published: Option<VersionId>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// The user that created it.
    pub created_by: String,
}

/// Which limits the results of a tool have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolLimits {
    #[default]
    Default,
    /// The operator vouches for the tool.
    Curated,
}

impl ToolLimits {
    pub const fn policy(self) -> &'static UiPolicy {
        match self {
            Self::Default => &UiPolicy::DEFAULT,
            Self::Curated => &UiPolicy::CURATED,
        }
    }
}

/// A version of a tool as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolVersion {
    pub id: VersionId,
    pub tool: ToolId,
    /// 1 for the first.
    pub number: u32,
    pub parent: Option<VersionId>,
    pub content: Content,
    pub created_at: Timestamp,
    pub created_by: String,
}

/// What an author writes.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    pub entrypoint: String,
    pub source_code: String,
    pub settings_schema: Option<SettingsSchema>,
    pub input_schema: InputSchema,
    pub usage_instructions: Option<String>,
    #[serde(default)]
    pub action_delivery: ActionDelivery,
}

/// The source is the author's: it never appears in a log line.
impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Content").field("entrypoint", &self.entrypoint).finish_non_exhaustive()
    }
}

/// How a script gets its action: scripts of different ages look in different places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActionDelivery {
    #[default]
    Both,
    /// The variable `SKRIPTOTEKET_ACTION`.
    Variable,
    /// The file `/work/input/action.json`.
    File,
}

impl ActionDelivery {
    pub const fn has_variable(self) -> bool {
        matches!(self, Self::Both | Self::Variable)
    }

    pub const fn has_file(self) -> bool {
        matches!(self, Self::Both | Self::File)
    }
}

/// A draft as it was when it was tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DraftSnapshot {
    pub id: DraftSnapshotId,
    pub tool: ToolId,
    /// The head of the draft that the author edits.
    pub version: VersionId,
    pub user: String,
    pub content: Content,
    pub created_at: Timestamp,
}

impl DraftSnapshot {
    pub fn is_expired(&self, now: Timestamp) -> bool {
        now.since(self.created_at) >= SNAPSHOT_LIFETIME
    }
}

/// The caller has not seen the head of the draft.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the draft has a newer version; reload it, then save again")]
pub struct DraftConflict {
    pub expected: VersionId,
    pub head: VersionId,
}

impl Content {
    /// Checks what an author wrote. The schemas were checked when they were read.
    pub fn check(&self) -> Result<(), DefinitionError> {
        check_entrypoint(&self.entrypoint)?;
        if self.source_code.trim().is_empty() {
            return Err(DefinitionError::NoSource);
        }
        if self.source_code.contains('\0') {
            return Err(DefinitionError::ZeroByte);
        }
        match json_bytes(self) {
            ..=MAX_CONTENT_BYTES => Ok(()),
            bytes => Err(DefinitionError::TooLarge(bytes)),
        }
    }
}

fn check_entrypoint(name: &str) -> Result<(), DefinitionError> {
    let mut letters = name.chars();
    let begins = letters.next().is_some_and(|first| first == '_' || first.is_alphabetic());
    let goes_on = letters.all(|letter| letter == '_' || letter.is_alphanumeric());
    let is_good = begins && goes_on && name.chars().count() <= MAX_ENTRYPOINT;
    if is_good { Ok(()) } else { Err(DefinitionError::Entrypoint) }
}

/// Returns a title without the space around it.
pub fn check_title(title: &str) -> Result<String, DefinitionError> {
    let title = title.trim();
    let is_good =
        (1..=MAX_TITLE).contains(&title.chars().count()) && !title.contains(char::is_control);
    if is_good { Ok(title.to_owned()) } else { Err(DefinitionError::Title) }
}

impl Tool {
    /// Returns the tool with this version as the head of its draft, if the caller has seen the present one.
    pub fn save_draft(
        &self,
        expected: &VersionId,
        new: VersionId,
        now: Timestamp,
    ) -> Result<Self, DraftConflict> {
        if *expected != self.draft_head {
            let (expected, head) = (expected.clone(), self.draft_head.clone());
            return Err(DraftConflict { expected, head });
        }
        Ok(Self { draft_head: new, updated_at: now, ..self.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content() -> Content {
        Content {
            entrypoint: DEFAULT_ENTRYPOINT.to_owned(),
            source_code: "def run_tool(i, o): return 'x'".to_owned(),
            settings_schema: None,
            input_schema: InputSchema::default(),
            usage_instructions: None,
            action_delivery: ActionDelivery::Both,
        }
    }

    #[test]
    fn slugs_are_parts_of_addresses() {
        for good in ["a", "csv-wizard", "2-b", &"x".repeat(64)] {
            assert!(good.parse::<Slug>().is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", "a--b", "A", "a_b", "a/b", "é", &"x".repeat(65)] {
            assert_eq!(bad.parse::<Slug>(), Err(DefinitionError::Slug), "{bad}");
        }
    }

    #[test]
    fn contents_that_cannot_be_run_are_refused() {
        let with = |change: &dyn Fn(&mut Content)| {
            let mut content = content();
            change(&mut content);
            content.check()
        };
        assert_eq!(with(&|_| {}), Ok(()));
        assert_eq!(with(&|content| content.entrypoint = "häuser_2".to_owned()), Ok(()));
        for name in ["", "1a", "a b", "a.b", "a()", &"x".repeat(129)] {
            assert_eq!(
                with(&|content| name.clone_into(&mut content.entrypoint)),
                Err(DefinitionError::Entrypoint),
                "{name}"
            );
        }
        assert_eq!(
            with(&|content| content.source_code = " \n".to_owned()),
            Err(DefinitionError::NoSource)
        );
        assert_eq!(
            with(&|content| content.source_code = "a\0".to_owned()),
            Err(DefinitionError::ZeroByte)
        );
        let large = with(&|content| content.source_code = "x".repeat(MAX_CONTENT_BYTES));
        assert!(matches!(large, Err(DefinitionError::TooLarge(2_000_001..))));
    }

    #[test]
    fn a_draft_is_saved_after_the_version_that_the_author_has_seen() {
        let version = |number: u8| VersionId::from_random([number; 16]);
        let tool = Tool {
            id: ToolId::from_random([0; 16]),
            tenant: "default".parse().unwrap(),
            slug: "a".parse().unwrap(),
            title: check_title(" A ").unwrap(),
            limits: ToolLimits::Default,
            draft_head: version(1),
            published: None,
            created_at: Timestamp::from_millis(0),
            updated_at: Timestamp::from_millis(0),
            created_by: "human:ada".to_owned(),
        };
        let saved = tool.save_draft(&version(1), version(2), Timestamp::from_millis(5)).unwrap();
        assert_eq!((&saved.draft_head, saved.updated_at.as_millis()), (&version(2), 5));
        let conflict = DraftConflict { expected: version(1), head: version(2) };
        assert_eq!(
            saved.save_draft(&version(1), version(3), Timestamp::from_millis(6)),
            Err(conflict)
        );
        assert_eq!(check_title(" "), Err(DefinitionError::Title));
    }

    #[test]
    fn the_source_of_a_tool_is_not_in_the_debug_text() {
        assert!(!format!("{:?}", content()).contains("return"));
    }
}
