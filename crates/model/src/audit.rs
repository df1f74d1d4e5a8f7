//! What the audit log says: who did what to which sandbox, by which right, and what came of it.
//!
//! An entry holds names and never content: ids, and the paths of files that were read or changed; no code and no token.
//! How entries are numbered and chained is the store's.

use crate::{actor::Actor, text::is_deceptive, units::Timestamp};

/// Something that is recorded. The names are part of the log's form: they are added to, and never
/// changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    KeyCreate,
    KeyRevoke,
    TokenMint,
    TokenRefresh,
    TokenExchange,
    TokenRevoke,
    TokenRotate,
    TokenIntrospect,
    SessionAcquire,
    SessionRefresh,
    SessionHeartbeat,
    SessionRelease,
    /// A session ended by itself, and its sandbox with it: the reason is why.
    SessionExpire,
    SandboxCreate,
    SandboxDelete,
    SandboxStop,
    SandboxResume,
    SandboxKill,
    SandboxUpdate,
    SnapshotCreate,
    SnapshotDelete,
    ImagePull,
    ImageRemove,
    /// A URL that opens one port or one file of a sandbox was given out.
    LinkMint,
    /// A request to the data plane that is none of those below: one that was refused, or one that an
    /// API key opened.
    Access,
    ExecStart,
    ExecCancel,
    ShellOpen,
    FileRead,
    /// The names or the properties of files were read.
    FileList,
    FileWrite,
    ToolCreate,
    /// A draft was saved or published, or the name of a tool changed.
    ToolUpdate,
    ToolDelete,
    /// A tool, its session or one of its runs was read.
    ToolRead,
    ToolRun,
    /// A draft was run.
    ToolTry,
    ToolCancel,
    /// The settings or the files of a user's session with a tool were changed.
    ToolSession,
    /// Entries that could not be kept; how many is their count.
    AuditLost,
    /// A checkpoint of the log was sealed with the server's sealing key.
    AuditSeal,
}

impl Action {
    pub const ALL: [Self; 41] = [
        Self::KeyCreate,
        Self::KeyRevoke,
        Self::TokenMint,
        Self::TokenRefresh,
        Self::TokenExchange,
        Self::TokenRevoke,
        Self::TokenRotate,
        Self::TokenIntrospect,
        Self::SessionAcquire,
        Self::SessionRefresh,
        Self::SessionHeartbeat,
        Self::SessionRelease,
        Self::SessionExpire,
        Self::SandboxCreate,
        Self::SandboxDelete,
        Self::SandboxStop,
        Self::SandboxResume,
        Self::SandboxKill,
        Self::SandboxUpdate,
        Self::SnapshotCreate,
        Self::SnapshotDelete,
        Self::ImagePull,
        Self::ImageRemove,
        Self::LinkMint,
        Self::Access,
        Self::ExecStart,
        Self::ExecCancel,
        Self::ShellOpen,
        Self::FileRead,
        Self::FileList,
        Self::FileWrite,
        Self::ToolCreate,
        Self::ToolUpdate,
        Self::ToolDelete,
        Self::ToolRead,
        Self::ToolRun,
        Self::ToolTry,
        Self::ToolCancel,
        Self::ToolSession,
        Self::AuditLost,
        Self::AuditSeal,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::KeyCreate => "key.create",
            Self::KeyRevoke => "key.revoke",
            Self::TokenMint => "token.mint",
            Self::TokenRefresh => "token.refresh",
            Self::TokenExchange => "token.exchange",
            Self::TokenRevoke => "token.revoke",
            Self::TokenRotate => "token.rotate",
            Self::TokenIntrospect => "token.introspect",
            Self::SessionAcquire => "session.acquire",
            Self::SessionRefresh => "session.refresh",
            Self::SessionHeartbeat => "session.heartbeat",
            Self::SessionRelease => "session.release",
            Self::SessionExpire => "session.expire",
            Self::SandboxCreate => "sandbox.create",
            Self::SandboxDelete => "sandbox.delete",
            Self::SandboxStop => "sandbox.stop",
            Self::SandboxResume => "sandbox.resume",
            Self::SandboxKill => "sandbox.kill",
            Self::SandboxUpdate => "sandbox.update",
            Self::SnapshotCreate => "snapshot.create",
            Self::SnapshotDelete => "snapshot.delete",
            Self::ImagePull => "image.pull",
            Self::ImageRemove => "image.remove",
            Self::LinkMint => "link.mint",
            Self::Access => "access",
            Self::ExecStart => "exec.start",
            Self::ExecCancel => "exec.cancel",
            Self::ShellOpen => "shell.open",
            Self::FileRead => "file.read",
            Self::FileList => "file.list",
            Self::FileWrite => "file.write",
            Self::ToolCreate => "tool.create",
            Self::ToolUpdate => "tool.update",
            Self::ToolDelete => "tool.delete",
            Self::ToolRead => "tool.read",
            Self::ToolRun => "tool.run",
            Self::ToolTry => "tool.try",
            Self::ToolCancel => "tool.cancel",
            Self::ToolSession => "tool.session",
            Self::AuditLost => "audit.lost",
            Self::AuditSeal => "audit.seal",
        }
    }

    /// Tells whether records of it that are alike become one with a count: it changes nothing, and clients repeat it.
    pub const fn is_joined(self) -> bool {
        matches!(
            self,
            Self::Access
                | Self::FileRead
                | Self::FileList
                | Self::ToolRead
                | Self::SessionHeartbeat
                | Self::TokenIntrospect
        )
    }

    /// Returns the action of exactly this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.name() == name)
    }
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    Granted,
    Denied,
    /// It was allowed, and could not be done.
    Failed,
}

