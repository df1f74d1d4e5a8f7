//! The init of a slot: PID 1 inside, started by the spawner from a sealed memory file.

use isolate::{init, socket::PacketSocket, sys};

/// The number at which the control socket is inherited.
const CONTROL: i32 = 3;

fn main() {
    if let Ok(control) = sys::process::inherited(CONTROL) {
        init::run(PacketSocket::from_fd(control));
    }
}
