//! What a runtime calls when this crate is loaded into it as a library.

use std::{
    ffi::{c_char, c_int, c_void},
    mem::ManuallyDrop,
    os::fd::{FromRawFd as _, OwnedFd},
};

use super::unwind;
use crate::{
    socket::PacketSocket,
    zygote::{self, Memory},
};

/// Puts the memory of this process where that of slots is going to be, so that what a program touches
/// in a copy of it is what it touches in a slot. That is only for speed.
#[unsafe(no_mangle)]
pub extern "C" fn ringfence_put_memory_in_place() {
    let _ = super::memory::put_into_a_file();
}

/// Makes slots as they are asked for through the socket. Returns in each slot, never here.
///
/// # Safety
///
/// `socket` is open, `ahead` points at `count` entries, and this process has one thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfence_serve(socket: c_int, ahead: *const Memory, count: usize) {
    // SAFETY: the caller keeps it open, and we do not close it.
    let door = ManuallyDrop::new(PacketSocket::from_fd(unsafe { OwnedFd::from_raw_fd(socket) }));
    // SAFETY: by the contract.
    let ahead = unsafe { std::slice::from_raw_parts(ahead, count) };
    zygote::serve(&door, ahead);
}

/// Has `exit` end here, before it comes to the handlers of what was loaded so far: C's streams are
/// flushed, and the memory is not given back piece by piece.
#[unsafe(no_mangle)]
pub extern "C" fn ringfence_leave_quickly() {
    // SAFETY: the handler has the type that the C library calls it with.
    unsafe { on_exit(leave, std::ptr::null_mut()) };
}

extern "C" fn leave(status: c_int, _: *mut c_void) {
    // SAFETY: null means all streams.
    unsafe { libc::fflush(std::ptr::null_mut()) };
    super::process::exit_now(status);
}

/// At which event of a runtime's own end nothing is left that a program could see.
#[repr(C)]
#[derive(Debug)]
pub struct Ending {
    event: *const c_char,
    /// An event after which the end must be whole.
    spoiler: *const c_char,
    /// What is returned from at the event, unless it is inside of `barrier`.
    function: usize,
    barrier: usize,
    /// Only with this set. It is cleared for good by `spoiler`.
    armed: *mut c_int,
    is_spoiled: c_int,
}

/// A hook for a runtime to call with the name of each event. When the runtime takes itself apart,
/// it is stopped where only memory is left to be given back.
///
/// # Safety
///
/// `name` is a C string; `ending` is an `Ending` that nobody else uses, with valid pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfence_hear(
    name: *const c_char,
    _: *mut c_void,
    ending: *mut Ending,
) -> c_int {
    // SAFETY: by the contract.
    let ending = unsafe { &mut *ending };
    // SAFETY: by the contract; all three are C strings.
    let is = |other: *const c_char| unsafe { libc::strcmp(name, other) } == 0;
    if is(ending.spoiler) {
        ending.is_spoiled = 1;
    }
    // SAFETY: by the contract.
    let is_armed = unsafe { *ending.armed } != 0;
    if is_armed && ending.is_spoiled == 0 && is(ending.event) {
        // SAFETY: the process ends without using what is being taken apart.
        unsafe { unwind::return_from(ending.function, ending.barrier) };
    }
    0
}

unsafe extern "C" {
    fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

/// Brings pages into memory. That is only for speed: what cannot be brought in is passed over.
pub(crate) fn bring_in(memory: &[Memory]) {
    for &Memory { start, length, advice } in memory {
        let advice = c_int::try_from(advice).unwrap_or(libc::MADV_NORMAL);
        // SAFETY: populating changes nothing that a program can see, whatever is at these pages.
        unsafe { libc::madvise(start as *mut c_void, length, advice) };
    }
}
