//! Tells when something in a folder was replaced or written.

use std::{io, os::fd::OwnedFd, path::Path};

use rustix::{
    fs::inotify::{self, CreateFlags, WatchFlags},
    io::Errno,
};
use tokio::io::{Interest, unix::AsyncFd};

#[derive(Debug)]
pub(super) struct Watch(AsyncFd<OwnedFd>);

impl Watch {
    /// Folders are watched, not files: who replaces a file, or a link to it, makes another one.
    pub(super) fn on(folders: &[&Path]) -> io::Result<Self> {
        let watch = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let flags = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::CLOSE_WRITE;
        for folder in folders {
            // The folder of a bare name is this one.
            let here = folder.as_os_str().is_empty();
            inotify::add_watch(&watch, if here { Path::new(".") } else { *folder }, flags)?;
        }
        #[expect(
            deprecated,
            reason = "an OwnedFd always returns the same descriptor, which is what the unsafe \
                      successor of this function asks for"
        )]
        let watch = AsyncFd::with_interest(watch, Interest::READABLE)?;
        Ok(Self(watch))
    }

    /// Waits until something has changed since the last time. May be dropped and called again.
    pub(super) async fn changed(&self) {
        let Ok(mut ready) = self.0.readable().await else { return std::future::pending().await };
        let mut told = [0; 4096];
        while matches!(rustix::io::read(self.0.get_ref(), &mut told), Ok(_) | Err(Errno::INTR)) {}
        ready.clear_ready();
    }
}