impl Outcome {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::Denied => "denied",
            Self::Failed => "failed",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        [Self::Granted, Self::Denied, Self::Failed].into_iter().find(|it| it.name() == name)
    }
}

/// What a token that was given out says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// On whose behalf: `human:ada`.
    pub subject: String,
    /// The sandbox that it is for.
    pub audience: String,
    /// As a scope is written: names with a blank between them.
    pub capabilities: String,
    pub expires_at: Timestamp,
}

/// One entry, before it has its place in the chain. What is not known is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub time: Timestamp,
    pub action: Action,
    pub outcome: Outcome,
    /// Names the request, as its answer does.
    pub request: Option<String>,
    pub actor: Option<Actor>,
    /// The API key that was shown, or that the token was given out for.
    pub key: Option<String>,
    pub tenant: Option<String>,
    /// What was asked for by the name of its scope: `thread:t-1`.
    pub scope: Option<String>,
    pub session: Option<String>,
    pub sandbox: Option<String>,
    /// Names the token.
    pub jti: Option<String>,
    /// What else it was done to: the key that was made, the command that was started.
    pub object: Option<String>,
    /// Why, or how.
    pub reason: Option<String>,
    pub grant: Option<Grant>,
    /// How many alike this one stands for, if more than one.
    pub count: Option<u64>,
}

impl Entry {
    pub fn new(time: Timestamp, action: Action, outcome: Outcome) -> Self {
        Self {
            time,
            action,
            outcome,
            request: None,
            actor: None,
            key: None,
            tenant: None,
            scope: None,
            session: None,
            sandbox: None,
            jti: None,
            object: None,
            reason: None,
            grant: None,
            count: None,
        }
    }

    /// Says whether both say the same, but for when and in which request.
    pub fn is_like(&self, other: &Self) -> bool {
        let aside = |entry: &Self| Self {
            time: Timestamp::from_millis(0),
            request: None,
            count: None,
            ..entry.clone()
        };
        self.action == other.action
            && self.outcome == other.outcome
            && self.object == other.object
            && aside(self) == aside(other)
    }
}

