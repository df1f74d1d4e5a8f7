//! Inside a zygote: a runtime that has started, and that slots are forked from.
//!
//! This part is loaded into the runtime as a library. The zygote has one thread, maps the users of
//! every slot, and never sees a request.
//!
//! ```text
//! zygote ── splits ──▶ PID 1: waits for its users, forks PID 2, becomes init
//!                        └──▶ PID 2: joins its cgroups, waits until init has made the root,
//!                             gives up its rights, brings memory in, returns into the runtime
//! ```
//!
//! Init stays outside the cgroups: what the code uses is counted and limited there, and init must
//! outlive it.

use std::{
    ffi::CString,
    os::fd::{AsFd, BorrowedFd, IntoRawFd as _, OwnedFd},
};

use rustix::{
    io::Errno,
    net::{RecvFlags, SendFlags},
    pipe::{PipeFlags, pipe_with},
    process::{DumpableBehavior, Pid, set_dumpable_behavior},
};

use crate::{
    identity,
    init::{launch, word::Word},
    plan::{Broken, Rights, Step},
    socket::{Packet, PacketSocket},
    sys::{
        self,
        process::{ALL_NAMESPACES, CStrings, exit_now},
        split::{Parts, Side, Stack, split},
    },
    wire::{self, Birth, Born},
};

/// Memory that a program is known to touch: where, how much, and which advice brings it in.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    pub start: usize,
    pub length: usize,
    pub advice: usize,
}

/// Whether slots can be forked from zygotes here: on other processors that is not written.
pub const IS_WRITTEN: bool = cfg!(target_arch = "x86_64");

/// Makes slots as they are asked for. Returns in each slot, as PID 2, ready for its request.
pub(crate) fn serve(door: &PacketSocket, ahead: &[Memory]) {
    // Nobody waits for slots here: init says how they end.
    sys::signal::ignore_children();
    // Only for speed: without it, slots cost more.
    let _ = sys::memory::put_into_a_file();
    let mut stack = Stack::default();
    loop {
        let Ok(Some(packet)) = door.receive(RecvFlags::empty()) else { exit_now(0) };
        let (born, fds) = match make(&packet, &mut stack) {
            Ok(Made { side: Side::Grandchild(pipes), birth }) => {
                return become_slot(packet.fds, pipes, &birth, ahead);
            }
            Ok(Made { side: Side::Caller(pidfd), .. }) => (Born::Alive, vec![pidfd]),
            Err(broken) => (Born::Failed(broken), Vec::new()),
        };
        if answer(door, &born, &fds).is_err() {
            exit_now(1);
        }
    }
}

fn answer(door: &PacketSocket, born: &Born, fds: &[OwnedFd]) -> Result<(), Errno> {
    let packet = wire::encode(born).or(Err(Errno::BADMSG))?;
    let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
    door.send(&packet, &fds, SendFlags::empty())
}

/// A pipe and a socket between init and PID 2.
struct Pipes {
    /// Init says that the root is there.
    wait: OwnedFd,
    go: OwnedFd,
    /// PID 2 says that it is ready, or which step broke.
    heard: PacketSocket,
    said: PacketSocket,
}

/// The descriptors that come with an order: init's program and its control socket, and what PID 2 gets.
const INIT: usize = 0;
const CONTROL: usize = 1;
const STREAMS: usize = 2;
const CGROUPS: usize = 6;

/// A slot that is being made, as each side of it holds it.
struct Made {
    side: Side<Pipes>,
    birth: Birth,
}

fn make(packet: &Packet, stack: &mut Stack) -> Result<Made, Broken> {
    let at = Broken::at(Step::Plan);
    let birth: Birth = wire::decode(&packet.bytes).or(Err(at(Errno::BADMSG)))?;
    let (Some(init), Some(control)) = (packet.fds.get(INIT), packet.fds.get(CONTROL)) else {
        return Err(at(Errno::BADF));
    };
    if count_threads() != Some(1) {
        return Err(at(Errno::BUSY));
    }
    let fork = Broken::at(Step::Fork);
    identity::become_creator(birth.creator).map_err(&fork)?;
    // Made here: what the middle process makes in our memory is never given back.
    let argv = CStrings::new(vec![CString::from(c"init")]);
    let parts = Parts {
        outside: &|pid: Pid| map_users(pid, &birth).map_err(&fork),
        inside: &|| prepare(&birth),
        become_another: &|pipes| become_init(init, control, pipes, &argv),
    };
    let side = split(stack, ALL_NAMESPACES, parts);
    if !matches!(side, Ok(Side::Grandchild(_))) {
        identity::become_root_again(birth.creator).map_err(&fork)?;
    }
    Ok(Made { side: side?, birth })
}

