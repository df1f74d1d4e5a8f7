//! Goes through a directory and everything below it, without following links.

use std::os::fd::OwnedFd;

use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, fstat, openat2, statat},
    io::Errno,
};

use super::{
    resolve::{JUST_HERE, is_made_up},
    serve::Hearing,
    wire::Fault,
};

/// How deep it goes: what is deeper cannot be named by a client.
const DEEPEST: usize = 256;

/// The longest path that a client can name.
const LONGEST: usize = 4096;

const READ: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);

/// A walk, and what is remembered at each directory on the way down.
#[derive(Debug)]
pub(super) struct Walk<State> {
    levels: Vec<Level<State>>,
    path: Vec<u8>,
    /// Directories that could not be read.
    pub(super) unreadable: u32,
    /// Whether something was too deep.
    pub(super) is_cut: bool,
}

#[derive(Debug)]
struct Level<State> {
    names: Dir,
    /// The directory once more, to open things in.
    directory: OwnedFd,
    device: u64,
    /// How much of the path is that of the directory.
    length: usize,
    state: State,
}

/// Something on the way.
#[derive(Debug)]
pub(super) struct Step<'walk> {
    pub(super) directory: &'walk OwnedFd,
    pub(super) name: &'walk [u8],
    /// From where the walk began.
    pub(super) path: &'walk [u8],
    pub(super) kind: FileType,
}

/// What to do with something on the way.
#[derive(Debug)]
pub(super) enum Then<State> {
    /// If it is a directory, go through it, too.
    Into(State),
    On,
    Stop,
}

impl<State> Walk<State> {
    pub(super) fn begin(directory: OwnedFd, state: State) -> Result<Self, Errno> {
        let mut walk = Self { levels: Vec::new(), path: Vec::new(), unreadable: 0, is_cut: false };
        walk.push(directory, state)?;
        Ok(walk)
    }

    fn push(&mut self, directory: OwnedFd, state: State) -> Result<(), Errno> {
        let device = fstat(&directory)?.st_dev;
        let names = Dir::read_from(&directory)?;
        self.levels.push(Level { names, directory, device, length: self.path.len(), state });
        Ok(())
    }

    /// Goes through everything, until it is told to stop or nobody listens any more.
    pub(super) fn each(
        &mut self,
        hearing: &mut Hearing<'_>,
        mut visit: impl FnMut(Step<'_>, &State, &mut Hearing<'_>) -> Result<Then<State>, Fault>,
    ) -> Result<(), Fault> {
        while let Some(level) = self.levels.last_mut() {
            hearing.is_asked_to_go_on()?;
            self.path.truncate(level.length);
            let entry = match level.names.next() {
                Some(Ok(entry)) => entry,
                Some(Err(_)) => {
                    self.unreadable += 1;
                    self.levels.pop();
                    continue;
                }
                None => {
                    self.levels.pop();
                    continue;
                }
            };
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            if level.length > 0 {
                self.path.push(b'/');
            }
            self.path.extend_from_slice(name);
            let kind = match entry.file_type() {
                FileType::Unknown => kind_of(&level.directory, name),
                known => known,
            };
            let step = Step { directory: &level.directory, name, path: &self.path, kind };
            match visit(step, &level.state, hearing)? {
                Then::Stop => return Ok(()),
                Then::Into(state) if kind == FileType::Directory => {
                    let name = name.to_vec();
                    self.go_into(&name, state);
                }
                Then::Into(_) | Then::On => {}
            }
        }
        Ok(())
    }

    fn go_into(&mut self, name: &[u8], state: State) {
        if self.levels.len() >= DEEPEST || self.path.len() >= LONGEST {
            self.is_cut = true;
            return;
        }
        let Some(level) = self.levels.last() else { return };
        let device = level.device;
        let opened =
            openat2(&level.directory, name, READ | OFlags::NOFOLLOW, Mode::empty(), JUST_HERE);
        let entered = opened.and_then(|directory| {
            // What the kernel makes up has no end, and is no file of anybody's.
            let is_elsewhere = fstat(&directory)?.st_dev != device;
            if is_elsewhere && is_made_up(&directory)? {
                return Ok(());
            }
            self.push(directory, state)
        });
        match entered {
            // It was removed, or is something else by now.
            Ok(()) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(_) => self.unreadable += 1,
        }
    }
}

fn kind_of(directory: &OwnedFd, name: &[u8]) -> FileType {
    let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
    stat.map_or(FileType::Unknown, |raw| FileType::from_raw_mode(raw.st_mode))
}
