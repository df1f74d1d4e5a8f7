//! A process in new namespaces and a child of it, for the price of one copy of the memory.
//!
//! Forking twice would copy everything twice, only for the first copy to be thrown away when it
//! becomes init. Here the *middle* process runs in the caller's own memory, on a stack of its own,
//! while the caller waits; only the fork that it makes copies. What it forks goes on as the caller
//! would have: it returns from [`split`] on its copy of the caller's stack.

use std::{
    ffi::c_void,
    mem::ManuallyDrop,
    os::fd::{FromRawFd as _, OwnedFd, RawFd},
    sync::atomic::{AtomicU32, Ordering},
};

use rustix::{
    process::Pid,
    thread::futex::{self, Flags},
};

use super::process::exit_now;
use crate::plan::{Broken, Step};

/// Who returns from [`split`].
#[derive(Debug)]
pub enum Side<T> {
    /// The caller, with a descriptor of the middle process.
    Caller(OwnedFd),
    /// The child of the middle process, with what was made for it.
    Grandchild(T),
}

/// The stack of the middle process.
#[derive(Debug)]
pub struct Stack {
    memory: Vec<u128>,
}

impl Default for Stack {
    fn default() -> Self {
        Self { memory: vec![0; 128 * 1024 / size_of::<u128>()] }
    }
}

/// What happens where. All three use the same memory; they take turns.
#[expect(missing_debug_implementations, reason = "three functions")]
pub struct Parts<'a, T> {
    /// In the caller, while the middle process waits: what only somebody outside can do.
    pub outside: &'a dyn Fn(Pid) -> Result<(), Broken>,
    /// In the middle process, before it forks.
    pub inside: &'a dyn Fn() -> Result<T, Broken>,
    /// In the middle process, after it has forked: becomes another program.
    pub become_another: &'a dyn Fn(&T) -> Broken,
}

/// What the caller and the middle process share.
struct Shared<'a, T> {
    parts: Parts<'a, T>,
    /// Set when the outside has done its part, or could not.
    word: AtomicU32,
    /// Cleared by the kernel when the middle process has left our memory.
    is_here: AtomicU32,
    made: ManuallyDrop<Option<T>>,
    broken: Option<Broken>,
}

const GO: u32 = 1;
const GIVE_UP: u32 = 2;

/// Splits the calling process, which must have one thread, into itself, a middle process in new
/// namespaces, and a child of that. Returns in the first, when the second has become another
/// program, and in the last.
pub fn split<T>(
    stack: &mut Stack,
    namespaces: u64,
    parts: Parts<'_, T>,
) -> Result<Side<T>, Broken> {
    let mut shared = Shared {
        parts,
        word: AtomicU32::new(0),
        is_here: AtomicU32::new(1),
        made: ManuallyDrop::new(None),
        broken: None,
    };
    let mut pidfd: RawFd = -1;
    let args = libc::clone_args {
        flags: namespaces
            | (libc::CLONE_VM | libc::CLONE_PIDFD | libc::CLONE_CHILD_CLEARTID) as u64,
        pidfd: (&raw mut pidfd) as u64,
        child_tid: shared.is_here.as_ptr() as u64,
        parent_tid: 0,
        exit_signal: libc::SIGCHLD as u64,
        stack: stack.memory.as_mut_ptr() as u64,
        stack_size: size_of_val(stack.memory.as_slice()) as u64,
        tls: 0,
        set_tid: 0,
        set_tid_size: 0,
        cgroup: 0,
    };
    // SAFETY: `args` and `shared` outlive the call, in which this process waits until the middle
    // one is out of its memory; the middle one has a stack that nobody else uses.
    let returned = unsafe {
        ringfence_split(
            &raw const args,
            size_of::<libc::clone_args>(),
            middle::<T>,
            outside::<T>,
            (&raw mut shared).cast(),
        )
    };
    match returned {
        0 => match ManuallyDrop::into_inner(shared.made) {
            Some(made) => {
                renew_rseq();
                Ok(Side::Grandchild(made))
            }
            None => exit_now(1),
        },
        1.. => {
            // SAFETY: the kernel has stored a new descriptor, which nobody else owns.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            shared.broken.map_or(Ok(Side::Caller(pidfd)), Err)
        }
        negative => {
            Err(Broken { step: Step::Fork, errno: i32::try_from(-negative).unwrap_or(libc::EIO) })
        }
    }
}

