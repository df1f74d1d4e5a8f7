//! How long output is kept of commands that are the server's own. A caller's stays with the sandbox.

use std::collections::BTreeSet;

use rustix::fs::{AtFlags, Dir, unlinkat};

use super::{Place, wire::UNKEPT};
use crate::sandbox::folder::STREAMS;

/// So many of each kind keep their output when they are forgotten: a command that is started again
/// for ever must not fill the disk, and of one that crashed somebody wants to see why.
const LAST: usize = 3;

impl Place {
    /// Removes what nobody looks at, now that this command is forgotten.
    pub(super) fn clear_output(&self, exec: &str) {
        if exec.starts_with(UNKEPT) {
            return self.remove_output(exec);
        }
        let Some((kind, _)) = numbered(exec) else { return };
        // What cannot be listed is looked at again the next time.
        let entries = Dir::read_from(&self.outputs).into_iter().flatten().filter_map(Result::ok);
        let names = entries.filter_map(|entry| entry.file_name().to_str().map(str::to_owned).ok());
        for number in surplus(names, kind) {
            self.remove_output(&format!("{kind}-{number}"));
        }
    }

    pub(super) fn remove_output(&self, exec: &str) {
        for stream in STREAMS {
            let _ = unlinkat(&self.outputs, format!("{exec}{stream}"), AtFlags::empty());
        }
    }
}

/// Returns the kind and the number of a command that is the server's own. Later ones have higher
/// numbers, so that the one that runs is among the last.
fn numbered(exec: &str) -> Option<(&str, u64)> {
    let (kind, number) = exec.rsplit_once('-').filter(|(kind, _)| kind.starts_with('_'))?;
    Some((kind, number.parse().ok()?))
}

/// Returns the numbers of all files of this kind but of the last few.
fn surplus(names: impl Iterator<Item = String>, kind: &str) -> Vec<u64> {
    let mut numbers = BTreeSet::new();
    for name in names {
        let exec = STREAMS.iter().find_map(|stream| name.strip_suffix(stream));
        if let Some((_, number)) = exec.and_then(numbered).filter(|(other, _)| *other == kind) {
            numbers.insert(number);
        }
    }
    let surplus = numbers.len().saturating_sub(LAST);
    numbers.into_iter().take(surplus).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_of_the_same_kind_and_older_is_too_much() {
        let kinds = ["_main-", "_post-", "main-", "ex-_main-"];
        let names = kinds.iter().flat_map(|kind| {
            [9, 10, 2, 1, 30].iter().flat_map(move |number| {
                STREAMS.iter().map(move |stream| format!("{kind}{number}{stream}"))
            })
        });
        assert_eq!(surplus(names.clone(), "_main"), [1, 2]);
        assert_eq!(surplus(names.chain(["_main-0.stdout.log".to_owned()]), "_main"), [0, 1, 2]);
        assert_eq!(numbered("ex_1"), None);
        assert_eq!(numbered("_main-"), None);
        assert_eq!(numbered("_main--5"), Some(("_main-", 5)));
    }
}
