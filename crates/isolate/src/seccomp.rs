//! Which system calls user code may make: what is known to be dangerous is refused (`EPERM`),
//! sockets of other families than the everyday ones are not supported (`EAFNOSUPPORT`), and what is
//! neither refused nor allowed does not exist (`ENOSYS`, so that runtimes fall back). A call of
//! another architecture ends the process.

mod own;
mod program;
mod table;

use std::collections::BTreeMap;

use crate::plan::SERVICE_USER;

use own::{DAEMON_REFUSED, IMAGE_WORKER_REFUSED, KEEPER_REFUSED};
use program::{
    Answer::{self, Allow, Fail},
    Test::{HasAnyOf, Is, IsNot, IsOneOf},
    Verdict,
};
use table::{
    ALLOWED, INIT, IOCTLS, NAMESPACE_FLAGS, REFUSED, SOCKET_FILTERS, SUPERVISOR, UNMAPPED_MEMORY,
};

/// What bounds the memory of user code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryBound {
    /// The kernel counts all of it.
    Cgroup,
    /// Init adds up what processes have mapped, and does not see memory that none has mapped.
    Watcher,
}

/// Returns the filter for user code.
pub fn for_user_code(memory: MemoryBound) -> Vec<u8> {
    let listed = all(ALLOWED, Allow).chain(all(REFUSED, Fail(libc::EPERM)));
    let unseen: &[i64] = match memory {
        MemoryBound::Cgroup => &[],
        MemoryBound::Watcher => UNMAPPED_MEMORY,
    };
    // The special ones come last and take the place of the lists' answer.
    let special = looked_at_closer().into_iter().chain(all(unseen, Fail(libc::ENOSYS)));
    compile(listed.chain(special), Fail(libc::ENOSYS))
}

/// Returns the filter for the daemon: it starts threads and no programs, and has no use for what changes mounts,
/// namespaces, users or the kernel. What else its runtime and the C library call is not listed.
pub fn for_daemon() -> Vec<u8> {
    let refused = Fail(libc::EPERM);
    let threads = Verdict::from(refused).when(0, HasAnyOf(THREAD), Allow);
    // Without this call, the C library starts threads by the one before.
    let closer = [(libc::SYS_clone, threads), (libc::SYS_clone3, Fail(libc::ENOSYS).into())];
    compile(all(REFUSED, refused).chain(all(DAEMON_REFUSED, refused)).chain(closer), Allow)
}

/// Returns the filter for the process that works on volumes: it mounts, and starts the programs that make file
/// systems.
pub fn for_keeper() -> Vec<u8> {
    compile(all(KEEPER_REFUSED, Fail(libc::EPERM)), Allow)
}

/// Returns whether user code may make this call, be it with some arguments only.
pub fn is_known(call: i64) -> bool {
    ALLOWED.contains(&call) || looked_at_closer().iter().any(|(closer, _)| *closer == call)
}

/// Returns the filter for init.
pub fn for_init() -> Vec<u8> {
    compile(all(INIT, Allow), Fail(libc::EPERM))
}

/// Returns the filter for the supervisor of a sandbox. Its commands have it too, below their own:
/// so it allows what they may do, and what it takes to start them.
pub fn for_supervisor() -> Vec<u8> {
    let listed = all(ALLOWED, Allow).chain(looked_at_closer()).chain(all(SUPERVISOR, Allow));
    compile(listed, Fail(libc::EPERM))
}

/// Returns the filter that the process which unpacks images is started with: what user code may do,
/// but for making sockets. It may load a second filter.
pub fn for_image_worker() -> Vec<u8> {
    let socket = Verdict::from(Fail(libc::EAFNOSUPPORT));
    let listed = all(ALLOWED, Allow).chain(all(REFUSED, Fail(libc::EPERM)));
    let closer = looked_at_closer().into_iter().chain([(libc::SYS_socket, socket)]);
    let filter = [(libc::SYS_seccomp, Allow.into())];
    compile(listed.chain(closer).chain(filter), Fail(libc::ENOSYS))
}

/// Returns the filter that the same process loads before it reads anything of strangers. It starts
/// threads, no processes. The sockets that it is handed are in the machine's network: it can neither
/// connect them to another address nor take connections on them.
pub fn for_running_image_worker() -> Vec<u8> {
    let refused = Fail(libc::EPERM);
    let threads = Verdict::from(refused).when(0, HasAnyOf(THREAD), Allow);
    // With this flag, sending connects.
    let sending = |flags| Verdict::from(Allow).when(flags, HasAnyOf(FAST_OPEN), refused);
    let closer = [
        (libc::SYS_clone, threads),
        (libc::SYS_sendto, sending(3)),
        (libc::SYS_sendmsg, sending(2)),
        (libc::SYS_sendmmsg, sending(3)),
    ];
    compile(all(IMAGE_WORKER_REFUSED, refused).chain(closer), Allow)
}

