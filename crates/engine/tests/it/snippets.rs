//! Every snippet of `tests/snippets` in a slot of the pool, in a new slot, and by its interpreter
//! alone: stdout, stderr and exit code are the same three times.

mod bare;

use std::{fs, path::Path, time::Duration};

use model::{
    execution::{Execution, Exit, Freshness, Status},
    limits::Limits,
    units::ByteSize,
};

use crate::node::{Node, Seen};

/// With fewer, nothing is proved.
const AT_LEAST: usize = 100;

/// What differs on purpose: output is streamed, so a warm Python empties its buffer at every line
/// and not at its end alone.
const KNOWN: [&str; 4] = [
    "python/036-os-exit.py: warm stdout",
    "python/069-print-then-os-exit.py: warm stdout",
    "python/137-subprocess.py: warm stdout",
    "python/141-subprocess-stdin.py: warm stdout",
];

/// A program and what it is given.
#[derive(Clone)]
struct Snippet {
    /// The name of its file.
    name: String,
    code: String,
    stdin: String,
    env: Vec<(String, String)>,
}

/// What can be seen of a run from outside.
struct Ran {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    end: String,
}

/// One stream or end of one run that is not as it was bare.
struct Difference {
    /// Snippet, way and stream, as [`KNOWN`] names them.
    what: String,
    /// The first line that differs, both ways.
    first: String,
}

#[tokio::test]
async fn python_runs_as_it_does_bare() {
    compare_all("python").await;
}

#[tokio::test]
async fn javascript_runs_as_it_does_bare() {
    compare_all("javascript").await;
}

#[tokio::test]
async fn shell_runs_as_it_does_bare() {
    compare_all("shell").await;
}

#[tokio::test]
async fn elixir_runs_as_it_does_bare() {
    compare_all("elixir").await;
}

async fn compare_all(language: &str) {
    let node = Node::with(&[language]).await;
    let row = node.engine.language(language).cloned();
    let row = row.unwrap_or_else(|| panic!("{language} is not installed: run scripts/setup test"));
    let snippets = snippets(language, &row.file);
    assert!(snippets.len() >= AT_LEAST, "there are only {}", snippets.len());
    let mut found = Vec::new();
    for snippet in snippets {
        let (warm, strict, bare) = tokio::join!(
            node.run(execution(language, &snippet, Freshness::Shared)),
            node.run(execution(language, &snippet, Freshness::Strict)),
            bare::run(&row, &snippet),
        );
        for (way, seen) in [("warm", warm), ("strict", strict)] {
            let way = format!("{language}/{}: {way}", snippet.name);
            found.extend(bare.compare(&way, &seen.into()));
        }
    }
    assert_known(language, &found);
}

/// Demands the differences that are known, no more and no fewer.
fn assert_known(language: &str, found: &[Difference]) {
    let known = |name: &str| KNOWN.contains(&name);
    let new: Vec<_> = found.iter().filter(|difference| !known(&difference.what)).collect();
    let gone: Vec<_> = KNOWN
        .into_iter()
        .filter(|name| name.starts_with(language))
        .filter(|name| !found.iter().any(|difference| difference.what == *name))
        .collect();
    let told: String =
        new.iter().map(|Difference { what, first }| format!("{what}, {first}\n")).collect();
    assert!(new.is_empty(), "{} differ\n{told}", new.len());
    assert!(gone.is_empty(), "no longer differ: {gone:?}");
}

fn execution(language: &str, snippet: &Snippet, freshness: Freshness) -> Execution {
    let Snippet { name: _, code, stdin, env } = snippet.clone();
    let limits = Limits {
        timeout: Duration::from_mins(1),
        max_output: ByteSize::mib(16),
        ..Limits::default()
    };
    Execution { language: language.into(), code, stdin: stdin.into(), env, limits, freshness }
}

/// Reads the snippets of a language, in the order of their names.
fn snippets(language: &str, code_file: &str) -> Vec<Snippet> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/snippets").join(language);
    let extension = Path::new(code_file).extension();
    let mut paths: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension() == extension);
    paths.sort();
    paths.iter().map(|path| Snippet::read(path)).collect()
}

impl Snippet {
    fn read(path: &Path) -> Self {
        let beside = |extension| fs::read_to_string(path.with_extension(extension));
        let env = beside("env").unwrap_or_default();
        let pairs = env.lines().filter_map(|line| line.split_once('='));
        Self {
            name: path.file_name().unwrap().to_string_lossy().into_owned(),
            // A request is text, so bytes that are not have been replaced before any runtime.
            code: String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned(),
            stdin: beside("stdin").unwrap_or_default(),
            env: pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        }
    }
}

impl From<Seen> for Ran {
    fn from(seen: Seen) -> Self {
        let end = match (seen.outcome.status, seen.outcome.exit) {
            (Status::Completed | Status::Failed, Some(Exit::Code(code))) => format!("exit {code}"),
            // As a shell tells it, and so bubblewrap.
            (Status::Failed, Some(Exit::Signal(signal))) => format!("exit {}", 128 + signal),
            (status, _) => format!("{status:?}"),
        };
        Self { stdout: seen.stdout, stderr: seen.stderr, end }
    }
}

impl Ran {
    /// Returns where another run, done this way, differs from this bare one.
    fn compare(&self, way: &str, other: &Self) -> Vec<Difference> {
        let parts = [
            ("stdout", self.stdout.as_slice(), other.stdout.as_slice()),
            ("stderr", &self.stderr, &other.stderr),
            ("end", self.end.as_bytes(), other.end.as_bytes()),
        ];
        let different = parts.into_iter().filter(|(_, bare, other)| bare != other);
        let tell = |(part, bare, other)| Difference {
            what: format!("{way} {part}"),
            first: first_difference(bare, other),
        };
        different.map(tell).collect()
    }
}

/// Tells the first line that differs.
fn first_difference(bare: &[u8], other: &[u8]) -> String {
    let lines = |bytes: &[u8]| {
        let lines = bytes.split_inclusive(|byte| *byte == b'\n');
        lines.map(printable).collect::<Vec<_>>()
    };
    let (bare, other) = (lines(bare), lines(other));
    let same = bare.iter().zip(&other).take_while(|(bare, other)| bare == other).count();
    let line = |lines: &[String]| lines.get(same).map_or("nothing", String::as_str).to_owned();
    format!("line {}\n  bare: {}\n  here: {}", same + 1, line(&bare), line(&other))
}

fn printable(line: &[u8]) -> String {
    format!("\"{}\"", line.escape_ascii())
}
