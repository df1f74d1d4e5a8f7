//! Terminals of commands: a pair of ends, one that people sit at and one that the command has.

use std::os::fd::OwnedFd;

use rustix::{
    fs::{CWD, FileType, Mode, OFlags, fchown, fstat, openat},
    io::Errno,
    process::Uid,
    pty::{OpenptFlags, ioctl_tiocgptpeer, unlockpt},
    termios::{Winsize, tcsetwinsize},
};

use super::{
    command::Streams,
    exec::Ours,
    wire::{Size, User},
};

/// Where the sandbox's own instance of devpts makes a new pair. Nobody inside can put anything else
/// there: the kernel allows nothing in that file system but what it made itself.
const MULTIPLEXER: &str = "/dev/pts/ptmx";

/// Opens a terminal for a command of this user. What it shows is read where people sit, and what they
/// type is written there.
pub(super) fn open(size: Size, user: User) -> Result<(Ours, Streams), Errno> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let ours = openat(CWD, MULTIPLEXER, flags | OFlags::CLOEXEC, Mode::empty())?;
    if FileType::from_raw_mode(fstat(&ours)?.st_mode) != FileType::CharacterDevice {
        return Err(Errno::NOTTY);
    }
    unlockpt(&ours)?;
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let theirs = ioctl_tiocgptpeer(&ours, flags)?;
    let number = match user {
        User::Plain { user, .. } => user,
        User::Root => 0,
    };
    // Programs open it again by its name.
    fchown(&theirs, Some(Uid::from_raw(number)), None)?;
    tcsetwinsize(&ours, window(size))?;
    let (stdin, stdout) = (theirs.try_clone(), theirs.try_clone());
    let copied = |copy: std::io::Result<OwnedFd>| {
        copy.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::MFILE))
    };
    let streams = Streams { stdin: copied(stdin)?, stdout: copied(stdout)?, stderr: theirs };
    let input = copied(ours.try_clone())?;
    Ok((Ours { input: Some(input), stdout: ours, stderr: None }, streams))
}

fn window(size: Size) -> Winsize {
    Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 }
}
