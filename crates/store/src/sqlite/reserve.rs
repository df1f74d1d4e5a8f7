//! Room that is kept for the day when the disk is full: what ends things, and what has happened
//! already, can then still be written down, while new work is refused.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use rustix::fs::FallocateFlags;

/// Enough for the log of SQLite to come around once, and for the pages that it then writes back.
const SIZE: u64 = 8 << 20;

/// A file beside the store that holds nothing but room.
#[derive(Debug)]
pub(super) struct Reserve {
    path: PathBuf,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Held,
    /// Given up, because the disk was full.
    Released,
    /// This file system cannot keep room.
    Impossible,
}

impl Reserve {
    pub(super) fn beside(store: &Path) -> Self {
        let mut path = store.as_os_str().to_owned();
        path.push("-reserve");
        let mut reserve = Self { path: path.into(), state: State::Released };
        reserve.regain();
        reserve
    }

    /// Says whether there is room for new work.
    pub(super) fn is_there(&mut self) -> bool {
        self.state != State::Released || (self.has_room() && self.regain())
    }

    /// Gives the room to the store.
    pub(super) fn release(&mut self) {
        if self.state != State::Held {
            return;
        }
        self.state = State::Released;
        tracing::warn!("the disk of the store is full: new work is refused until there is room");
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::error!(%error, "cannot give up the reserve of the store");
        }
    }

    /// Says whether there is more room than the reserve itself takes. Without that it would be taken
    /// back from the store at once.
    fn has_room(&self) -> bool {
        let directory = self.path.parent().unwrap_or(&self.path);
        rustix::fs::statvfs(directory)
            .is_ok_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) >= 2 * SIZE)
    }

    fn regain(&mut self) -> bool {
        self.state = match self.hold() {
            Ok(()) => State::Held,
            Err(error) if error.kind() == io::ErrorKind::StorageFull => State::Released,
            Err(error) => {
                tracing::warn!(%error, "the store keeps no room for a full disk");
                State::Impossible
            }
        };
        if self.state == State::Released {
            // What was held of it is better with the store.
            let _ = fs::remove_file(&self.path);
        }
        self.state != State::Released
    }

    fn hold(&self) -> io::Result<()> {
        let file: File = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&self.path)?;
        Ok(rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, SIZE)?)
    }
}
