//! Finds files by their paths, and lines by what stands in them.

use std::os::fd::OwnedFd;

use memchr::{memchr, memchr_iter, memmem::Finder, memrchr};
use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, fstat, openat2, statat},
    io::{Errno, read},
};

use super::{
    pattern::Patterns,
    resolve::{JUST_HERE, look_up, open_file, reopen},
    serve::Hearing,
    walk::{Step, Then, Walk},
    wire::{Answer, At, Entry, Fault, Finished, Kind, MAX_FOUND, MAX_LINE, Match, Stat, Why},
};

/// How much of a file is looked at at once. A line longer than this is looked at in pieces.
const BUFFER: usize = 256 << 10;

/// A file with a zero in its beginning is not text.
const BEGINNING: usize = 8 << 10;

/// The longest text that is looked for.
const LONGEST_TEXT: usize = 4096;

pub(super) fn glob(
    at: &At,
    patterns: &[Vec<u8>],
    limit: u32,
    hearing: &mut Hearing<'_>,
) -> Result<Answer, Fault> {
    let patterns = Patterns::of_paths(patterns)?;
    let mut left = limit.clamp(1, MAX_FOUND);
    let mut more = false;
    let mut walk = Walk::begin(directory(at)?, patterns.start())?;
    walk.each(hearing, |step, reached, hearing| {
        let reached = patterns.step(reached, step.name);
        if reached.is_meant() {
            if left == 0 {
                more = true;
                return Ok(Then::Stop);
            }
            left -= 1;
            let stat = statat(step.directory, step.name, AtFlags::SYMLINK_NOFOLLOW);
            let stat = stat.ok().map(|raw| Stat::from(&raw));
            let kind = stat.map_or_else(|| step.kind.into(), |stat| stat.kind);
            hearing.tell_entry(Entry { path: step.path.to_vec(), kind, stat })?;
        }
        Ok(if reached.goes_on() { Then::Into(reached) } else { Then::On })
    })?;
    let more = more || walk.is_cut;
    Ok(Answer::Finished(Finished { more, unreadable: walk.unreadable }))
}

fn directory(at: &At) -> Result<OwnedFd, Fault> {
    let (found, stat) = look_up(at, true)?;
    match stat.kind {
        Kind::Directory => Ok(reopen(&found, OFlags::RDONLY | OFlags::DIRECTORY)?),
        _ => Err(Why::NotADirectory.into()),
    }
}

pub(super) fn grep(
    at: &At,
    text: &[u8],
    patterns: &[Vec<u8>],
    limit: u32,
    hearing: &mut Hearing<'_>,
) -> Result<Answer, Fault> {
    if text.is_empty() || text.len() > LONGEST_TEXT || text.contains(&b'\n') {
        return Err(Why::InvalidPath.into());
    }
    let every = [b"**".to_vec()];
    let patterns = Patterns::of_files(if patterns.is_empty() { &every } else { patterns })?;
    let mut search = Search {
        finder: Finder::new(text),
        left: limit.clamp(1, MAX_FOUND),
        more: false,
        unreadable: 0,
        buffer: vec![0; BUFFER],
    };
    if look_up(at, true)?.1.kind != Kind::Directory {
        let (file, _) = open_file(at)?;
        search.file(&file, b"", hearing)?;
        return Ok(search.finished());
    }
    let mut walk = Walk::begin(directory(at)?, patterns.start())?;
    walk.each(hearing, |step, reached, hearing| {
        let reached = patterns.step(reached, step.name);
        if step.kind == FileType::RegularFile && reached.is_meant() {
            search.step(&step, hearing)?;
        }
        if search.more {
            return Ok(Then::Stop);
        }
        Ok(if reached.goes_on() { Then::Into(reached) } else { Then::On })
    })?;
    search.more |= walk.is_cut;
    search.unreadable += walk.unreadable;
    Ok(search.finished())
}

/// A search for lines.
struct Search<'text> {
    finder: Finder<'text>,
    left: u32,
    more: bool,
    unreadable: u32,
    buffer: Vec<u8>,
}

