//! The process in which all of this runs: it owns the folder of images, and has few rights besides.
//!
//! ```text
//! daemon ── SEQPACKET, versioned messages, files, connected sockets ──▶ worker ──▶ the folder of images
//! ```
//!
//! It has no network. Each connection to a registry is opened by the daemon, which checks where it
//! leads, and comes as a connected socket.
//!
//! It ends when the daemon's end of its socket is closed. What it had unfinished is deleted by the
//! next one. It never resolves a path of the machine: files come as descriptors, and never a folder,
//! because a folder leads to the one above it.

mod requests;
mod serve;
pub mod wire;

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
    path::Path,
};

use isolate::{
    seccomp,
    socket::PacketSocket,
    spawner::{IMAGE_FOLDER, WORKER_SOCKET},
    sys,
};
use rustix::{
    io::Errno,
    process::{DumpableBehavior, set_dumpable_behavior},
};

/// The worker cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    #[error("the worker cannot {doing}")]
    System {
        doing: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("the daemon cannot be understood")]
    Wire(#[from] wire::WireError),
}

fn cannot(doing: &'static str) -> impl Fn(Errno) -> WorkerError {
    move |errno| WorkerError::System { doing, source: errno.into() }
}

/// Becomes the worker, in a process that the spawner has made for it. Returns when the daemon is
/// gone.
pub fn run() -> Result<(), WorkerError> {
    let socket = sys::process::inherited(WORKER_SOCKET).map_err(cannot("find its socket"))?;
    give_up_the_rest(&socket)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(THREADS)
        .enable_all()
        .build()
        .map_err(|source| WorkerError::System { doing: "start its threads", source })?;
    let served =
        runtime.block_on(serve::serve(PacketSocket::from_fd(socket), Path::new(IMAGE_FOLDER)));
    // What still waits for the disk is not waited for.
    runtime.shutdown_background();
    served
}

/// Threads that wait for the disk. A layer that is unpacked has one, and one that is fetched another.
const THREADS: usize = 32;

/// Gives up what only starting took. Nothing of strangers has been read before this.
fn give_up_the_rest(socket: &OwnedFd) -> Result<(), WorkerError> {
    let cannot = cannot("give up its rights");
    rustix::io::fcntl_setfd(socket.as_fd(), rustix::io::FdFlags::CLOEXEC).map_err(&cannot)?;
    // Credentials are in its memory, and an ordinary user's other programs are of the same user.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(&cannot)?;
    sys::seccomp::load(&seccomp::for_running_image_worker()).map_err(&cannot)
}