/// The longest text that an entry holds; what is longer is cut.
pub const MAX_TEXT: usize = 256;

/// What stands for a text that may be a secret.
pub const REDACTED: &str = "[redacted]";

/// Returns a text as it is recorded: of one line, of bounded length, and without what controls a
/// terminal or turns writing around. Whatever looks like a key or a token is not recorded at all,
/// wherever a caller has put it.
pub fn text(text: &str) -> String {
    if holds_secret(text) {
        return REDACTED.to_owned();
    }
    let mut cleaned = String::with_capacity(text.len().min(MAX_TEXT));
    for letter in text.chars() {
        let letter = if is_deceptive(letter) { char::REPLACEMENT_CHARACTER } else { letter };
        if cleaned.len() + letter.len_utf8() > MAX_TEXT {
            break;
        }
        cleaned.push(letter);
    }
    cleaned
}

/// Keys begin with `rf_`; tokens begin with the beginning of a JSON object, in base64.
fn holds_secret(text: &str) -> bool {
    /// The least that is no accident.
    const LEAST: usize = 16;
    ["rf_", "eyJ"].into_iter().any(|mark| {
        text.match_indices(mark).any(|(at, _)| {
            let rest = text.bytes().skip(at + mark.len());
            let is_of_secret = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_".contains(byte);
            rest.take_while(is_of_secret).take(LEAST).count() == LEAST
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_and_outcomes_have_names_of_their_own() {
        for action in Action::ALL {
            assert_eq!(Action::named(action.name()), Some(action));
        }
        for outcome in [Outcome::Granted, Outcome::Denied, Outcome::Failed] {
            assert_eq!(Outcome::named(outcome.name()), Some(outcome));
        }
        assert_eq!(Action::named("key"), None);
    }

    #[test]
    fn a_text_is_one_harmless_line_of_bounded_length() {
        let rows = [
            ("ada", "ada"),
            ("Ada Lovelace, größer 北", "Ada Lovelace, größer 北"),
            ("a\nb\r\nc\t", "a\u{fffd}b\u{fffd}\u{fffd}c\u{fffd}"),
            ("\u{1b}[31mred\u{7}", "\u{fffd}[31mred\u{fffd}"),
            ("a\u{202e}b\u{2066}c\u{200b}", "a\u{fffd}b\u{fffd}c\u{fffd}"),
            ("x\u{0}y\u{85}z\u{7f}", "x\u{fffd}y\u{fffd}z\u{fffd}"),
        ];
        for (sent, kept) in rows {
            assert_eq!(text(sent), kept, "{sent:?}");
        }
        assert_eq!(text(&"é".repeat(1000)).len(), MAX_TEXT);
        assert_eq!(text(&format!("x{}", "北".repeat(1000))).len(), MAX_TEXT);
    }

    #[test]
    fn what_looks_like_a_key_or_a_token_is_not_recorded() {
        let key = format!("rf_{}", "0123456789abcdef".repeat(3));
        let token = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJpc3MiOiJ4In0.c2ln";
        for secret in
            [key.clone(), format!("before {key} after"), token.into(), format!("a={token}")]
        {
            assert_eq!(text(&secret), REDACTED);
        }
        for harmless in ["rf_short", "surf_board", "eyJ", "a rf_ b", "key_0123456789abcdef"] {
            assert_eq!(text(harmless), harmless);
        }
    }

    #[test]
    fn entries_are_alike_if_they_differ_in_time_and_request_alone() {
        let entry = Entry::new(Timestamp::from_millis(1), Action::Access, Outcome::Denied);
        let later = Entry {
            time: Timestamp::from_millis(2),
            request: Some("req_1".into()),
            ..entry.clone()
        };
        assert!(entry.is_like(&later));
        assert!(!entry.is_like(&Entry { jti: Some("tok_1".into()), ..later.clone() }));
        assert!(!entry.is_like(&Entry { outcome: Outcome::Failed, ..later }));
    }
}
