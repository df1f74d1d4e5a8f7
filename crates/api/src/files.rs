//! Files of a sandbox, as the data plane speaks of them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What is known of a file or directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileShown {
    /// From the root of the sandbox. What is not UTF-8 in it is shown as U+FFFD.
    pub path: String,
    /// The last part of the path.
    pub name: String,
    /// The bytes of the name in base64, if they are not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name_b64: Option<String>,
    /// `file`, `directory`, `symlink`, `fifo`, `socket`, `device` or `unknown`.
    #[serde(rename = "type")]
    pub kind: String,
    pub is_dir: bool,
    /// Absent if it may not be looked at, like everything below.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Permission bits in octal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub uid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub gid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified_at: Option<String>,
    /// As the header of that name has it, with its quotes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
}

/// Some of the names in a directory: `GET …/v1/files/list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileList {
    pub entries: Vec<FileShown>,
    /// Where the next page begins; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// `POST …/v1/files/mkdir`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MakeDirectory {
    pub path: String,
    /// Makes what is missing on the way, and takes a directory that is there for as good.
    #[serde(default)]
    pub parents: bool,
    /// Octal digits; only the permission bits count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
}

/// `POST …/v1/files/move`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MoveFile {
    pub from: String,
    pub to: String,
    /// Whether a file may be there that is replaced.
    #[serde(default)]
    pub overwrite: bool,
}

/// `POST …/v1/files/edit`. Texts are never in a log line.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EditFile {
    pub path: String,
    pub old_string: String,
    pub new_string: String,
    #[serde(default)]
    pub replace_all: bool,
}

impl std::fmt::Debug for EditFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EditFile").field("path", &self.path).finish_non_exhaustive()
    }
}

/// The answer to [`EditFile`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EditedFile {
    #[serde(flatten)]
    pub file: FileShown,
    /// How often the old text stood there.
    pub occurrences: usize,
}

/// `POST …/glob`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Glob {
    /// `*`, `?`, `[…]`, `{a,b}`, and `**` for any number of directories.
    pub pattern: String,
    /// Where the search begins; the user's home without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub limit: Option<u32>,
}

/// The answer to [`Glob`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GlobMatches {
    pub matches: Vec<GlobMatch>,
    /// Whether there may be more.
    pub truncated: bool,
    /// Directories that could not be looked into.
    pub unreadable: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GlobMatch {
    pub path: String,
    /// The bytes of the path in base64, if they are not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_b64: Option<String>,
    pub is_dir: bool,
    pub size_bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified_at: Option<String>,
}

/// `POST …/grep`. The pattern is a text, and no regular expression.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Grep {
    pub pattern: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Which files are looked into: by name, or by path if there is a slash in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub glob: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub limit: Option<u32>,
}

/// The answer to [`Grep`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GrepMatches {
    pub matches: Vec<GrepMatch>,
    pub truncated: bool,
    /// Files and directories that could not be looked into.
    pub unreadable: u32,
}

/// A line. Its text is never in a log line.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GrepMatch {
    pub path: String,
    /// From 1.
    pub line: u64,
    /// At most 2,000 bytes of it.
    pub text: String,
}

impl std::fmt::Debug for GrepMatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GrepMatch").field("line", &self.line).finish_non_exhaustive()
    }
}

/// An event of `GET …/v1/files/watch`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum WatchEvent {
    /// Whatever happens from now on is told.
    Watching {
        path: String,
    },
    Created {
        path: String,
        is_dir: bool,
    },
    Changed {
        path: String,
    },
    Deleted {
        path: String,
        is_dir: bool,
    },
    /// More has happened than can be told: look at everything anew.
    Overflow {
        reason: String,
    },
    /// What was watched is gone, and the stream ends.
    Gone {
        path: String,
    },
}
