//! One table, and the raw samples.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
};

use serde::{Serialize, Serializer};

use crate::{machine::Machine, program::ENVIRONMENT, samples::Samples};

/// Everything that a run has found.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    /// What each interpreter says of itself.
    pub(crate) runtimes: Vec<String>,
    pub(crate) rows: Vec<Row>,
}

/// One line of the table. Times are in milliseconds.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// What we are compared with.
    pub(crate) peer: String,
    pub(crate) ours: Samples,
    /// The same, each sent as soon as the one before has ended.
    pub(crate) no_pause: Samples,
    pub(crate) theirs: Samples,
    pub(crate) bar: Bar,
    /// How executions went that did not do what they should.
    pub(crate) failures: Vec<String>,
    /// Why there is nothing to compare with.
    pub(crate) missing: Option<String>,
    /// Why the row could not be measured to its end.
    pub(crate) broken: Option<String>,
}

/// What has to be reached.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bar {
    /// p50 at most so many times the peer's.
    AtMost(f64),
    /// p50 at most one so-manieth of the peer's.
    AtMostOneIn(f64),
    /// The same, and p99 at most the peer's p50.
    AtMostOneInAndP99BelowP50(f64),
    /// p50 so many times faster than the peer's.
    Faster(f64),
    /// So many times the peer's rate.
    Rate(f64),
    /// Such a part of the mebibytes a second that the peer has.
    Throughput(f64),
    /// The slowest within so many milliseconds.
    Within(f64),
    /// p99 within so many milliseconds.
    P99Within(f64),
    /// p50 at most so many times the peer's, and p99 at most so many times the peer's p50.
    AtMostAndP99(f64, f64),
    /// A rate of so much, or such a part of the peer's.
    AtLeastOrPartOf(f64, f64),
    /// So many mebibytes for each at most.
    MebibytesEach(f64),
    /// So many microseconds for each at most.
    MicrosecondsEach(f64),
    /// Such a part of one processor at most.
    PartOfCore(f64),
    /// For orientation.
    None,
}

impl Serialize for Bar {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for Bar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(times) => write!(f, "p50 ≤ {times}× peer"),
            Self::AtMostOneIn(part) => write!(f, "p50 ≤ 1/{part} of peer"),
            Self::AtMostOneInAndP99BelowP50(part) => {
                write!(f, "p50 ≤ 1/{part} of peer, p99 ≤ its p50")
            }
            Self::Faster(times) => write!(f, "≥ {times}× faster"),
            Self::Rate(times) => write!(f, "≥ {times}× peer, none failed"),
            Self::Throughput(part) => write!(f, "≥ {part}× peer"),
            Self::P99Within(milliseconds) => write!(f, "p99 ≤ {milliseconds} ms"),
            Self::Within(milliseconds) => write!(f, "each ≤ {milliseconds} ms"),
            Self::AtMostAndP99(times, tail) => {
                write!(f, "p50 ≤ {times}× peer, p99 ≤ {tail}× its p50")
            }
            Self::AtLeastOrPartOf(rate, part) => write!(f, "≥ {rate}/s or {part}× peer"),
            Self::MebibytesEach(most) => write!(f, "≤ {most} MiB each, no time when idle"),
            Self::MicrosecondsEach(most) => write!(f, "p50 ≤ {most} µs each"),
            Self::PartOfCore(most) => write!(f, "p50 ≤ {most} of a core"),
            Self::None => f.write_str("none"),
        }
    }
}

impl Row {
    pub(crate) fn new(name: &str, peer: &str, bar: Bar) -> Self {
        Self {
            name: name.to_owned(),
            peer: peer.to_owned(),
            ours: Samples::default(),
            no_pause: Samples::default(),
            theirs: Samples::default(),
            bar,
            failures: Vec::new(),
            missing: None,
            broken: None,
        }
    }

    pub(crate) fn missing(mut self, reason: impl Into<String>) -> Self {
        self.missing = Some(reason.into());
        self
    }

    pub(crate) fn broken(mut self, error: &anyhow::Error) -> Self {
        self.broken = Some(format!("{error:#}"));
        self
    }

