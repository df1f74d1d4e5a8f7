//! Which names a pattern means: those that a caller leaves out of a copy, and those of a `.gitignore`.

/// What is left out of a copy, by its whole path below the source or by its name alone.
#[derive(Debug)]
pub(super) struct Excluded<'text>(pub(super) &'text [String]);

impl Excluded<'_> {
    pub(super) fn has(&self, path: &[u8]) -> bool {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        self.0.iter().any(|pattern| {
            let pattern = pattern.trim_end_matches('/').as_bytes();
            let parts: Vec<&[u8]> = split(pattern);
            matches_parts(&parts, &split(path)) || matches_name(pattern, name)
        })
    }
}

/// The rules of a `.gitignore`, in order.
#[derive(Debug, Default)]
pub(super) struct Ignored<'text>(Vec<Rule<'text>>);

#[derive(Debug)]
struct Rule<'text> {
    parts: Vec<&'text [u8]>,
    is_exception: bool,
    only_folders: bool,
}

impl<'text> Ignored<'text> {
    pub(super) fn read(text: &'text [u8]) -> Self {
        Self(text.split(|byte| *byte == b'\n').filter_map(Rule::read).collect())
    }

    /// Whether what has this path is ignored, itself or with a folder that it is in.
    pub(super) fn has(&self, path: &[u8]) -> bool {
        let parts = split(path);
        (1..=parts.len()).any(|count| {
            let part = parts.get(..count).unwrap_or_default();
            self.has_itself(part, count < parts.len())
        })
    }

    fn has_itself(&self, parts: &[&[u8]], is_folder: bool) -> bool {
        let applies = |rule: &&Rule<'_>| {
            (is_folder || !rule.only_folders) && matches_parts(&rule.parts, parts)
        };
        self.0.iter().rev().find(applies).is_some_and(|rule| !rule.is_exception)
    }
}

impl<'text> Rule<'text> {
    fn read(line: &'text [u8]) -> Option<Self> {
        let line = line.strip_suffix(b"\r").unwrap_or(line).trim_ascii_end();
        if line.is_empty() || line.starts_with(b"#") {
            return None;
        }
        let (is_exception, line) = match line.strip_prefix(b"!") {
            Some(rest) => (true, rest),
            None => (false, line),
        };
        let (only_folders, line) = match line.strip_suffix(b"/") {
            Some(rest) => (true, rest),
            None => (false, line),
        };
        // A pattern of one part means that name in every folder.
        let is_anywhere = !line.contains(&b'/');
        let mut parts = split(line.strip_prefix(b"/").unwrap_or(line));
        if is_anywhere {
            parts.insert(0, b"**");
        }
        Some(Self { parts, is_exception, only_folders })
    }
}

fn split(path: &[u8]) -> Vec<&[u8]> {
    path.split(|byte| *byte == b'/').collect()
}

/// Compares part by part; `**` stands for any number of parts. The time is bounded by the product of
/// both lengths.
fn matches_parts(pattern: &[&[u8]], path: &[&[u8]]) -> bool {
    // Which beginnings of the path the beginning of the pattern has matched so far.
    let mut reached = vec![false; path.len() + 1];
    if let Some(first) = reached.first_mut() {
        *first = true;
    }
    for part in pattern {
        let mut next = vec![false; path.len() + 1];
        let mut any_before = false;
        for (count, next) in next.iter_mut().enumerate() {
            let is_reached = |count: usize| reached.get(count).copied().unwrap_or_default();
            any_before |= is_reached(count);
            *next = if *part == b"**" {
                any_before
            } else {
                count.checked_sub(1).is_some_and(|before| {
                    is_reached(before)
                        && path.get(before).is_some_and(|name| matches_name(part, name))
                })
            };
        }
        reached = next;
    }
    reached.last().copied().unwrap_or_default()
}

