//! Which system calls user code may make: what is known to be dangerous is refused (`EPERM`),
//! sockets of other families than the everyday ones are not supported (`EAFNOSUPPORT`), and what is
//! neither refused nor allowed does not exist (`ENOSYS`, so that runtimes fall back). A call of
//! another architecture ends the process.

mod program;
mod table;

use std::collections::BTreeMap;

use program::{
    Answer::{self, Allow, Fail},
    Test::{HasAnyOf, Is, IsNot},
    Verdict,
};
use table::{ALLOWED, IMAGE_WORKER_REFUSED, INIT, NAMESPACE_FLAGS, REFUSED, SUPERVISOR};

/// Returns the filter for user code.
pub fn for_user_code() -> Vec<u8> {
    let listed = all(ALLOWED, Allow).chain(all(REFUSED, Fail(libc::EPERM)));
    // The special ones come last and take the place of the lists' answer.
    compile(listed.chain(looked_at_closer()), Fail(libc::ENOSYS))
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
/// but for sockets by name. It is in the machine's own network, and there are doors of others there
/// that only have names. It may load a second filter.
pub fn for_image_worker() -> Vec<u8> {
    let unsupported = Fail(libc::EAFNOSUPPORT);
    let socket = Verdict::from(unsupported)
        .when(0, Is(number(libc::AF_INET)), Allow)
        .when(0, Is(number(libc::AF_INET6)), Allow)
        .when(0, IsNot(number(libc::AF_NETLINK)), unsupported)
        .when(2, Is(number(libc::NETLINK_ROUTE)), Allow);
    let listed = all(ALLOWED, Allow).chain(all(REFUSED, Fail(libc::EPERM)));
    let closer = looked_at_closer().into_iter().chain([(libc::SYS_socket, socket)]);
    let filter = [(libc::SYS_seccomp, Allow.into())];
    compile(listed.chain(closer).chain(filter), Fail(libc::ENOSYS))
}

/// Returns the filter that the same process loads before it reads anything of strangers: it is
/// what it is, and becomes nothing else. It starts threads, no processes, and nobody connects to it.
pub fn for_running_image_worker() -> Vec<u8> {
    let refused = Fail(libc::EPERM);
    let threads = Verdict::from(refused).when(0, HasAnyOf(THREAD), Allow);
    let listed = all(IMAGE_WORKER_REFUSED, refused);
    compile(listed.chain([(libc::SYS_clone, threads)]), Allow)
}

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
fn looked_at_closer() -> [(i64, Verdict); 5] {
    let refused = Fail(libc::EPERM);
    // A new namespace would give back capabilities, if only inside it.
    let namespaces = NAMESPACE_FLAGS.iter().fold(0, |all, flag| all | flag);
    let clone = Verdict::from(Allow).when(0, HasAnyOf(namespaces), refused);
    // Typing into a terminal on behalf of its user.
    let ioctl = Verdict::from(Allow).when(1, Is(request(libc::TIOCSTI)), refused).when(
        1,
        Is(request(libc::TIOCLINUX)),
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
        (libc::SYS_socket, socket),
        (libc::SYS_socketpair, socketpair),
    ]
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