    fn ratio(&self) -> String {
        let ratio = self.ours.p50() / self.theirs.p50();
        match self.bar {
            Bar::Within(_)
            | Bar::P99Within(_)
            | Bar::MebibytesEach(_)
            | Bar::MicrosecondsEach(_)
            | Bar::PartOfCore(_) => String::new(),
            Bar::AtMost(_)
            | Bar::Rate(_)
            | Bar::Throughput(_)
            | Bar::AtMostAndP99(..)
            | Bar::AtLeastOrPartOf(..) => format!("{ratio:.2}×"),
            Bar::None if ratio > 1.0 => format!("{ratio:.2}×"),
            Bar::AtMostOneIn(_)
            | Bar::AtMostOneInAndP99BelowP50(_)
            | Bar::Faster(_)
            | Bar::None => format!("1/{:.1}", 1.0 / ratio),
        }
    }

    /// Returns `ok`, or `short` with what is.
    fn verdict(&self) -> String {
        if let Some(reason) = &self.missing {
            return format!("missing: {reason}");
        }
        if let Some(error) = &self.broken {
            return format!("**short**: {error}");
        }
        if let Some(first) = self.failures.first() {
            return format!("**short**: {} failed, the first: {first}", self.failures.len());
        }
        let (ours, theirs) = (self.ours.p50(), self.theirs.p50());
        let (p50_holds, p99_holds) = match self.bar {
            Bar::AtMost(times) => (ours <= times * theirs, true),
            Bar::AtMostOneIn(part) => (ours * part <= theirs, true),
            Bar::AtMostOneInAndP99BelowP50(part) => {
                (ours * part <= theirs, self.ours.p99() <= theirs)
            }
            Bar::Faster(times) => (ours * times <= theirs, true),
            Bar::Rate(times) | Bar::Throughput(times) => (ours >= times * theirs, true),
            Bar::AtMostAndP99(times, tail) => {
                (ours <= times * theirs, self.ours.p99() <= tail * theirs)
            }
            Bar::AtLeastOrPartOf(rate, part) => (ours >= rate || ours >= part * theirs, true),
            Bar::MebibytesEach(most) | Bar::MicrosecondsEach(most) | Bar::PartOfCore(most) => {
                (ours <= most, true)
            }
            Bar::Within(milliseconds) | Bar::P99Within(milliseconds) => {
                (true, self.ours.p99() <= milliseconds)
            }
            Bar::None => return "–".to_owned(),
        };
        match (p50_holds, p99_holds) {
            (true, true) => "ok".to_owned(),
            (false, true) => "**short**: p50".to_owned(),
            (true, false) => "**short**: p99".to_owned(),
            (false, false) => "**short**: p50, p99".to_owned(),
        }
    }

