//! What PID 2 says to init before it is the user's program, and a runtime as its last act: one
//! line each.

use crate::plan::{Broken, Step};

/// One line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// The slot waits for its request.
    Ready,
    /// A step broke.
    Error(Broken),
    /// The runtime is about to end with this code, and has written everything it had to.
    Exit(i32),
}

/// The steps that are reported by name.
const STEPS: [(&str, Step); 7] = [
    ("cgroup", Step::Cgroup),
    ("fork", Step::Fork),
    ("limits", Step::Limits),
    ("privileges", Step::Privileges),
    ("seccomp", Step::Seccomp),
    ("code", Step::Code),
    ("exec", Step::Exec),
];

impl Word {
    pub(super) fn to_line(self) -> String {
        match self {
            Self::Ready => "ready\n".to_owned(),
            Self::Exit(code) => format!("exit {code}\n"),
            Self::Error(Broken { step, errno }) => {
                let name = STEPS.iter().find(|(_, known)| *known == step).map(|(name, _)| *name);
                format!("error {} {errno}\n", name.unwrap_or("runtime"))
            }
        }
    }

    /// Reads a line. Steps that a runtime has names of its own for are all `Runtime`.
    pub(super) fn from_line(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        match (words.next()?, words.next(), words.next()) {
            ("ready", None, None) => Some(Self::Ready),
            ("exit", Some(code), None) => code.parse().ok().map(Self::Exit),
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
        for word in [Word::Ready, Word::Exit(-3), Word::Error(broken)] {
            assert_eq!(Word::from_line(&word.to_line()), Some(word));
        }
    }

    #[test]
    fn what_is_no_word_is_none() {
        for line in ["", "ready now", "exit", "exit x", "error", "error step", "error step x"] {
            assert_eq!(Word::from_line(line), None, "{line}");
        }
    }

    #[test]
    fn a_runtimes_own_step_is_the_runtimes() {
        let broken = Broken { step: Step::Runtime, errno: 1 };
        assert_eq!(Word::from_line("error threads 1"), Some(Word::Error(broken)));
    }
}