/// Compares one name with a pattern of `*`, `?`, `[…]` and `\`.
pub(crate) fn matches_name(pattern: &[u8], name: &[u8]) -> bool {
    let (mut pattern, mut name) = (pattern, name);
    // Where to go on when what came after the last star does not fit.
    let mut star: Option<(&[u8], &[u8])> = None;
    loop {
        if let Some(rest) = pattern.strip_prefix(b"*") {
            star = Some((rest, name));
            pattern = rest;
            continue;
        }
        let step = match (pattern.is_empty(), name.split_first()) {
            (true, None) => return true,
            (_, Some((byte, rest))) => one(pattern, *byte, rest),
            (false, None) => None,
        };
        match (step, star) {
            (Some(step), _) => (pattern, name) = step,
            (None, None) => return false,
            (None, Some((after, from))) => {
                let Some((_, rest)) = from.split_first() else { return false };
                star = Some((after, rest));
                (pattern, name) = (after, rest);
            }
        }
    }
}

/// Compares the first byte of a name with the beginning of a pattern. Returns what is left of both.
fn one<'pattern, 'name>(
    pattern: &'pattern [u8],
    byte: u8,
    after: &'name [u8],
) -> Option<(&'pattern [u8], &'name [u8])> {
    let left = match pattern.split_first()? {
        (b'?', rest) => return Some((rest, whole_character(byte, after))),
        (b'[', rest) => class(rest, byte)?,
        (b'\\', rest) => {
            let (wanted, rest) = rest.split_first()?;
            (*wanted == byte).then_some(rest)?
        }
        (wanted, rest) => (*wanted == byte).then_some(rest)?,
    };
    Some((left, after))
}

/// Passes over the rest of a character that begins with this byte. What is no character is a byte.
fn whole_character(byte: u8, after: &[u8]) -> &[u8] {
    let more = match byte {
        0xc2..=0xdf => 1,
        0xe0..=0xef => 2,
        0xf0..=0xf4 => 3,
        _ => 0,
    };
    match after.split_at_checked(more) {
        Some((rest, left)) if rest.iter().all(|byte| byte & 0xc0 == 0x80) => left,
        _ => after,
    }
}

fn class(pattern: &[u8], byte: u8) -> Option<&[u8]> {
    let (is_not, mut rest) = match pattern.split_first()? {
        (b'!' | b'^', rest) => (true, rest),
        _ => (false, pattern),
    };
    let mut is_in = false;
    let mut is_first = true;
    loop {
        let (&from, after) = rest.split_first()?;
        if from == b']' && !is_first {
            return (is_in != is_not).then_some(after);
        }
        is_first = false;
        rest = match after {
            [b'-', to, after @ ..] if *to != b']' => {
                is_in |= (from..=*to).contains(&byte);
                after
            }
            after => {
                is_in |= from == byte;
                after
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_means_a_whole_path_or_a_name() {
        let rows = [
            ("*.o", "a.o", true),
            ("*.o", "src/deep/a.o", true),
            ("*.o", "a.oo", false),
            ("src/*.o", "src/a.o", true),
            ("src/*.o", "src/deep/a.o", false),
            ("node_modules", "web/node_modules", true),
            ("node_modules/", "node_modules", true),
            ("web", "website", false),
            ("?[a-c]", "xb", true),
            ("?[!a-c]", "xb", false),
            ("[]]", "]", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*b*", "xxbxxaxx", false),
            ("", "a", false),
            ("[", "[", false),
        ];
        for (pattern, path, expected) in rows {
            let patterns = [pattern.to_owned()];
            assert_eq!(Excluded(&patterns).has(path.as_bytes()), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn a_gitignore_is_read_as_git_reads_it() {
        let text = b"# a comment\r\n*.log\n!kept.log\n/top\nbuild/\na/**/z\n\n";
        let ignored = Ignored::read(text);
        let rows = [
            ("x.log", true),
            ("deep/x.log", true),
            ("kept.log", false),
            ("top", true),
            ("deep/top", false),
            ("build", false),
            ("build/out", true),
            ("deep/build/out", true),
            ("a/z", true),
            ("a/b/c/z", true),
            ("b/z", false),
            ("# a comment", false),
        ];
        for (path, expected) in rows {
            assert_eq!(ignored.has(path.as_bytes()), expected, "{path}");
        }
    }

    #[test]
    fn no_pattern_takes_long() {
        let pattern = ["*a".repeat(500) + "b"];
        assert!(!Excluded(&pattern).has(&[b'a'; 255]));
        let stars = "**/".repeat(500) + "x";
        let path = "a/".repeat(128);
        assert!(!Ignored::read(stars.as_bytes()).has(path.as_bytes()));
    }
}
