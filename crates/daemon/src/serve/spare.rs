//! A descriptor kept for the moment when there are no others.

use std::{fs::File, io, time::Duration};

use rustix::io::Errno;
use tokio::{
    net::{TcpListener, TcpStream},
    time::timeout,
};

/// Whoever is to be sent away waits already, unless it has gone.
const AT_ONCE: Duration = Duration::from_millis(50);

/// Without descriptors nobody can be accepted, not even to be sent away: whoever connects would
/// wait in the kernel's queue and never know why. Giving this one up makes room for one more.
#[derive(Debug)]
pub(super) struct Spare(Option<File>);

impl Spare {
    pub(super) fn new() -> Self {
        Self(open())
    }

    /// Accepts one connection in the place of the spare descriptor, if that is what was missing.
    pub(super) async fn accept(
        &mut self,
        error: &io::Error,
        listener: &TcpListener,
    ) -> Option<TcpStream> {
        if !is_out_of_descriptors(error) {
            return None;
        }
        drop(self.0.take()?);
        // If another task is quicker to take the descriptor, this is an error again.
        let (stream, _) = timeout(AT_ONCE, listener.accept()).await.ok()?.ok()?;
        Some(stream)
    }

    /// Takes a descriptor again, once there is one.
    pub(super) fn renew(&mut self) {
        if self.0.is_none() {
            self.0 = open();
        }
    }
}

fn open() -> Option<File> {
    File::open("/dev/null").ok()
}

fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}
