//! Which paths a pattern means: `*`, `?` and `[…]` within a name, `**` for any number of directories,
//! `{a,b}` for either.

use super::wire::Why;
use crate::init::patterns::matches_name;

/// The most that `{…}` may stand for.
const ALTERNATIVES: usize = 64;

/// The longest pattern.
const LONGEST: usize = 4096;

/// Patterns that were read.
#[derive(Debug)]
pub(super) struct Patterns(Vec<Vec<Vec<u8>>>);

/// How far each pattern has come on the way to a directory.
#[derive(Clone, Debug)]
pub(super) struct Reached(Vec<Vec<bool>>);

impl Patterns {
    /// Reads patterns of paths.
    pub(super) fn of_paths(patterns: &[Vec<u8>]) -> Result<Self, Why> {
        let mut all = Vec::new();
        for pattern in patterns {
            all.extend(expand(pattern)?.iter().map(|pattern| parts(pattern)));
        }
        if all.len() > ALTERNATIVES { Err(Why::InvalidPath) } else { Ok(Self(all)) }
    }

    /// Reads patterns of files: one without a slash means that name in every directory.
    pub(super) fn of_files(patterns: &[Vec<u8>]) -> Result<Self, Why> {
        let mut read = Self::of_paths(patterns)?;
        for parts in read.0.iter_mut().filter(|parts| parts.len() == 1) {
            parts.insert(0, b"**".to_vec());
        }
        Ok(read)
    }

    /// Where every path begins.
    pub(super) fn start(&self) -> Reached {
        let first = |parts: &Vec<Vec<u8>>| {
            let mut reached = vec![false; parts.len() + 1];
            mark(parts, &mut reached, 0);
            reached
        };
        Reached(self.0.iter().map(first).collect())
    }

    /// Goes on by one name.
    pub(super) fn step(&self, from: &Reached, name: &[u8]) -> Reached {
        let steps = self.0.iter().zip(&from.0).map(|(parts, from)| {
            let mut reached = vec![false; parts.len() + 1];
            for (at, part) in parts.iter().enumerate() {
                if !from.get(at).copied().unwrap_or_default() {
                    continue;
                }
                if part == b"**" {
                    mark(parts, &mut reached, at);
                } else if matches_name(part, name) {
                    mark(parts, &mut reached, at + 1);
                }
            }
            reached
        });
        Reached(steps.collect())
    }
}

impl Reached {
    /// Whether a pattern means this path.
    pub(super) fn is_meant(&self) -> bool {
        self.0.iter().any(|reached| reached.last().copied().unwrap_or_default())
    }

    /// Whether a pattern may mean something below it.
    pub(super) fn goes_on(&self) -> bool {
        self.0.iter().any(|reached| {
            reached.split_last().is_some_and(|(_, before)| before.iter().any(|it| *it))
        })
    }
}

/// A `**` may stand for nothing, so that whoever is before it is behind it, too.
fn mark(parts: &[Vec<u8>], reached: &mut [bool], at: usize) {
    for at in at.. {
        if let Some(reached) = reached.get_mut(at) {
            *reached = true;
        }
        if parts.get(at).is_none_or(|part| part != b"**") {
            return;
        }
    }
}

fn parts(pattern: &[u8]) -> Vec<Vec<u8>> {
    let parts = pattern.split(|byte| *byte == b'/');
    parts.filter(|part| !matches!(*part, b"" | b".")).map(<[u8]>::to_vec).collect()
}

/// Writes out what braces stand for.
fn expand(pattern: &[u8]) -> Result<Vec<Vec<u8>>, Why> {
    if pattern.is_empty() || pattern.len() > LONGEST {
        return Err(Why::InvalidPath);
    }
    let mut done = Vec::new();
    let mut open = vec![pattern.to_vec()];
    while let Some(next) = open.pop() {
        if done.len() + open.len() >= ALTERNATIVES {
            return Err(Why::InvalidPath);
        }
        match braces(&next) {
            None => done.push(next),
            Some((before, choices, after)) => {
                open.extend(choices.iter().map(|choice| [before, choice, after].concat()));
            }
        }
    }
    Ok(done)
}

