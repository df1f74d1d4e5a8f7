//! The process that images are unpacked in: what it can do, tried from inside.

use std::os::fd::OwnedFd;

use harness::{SpawnerProcess, start_spawner_of_images, start_spawner_of_probes};
use isolate::{
    socket::PacketSocket,
    wire::{self, Notice, Order, Report},
};
use rustix::net::{RecvFlags, SendFlags};

fn order(socket: &PacketSocket, ticket: u64) {
    let packet = wire::encode(&Order::StartImageWorker { ticket }).unwrap();
    socket.send(&packet, &[], SendFlags::empty()).unwrap();
}

/// Returns the next answer about a worker: its number, and the socket.
fn answer(socket: &PacketSocket) -> (u64, Result<OwnedFd, isolate::plan::Broken>) {
    loop {
        let packet = socket.receive(RecvFlags::empty()).unwrap().unwrap();
        if let Notice::ImageWorker { ticket, started } = wire::decode(&packet.bytes).unwrap() {
            return (ticket, started.map(|()| packet.fds.into_iter().next().unwrap()));
        }
    }
}

fn start(socket: &PacketSocket, ticket: u64) -> PacketSocket {
    order(socket, ticket);
    let (answered, started) = answer(socket);
    assert_eq!(answered, ticket);
    PacketSocket::from_fd(started.unwrap())
}

fn end(socket: PacketSocket, mut spawner: SpawnerProcess) {
    drop(socket);
    spawner.wait().unwrap();
}

#[test]
fn a_worker_that_was_taken_over_can_write_to_its_folder_and_do_nothing_else() {
    let place = tempfile::tempdir().unwrap();
    let (socket, spawner) = start_spawner_of_probes(&place.path().join("images")).unwrap();
    let probe = start(&socket, 1);
    let said = probe.receive(RecvFlags::empty()).unwrap().unwrap();
    let is_root = rustix::process::geteuid().is_root();
    // Without a range of users there is nobody to give a file to.
    let give = if is_root { "yes" } else { "no" };
    let expected = format!(
        "write to its folder: yes
give a file away: {give}
give a file to somebody of the machine: no
make what deletes a file: yes
make a disk: no
write to /etc: no
write to /usr: no
write to /tmp: no
write to /: no
read the machine's users: no
read the machine's secrets: no
see processes: no
look above its folder: no
run a program: no
mount: no
make a namespace: no
have a socket with a name: no
connect to the machine itself: no
make a socket for datagrams: no
be connected to: no"
    );
    assert_eq!(String::from_utf8(said.bytes).unwrap(), expected);
    end(socket, spawner);
}

#[test]
fn there_is_one_worker_at_a_time_and_none_after_the_spawner() {
    let place = tempfile::tempdir().unwrap();
    let (socket, spawner) = start_spawner_of_images(&place.path().join("images")).unwrap();
    let ready = |worker: &PacketSocket| {
        let packet = worker.receive(RecvFlags::empty()).unwrap().unwrap();
        assert_eq!(wire::decode::<Report>(&packet.bytes).unwrap(), Report::Ready);
    };
    let first = start(&socket, 1);
    ready(&first);
    let second = start(&socket, 2);
    assert!(first.receive(RecvFlags::empty()).unwrap().is_none(), "it ended before the second");
    ready(&second);
    // Of those who want one while another ends, the last gets it. The one before may get one that
    // ends, if it was quick.
    order(&socket, 3);
    order(&socket, 4);
    let (third, fourth) = (answer(&socket), answer(&socket));
    assert_eq!((third.0, fourth.0), (3, 4));
    if let Ok(third) = third.1 {
        let third = PacketSocket::from_fd(third);
        while third.receive(RecvFlags::empty()).unwrap().is_some() {}
    }
    let last = PacketSocket::from_fd(fourth.1.unwrap());
    ready(&last);
    end(socket, spawner);
    assert!(last.receive(RecvFlags::empty()).unwrap().is_none());
}

#[test]
fn a_folder_of_somebody_else_or_a_link_is_not_used() {
    let place = tempfile::tempdir().unwrap();
    let elsewhere = place.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let folder = place.path().join("images");
    std::os::unix::fs::symlink(&elsewhere, &folder).unwrap();
    let (socket, spawner) = start_spawner_of_images(&folder).unwrap();
    order(&socket, 1);
    assert!(answer(&socket).1.is_err());
    std::fs::remove_file(&folder).unwrap();
    std::fs::create_dir(&folder).unwrap();
    if rustix::process::geteuid().is_root() {
        // The daemon owns the data directory, and could put a folder of its own there.
        std::os::unix::fs::chown(&folder, Some(12_345), Some(12_345)).unwrap();
        order(&socket, 2);
        assert!(answer(&socket).1.is_err());
    }
    end(socket, spawner);
    assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);
}
