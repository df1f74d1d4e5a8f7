//! Checks a whole history.

use std::{convert::Infallible, path::Path};

use crate::{
    entry::Entry,
    judge::Judge,
    recorder::{self, ReadError},
    report::{Findings, Report},
    truth::Truth,
};

/// Checks a history that is in memory.
pub fn check(entries: &[Entry]) -> Report {
    let passes = |each: &mut dyn FnMut(usize, &Entry)| {
        (1..).zip(entries).for_each(|(line, entry)| each(line, entry));
        Ok::<(), Infallible>(())
    };
    match twice(passes) {
        Ok(report) => report,
        Err(never) => match never {},
    }
}

/// Checks a history that is in a file, which is read twice and never held as a whole.
pub fn check_file(path: &Path) -> Result<Report, ReadError> {
    twice(|each| recorder::read(path, each))
}

/// Reads what the events are, then holds every answer against them.
fn twice<E>(pass: impl Fn(&mut dyn FnMut(usize, &Entry)) -> Result<(), E>) -> Result<Report, E> {
    let mut findings = Findings::default();
    let mut truth = Truth::default();
    pass(&mut |line, entry| truth.learn(line, entry, &mut findings))?;
    truth.settle(&mut findings);

    let mut judge = Judge::new(&truth, findings);
    pass(&mut |line, entry| judge.judge(line, entry))?;
    Ok(judge.finish())
}
