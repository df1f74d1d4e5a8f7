//! The names in a directory, page by page.
//!
//! A page begins after a name, in the order of their bytes: whatever is there from the first page to
//! the last is told exactly once, however much comes and goes meanwhile. For that the whole directory
//! is read for each page; no more than a page of it is remembered.

use std::{collections::BinaryHeap, os::fd::OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, OFlags, statat};

use super::{
    resolve::Root,
    serve::Hearing,
    wire::{Answer, At, Entry, Fault, Finished, Kind, MAX_PAGE, Stat, Why},
};

pub(super) fn list(
    at: &At,
    after: Option<&[u8]>,
    limit: u32,
    hearing: &mut Hearing<'_>,
) -> Result<Answer, Fault> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let directory = Root::open(&at.root)?.find(&at.path, flags)?;
    let limit = usize::try_from(limit.clamp(1, MAX_PAGE)).or(Err(Why::TooMany))?;
    let (page, more) = page(&directory, after, limit, hearing)?;
    let mut unreadable = 0;
    for (path, kind) in page {
        let stat = statat(&directory, path.as_slice(), AtFlags::SYMLINK_NOFOLLOW);
        let stat = stat.ok().map(|raw| Stat::from(&raw));
        unreadable += u32::from(stat.is_none());
        let kind = stat.map_or(kind, |stat| stat.kind);
        hearing.tell_entry(Entry { path, kind, stat })?;
    }
    Ok(Answer::Finished(Finished { more, unreadable }))
}

/// A name, and what the directory says of it.
type Name = (Vec<u8>, Kind);

/// Returns the first names after this one, and whether there are more.
fn page(
    directory: &OwnedFd,
    after: Option<&[u8]>,
    limit: usize,
    hearing: &mut Hearing<'_>,
) -> Result<(Vec<Name>, bool), Fault> {
    let mut first: BinaryHeap<(Vec<u8>, u8)> = BinaryHeap::new();
    let mut more = false;
    for entry in Dir::read_from(directory)? {
        hearing.is_asked_to_go_on()?;
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") || after.is_some_and(|after| name <= after) {
            continue;
        }
        if first.len() >= limit {
            more = true;
            if first.peek().is_some_and(|(last, _)| name >= last.as_slice()) {
                continue;
            }
            first.pop();
        }
        first.push((name.to_vec(), number(entry.file_type())));
    }
    let page = first.into_sorted_vec().into_iter().map(|(name, kind)| (name, kind_of(kind)));
    Ok((page.collect(), more))
}

/// Kinds have no order, and a heap wants one.
fn number(kind: FileType) -> u8 {
    u8::from(kind == FileType::Directory)
}

fn kind_of(number: u8) -> Kind {
    if number == 1 { Kind::Directory } else { Kind::Unknown }
}
