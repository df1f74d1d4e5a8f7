//! Lists of files and of lines in them.

use std::time::Duration;

use isolate::files::wire::{self, Answer, Ask, Finished};
use model::file::{FileKind, FileStat};
use tokio::time::{Instant, timeout_at};

use super::{FileError, Files, Hired, Place, SOON, kind, known};

/// How long a search goes on. What was found until then is told.
const SEARCH: Duration = Duration::from_secs(30);

/// A name in a directory, or a path from where a search began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub path: Vec<u8>,
    pub kind: FileKind,
    /// Nothing if it may not be looked at.
    pub stat: Option<FileStat>,
}

/// A line that was found. Its text is never in a log line.
#[derive(Clone, PartialEq, Eq)]
pub struct Line {
    pub path: Vec<u8>,
    /// From 1.
    pub number: u64,
    pub text: Vec<u8>,
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Line").field("number", &self.number).finish_non_exhaustive()
    }
}

/// Some of the names in a directory, in the order of their bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    pub entries: Vec<Entry>,
    /// After which name the next page begins, if there is more.
    pub next: Option<Vec<u8>>,
}

/// What a search has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found<T> {
    pub found: Vec<T>,
    /// Whether there may be more.
    pub is_cut: bool,
    /// Directories and files that could not be looked into.
    pub unreadable: u32,
}

impl Files {
    /// Lists the names in a directory that come after this one.
    pub async fn list(
        &self,
        place: &Place,
        after: Option<Vec<u8>>,
        limit: u32,
    ) -> Result<Page, FileError> {
        let limit = limit.clamp(1, wire::MAX_PAGE);
        let ask = Ask::List { at: place.at(), after, limit };
        let until = Instant::now() + SOON;
        let Found { found, is_cut, .. } = self.search(&ask, limit, until, entries).await?;
        let next = found.last().filter(|_| is_cut).map(|last| last.path.clone());
        Ok(Page { entries: found, next })
    }

    /// Finds what has a path that one of the patterns means, from this directory.
    pub async fn glob(
        &self,
        place: &Place,
        patterns: Vec<Vec<u8>>,
        limit: u32,
    ) -> Result<Found<Entry>, FileError> {
        let limit = limit.clamp(1, wire::MAX_FOUND);
        let ask = Ask::Glob { at: place.at(), patterns, limit };
        let mut found = self.search(&ask, limit, Instant::now() + SEARCH, entries).await?;
        found.found.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(found)
    }

    /// Finds lines that a text stands in, in files that one of the patterns means, or in all.
    pub async fn grep(
        &self,
        place: &Place,
        text: Vec<u8>,
        patterns: Vec<Vec<u8>>,
        limit: u32,
    ) -> Result<Found<Line>, FileError> {
        let limit = limit.clamp(1, wire::MAX_FOUND);
        let ask = Ask::Grep { at: place.at(), text, patterns, limit };
        let mut found = self.search(&ask, limit, Instant::now() + SEARCH, lines).await?;
        found.found.sort_by(|one, other| (&one.path, one.number).cmp(&(&other.path, other.number)));
        Ok(found)
    }

    async fn search<T>(
        &self,
        ask: &Ask,
        limit: u32,
        until: Instant,
        read: fn(Answer) -> Option<Vec<T>>,
    ) -> Result<Found<T>, FileError> {
        let mut hired = self.hire().await?;
        let collected = collect(&mut hired, ask, limit, until, read).await;
        match collected {
            Err(FileError::Lost) if hired.was_kept => {
                hired = self.hire_new().await?;
                collect(&mut hired, ask, limit, until, read).await
            }
            collected => collected,
        }
    }
}

/// Collects what an agent finds. One that has not said everything is not kept, which ends its work.
async fn collect<T>(
    hired: &mut Hired,
    ask: &Ask,
    limit: u32,
    until: Instant,
    read: fn(Answer) -> Option<Vec<T>>,
) -> Result<Found<T>, FileError> {
    let agent = hired.agent()?;
    timeout_at(until, agent.ask(ask)).await.unwrap_or(Err(FileError::Late))?;
    let most = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut found = Vec::new();
    let (is_cut, unreadable) = loop {
        let next = match timeout_at(until, agent.next()).await {
            Err(_late) => return Ok(Found { found, is_cut: true, unreadable: 0 }),
            Ok(Err(error)) => {
                hired.is_done = !matches!(error, FileError::Lost);
                return Err(error);
            }
            Ok(Ok((next, _))) => next,
        };
        match next {
            Answer::Finished(Finished { more, unreadable }) => break (more, unreadable),
            other => found.extend(read(other).ok_or(FileError::Lost)?),
        }
        // It was told how much is wanted.
        if found.len() > most {
            return Err(FileError::Lost);
        }
    };
    hired.is_done = true;
    Ok(Found { found, is_cut, unreadable })
}

fn entries(answer: Answer) -> Option<Vec<Entry>> {
    let Answer::Entries(entries) = answer else { return None };
    let entry = |entry: wire::Entry| {
        let stat = entry.stat.as_ref().map(known);
        Entry { path: entry.path, kind: kind(entry.kind), stat }
    };
    Some(entries.into_iter().map(entry).collect())
}

fn lines(answer: Answer) -> Option<Vec<Line>> {
    let Answer::Matches(matches) = answer else { return None };
    let line = |found: wire::Match| Line { path: found.path, number: found.line, text: found.text };
    Some(matches.into_iter().map(line).collect())
}
