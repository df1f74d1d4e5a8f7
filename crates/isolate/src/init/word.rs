//! What PID 2 says to init, one line each: that its filter is loaded, that it waits for its request,
//! or that a step broke. A command of a sandbox first says which process it is.

use crate::plan::{Broken, Step};

/// One thing said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// The slot waits for its request.
    Ready,
    /// The number of the process that becomes a command.
    Process(i32),
    /// The system call filter is loaded. Its listener comes along.
    Filtered,
    /// A step broke.
    Error(Broken),
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
            Self::Filtered => "filtered\n".to_owned(),
            Self::Error(Broken { step, errno }) => {
                let name = STEPS.iter().find(|(_, known)| *known == step).map(|(name, _)| *name);
                format!("error {} {errno}\n", name.unwrap_or("runtime"))
            }
        };
        line.into_bytes()
    }

    /// Reads what was said. Steps that a runtime has names of its own for are all `Runtime`.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut words = str::from_utf8(bytes).ok()?.split_whitespace();
        match (words.next()?, words.next(), words.next()) {
            ("ready", None, None) => Some(Self::Ready),
            ("filtered", None, None) => Some(Self::Filtered),
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
        let words = [Word::Ready, Word::Filtered, Word::Process(7)];
        for word in words.into_iter().chain([Word::Error(broken)]) {
            assert_eq!(Word::from_bytes(&word.to_bytes()), Some(word));
        }
    }

    #[test]
    fn what_is_no_word_is_none() {
        for line in ["", "\0", "\x07", "ready now", "ex", "error", "error step", "error step x"] {
            assert_eq!(Word::from_bytes(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn a_runtimes_own_step_is_the_runtimes() {
        let broken = Broken { step: Step::Runtime, errno: 1 };
        assert_eq!(Word::from_bytes(b"error threads 1\n"), Some(Word::Error(broken)));
    }
}
