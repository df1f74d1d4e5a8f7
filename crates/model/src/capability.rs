//! What a token or key lets its holder do in a sandbox.
//!
//! A capability has one name that we write and others that callers may use. Some hold others:
//! whoever may write files may read them, whoever may use a shell may watch it. Handing on only ever
//! narrows.

use std::fmt;

use crate::actor::ActorKind;

/// One thing that may be done in a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Capability {
    FsRead,
    FsWrite,
    Process,
    Shell,
    /// Watching a shell without ever sending it a byte.
    ShellObserve,
    Ports,
    Snapshot,
}

/// Why a list of capabilities is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CapabilityError {
    #[error(
        "there is no capability \"{name}\"; there are fs:ro, fs:rw, process, shell, shell:ro, ports \
         and snapshot"
    )]
    Unknown { name: String },
    #[error("at most {MOST_NAMES} capabilities can be asked for at once")]
    TooMany,
}

/// More than there are names.
const MOST_NAMES: usize = 32;
/// What is repeated of a name that nobody knows.
const SHOWN: usize = 40;

impl Capability {
    pub const ALL: [Self; 7] = [
        Self::FsRead,
        Self::FsWrite,
        Self::Process,
        Self::Shell,
        Self::ShellObserve,
        Self::Ports,
        Self::Snapshot,
    ];