    fn pair(&self, samples: &Samples) -> String {
        if samples.is_empty() {
            return "–".to_owned();
        }
        match self.bar {
            Bar::Rate(_) | Bar::AtLeastOrPartOf(..) => format!("{:.0}/s", samples.p50()),
            Bar::Throughput(_) => format!("{:.0} MiB/s", samples.p50()),
            Bar::MebibytesEach(_) => format!("{:.2} MiB", samples.p50()),
            Bar::MicrosecondsEach(_) => {
                format!("{:.2} / {:.2} µs", samples.p50(), samples.p99())
            }
            Bar::PartOfCore(_) => format!("{:.2} of a core", samples.p50()),
            Bar::AtMost(_)
            | Bar::AtMostOneIn(_)
            | Bar::AtMostOneInAndP99BelowP50(_)
            | Bar::Faster(_)
            | Bar::Within(_)
            | Bar::P99Within(_)
            | Bar::AtMostAndP99(..)
            | Bar::None => format!("{:.2} / {:.2}", samples.p50(), samples.p99()),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine { time, processors, model, memory_mib, kernel, user, load } = &self.machine;
        writeln!(f, "{time}, {processors} processors ({model}), {memory_mib} MiB, Linux {kernel}")?;
        writeln!(f, "as {user}, load at the beginning {load}\n")?;
        let environment = ENVIRONMENT.map(|(name, value)| format!("{name}={value}")).join(" ");
        writeln!(f, "environment of slots, bare runs and peers: {environment}\n")?;
        for runtime in &self.runtimes {
            writeln!(f, "- {runtime}")?;
        }
        writeln!(
            f,
            "\n| row | ours p50 / p99 | ours, no pause | peer | peer p50 / p99 | ratio | bar | |"
        )?;
        writeln!(f, "|---|---|---|---|---|---|---|---|")?;
        for row in &self.rows {
            let (ours, no_pause) = (row.pair(&row.ours), row.pair(&row.no_pause));
            let ratio = if row.theirs.is_empty() { "–".to_owned() } else { row.ratio() };
            let (name, peer, bar) = (&row.name, &row.peer, row.bar);
            let (theirs, verdict) = (row.pair(&row.theirs), row.verdict());
            writeln!(
                f,
                "| {name} | {ours} | {no_pause} | {peer} | {theirs} | {ratio} | {bar} | {verdict} |"
            )?;
        }
        Ok(())
    }
}

impl Report {
    /// Writes everything as JSON and returns where.
    pub(crate) fn write(&self, folder: &Path) -> anyhow::Result<PathBuf> {
        fs::create_dir_all(folder)?;
        let path = folder.join(format!("{}.json", self.machine.time.replace(':', "")));
        fs::write(&path, serde_json::to_vec_pretty(self)?)?;
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn row(bar: Bar, ours: u64, theirs: u64) -> Row {
        let mut row = Row::new("row", "peer", bar);
        row.ours.add(Duration::from_millis(ours));
        row.theirs.add(Duration::from_millis(theirs));
        row
    }

    #[test]
    fn a_bar_is_reached_or_missed() {
        let rows = [
            (Bar::AtMostOneIn(8.0), 1, 8, "ok"),
            (Bar::AtMostOneIn(8.0), 2, 8, "**short**: p50"),
            (Bar::AtMostOneInAndP99BelowP50(8.0), 9, 8, "**short**: p50, p99"),
            (Bar::AtMost(2.0), 2, 1, "ok"),
            (Bar::AtMost(2.0), 3, 1, "**short**: p50"),
            (Bar::Faster(12.0), 1, 12, "ok"),
            (Bar::Faster(12.0), 1, 11, "**short**: p50"),
            (Bar::Rate(3.0), 3, 1, "ok"),
            (Bar::Rate(3.0), 2, 1, "**short**: p50"),
            (Bar::Throughput(0.4), 4, 10, "ok"),
            (Bar::Throughput(0.4), 3, 10, "**short**: p50"),
            (Bar::Within(5.0), 6, 1, "**short**: p99"),
            (Bar::P99Within(20.0), 20, 1, "ok"),
            (Bar::P99Within(20.0), 21, 1, "**short**: p99"),
            (Bar::AtMostAndP99(1.0, 3.0), 8, 8, "ok"),
            (Bar::AtMostAndP99(1.0, 3.0), 25, 8, "**short**: p50, p99"),
            (Bar::AtLeastOrPartOf(5.0, 0.8), 5, 100, "ok"),
            (Bar::AtLeastOrPartOf(5.0, 0.8), 4, 5, "ok"),
            (Bar::AtLeastOrPartOf(5.0, 0.8), 3, 5, "**short**: p50"),
            (Bar::MebibytesEach(2.0), 3, 1, "**short**: p50"),
            (Bar::MicrosecondsEach(10.0), 10, 1, "ok"),
            (Bar::MicrosecondsEach(10.0), 11, 1, "**short**: p50"),
            (Bar::PartOfCore(0.25), 1, 1, "**short**: p50"),
        ];
        for (bar, ours, theirs, verdict) in rows {
            assert_eq!(row(bar, ours, theirs).verdict(), verdict, "{bar} {ours} {theirs}");
        }
    }

    #[test]
    fn a_failure_or_an_absence_is_told() {
        let missing = row(Bar::AtMost(2.0), 1, 1).missing("not installed");
        assert_eq!(missing.verdict(), "missing: not installed");
        let failed = Row { failures: vec!["oom".to_owned()], ..row(Bar::Rate(3.0), 9, 1) };
        assert_eq!(failed.verdict(), "**short**: 1 failed, the first: oom");
    }
}