/// Says who the users of a new slot are. Every change of users, of which slots make some while they share our memory, takes
/// the right to do so away.
fn map_users(pid: Pid, birth: &Birth) -> Result<(), Errno> {
    identity::become_root_again(birth.creator)?;
    set_dumpable_behavior(DumpableBehavior::Dumpable)?;
    identity::map_ids(pid, &birth.map)
}

/// A directory has a link from itself, its parent, and each directory in it.
fn count_threads() -> Option<u64> {
    rustix::fs::stat("/proc/self/task").ok()?.st_nlink.checked_sub(2)
}

fn prepare(birth: &Birth) -> Result<Pipes, Broken> {
    identity::take_inside_identity(birth.rights.identity).map_err(Broken::at(Step::Privileges))?;
    let at = Broken::at(Step::Fork);
    sys::signal::attend_children();
    let (wait, go) = pipe_with(PipeFlags::CLOEXEC).map_err(&at)?;
    let (heard, said) = PacketSocket::pair().map_err(&at)?;
    Ok(Pipes { wait, go, heard, said })
}

/// The number at which init's program is, when it becomes it.
const PROGRAM_AT: i32 = 6;

fn become_init(init: &OwnedFd, control: &OwnedFd, pipes: &Pipes, argv: &CStrings) -> Broken {
    let placed = [control.as_fd(), pipes.go.as_fd(), pipes.heard.as_fd(), init.as_fd()];
    let program = sys::process::place_all(&placed, 3)
        .and_then(|()| sys::process::inherited(PROGRAM_AT))
        .and_then(|program| {
            rustix::io::fcntl_setfd(&program, rustix::io::FdFlags::CLOEXEC).map(|()| program)
        });
    let errno = match program {
        Ok(program) => sys::process::exec_fd(program.as_fd(), argv, &CStrings::default()),
        Err(errno) => errno,
    };
    Broken::at(Step::Exec)(errno)
}

/// Goes on as PID 2: takes its streams, waits for init, gives up all rights for good.
fn become_slot(fds: Vec<OwnedFd>, pipes: Pipes, birth: &Birth, ahead: &[Memory]) {
    let (code, tell) = match settle(&fds, &pipes) {
        Ok(kept) => kept,
        Err(broken) => fail(&pipes.said, broken),
    };
    // Their numbers are taken by others now.
    let pipes = [pipes.wait, pipes.go, pipes.heard.into_fd(), pipes.said.into_fd()];
    for fd in fds.into_iter().chain(pipes) {
        let _number = fd.into_raw_fd();
    }
    let tell = PacketSocket::from_fd(tell);
    if let Err(broken) = lock_in(&tell, &birth.rights) {
        fail(&tell, broken);
    }
    // The runtime finds these two at their numbers.
    let _numbers = [code.into_raw_fd(), tell.into_fd().into_raw_fd()];
    if !birth.hurried {
        sys::library::bring_in(ahead);
    }
}

fn fail(tell: &PacketSocket, broken: Broken) -> ! {
    launch::say(tell, Word::Error(broken));
    exit_now(1)
}

fn settle(fds: &[OwnedFd], pipes: &Pipes) -> Result<(OwnedFd, OwnedFd), Broken> {
    let fork = Broken::at(Step::Fork);
    let [stdin, stdout, stderr, code] = fds.get(STREAMS..CGROUPS).unwrap_or_default() else {
        return Err(fork(Errno::BADF));
    };
    launch::join_cgroups(fds.get(CGROUPS..).unwrap_or_default())
        .map_err(Broken::at(Step::Cgroup))?;
    // Without a word init has failed, and has said so itself.
    if rustix::io::read(&pipes.wait, &mut [0; 1]) != Ok(1) {
        exit_now(1);
    }
    let [stdin, stdout, stderr, code] = [stdin, stdout, stderr, code].map(AsFd::as_fd);
    launch::keep_only([stdin, stdout, stderr, code, pipes.said.as_fd()]).map_err(fork)
}

fn lock_in(tell: &PacketSocket, rights: &Rights) -> Result<(), Broken> {
    launch::lock_in(tell, rights)?;
    // As after an exec; without it `/proc/self` would not be the program's own.
    let own = set_dumpable_behavior(DumpableBehavior::Dumpable);
    own.map_err(Broken::at(Step::Privileges))
}
