//! PID 2: from a copy of init to the user's program.

use std::{
    convert::Infallible,
    ffi::CString,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
    net::SendFlags,
};

use super::{Descriptors, privileges, word::Word};
use crate::{
    plan::{Broken, Launch, Plan, Program, Rights, Step, WORKSPACE},
    socket::PacketSocket,
    sys::{self, process::CStrings},
};

/// Where the program's process keeps what it needs until it is the program.
const CODE: i32 = 3;
const TELL: i32 = 4;

/// Gives up every right and becomes the program. Comes back only when a step broke, and init has
/// been told which.
pub(super) fn become_program(plan: &Plan, fds: &Descriptors, tell: &PacketSocket) {
    match prepare(fds, tell) {
        Err(broken) => say(tell, Word::Error(broken)),
        Ok((code, tell)) => {
            let tell = PacketSocket::from_fd(tell);
            match enter(plan, code, &tell) {
                Err(broken) => say(&tell, Word::Error(broken)),
            }
        }
    }
}

pub(crate) fn say(tell: &PacketSocket, word: Word) {
    // If init cannot be told it sees an exit without a reason, which is a failure as well.
    let _ = tell.send(&word.to_bytes(), &[], SendFlags::empty());
}

/// Gives up every right that user code must not have, and hands the listener of the filter to init:
/// it is closed here before anything of the user's runs.
pub(crate) fn lock_in(tell: &PacketSocket, rights: &Rights) -> Result<(), Broken> {
    let listener = privileges::of_user_code(rights)?;
    let fds: Vec<BorrowedFd<'_>> = listener.iter().map(AsFd::as_fd).collect();
    tell.send(&Word::Filtered.to_bytes(), &fds, SendFlags::empty())
        .map_err(Broken::at(Step::Seccomp))
}

fn prepare(fds: &Descriptors, tell: &PacketSocket) -> Result<(OwnedFd, OwnedFd), Broken> {
    join_cgroups(&fds.cgroups).map_err(Broken::at(Step::Cgroup))?;
    let [stdin, stdout, stderr, code] =
        [&fds.stdin, &fds.stdout, &fds.stderr, &fds.code].map(AsFd::as_fd);
    let kept = [stdin, stdout, stderr, code, tell.as_fd()];
    let at = Broken::at(Step::Fork);
    sys::signal::restore_defaults().map_err(&at)?;
    keep_only(kept).map_err(at)
}

fn enter(plan: &Plan, code: OwnedFd, tell: &PacketSocket) -> Result<Infallible, Broken> {
    let errno = match &plan.launch {
        Launch::Exec { program, code_path } => {
            lock_in(tell, &plan.rights)?;
            say(tell, Word::Ready);
            let request = Request::read(&code).map_err(Broken::at(Step::Code))?;
            drop(code);
            write_code(code_path, &request.code).map_err(Broken::at(Step::Code))?;
            exec(program, request.env)
        }
        Launch::Park { program } => {
            lock_in(tell, &plan.rights)?;
            // Its hook closes both before it runs the code.
            keep_across_exec(&[code.as_fd(), tell.as_fd()]).map_err(Broken::at(Step::Exec))?;
            exec(program, Vec::new())
        }
        // It needs its rights to give each slot its own namespaces; it runs no user code.
        Launch::Zygote { program } => {
            keep_across_exec(&[code.as_fd()]).map_err(Broken::at(Step::Exec))?;
            exec(program, Vec::new())
        }
        Launch::Fork { .. } => Errno::INVAL,
    };
    Err(Broken::at(Step::Exec)(errno))
}

fn keep_across_exec(fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    fds.iter().try_for_each(|fd| rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty()))
}

/// Joins the slot's cgroups first, so that every page from here on counts to them, and then hides
/// the path to them.
pub(crate) fn join_cgroups(procs: &[OwnedFd]) -> Result<(), Errno> {
    for procs in procs {
        rustix::io::write(procs, b"0\n")?;
    }
    sys::process::unshare_cgroup()
}

/// Puts stdin, stdout, stderr, the code and the way to init in place, in this order, and closes
/// everything else that was open. The rest of what a program finds when it starts is made as well.
pub(crate) fn keep_only(fds: [BorrowedFd<'_>; 5]) -> Result<(OwnedFd, OwnedFd), Errno> {
    rustix::process::setsid()?;
    sys::process::place_all(&fds, 0)?;
    let (code, tell) = (sys::process::inherited(CODE)?, sys::process::inherited(TELL)?);
    for fd in [&code, &tell] {
        rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::CLOEXEC)?;
    }
    rustix::process::umask(Mode::from_raw_mode(0o022));
    rustix::process::chdir(WORKSPACE)?;
    Ok((code, tell))
}

/// What comes down the code pipe: `KEY=VALUE` records, each ended by a zero byte, an empty
/// record, then the code up to the end.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    env: Vec<CString>,
    code: Vec<u8>,
}

impl Request {
    fn read(pipe: &OwnedFd) -> Result<Self, Errno> {
        let mut bytes = Vec::with_capacity(4096);
        loop {
            match rustix::io::read(pipe, rustix::buffer::spare_capacity(&mut bytes)) {
                Ok(0) => break,
                Ok(_) => bytes.reserve(4096),
                Err(Errno::INTR) => {}
                Err(other) => return Err(other),
            }
        }
        Self::parse(&bytes).ok_or(Errno::BADMSG)
    }

    fn parse(mut bytes: &[u8]) -> Option<Self> {
        let mut env = Vec::new();
        loop {
            let end = bytes.iter().position(|byte| *byte == 0)?;
            let (record, rest) = bytes.split_at(end);
            bytes = rest.get(1..)?;
            if record.is_empty() {
                return Some(Self { env, code: bytes.to_vec() });
            }
            env.push(CString::new(record).ok()?);
        }
    }
}

fn write_code(path: &str, mut code: &[u8]) -> Result<(), Errno> {
    let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::from_raw_mode(0o644))?;
    while !code.is_empty() {
        let written = rustix::io::write(&file, code)?;
        code = code.get(written..).unwrap_or_default();
    }
    Ok(())
}

/// A variable of the request takes the place of a base variable of the same name.
fn exec(program: &Program, asked: Vec<CString>) -> Errno {
    let name =
        |variable: &[u8]| variable.split(|byte| *byte == b'=').next().unwrap_or_default().to_vec();
    let names: Vec<Vec<u8>> = asked.iter().map(|v| name(v.as_bytes())).collect();
    let base = program.env.iter().filter(|v| !names.contains(&name(v.as_bytes())));
    let env = base.filter_map(|v| CString::new(v.as_str()).ok()).chain(asked);
    let argv: Vec<CString> =
        program.argv.iter().filter_map(|a| CString::new(a.as_str()).ok()).collect();
    let Some(path) = argv.first().cloned() else { return Errno::NOENT };
    sys::process::exec(&path, &CStrings::new(argv), &CStrings::new(env.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_variables_an_empty_record_and_the_code() {
        let request = Request::parse(b"A=1\0B=x=y\0\0print(1)\0tail").unwrap();
        let env = vec![c"A=1".to_owned(), c"B=x=y".to_owned()];
        assert_eq!(request, Request { env, code: b"print(1)\0tail".to_vec() });
    }

    #[test]
    fn a_request_without_its_empty_record_is_refused() {
        for bytes in [b"".as_slice(), b"A=1", b"A=1\0", b"A=1\0B=2"] {
            assert_eq!(Request::parse(bytes), None);
        }
    }
}
