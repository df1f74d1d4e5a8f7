//! What PID 2 says to init: a line when it waits for its request or a step broke, and a single
//! byte, its exit code, as a runtime's last act. A command of a sandbox first says who it is.

use crate::plan::{Broken, Step};

/// One thing said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// The slot waits for its request.
    Ready,
    /// The number of the process that becomes a command.
    Process(i32),
    /// A step broke.
    Error(Broken),
    /// The runtime is about to end with this code, and has written everything it had to.
    Exit(u8),
}

/// The steps that are reported by name.
const STEPS: [(&str, Step); 8] = [
    ("cgroup", Step::Cgroup),
    ("fork", Step::Fork),
    ("limits", Step::Limits),
    ("privileges", Step::Privileges),
    ("seccomp", Step::Seccomp),
    ("code", Step::Code),
    ("exec", Step::Exec),
    ("directory", Step::Directory),
];

impl Word {
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let line = match self {
            Self::Ready => "ready\n".to_owned(),
            Self::Process(number) => format!("process {number}\n"),
            Self::Exit(code) => return vec![code],
            Self::Error(Broken { step, errno }) => {
                let name = STEPS.iter().find(|(_, known)| *known == step).map(|(name, _)| *name);
                format!("error {} {errno}\n", name.unwrap_or("runtime"))
            }
        };
        line.into_bytes()
    }

    /// Reads what was said. Steps that a runtime has names of its own for are all `Runtime`.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        if let [code] = bytes {
            return Some(Self::Exit(*code));
        }
        let mut words = str::from_utf8(bytes).ok()?.split_whitespace();
        match (words.next()?, words.next(), words.next()) {
            ("ready", None, None) => Some(Self::Ready),
            ("process", Some(number), None) => Some(Self::Process(number.parse().ok()?)),
            ("error", Some(name), Some(errno)) => {
                let step = STEPS.iter().find(|(known, _)| *known == name);
                let step = step.map_or(Step::Runtime, |(_, step)| *step);
                Some(Self::Error(Broken { step, errno: errno.parse().ok()? }))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read_back() {
        let broken = Broken { step: Step::Seccomp, errno: 22 };
        let words = [Word::Ready, Word::Exit(0), Word::Exit(255), Word::Process(7)];
        for word in words.into_iter().chain([Word::Error(broken)]) {
            assert_eq!(Word::from_bytes(&word.to_bytes()), Some(word));
        }
    }

    #[test]
    fn what_is_no_word_is_none() {
        for line in ["", "ready now", "ex", "error", "error step", "error step x"] {
            assert_eq!(Word::from_bytes(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn a_runtimes_own_step_is_the_runtimes() {
        let broken = Broken { step: Step::Runtime, errno: 1 };
        assert_eq!(Word::from_bytes(b"error threads 1\n"), Some(Word::Error(broken)));
    }
}