    /// Returns the name that we write, and those that callers may use instead.
    const fn names(self) -> &'static [&'static str] {
        match self {
            Self::FsRead => &["fs:ro", "fs_read", "download"],
            Self::FsWrite => &["fs:rw", "fs_write", "upload"],
            Self::Process => &["process", "exec", "execute"],
            Self::Shell => &["shell"],
            Self::ShellObserve => &["shell:ro"],
            Self::Ports => &["ports"],
            Self::Snapshot => &["snapshot"],
        }
    }

    pub const fn name(self) -> &'static str {
        self.names()[0]
    }

    /// Returns the capability of exactly this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|capability| capability.names().contains(&name))
    }

    /// Returns the bit of this one and of all that it holds.
    const fn held(self) -> u8 {
        match self {
            Self::FsRead => 1,
            Self::FsWrite => 1 << 1 | 1,
            Self::Process => 1 << 2,
            Self::ShellObserve => 1 << 3,
            Self::Shell => 1 << 4 | 1 << 3,
            Self::Ports => 1 << 5,
            Self::Snapshot => 1 << 6,
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of capabilities, closed: whatever one of them holds is in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Capabilities(u8);

impl Capabilities {
    pub const NONE: Self = Self(0);

    /// Returns what an actor of this kind may have, unless an operator says otherwise.
    pub fn usual(kind: ActorKind) -> Self {
        use Capability::{FsWrite, Ports, Process, Shell, Snapshot};
        match kind {
            ActorKind::Human => [FsWrite, Shell, Process, Ports, Snapshot].into_iter().collect(),
            ActorKind::Agent => [FsWrite, Process, Ports].into_iter().collect(),
        }
    }

    /// Reads the scope of a token that was signed. A name that nobody knows grants nothing.
    pub fn of_scope(text: &str) -> Self {
        text.split(' ').filter_map(Capability::named).collect()
    }

    pub const fn allows(self, needed: Capability) -> bool {
        self.0 & needed.held() == needed.held()
    }

    /// Returns what both allow: never more than either.
    #[must_use]
    pub const fn narrowed_to(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the fewest that hold all of them: nothing that another one holds already.
    pub fn iter(self) -> impl Iterator<Item = Capability> {
        let allowed = move |capability: &Capability| self.allows(*capability);
        Capability::ALL.into_iter().filter(allowed).filter(move |one| {
            let mut others = Capability::ALL.into_iter().filter(allowed);
            !others.any(|other| other != *one && other.held() & one.held() == one.held())
        })
    }
}

impl FromIterator<Capability> for Capabilities {
    fn from_iter<I: IntoIterator<Item = Capability>>(capabilities: I) -> Self {
        Self(capabilities.into_iter().fold(0, |all, capability| all | capability.held()))
    }
}

/// As a scope is written: names with a blank between them.
impl fmt::Display for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, capability) in self.iter().enumerate() {
            write!(f, "{}{capability}", if index == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}

/// Capabilities as somebody asks for them, in his own words and order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked(Vec<(String, Capability)>);

impl Asked {
    /// Reads a scope: names with blanks between them.
    pub fn scope(text: &str) -> Result<Self, CapabilityError> {
        Self::list(text.split_ascii_whitespace())
    }

    /// Reads a list of names. One that is there twice counts once.
    pub fn list(names: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, CapabilityError> {
        let mut asked: Vec<(String, Capability)> = Vec::new();
        for (index, name) in names.into_iter().enumerate() {
            let name = name.as_ref();
            if index == MOST_NAMES {
                return Err(CapabilityError::TooMany);
            }
            let Some(capability) = Capability::named(name) else {
                let name = name.chars().filter(|it| !it.is_control()).take(SHOWN).collect();
                return Err(CapabilityError::Unknown { name });
            };
            if asked.iter().all(|(known, _)| known != name) {
                asked.push((name.to_owned(), capability));
            }
        }
        Ok(Self(asked))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn capabilities(&self) -> Capabilities {
        self.0.iter().map(|(_, capability)| *capability).collect()
    }

    /// Returns those that were granted, as they were asked for.
    pub fn granted(&self, granted: Capabilities) -> impl Iterator<Item = &str> {
        let granted = self.0.iter().filter(move |(_, capability)| granted.allows(*capability));
        granted.map(|(name, _)| name.as_str())
    }
}

/// All that was asked for is more than may be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nothing of what is asked for can be granted; there is \"{bound}\"")]
pub struct NothingGranted {
    pub bound: Capabilities,
}

/// Decides what somebody gets who may have this much at most. Who asks for nothing in particular gets
/// all of it, who asks for nothing at all gets nothing.
pub fn grant(asked: Option<&Asked>, bound: Capabilities) -> Result<Capabilities, NothingGranted> {
    let Some(asked) = asked else { return Ok(bound) };
    let granted = bound.narrowed_to(asked.capabilities());
    if granted.is_empty() && !asked.is_empty() {
        return Err(NothingGranted { bound });
    }
    Ok(granted)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set() -> impl Strategy<Value = Capabilities> {
        proptest::collection::vec(proptest::sample::select(&Capability::ALL[..]), 0..7)
            .prop_map(|chosen| chosen.into_iter().collect())
    }

    #[test]
    fn every_capability_has_its_names() {
        let rows = [
            ("fs:ro fs_read download", Capability::FsRead),
            ("fs:rw fs_write upload", Capability::FsWrite),
            ("process exec execute", Capability::Process),
            ("shell", Capability::Shell),
            ("shell:ro", Capability::ShellObserve),
            ("ports", Capability::Ports),
            ("snapshot", Capability::Snapshot),
        ];
        for (names, capability) in rows {
            assert_eq!(names.split(' ').next(), Some(capability.name()));
            for name in names.split(' ') {
                assert_eq!(Capability::named(name), Some(capability), "{name}");
            }
        }
        for wrong in ["", "*", "fs", "fs:rwx", "FS:RW", "Shell", " shell", "shell:rw", "admin"] {
            assert_eq!(Capability::named(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn who_may_write_may_read_and_who_may_type_may_watch() {
        let holds = |scope: &str| -> Vec<&str> {
            let set = Capabilities::of_scope(scope);
            let held = Capability::ALL.into_iter().filter(|it| set.allows(*it));
            held.map(Capability::name).collect()
        };
        let rows: [(&str, &[&str]); 9] = [
            ("", &[]),
            ("fs:ro", &["fs:ro"]),
            ("fs:rw", &["fs:ro", "fs:rw"]),
            ("shell", &["shell", "shell:ro"]),
            ("shell:ro", &["shell:ro"]),
            ("process", &["process"]),
            ("ports snapshot", &["ports", "snapshot"]),
            ("fs:rwx * root", &[]),
            ("fs:ro unknown shell:ro", &["fs:ro", "shell:ro"]),
        ];
        for (scope, expected) in rows {
            assert_eq!(holds(scope), expected, "{scope}");
        }
    }

    #[test]
    fn humans_may_have_a_shell_and_agents_may_not() {
        let text = |kind| Capabilities::usual(kind).to_string();
        assert_eq!(text(ActorKind::Human), "fs:rw process shell ports snapshot");
        assert_eq!(text(ActorKind::Agent), "fs:rw process ports");
    }

    #[test]
    fn what_was_granted_is_said_in_the_words_it_was_asked_for_in() {
        let asked = Asked::list(["upload", "fs_read", "shell", "upload", "exec"]).unwrap();
        let granted = asked.capabilities().narrowed_to(Capabilities::usual(ActorKind::Agent));
        let words: Vec<_> = asked.granted(granted).collect();
        assert_eq!(words, ["upload", "fs_read", "exec"]);
        assert_eq!(granted.to_string(), "fs:rw process");
    }

    #[test]
    fn names_that_nobody_knows_are_refused_by_name() {
        let unknown = |name: &str| Err(CapabilityError::Unknown { name: name.to_owned() });
        assert_eq!(Asked::scope("fs:rw root shell"), unknown("root"));
        assert_eq!(Asked::scope("a\u{7}\u{1b}b"), unknown("ab"));
        assert_eq!(Asked::scope(&"x".repeat(5000)), unknown(&"x".repeat(SHOWN)));
        assert_eq!(Asked::list(["shell"; 33]), Err(CapabilityError::TooMany));
        assert!(Asked::scope("  ").unwrap().is_empty());
        assert!(Asked::scope("").unwrap().capabilities().is_empty());
    }

    #[test]
    fn what_is_granted_is_what_is_asked_for_as_far_as_it_may_be_had() {
        let bound = Capabilities::usual(ActorKind::Agent);
        let rows = [
            (None, Ok("fs:rw process ports")),
            (Some(""), Ok("")),
            (Some("fs:ro"), Ok("fs:ro")),
            (Some("fs:rw shell exec"), Ok("fs:rw process")),
            (Some("shell shell:ro"), Err(NothingGranted { bound })),
        ];
        for (asked, expected) in rows {
            let read = asked.map(|text| Asked::scope(text).unwrap());
            let granted = grant(read.as_ref(), bound).map(|granted| granted.to_string());
            assert_eq!(granted, expected.map(str::to_owned), "{asked:?}");
        }
    }

    proptest! {
        #[test]
        fn narrowing_never_widens(one in set(), other in set()) {
            let both = one.narrowed_to(other);
            for capability in Capability::ALL {
                let expected = one.allows(capability) && other.allows(capability);
                prop_assert_eq!(both.allows(capability), expected);
            }
        }

        #[test]
        fn a_set_is_read_as_it_was_written(set in set()) {
            prop_assert_eq!(Capabilities::of_scope(&set.to_string()), set);
            prop_assert_eq!(Asked::scope(&set.to_string()).unwrap().capabilities(), set);
        }
    }
}
