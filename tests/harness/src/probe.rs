//! What a worker for images could do if strangers had taken it over: tried from inside of one.

use std::{
    fs::{self, File},
    io,
    net::{TcpListener, TcpStream, UdpSocket},
    process::Command,
};

use isolate::{
    seccomp,
    socket::PacketSocket,
    spawner::{IMAGE_FOLDER, WORKER_SOCKET},
    sys,
};
use rustix::{
    fs::{CWD, FileType, Gid, Mode, Uid, chown, mknodat},
    mount::{MountFlags, mount},
    net::{AddressFamily, SendFlags, SocketType, socket},
};

/// Tries everything, and sends a line for each: what it was, and what came of it.
pub(crate) fn be_probe() -> io::Result<()> {
    let line = PacketSocket::from_fd(sys::process::inherited(WORKER_SOCKET)?);
    sys::seccomp::load(&seccomp::for_running_image_worker())?;
    let lines: Vec<String> = attempts().into_iter().map(shown).collect();
    Ok(line.send(lines.join("\n").as_bytes(), &[], SendFlags::empty())?)
}

fn shown((what, came): (&str, io::Result<()>)) -> String {
    match came {
        Ok(()) => format!("{what}: yes"),
        Err(_) => format!("{what}: no"),
    }
}

fn attempts() -> Vec<(&'static str, io::Result<()>)> {
    let own = |name: &str| format!("{IMAGE_FOLDER}/{name}");
    let device = |kind, number| {
        let made = mknodat(CWD, own("device"), kind, Mode::RUSR, number);
        made.map_err(io::Error::from)
    };
    vec![
        ("write to its folder", fs::write(own("file"), "x")),
        ("give a file away", give(&own("file"), 1000)),
        ("give a file to somebody of the machine", give(&own("file"), 70_000)),
        ("make what deletes a file", device(FileType::CharacterDevice, 0)),
        ("make a disk", device(FileType::BlockDevice, rustix::fs::makedev(8, 0))),
        ("write to /etc", fs::write("/etc/file", "x")),
        ("write to /usr", fs::write("/usr/file", "x")),
        ("write to /tmp", fs::write("/tmp/file", "x")),
        ("write to /", fs::write("/file", "x")),
        ("read the machine's users", fs::read("/etc/passwd").map(drop)),
        ("read the machine's secrets", fs::read("/etc/shadow").map(drop)),
        ("see processes", fs::read("/proc/self/status").map(drop)),
        ("look above its folder", File::open(own("../var/../../store.db")).map(drop)),
        ("run a program", Command::new("/bin/true").status().map(drop)),
        ("mount", mounted()),
        ("make a namespace", sys::process::unshare_user().map_err(io::Error::from)),
        ("have a socket with a name", named_socket()),
        ("connect to the machine itself", TcpStream::connect("127.0.0.1:9").map(drop)),
        ("make a socket for datagrams", UdpSocket::bind("0.0.0.0:0").map(drop)),
        ("be connected to", TcpListener::bind("127.0.0.1:0").map(drop)),
    ]
}

fn mounted() -> io::Result<()> {
    Ok(mount("none", "/tmp", "tmpfs", MountFlags::empty(), None)?)
}

fn named_socket() -> io::Result<()> {
    Ok(socket(AddressFamily::UNIX, SocketType::STREAM, None).map(drop)?)
}

fn give(path: &str, to: u32) -> io::Result<()> {
    Ok(chown(path, Some(Uid::from_raw(to)), Some(Gid::from_raw(to)))?)
}