/// The flag of `sendto` that connects a socket to an address first.
const FAST_OPEN: u32 = libc::MSG_FASTOPEN.cast_unsigned();

/// The flag of `clone` that asks for a thread.
const THREAD: u32 = 0x0001_0000;

fn all(calls: &[i64], answer: Answer) -> impl Iterator<Item = (i64, Verdict)> {
    calls.iter().map(move |call| (*call, answer.into()))
}

fn compile(verdicts: impl Iterator<Item = (i64, Verdict)>, others: Answer) -> Vec<u8> {
    let verdicts: BTreeMap<u32, Verdict> =
        verdicts.filter_map(|(call, verdict)| Some((u32::try_from(call).ok()?, verdict))).collect();
    program::compile(&verdicts, &others.into())
}

/// The calls whose answer depends on an argument.
fn looked_at_closer() -> [(i64, Verdict); 10] {
    let refused = Fail(libc::EPERM);
    // A new namespace would give back capabilities, if only inside it.
    let namespaces = NAMESPACE_FLAGS.iter().fold(0, |all, flag| all | flag);
    let clone = Verdict::from(Allow).when(0, HasAnyOf(namespaces), refused);
    // Typing into a terminal on behalf of its user is refused by name. What is not on the list is not supported, as the
    // kernel says of a request that a file does not know.
    let ioctl = Verdict::from(Fail(libc::ENOTTY))
        .when(1, IsOneOf(IOCTLS), Allow)
        .when(1, Is(request(libc::TIOCSTI)), refused)
        .when(1, Is(request(libc::TIOCLINUX)), refused);
    // One's own limits: init has the same user where there is only one.
    let prlimit = Verdict::from(refused).when(0, Is(0), Allow);
    // Both have one limit for the whole machine. Filters of system calls share that of socket filters: without any left,
    // nothing new could be isolated.
    let setsockopt = Verdict::from(Allow)
        .when_all(&[(1, Is(number(libc::SOL_SOCKET))), (2, IsOneOf(SOCKET_FILTERS))], refused)
        .when_all(
            &[(1, Is(number(libc::IPPROTO_IPV6))), (2, Is(number(libc::IPV6_FLOWLABEL_MGR)))],
            refused,
        );
    // The two personalities that change nothing: the default, and the question which it is.
    let personality =
        Verdict::from(Fail(libc::ENOSYS)).when(0, Is(0), Allow).when(0, Is(u32::MAX), Allow);
    let unsupported = Fail(libc::EAFNOSUPPORT);
    let socket = Verdict::from(unsupported)
        .when(0, Is(number(libc::AF_UNIX)), Allow)
        .when(0, Is(number(libc::AF_INET)), Allow)
        .when(0, Is(number(libc::AF_INET6)), Allow)
        .when(0, IsNot(number(libc::AF_NETLINK)), unsupported)
        .when(2, Is(number(libc::NETLINK_ROUTE)), Allow);
    let socketpair = Verdict::from(unsupported).when(0, Is(number(libc::AF_UNIX)), Allow);
    [
        (libc::SYS_clone, clone),
        (libc::SYS_ioctl, ioctl),
        (libc::SYS_personality, personality),
        (libc::SYS_prlimit64, prlimit),
        (libc::SYS_setresuid, no_service_user(3)),
        (libc::SYS_setreuid, no_service_user(2)),
        (libc::SYS_setsockopt, setsockopt),
        (libc::SYS_setuid, no_service_user(1)),
        (libc::SYS_socket, socket),
        (libc::SYS_socketpair, socketpair),
    ]
}

/// Keeps a call with so many user ids from naming that of the processes which serve a sandbox.
fn no_service_user(arguments: u32) -> Verdict {
    (0..arguments).fold(Verdict::from(Allow), |verdict, argument| {
        verdict.when(argument, Is(SERVICE_USER), Fail(libc::EPERM))
    })
}

fn number(constant: libc::c_int) -> u32 {
    constant.unsigned_abs()
}

/// The kernel looks at the low half of a request only.
fn request(constant: libc::Ioctl) -> u32 {
    u32::try_from(constant & 0xffff_ffff).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
