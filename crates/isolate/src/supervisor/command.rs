//! From a bud to a command.

use std::{
    ffi::CString,
    os::fd::{AsFd, OwnedFd},
};

use rustix::{fs::Mode, io::Errno};

use super::{
    orders::{self, Order},
    wire::Start,
};
use crate::{
    init::{privileges, word::Word},
    plan::{Broken, Rights, Step},
    socket::PacketSocket,
    sys::{
        self,
        process::{CStrings, exit_now},
    },
};

/// What a command is given.
pub(super) struct Streams {
    pub(super) stdin: OwnedFd,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
}

/// Where programs are looked for if the command's own environment does not say.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The number at which it says which step broke, when all others are closed. Closes by itself when it has
/// become the command.
const TELL: i32 = 3;

/// The number at which it hears that it is to become the command. Closes then, too.
const GO: i32 = 4;

/// Does what is the same for every command, and takes longer than what is not. No signal ends it before
/// it knows what it is.
pub(super) fn prepare(rights: &Rights) -> Result<(), Broken> {
    sys::signal::give_defaults();
    rustix::process::setsid().map_err(Broken::at(Step::Fork))?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    privileges::before_command(rights)
}

pub(super) fn become_command(
    rights: &Rights,
    start: &Start,
    streams: &Streams,
    tell: &OwnedFd,
    socket: &PacketSocket,
) -> ! {
    if let Err(broken) = settle(start, streams, tell, socket) {
        fail(tell, broken);
    }
    let (Ok(tell), Ok(go)) = (sys::process::inherited(TELL), sys::process::inherited(GO)) else {
        exit_now(127)
    };
    if let Err(broken) = enter(rights, start, &[&tell, &go]) {
        fail(&tell, broken);
    }
    // Whoever lets go of it has changed his mind.
    let Ok((Order::Go, _)) = orders::next(&PacketSocket::from_fd(go)) else { exit_now(0) };
    let broken = match sys::signal::unblock_all() {
        Err(errno) => Broken::at(Step::Fork)(errno),
        Ok(()) => Broken::at(Step::Exec)(exec(start)),
    };
    fail(&tell, broken)
}

pub(super) fn fail(tell: &OwnedFd, broken: Broken) -> ! {
    say(tell, Word::Error(broken));
    exit_now(127)
}

/// If the supervisor cannot be told, it sees an end without a reason.
pub(super) fn say(tell: &OwnedFd, word: Word) {
    let _ = rustix::io::write(tell, &word.to_bytes());
}

/// Closes everything that is not the command's own.
fn settle(
    start: &Start,
    streams: &Streams,
    tell: &OwnedFd,
    socket: &PacketSocket,
) -> Result<(), Broken> {
    let fork = Broken::at(Step::Fork);
    let [stdin, stdout, stderr] =
        [&streams.stdin, &streams.stdout, &streams.stderr].map(AsFd::as_fd);
    let all = [stdin, stdout, stderr, tell.as_fd(), socket.as_fd()];
    sys::process::place_all(&all, 0).map_err(&fork)?;
    if start.terminal.is_some() {
        rustix::process::ioctl_tiocsctty(rustix::stdio::stdin()).map_err(&fork)?;
    }
    Ok(())
}

/// Gives up rights, and goes where the command is to be. These are not the command's.
fn enter(rights: &Rights, start: &Start, ours: &[&OwnedFd]) -> Result<(), Broken> {
    for fd in ours {
        rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::CLOEXEC)
            .map_err(Broken::at(Step::Fork))?;
    }
    privileges::of_prepared(rights, start.user)?;
    // With the command's own rights: it may only be where it may go.
    rustix::process::chdir(start.directory.as_str()).map_err(Broken::at(Step::Directory))
}

/// Returns why it did not become the command.
fn exec(start: &Start) -> Errno {
    let strings = |texts: &[String]| -> Option<Vec<CString>> {
        texts.iter().map(|text| CString::new(text.as_str()).ok()).collect()
    };
    let (Some(argv), Some(env)) = (strings(&start.argv), strings(&start.env)) else {
        return Errno::INVAL;
    };
    let Some(name) = start.argv.first() else { return Errno::INVAL };
    let (argv, env) = (CStrings::new(argv), CStrings::new(env));
    let mut reason = Errno::NOENT;
    for path in candidates(name, &start.env) {
        let Ok(path) = CString::new(path) else { return Errno::INVAL };
        match sys::process::exec(&path, &argv, &env) {
            Errno::NOENT | Errno::NOTDIR => {}
            // Another one further on may do; if none does, this is the reason.
            Errno::ACCESS => reason = Errno::ACCESS,
            other => return other,
        }
    }
    reason
}

/// Lists where a program of this name may be.
fn candidates(name: &str, env: &[String]) -> Vec<String> {
    if name.is_empty() || name.contains('/') {
        return vec![name.to_owned()];
    }
    let path = env.iter().rev().find_map(|variable| variable.strip_prefix("PATH="));
    let folders = path.unwrap_or(PATH).split(':');
    folders
        .map(|folder| if folder.is_empty() { "." } else { folder })
        .map(|f| format!("{f}/{name}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_looked_for_as_a_shell_does() {
        let env = |path: &str| vec!["A=1".to_owned(), format!("PATH={path}")];
        assert_eq!(candidates("/bin/ls", &env("/x")), ["/bin/ls"]);
        assert_eq!(candidates("./ls", &env("/x")), ["./ls"]);
        assert_eq!(candidates("ls", &env("/x::/y")), ["/x/ls", "./ls", "/y/ls"]);
        assert_eq!(candidates("ls", &[]).len(), 6);
    }
}
