//! Returning from a function that others are still inside of.

use std::ffi::{c_int, c_void};

/// What is known of the calls that the running code is inside of.
#[repr(C)]
struct Context {
    _private: [u8; 0],
}

type Visit = extern "C" fn(*mut Context, *mut c_void) -> c_int;

unsafe extern "C" {
    fn _Unwind_Backtrace(visit: Visit, argument: *mut c_void) -> c_int;
    fn _Unwind_GetIP(context: *mut Context) -> usize;
    fn _Unwind_GetCFA(context: *mut Context) -> usize;
    fn _Unwind_GetGR(context: *mut Context, register: c_int) -> usize;
    fn _Unwind_FindEnclosingFunction(address: *mut c_void) -> *mut c_void;
}

const GO_ON: c_int = 0;
const STOP: c_int = 5;

/// The registers that a function preserves for its caller, by their numbers in unwind tables.
const PRESERVED: [c_int; 6] = [3, 6, 12, 13, 14, 15];

/// A search for the caller of a function.
struct Search {
    function: usize,
    barrier: usize,
    is_inside: bool,
    found: Option<Caller>,
}

/// A call that can be returned to.
#[repr(C)]
#[derive(Clone, Copy)]
struct Caller {
    registers: [usize; 6],
    stack: usize,
    address: usize,
}

/// Returns from the innermost call of the function at that address, with the value 0, whatever it
/// is inside of. Comes back if there is no such call, or one of `barrier` is in between.
///
/// # Safety
///
/// Nothing that is abandoned may hold a lock or have left anything half done that is used again.
pub unsafe fn return_from(function: usize, barrier: usize) {
    let mut search = Search { function, barrier, is_inside: false, found: None };
    // SAFETY: `visit` gets the search that it is given, while it lives.
    unsafe { _Unwind_Backtrace(visit, (&raw mut search).cast()) };
    if let Some(caller) = search.found {
        // SAFETY: these are the caller's own registers and stack, as the call would leave them.
        unsafe { ringfence_return_to(&raw const caller) };
    }
}

extern "C" fn visit(context: *mut Context, search: *mut c_void) -> c_int {
    // SAFETY: it is the search of `return_from`.
    let search = unsafe { &mut *search.cast::<Search>() };
    // SAFETY: the context is valid in this call.
    let address = unsafe { _Unwind_GetIP(context) };
    if search.is_inside {
        // SAFETY: as above.
        let registers = PRESERVED.map(|register| unsafe { _Unwind_GetGR(context, register) });
        // SAFETY: as above.
        let stack = unsafe { _Unwind_GetCFA(context) };
        search.found = Some(Caller { registers, stack, address });
        return STOP;
    }
    // The address after a call may belong to the next function already.
    let call = address.saturating_sub(1) as *mut c_void;
    // SAFETY: any address may be asked for.
    let function = unsafe { _Unwind_FindEnclosingFunction(call) } as usize;
    search.is_inside = function == search.function;
    if function == search.barrier { STOP } else { GO_ON }
}

#[cfg(target_arch = "x86_64")]
unsafe extern "C" {
    fn ringfence_return_to(caller: *const Caller) -> !;
}

#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".hidden ringfence_return_to",
    ".global ringfence_return_to",
    "ringfence_return_to:",
    "mov rbx, [rdi]",
    "mov rbp, [rdi + 8]",
    "mov r12, [rdi + 16]",
    "mov r13, [rdi + 24]",
    "mov r14, [rdi + 32]",
    "mov r15, [rdi + 40]",
    "mov rsp, [rdi + 48]",
    "xor eax, eax",
    "jmp [rdi + 56]",
);

/// Not written for this architecture: everything is left as it is.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn ringfence_return_to(_: *const Caller) {}
