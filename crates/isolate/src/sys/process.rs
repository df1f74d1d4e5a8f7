//! Making processes and turning one into another.

use std::{
    ffi::{CStr, CString},
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
    time::Duration,
};

use rustix::{
    io::Errno,
    process::{Pid, Signal},
};

use super::{check, last_errno};
use crate::plan::Exit;

/// Which side of a fork this is.
#[derive(Debug)]
pub enum Fork {
    Child,
    Parent { child: Pid, pidfd: OwnedFd },
}

/// Namespaces that a new process gets for itself.
pub const ALL_NAMESPACES: u64 = NAMESPACES_BUT_NETWORK | libc::CLONE_NEWNET as u64;

/// For a process that has users of its own and shares everything else.
pub const USER_NAMESPACE: u64 = libc::CLONE_NEWUSER as u64;

/// For a process that stays in the network of its parent.
pub const NAMESPACES_BUT_NETWORK: u64 = (libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS) as u64;

/// For a companion of a process whose users and network the caller has: the new process is a child
/// of the caller's parent.
pub const BESIDE_ANOTHER: u64 = libc::CLONE_PARENT as u64
    | (libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS) as u64;

/// Forks into new namespaces. The caller must have a single thread: the child goes on with a
/// copy of its memory, and a lock that another thread held would stay locked for ever.
pub fn fork(namespaces: u64) -> Result<Fork, Errno> {
    clone(namespaces, None)
}

/// Forks a child of the caller's parent, into this v2 control group if there is one, and else into
/// the caller's own. The caller must have a single thread.
pub fn fork_sibling(group: Option<BorrowedFd<'_>>) -> Result<Fork, Errno> {
    clone(libc::CLONE_PARENT as u64, group)
}

/// As in `linux/sched.h`: libc's own does not fit its type.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

fn clone(flags: u64, group: Option<BorrowedFd<'_>>) -> Result<Fork, Errno> {
    let mut pidfd: RawFd = -1;
    // A child of our parent's ends with the signal that we end with, and with no other.
    let is_parents = flags & libc::CLONE_PARENT as u64 != 0;
    let exit_signal = if is_parents { 0 } else { libc::SIGCHLD as u64 };
    let into = group.map_or(0, |_| CLONE_INTO_CGROUP);
    let args = libc::clone_args {
        flags: flags | into | libc::CLONE_PIDFD as u64,
        pidfd: (&raw mut pidfd) as u64,
        child_tid: 0,
        parent_tid: 0,
        exit_signal,
        stack: 0,
        stack_size: 0,
        tls: 0,
        set_tid: 0,
        set_tid_size: 0,
        cgroup: group.map_or(0, |group| u64::from(group.as_raw_fd().unsigned_abs())),
    };
    // SAFETY: without CLONE_VM the child has its own copy of everything; `args` and `pidfd`
    // outlive the call, and its size is the one passed.
    let returned = check(unsafe {
        libc::syscall(libc::SYS_clone3, &raw const args, size_of::<libc::clone_args>())
    });
    let returned = match returned {
        // The filter of a container cannot look at its flags, and lets nobody call it.
        Err(Errno::NOSYS) if group.is_none() => old_clone(args.flags | exit_signal, &mut pidfd)?,
        other => other?,
    };
    let Some(child) = i32::try_from(returned).ok().and_then(Pid::from_raw) else {
        return Ok(Fork::Child);
    };
    // SAFETY: in the parent the kernel has stored a new descriptor, which nobody else owns.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok(Fork::Parent { child, pidfd })
}

/// Does the same by the older call, whose flags hold the signal too.
fn old_clone(flags: u64, pidfd: &mut RawFd) -> Result<libc::c_long, Errno> {
    let none = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: as above; with CLONE_PIDFD the third argument is where the descriptor is stored, and
    // nothing asks for the last two, whose order differs between machines.
    check(unsafe { libc::syscall(libc::SYS_clone, flags, none, &raw mut *pidfd, none, none) })
}

/// A null-terminated array of C strings, as `execve` wants it.
#[derive(Debug)]
pub struct CStrings {
    _owned: Vec<CString>,
    pointers: Vec<*const libc::c_char>,
}