/// What is before, between and after braces.
type Braces<'pattern> = (&'pattern [u8], Vec<&'pattern [u8]>, &'pattern [u8]);

/// Finds the first braces that are closed: what is before, between and after them.
fn braces(pattern: &[u8]) -> Option<Braces<'_>> {
    let mut start = None;
    let mut depth = 0_usize;
    let mut choices = Vec::new();
    let mut from = 0;
    let mut skip = false;
    for (at, byte) in pattern.iter().enumerate() {
        match byte {
            _ if skip => skip = false,
            b'\\' => skip = true,
            b'{' => {
                if depth == 0 {
                    start = Some(at);
                    from = at + 1;
                }
                depth += 1;
            }
            b',' if depth == 1 => {
                choices.push(pattern.get(from..at)?);
                from = at + 1;
            }
            b'}' if depth > 0 => {
                depth -= 1;
                if depth == 0 {
                    choices.push(pattern.get(from..at)?);
                    return Some((pattern.get(..start?)?, choices, pattern.get(at + 1..)?));
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn means(patterns: &Patterns, path: &str) -> bool {
        let step = |from: Reached, name: &str| patterns.step(&from, name.as_bytes());
        path.split('/').fold(patterns.start(), step).is_meant()
    }

    #[test]
    fn a_pattern_means_paths() {
        let rows = [
            ("*.rs", "a.rs", true),
            ("*.rs", "src/a.rs", false),
            ("**/*.rs", "a.rs", true),
            ("**/*.rs", "src/deep/a.rs", true),
            ("src/**", "src/deep/a.rs", true),
            ("src/**", "lib/a.rs", false),
            ("src/**/b/*.c", "src/b/x.c", true),
            ("src/**/b/*.c", "src/a/b/x.c", true),
            ("src/**/b/*.c", "src/a/b/c/x.c", false),
            ("{src,lib}/*.{c,h}", "lib/x.h", true),
            ("{src,lib}/*.{c,h}", "bin/x.h", false),
            ("{a,{b,c}}", "c", true),
            ("{a", "{a", true),
            ("\\{a,b}", "{a,b}", true),
            ("?[0-9]", "x7", true),
            ("?.txt", "ü.txt", true),
            ("./a/", "a", true),
            ("**", "any/thing", true),
        ];
        for (pattern, path, expected) in rows {
            let patterns = Patterns::of_paths(&[pattern.into()]).unwrap();
            assert_eq!(means(&patterns, path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn a_name_alone_means_files_anywhere() {
        let patterns = Patterns::of_files(&[b"*.py".to_vec()]).unwrap();
        assert!(means(&patterns, "a.py") && means(&patterns, "deep/er/a.py"));
        let patterns = Patterns::of_files(&[b"src/*.py".to_vec()]).unwrap();
        assert!(means(&patterns, "src/a.py") && !means(&patterns, "deep/src/a.py"));
    }

    #[test]
    fn what_cannot_be_meant_is_not_gone_into() {
        let patterns = Patterns::of_paths(&[b"src/*/x".to_vec()]).unwrap();
        let src = patterns.step(&patterns.start(), b"src");
        let lib = patterns.step(&patterns.start(), b"lib");
        assert!(src.goes_on() && !lib.goes_on());
        let deep = patterns.step(&patterns.step(&src, b"a"), b"x");
        assert!(deep.is_meant() && !deep.goes_on());
    }

    #[test]
    fn a_pattern_that_stands_for_too_much_is_refused() {
        let many = "{a,b}".repeat(7);
        for pattern in [many.as_bytes(), b"", &[b'a'; LONGEST + 1]] {
            assert!(Patterns::of_paths(&[pattern.to_vec()]).is_err());
        }
        assert!(Patterns::of_paths(&["{a,b}".repeat(5).into()]).is_ok());
    }
}
