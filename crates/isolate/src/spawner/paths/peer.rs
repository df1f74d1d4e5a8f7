//! Who is at the other end of a connection that the daemon hands over.
//!
//! The daemon must not choose. It could connect to some service of root's and hand that socket over:
//! the kernel names root at its other end, too. So a connection counts only if it was accepted at the
//! server's own socket, which the kernel tells by the file that it is bound to.

use std::os::fd::AsFd;

use rustix::{
    fs::fstat,
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send,
        socket_with, sockopt::socket_peercred,
    },
};

use super::record::Person;
use crate::sys;

/// The server's own socket, by the file that it is bound to: inode and device as the kernel writes
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Door([u8; 8]);

impl Door {
    /// Notes the socket that connections are accepted at.
    pub fn of(listener: impl AsFd) -> Result<Self, Errno> {
        bound_to(listener)
    }

    /// Returns who is at the other end of a connection, if it was accepted here.
    pub(super) fn caller(self, connection: impl AsFd) -> Result<Person, Errno> {
        if bound_to(&connection)? != self {
            return Err(Errno::PERM);
        }
        let peer = socket_peercred(&connection)?;
        let groups = sys::peer::groups(connection.as_fd())?;
        Ok(Person { user: peer.uid.as_raw(), group: peer.gid.as_raw(), groups })
    }
}

const REQUEST: u16 = 20;
const ERROR: u16 = 2;
const HEADER: usize = 16;
const MESSAGE: usize = 16;
const FILE: u16 = 1;

/// Asks the kernel which file a Unix socket is bound to. One that connected is bound to none.
fn bound_to(socket: impl AsFd) -> Result<Door, Errno> {
    let inode = u32::try_from(fstat(socket)?.st_ino).or(Err(Errno::OVERFLOW))?;
    let flags = SocketFlags::CLOEXEC;
    let diagnosis =
        socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(netlink::SOCK_DIAG))?;
    send(&diagnosis, &question(inode), SendFlags::empty())?;
    let mut answer = [0; 1024];
    let (length, _) = recv(&diagnosis, &mut answer, RecvFlags::DONTWAIT)?;
    read_answer(answer.get(..length).unwrap_or_default())
}

fn question(inode: u32) -> Vec<u8> {
    const IS_REQUEST: u16 = 1;
    const EVERY_STATE: u32 = u32::MAX;
    const SHOW_FILE: u32 = 2;
    const ANY_COOKIE: u32 = u32::MAX;
    let unix = u32::try_from(libc::AF_UNIX).unwrap_or_default();
    let body = [unix, EVERY_STATE, inode, SHOW_FILE, ANY_COOKIE, ANY_COOKIE];
    let length = u32::try_from(HEADER + size_of_val(&body)).unwrap_or_default();
    let mut bytes = Vec::new();
    bytes.extend(length.to_ne_bytes());
    bytes.extend(REQUEST.to_ne_bytes());
    bytes.extend(IS_REQUEST.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend(body.iter().flat_map(|word| word.to_ne_bytes()));
    bytes
}

fn read_answer(answer: &[u8]) -> Result<Door, Errno> {
    let short = Errno::BADMSG;
    match number(answer, 4).ok_or(short)? {
        REQUEST => {}
        // Nobody of this network has such a socket, or the kernel cannot be asked.
        ERROR => return Err(Errno::PERM),
        _ => return Err(short),
    }
    let mut rest = answer.get(HEADER + MESSAGE..).ok_or(short)?;
    while !rest.is_empty() {
        let length = usize::from(number(rest, 0).ok_or(short)?);
        let kind = number(rest, 2).ok_or(short)?;
        let value = rest.get(4..length).ok_or(short)?;
        if kind == FILE {
            return value.try_into().map(Door).or(Err(short));
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Err(Errno::PERM)
}

fn number(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?.try_into().ok()?;
    Some(u16::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    #[test]
    fn only_a_connection_that_was_accepted_here_says_who_calls() {
        let place = tempfile::tempdir().unwrap();
        let [own, other] = ["own", "other"].map(|name| place.path().join(name));
        let listener = UnixListener::bind(&own).unwrap();
        let elsewhere = UnixListener::bind(&other).unwrap();
        let door = Door::of(&listener).unwrap();
        let client = UnixStream::connect(&own).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let caller = door.caller(&accepted).unwrap();
        assert_eq!(caller.user, rustix::process::geteuid().as_raw());
        // What is at the other end of these is a service, not a caller.
        assert_eq!(door.caller(&client), Err(Errno::PERM));
        let forged = UnixStream::connect(&other).unwrap();
        assert_eq!(door.caller(&forged), Err(Errno::PERM));
        let (accepted_elsewhere, _) = elsewhere.accept().unwrap();
        assert_eq!(door.caller(&accepted_elsewhere), Err(Errno::PERM));
        let (pair, _other) = UnixStream::pair().unwrap();
        assert_eq!(door.caller(&pair), Err(Errno::PERM));
        assert!(door.caller(std::fs::File::open("/dev/null").unwrap()).is_err());
    }

    #[test]
    fn any_bytes_at_all_are_an_answer_or_an_error() {
        for length in 0..64 {
            for byte in [0, 1, 20, 255] {
                assert!(read_answer(&vec![byte; length]).is_err());
            }
        }
    }
}