impl Default for CStrings {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

impl CStrings {
    pub fn new(strings: Vec<CString>) -> Self {
        let pointers =
            strings.iter().map(|s| s.as_ptr()).chain(std::iter::once(std::ptr::null())).collect();
        Self { _owned: strings, pointers }
    }
}

/// Replaces this process by the program at `path`. Returns only if that cannot be done.
pub fn exec(path: &CStr, argv: &CStrings, envp: &CStrings) -> Errno {
    // SAFETY: all three are null-terminated, and the strings behind the pointers are owned by
    // `argv` and `envp`.
    unsafe { libc::execve(path.as_ptr(), argv.pointers.as_ptr(), envp.pointers.as_ptr()) };
    last_errno()
}

/// Replaces this process by the program that the descriptor is open on. Returns only if that
/// cannot be done.
pub fn exec_fd(program: BorrowedFd<'_>, argv: &CStrings, envp: &CStrings) -> Errno {
    // SAFETY: as in `exec`; the path is an empty C string.
    unsafe {
        libc::execveat(
            program.as_raw_fd(),
            c"".as_ptr(),
            argv.pointers.as_ptr().cast(),
            envp.pointers.as_ptr().cast(),
            libc::AT_EMPTY_PATH,
        )
    };
    last_errno()
}

/// Closes every descriptor from `first` on.
pub fn close_from(first: u32) -> Result<(), Errno> {
    // SAFETY: callers do not use any `OwnedFd` above `first` afterwards: they exec or exit.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) }).map(drop)
}

/// Has every descriptor from `first` on closed when this process becomes another program.
pub fn close_on_exec_from(first: u32) -> Result<(), Errno> {
    const CLOEXEC: libc::c_uint = libc::CLOSE_RANGE_CLOEXEC;
    // SAFETY: with this flag the call closes nothing: it changes what an exec does.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, CLOEXEC) }).map(drop)
}

/// Takes a descriptor that was inherited at a known number.
///
/// Call this once per number, at the start of the program, before anything else was opened.
pub fn inherited(number: RawFd) -> Result<OwnedFd, Errno> {
    // SAFETY: F_GETFD reads no memory.
    check(unsafe { libc::fcntl(number, libc::F_GETFD) }.into())?;
    // SAFETY: the descriptor is open, and by the contract above nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Makes `target` a copy of `source`, open across exec. The two must differ.
pub fn place(source: BorrowedFd<'_>, target: RawFd) -> Result<(), Errno> {
    // SAFETY: dup2 reads no memory; callers place descriptors just before exec and own nothing
    // at `target`.
    check(unsafe { libc::dup2(source.as_raw_fd(), target) }.into()).map(drop)
}

/// Moves descriptors to the numbers from `first` on, open across exec, and closes all above. What
/// was at any number from `first` on is closed: callers use none of it any more.
pub fn place_all(fds: &[BorrowedFd<'_>], first: RawFd) -> Result<(), Errno> {
    let end = first + RawFd::try_from(fds.len()).or(Err(Errno::INVAL))?;
    // Out of the way of the targets first.
    let sources: Vec<RawFd> = fds
        .iter()
        // SAFETY: F_DUPFD_CLOEXEC reads no memory.
        .map(|fd| check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, end) }.into()))
        .map(|copy| copy.and_then(|number| RawFd::try_from(number).or(Err(Errno::BADF))))
        .collect::<Result<_, Errno>>()?;
    for (source, target) in sources.into_iter().zip(first..) {
        // SAFETY: dup2 reads no memory, and by the contract nobody uses what was at `target`.
        check(unsafe { libc::dup2(source, target) }.into())?;
    }
    close_from(end.unsigned_abs())
}

/// In a forked child that does not exec: lets go of every descriptor but this one, and returns it.
/// Whoever waits for the parent's ends to be closed would else wait for the child.
pub fn keep_only(kept: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    const PLACE: RawFd = 3;
    place_all(&[kept], PLACE)?;
    // SAFETY: the descriptor was put there just now; the child never drops those it was copied from.
    Ok(unsafe { OwnedFd::from_raw_fd(PLACE) })
}

/// Gives this process a cgroup namespace rooted at its present cgroups.
pub fn unshare_cgroup() -> Result<(), Errno> {
    // SAFETY: a new cgroup namespace does not touch memory or descriptors.
    check(unsafe { libc::unshare(libc::CLONE_NEWCGROUP) }.into()).map(drop)
}

/// Gives this process a mount namespace of its own.
pub fn unshare_mounts() -> Result<(), Errno> {
    // SAFETY: a new mount namespace does not touch memory or descriptors.
    check(unsafe { libc::unshare(libc::CLONE_NEWNS) }.into()).map(drop)
}

/// Gives this process a user namespace of its own.
pub fn unshare_user() -> Result<(), Errno> {
    // SAFETY: a new user namespace does not touch memory or descriptors.
    check(unsafe { libc::unshare(libc::CLONE_NEWUSER) }.into()).map(drop)
}

