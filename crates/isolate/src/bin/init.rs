//! The init of a slot: PID 1 inside, started by the spawner from a sealed memory file. In a container it
//! is started by others, with the path of a socket as its one argument.

use isolate::{init, socket::PacketSocket, sys};

/// The number at which the control socket is inherited.
const CONTROL: i32 = 3;

fn main() {
    if let Some(door) = std::env::args().nth(1) {
        // Whoever listens there sees that nobody comes.
        let _ = init::run_for(&door);
        return;
    }
    if let Ok(control) = sys::process::inherited(CONTROL) {
        init::run(PacketSocket::from_fd(control));
    }
}