/// Runs in the caller while the middle process is there.
extern "C" fn outside<T>(shared: *mut c_void, pid: i64) -> i64 {
    // SAFETY: it is the `Shared` of `split`, which waits for us.
    let shared = unsafe { &mut *shared.cast::<Shared<'_, T>>() };
    let pid_of_middle = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let done = pid_of_middle.map_or(Ok(()), |pid| (shared.parts.outside)(pid));
    shared.word.store(if done.is_ok() { GO } else { GIVE_UP }, Ordering::Release);
    // Nobody may be waiting yet.
    let _ = futex::wake(&shared.word, Flags::PRIVATE, 1);
    while shared.is_here.load(Ordering::Acquire) != 0 {
        // The kernel wakes without the private flag.
        let _ = futex::wait(&shared.is_here, Flags::empty(), 1, None);
    }
    if let Err(broken) = done {
        shared.broken = Some(broken);
    }
    pid
}

/// The life of the middle process.
extern "C" fn middle<T>(shared: *mut c_void, callers_stack: *const c_void) -> ! {
    // SAFETY: it is the `Shared` of `split`; the caller does not touch it again before we are gone,
    // but for the word, which is atomic.
    let shared = unsafe { &mut *shared.cast::<Shared<'_, T>>() };
    while shared.word.load(Ordering::Acquire) == 0 {
        let _ = futex::wait(&shared.word, Flags::PRIVATE, 0, None);
    }
    if shared.word.load(Ordering::Acquire) == GIVE_UP {
        exit_now(1);
    }
    match (shared.parts.inside)() {
        Ok(made) => shared.made = ManuallyDrop::new(Some(made)),
        Err(broken) => {
            shared.broken = Some(broken);
            exit_now(1);
        }
    }
    // The C library's own fork: after it, the thread's number and locks are right in the copy.
    // SAFETY: the only thread of the memory we are in is waiting.
    match unsafe { libc::fork() } {
        // SAFETY: the caller is inside `ringfence_split` as long as we are here, so in our copy of
        // its stack that frame is whole.
        0 => unsafe { ringfence_resume(callers_stack, 0) },
        forked => {
            let broken = match shared.made.as_ref() {
                Some(made) if forked > 0 => (shared.parts.become_another)(made),
                _ => Broken { step: Step::Fork, errno: libc::EAGAIN },
            };
            shared.broken = Some(broken);
            exit_now(1)
        }
    }
}

/// Tells the kernel again where the C library keeps the number of the processor. A process that
/// shares its memory has none, so neither has what it forks, and the library would go on reading
/// the number that was there.
fn renew_rseq() {
    const SIGNATURE: u32 = 0x5305_3053;
    const SIZE: u32 = 32;
    // SAFETY: both names are C strings.
    let offset = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()) };
    if offset.is_null() {
        return;
    }
    // SAFETY: where the C library has this symbol, it is a `ptrdiff_t`.
    let offset = unsafe { *offset.cast::<isize>() };
    let area = thread_pointer().wrapping_add_signed(offset);
    // SAFETY: the area is the library's own, of this size, and lives as long as the thread. Where
    // the library does not use it the kernel refuses, or is told what nobody reads.
    unsafe { libc::syscall(libc::SYS_rseq, area, SIZE, 0, SIGNATURE) };
}

#[cfg(target_arch = "x86_64")]
fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: the first word that this register leads to is its own address, by the ABI.
    unsafe { std::arch::asm!("mov {}, fs:0", out(reg) pointer, options(nostack, readonly)) };
    pointer
}

#[cfg(not(target_arch = "x86_64"))]
fn thread_pointer() -> usize {
    0
}

type InMiddle = extern "C" fn(*mut c_void, *const c_void) -> !;
type InCaller = extern "C" fn(*mut c_void, i64) -> i64;

#[cfg(target_arch = "x86_64")]
unsafe extern "C" {
    /// Clones. In the new process, calls `middle` with `data` and where the caller's stack is, and
    /// does not return. In the caller, calls `caller` with `data` and the new process's number,
    /// and returns what that does; or a negative error number.
    fn ringfence_split(
        args: *const libc::clone_args,
        size: usize,
        middle: InMiddle,
        caller: InCaller,
        data: *mut c_void,
    ) -> i64;

    /// Returns from `ringfence_split` on that stack, with that value.
    fn ringfence_resume(stack: *const c_void, value: i64) -> !;
}

// Whoever comes back, in whichever process, finds the registers that a function must preserve on
// the caller's stack. They stay there while `caller` runs, because it is called from here.
#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".hidden ringfence_split",
    ".hidden ringfence_resume",
    ".global ringfence_split",
    ".global ringfence_resume",
    "ringfence_split:",
    "push rbp",
    "push rbx",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "sub rsp, 8",
    "mov rbx, rdx",
    "mov r12, rcx",
    "mov r13, r8",
    "mov r14, rsp",
    "mov eax, 435",
    "syscall",
    "test rax, rax",
    "js 2f",
    "jnz 1f",
    "xor ebp, ebp",
    "mov rdi, r13",
    "mov rsi, r14",
    "call rbx",
    "ud2",
    "1:",
    "mov rdi, r13",
    "mov rsi, rax",
    "call r12",
    "2:",
    "add rsp, 8",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbx",
    "pop rbp",
    "ret",
    "ringfence_resume:",
    "mov rsp, rdi",
    "mov rax, rsi",
    "jmp 2b",
);

/// Not written for this architecture: nothing is ever split here.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn ringfence_split(
    _: *const libc::clone_args,
    _: usize,
    _: InMiddle,
    _: InCaller,
    _: *mut c_void,
) -> i64 {
    -i64::from(libc::ENOSYS)
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn ringfence_resume(_: *const c_void, _: i64) -> ! {
    exit_now(1)
}