/// Ends this process at once, without running anything that a parent registered.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: `_exit` does not return and touches no memory.
    unsafe { libc::_exit(code) }
}

/// Has this process work on files as another user, while it stays in all else who it is.
pub fn set_user_of_files(user: u32, group: u32) -> Result<(), Errno> {
    for (call, id) in [(libc::SYS_setfsgid, group), (libc::SYS_setfsuid, user)] {
        // Neither call says whether it worked; both return the id that was there before.
        // SAFETY: both take a number and touch no memory.
        unsafe { libc::syscall(call, id) };
        // SAFETY: as above; an id that nobody can have changes nothing.
        let now = unsafe { libc::syscall(call, u32::MAX) };
        if now != libc::c_long::from(id) {
            return Err(Errno::PERM);
        }
    }
    Ok(())
}

/// Sends SIGKILL to every process of this pid namespace but ourselves.
pub fn kill_all_others() -> Result<(), Errno> {
    signal_all_others(Signal::KILL)
}

/// Signals every process of this pid namespace but ourselves. Only its PID 1 may: elsewhere that
/// would be everybody on the machine.
pub fn signal_all_others(signal: Signal) -> Result<(), Errno> {
    if !rustix::process::getpid().is_init() {
        return Err(Errno::PERM);
    }
    // SAFETY: kill reads no memory.
    check(unsafe { libc::kill(-1, signal.as_raw()) }.into()).map(drop)
}

/// A child that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    pub pid: Pid,
    pub exit: Exit,
    /// Its own, and that of all children it has waited for.
    pub used: ChildrenUsage,
}

/// Reaps one child that has ended, if there is any.
pub fn reap() -> Result<Option<Ended>, Errno> {
    let mut status = 0;
    // SAFETY: all-zero bytes are a valid `rusage`.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the call fills in one status and one `rusage`.
    let pid = unsafe { libc::wait4(-1, &raw mut status, libc::WNOHANG, &raw mut usage) };
    let pid = match check(pid.into()) {
        Ok(_) => Pid::from_raw(pid),
        Err(Errno::CHILD | Errno::INTR) => None,
        Err(other) => return Err(other),
    };
    let exit = if libc::WIFSIGNALED(status) {
        Exit::Signal(libc::WTERMSIG(status))
    } else {
        Exit::Code(libc::WEXITSTATUS(status))
    };
    Ok(pid.map(|pid| Ended { pid, exit, used: used(&usage) }))
}

fn cpu_time(usage: &libc::rusage) -> Duration {
    let duration = |time: libc::timeval| {
        let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
        let micros = u64::try_from(time.tv_usec).unwrap_or_default();
        Duration::from_secs(seconds) + Duration::from_micros(micros)
    };
    duration(usage.ru_utime) + duration(usage.ru_stime)
}

/// Returns the processor time that all threads of a process have used so far.
pub fn cpu_time_of(pid: Pid) -> Result<Duration, Errno> {
    // As in `linux/posix-timers_types.h`: the clock of a process by its number.
    const SCHEDULED: i32 = 2;
    let clock = (!pid.as_raw_nonzero().get() << 3) | SCHEDULED;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills in one `timespec`.
    check(unsafe { libc::clock_gettime(clock, &raw mut time) }.into())?;
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Ok(Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default()))
}

/// What the children that were waited for have used.
#[derive(Clone, Copy, Debug)]
pub struct ChildrenUsage {
    pub cpu_time: Duration,
    /// The most memory that one of them had at once, in bytes.
    pub largest: u64,
}

/// Returns what all children that were waited for have used.
pub fn children_usage() -> ChildrenUsage {
    // SAFETY: all-zero bytes are a valid `rusage`.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the call fills in one `rusage`.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) };
    used(&usage)
}

fn used(usage: &libc::rusage) -> ChildrenUsage {
    ChildrenUsage {
        cpu_time: cpu_time(usage),
        largest: u64::try_from(usage.ru_maxrss).unwrap_or_default() * 1024,
    }
}

/// Limits a resource of this process, for good.
pub fn limit(kind: u32, value: u64) -> Result<(), Errno> {
    let limit = libc::rlimit { rlim_cur: value, rlim_max: value };
    // SAFETY: `limit` is a live `rlimit`, which the call only reads.
    check(unsafe { libc::setrlimit(kind, &raw const limit) }.into()).map(drop)
}

/// In a forked child that is about to exec: closes what it inherited and must not hold.
pub fn let_go(fd: BorrowedFd<'_>) {
    // SAFETY: the child never drops the owner of this descriptor: it execs or exits.
    unsafe { libc::close(fd.as_raw_fd()) };
}
