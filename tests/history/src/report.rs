//! What is wrong with a history, for people.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    fmt,
};

use crate::rule::Rule;

/// One broken promise, with the lines that show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub rule: Rule,
    /// The sandbox or exec, or empty.
    pub subject: String,
    pub message: String,
    /// The fewest lines that show it, counted from one.
    pub lines: Vec<usize>,
}

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// At most [`KEPT`]: the first of each rule and subject.
    pub violations: Vec<Violation>,
    /// How often each rule was broken, those that were not kept counted too.
    pub broken: BTreeMap<Rule, u64>,
    pub summary: Summary,
}

/// How many violations a report keeps. One broken promise often breaks others; nobody reads more.
pub const KEPT: usize = 100;

/// How much there was to judge. A run that killed nothing proves nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub entries: u64,
    pub acknowledged: u64,
    pub refused: u64,
    pub unknown: u64,
    /// Creates and execs of unknown outcome that turned out to have happened.
    pub unknown_that_happened: u64,
    pub kills: u64,
    pub subscriptions: u64,
    pub events: u64,
    pub sandboxes: u64,
    pub execs: u64,
    pub replays: u64,
    pub audits: u64,
    /// Whether the run came to its end in good order, which the rules about ends need.
    pub closed: bool,
}

impl Report {
    pub fn is_clean(&self) -> bool {
        self.broken.is_empty()
    }

    /// Returns the rules that were broken.
    pub fn rules(&self) -> BTreeSet<Rule> {
        self.broken.keys().copied().collect()
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} entries: {} calls acknowledged, {} refused, {} unknown",
            self.entries, self.acknowledged, self.refused, self.unknown
        )?;
        writeln!(
            f,
            "{} creates and execs of unknown outcome had happened",
            self.unknown_that_happened
        )?;
        writeln!(f, "{} kills, {} audits of the machine", self.kills, self.audits)?;
        writeln!(
            f,
            "{} sandboxes ({} replayed at the end), {} execs",
            self.sandboxes, self.replays, self.execs
        )?;
        writeln!(f, "{} events in {} subscriptions", self.events, self.subscriptions)?;
        let closed = if self.closed { "closed" } else { "not closed: ends were not judged" };
        write!(f, "the run is {closed}")
    }
}

/// Violations as they are found.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    violations: Vec<Violation>,
    broken: BTreeMap<Rule, u64>,
    seen: HashSet<(Rule, String)>,
}

impl Findings {
    pub(crate) fn add(
        &mut self,
        rule: Rule,
        subject: &str,
        lines: impl IntoIterator<Item = usize>,
        message: String,
    ) {
        *self.broken.entry(rule).or_default() += 1;
        if self.violations.len() == KEPT || !self.seen.insert((rule, subject.to_owned())) {
            return;
        }
        let mut lines: Vec<usize> = lines.into_iter().filter(|line| *line > 0).collect();
        lines.sort_unstable();
        lines.dedup();
        self.violations.push(Violation { rule, subject: subject.to_owned(), message, lines });
    }

    pub(crate) fn into_report(self, summary: Summary) -> Report {
        Report { violations: self.violations, broken: self.broken, summary }
    }
}