impl Search<'_> {
    fn finished(&self) -> Answer {
        Answer::Finished(Finished { more: self.more, unreadable: self.unreadable })
    }

    fn step(&mut self, step: &Step<'_>, hearing: &mut Hearing<'_>) -> Result<(), Fault> {
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = openat2(step.directory, step.name, flags, Mode::empty(), JUST_HERE);
        match opened.and_then(|file| Ok((fstat(&file)?.st_mode, file))) {
            Ok((mode, file)) if FileType::from_raw_mode(mode) == FileType::RegularFile => {
                self.file(&file, step.path, hearing)
            }
            // It was removed, or is something else by now.
            Ok(_) | Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => Ok(()),
            Err(_) => {
                self.unreadable += 1;
                Ok(())
            }
        }
    }

    /// Looks through a file, line by line as far as lines fit.
    fn file(
        &mut self,
        file: &OwnedFd,
        path: &[u8],
        hearing: &mut Hearing<'_>,
    ) -> Result<(), Fault> {
        let mut place = Place { line: 1, is_told: false };
        let mut kept = 0;
        let mut is_first = true;
        loop {
            hearing.is_asked_to_go_on()?;
            let room = self.buffer.get_mut(kept..).unwrap_or_default();
            let got = match read(file, room) {
                Ok(got) => got,
                Err(Errno::INTR) => continue,
                Err(_) => {
                    self.unreadable += 1;
                    return Ok(());
                }
            };
            let end = kept + got;
            let all = self.buffer.get(..end).unwrap_or_default();
            if is_first && memchr(0, all.get(..end.min(BEGINNING)).unwrap_or_default()).is_some() {
                return Ok(());
            }
            is_first = false;
            // As far as lines are whole; all of it at the end, or if there is no room for more.
            let whole = match memrchr(b'\n', all) {
                _ if got == 0 => end,
                Some(at) => at + 1,
                None if end == BUFFER => end,
                None => 0,
            };
            self.lines(whole, path, &mut place, hearing)?;
            if got == 0 || self.more {
                return Ok(());
            }
            // Of a line in pieces, as much is kept as a match may reach back.
            let is_piece = whole == end && self.buffer.get(end - 1) != Some(&b'\n');
            let from = if is_piece { end + 1 - self.finder.needle().len().min(end) } else { whole };
            self.buffer.copy_within(from..end, 0);
            kept = end - from;
        }
    }

    /// Looks through the first bytes of the buffer.
    fn lines(
        &mut self,
        end: usize,
        path: &[u8],
        place: &mut Place,
        hearing: &mut Hearing<'_>,
    ) -> Result<(), Fault> {
        let all = self.buffer.get(..end).unwrap_or_default();
        let mut from = 0;
        while let Some(rest) = all.get(from..)
            && let Some(found) = self.finder.find(rest)
        {
            let at = from + found;
            let before = all.get(from..at).unwrap_or_default();
            place.pass(before);
            let start = memrchr(b'\n', before).map_or(from, |newline| from + newline + 1);
            let after = all.get(at..).unwrap_or_default();
            let stop = memchr(b'\n', after).map_or(all.len(), |newline| at + newline);
            if !place.is_told {
                if self.left == 0 {
                    self.more = true;
                    return Ok(());
                }
                self.left -= 1;
                place.is_told = true;
                let text = cut(all.get(start..stop).unwrap_or_default()).to_vec();
                hearing.tell_match(Match { path: path.to_vec(), line: place.line, text })?;
            }
            from = stop;
        }
        place.pass(all.get(from..).unwrap_or_default());
        Ok(())
    }
}

/// Where in a file the search is.
struct Place {
    line: u64,
    /// Whether this line was told already.
    is_told: bool,
}

impl Place {
    fn pass(&mut self, bytes: &[u8]) {
        let lines = memchr_iter(b'\n', bytes).count();
        if lines > 0 {
            self.line += lines as u64;
            self.is_told = false;
        }
    }
}

/// Cuts a line where it is too long, and never within a character.
fn cut(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let is_inside = |at: usize| line.get(at).is_some_and(|byte| byte & 0xc0 == 0x80);
    let mut end = line.len().min(MAX_LINE);
    while end > 0 && end + 4 > MAX_LINE && is_inside(end) {
        end -= 1;
    }
    line.get(..end).unwrap_or_default()
}
