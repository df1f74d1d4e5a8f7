//! Row X33: what the filters answer, and that every instruction of them is there for a reason.

use std::collections::BTreeSet;

use super::{
    MemoryBound, for_daemon, for_image_worker, for_init, for_running_image_worker, for_user_code,
    looked_at_closer,
    own::IMAGE_WORKER_REFUSED,
    table::{ALLOWED, INIT, IOCTLS, NAMESPACE_FLAGS, REFUSED},
};

const ALLOW: u32 = 0x7fff_0000;
const KILL: u32 = 0x8000_0000;
const FAIL: u32 = 0x0005_0000;

/// What the kernel shows a filter of one call.
#[derive(Clone, Copy, Debug)]
struct Call {
    number: i64,
    arch: u32,
    args: [u64; 6],
}

#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xc000_00b7;

fn call(number: i64, args: &[u64]) -> Call {
    let mut all = [0; 6];
    all[..args.len()].copy_from_slice(args);
    Call { number, arch: ARCH, args: all }
}

impl Call {
    /// Reads one word of `struct seccomp_data`.
    fn word(&self, offset: u32) -> u32 {
        let number = u32::try_from(self.number & 0xffff_ffff).unwrap();
        match offset {
            0 => number,
            4 => self.arch,
            8 | 12 => 0,
            _ => {
                let value = self.args[usize::try_from((offset - 16) / 8).unwrap()];
                let half = if offset.is_multiple_of(8) { value } else { value >> 32 };
                u32::try_from(half & 0xffff_ffff).unwrap()
            }
        }
    }
}

/// Runs a filter, and notes which instructions it came by.
fn run(filter: &[u8], call: Call, visited: &mut BTreeSet<usize>) -> u32 {
    let (mut at, mut accumulator) = (0, 0);
    loop {
        visited.insert(at);
        let raw = &filter[at * 8..at * 8 + 8];
        let code = u16::from_ne_bytes([raw[0], raw[1]]);
        let (jump_true, jump_false) = (usize::from(raw[2]), usize::from(raw[3]));
        let k = u32::from_ne_bytes([raw[4], raw[5], raw[6], raw[7]]);
        let mut branch = |holds: bool| at += if holds { jump_true } else { jump_false };
        match code {
            0x20 => accumulator = call.word(k),
            0x54 => accumulator &= k,
            0x05 => at += usize::try_from(k).unwrap(),
            0x15 => branch(accumulator == k),
            0x25 => branch(accumulator > k),
            0x35 => branch(accumulator >= k),
            0x45 => branch(accumulator & k != 0),
            0x06 => return k,
            other => panic!("instruction {other:#x} is not known here"),
        }
        at += 1;
    }
}

/// Every instruction that some way through the filter leads to.
fn reachable(filter: &[u8]) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let mut open = vec![0];
    while let Some(at) = open.pop() {
        if found.insert(at) {
            let raw = &filter[at * 8..at * 8 + 8];
            let k = u32::from_ne_bytes([raw[4], raw[5], raw[6], raw[7]]);
            match raw[0] {
                0x06 => {}
                0x05 => open.push(at + 1 + usize::try_from(k).unwrap()),
                0x15 | 0x25 | 0x35 | 0x45 => {
                    open.extend([at + 1 + usize::from(raw[2]), at + 1 + usize::from(raw[3])]);
                }
                _ => open.push(at + 1),
            }
        }
    }
    found
}

fn errno(code: i32) -> u32 {
    0x0005_0000 | code.unsigned_abs()
}

/// Every kind of call there is, with what must be answered.
fn cases() -> Vec<(Call, u32)> {
    let special: Vec<i64> = looked_at_closer().into_iter().map(|(call, _)| call).collect();
    let mut cases = Vec::new();
    for number in (0..1024).chain([0x4000_0000 | libc::SYS_getpid, 0x4000_0209]) {
        let expected = if special.contains(&number) {
            continue;
        } else if ALLOWED.contains(&number) {
            ALLOW
        } else if REFUSED.contains(&number) {
            errno(libc::EPERM)
        } else {
            errno(libc::ENOSYS)
        };
        cases.push((call(number, &[]), expected));
    }
    for family in 0..46_u64 {
        let expected = match i32::try_from(family).unwrap() {
            libc::AF_UNIX | libc::AF_INET | libc::AF_INET6 | libc::AF_NETLINK => ALLOW,
            _ => errno(libc::EAFNOSUPPORT),
        };
        cases.push((call(libc::SYS_socket, &[family, 1, 0]), expected));
        let pair = if family == 1 { ALLOW } else { errno(libc::EAFNOSUPPORT) };
        cases.push((call(libc::SYS_socketpair, &[family, 1, 0]), pair));
    }
    for protocol in 1..30 {
        let netlink = call(libc::SYS_socket, &[16, 3, protocol]);
        cases.push((netlink, errno(libc::EAFNOSUPPORT)));
    }
    cases.push((call(libc::SYS_clone, &[0x0120_0011]), ALLOW));
    cases.push((call(libc::SYS_clone, &[0x003d_0f00]), ALLOW));
    for flag in NAMESPACE_FLAGS {
        cases.push((call(libc::SYS_clone, &[u64::from(*flag) | 0x11]), errno(libc::EPERM)));
    }
    for request in IOCTLS {
        cases.push((call(libc::SYS_ioctl, &[0, u64::from(*request)]), ALLOW));
    }
    // Line disciplines, attributes of the machine's file systems, the namespaces behind a descriptor.
    for request in [0, 0x5423, 0x4004_8004, 0x4008_6604, 0xb701, 0x8946] {
        cases.push((call(libc::SYS_ioctl, &[0, request]), errno(libc::ENOTTY)));
    }
    for (number, count) in
        [(libc::SYS_setuid, 1), (libc::SYS_setreuid, 2), (libc::SYS_setresuid, 3)]
    {
        cases.push((call(number, &[0, 1000, 65_534]), ALLOW));
        for argument in 0..count {
            let mut ids = [1000; 3];
            ids[argument] = 65_535;
            cases.push((call(number, &ids), errno(libc::EPERM)));
        }
    }
    for (pid, expected) in [(0, ALLOW), (1, errno(libc::EPERM)), (77, errno(libc::EPERM))] {
        cases.push((call(libc::SYS_prlimit64, &[pid, 7]), expected));
    }
    for (level, option, expected) in [
        (1, 2, ALLOW),
        (1, 26, errno(libc::EPERM)),
        (1, 50, errno(libc::EPERM)),
        (1, 51, errno(libc::EPERM)),
        (1, 52, errno(libc::EPERM)),
        (0, 26, ALLOW),
        (0, 32, ALLOW),
        (1, 32, ALLOW),
        (41, 26, ALLOW),
        (41, 32, errno(libc::EPERM)),
    ] {
        cases.push((call(libc::SYS_setsockopt, &[0, level, option]), expected));
    }
    for request in [0x5412, 0x541c, 0x1_0000_5412] {
        cases.push((call(libc::SYS_ioctl, &[0, request]), errno(libc::EPERM)));
    }
    for (persona, expected) in [(0, ALLOW), (0xffff_ffff, ALLOW), (8, errno(libc::ENOSYS))] {
        cases.push((call(libc::SYS_personality, &[persona]), expected));
    }
    let foreign = Call { arch: 0x4000_0003, ..call(libc::SYS_getpid, &[]) };
    cases.push((foreign, KILL));
    cases
}

#[test]
fn every_call_gets_its_answer_and_every_instruction_is_used() {
    let filter = for_user_code(MemoryBound::Cgroup);
    let mut visited = BTreeSet::new();
    for (call, expected) in cases() {
        assert_eq!(run(&filter, call, &mut visited), expected, "{call:?}");
    }
    assert_eq!(visited, reachable(&filter));
    assert_eq!(visited.len(), filter.len() / 8);
}

#[test]
fn init_can_do_only_what_it_needs() {
    let filter = for_init();
    for number in 0..1024 {
        let expected = if INIT.contains(&number) { ALLOW } else { errno(libc::EPERM) };
        assert_eq!(run(&filter, call(number, &[]), &mut BTreeSet::new()), expected, "{number}");
    }
}

#[test]
fn the_image_worker_makes_and_connects_no_socket_and_starts_no_program_once_it_runs() {
    let (started, running) = (for_image_worker(), for_running_image_worker());
    let answer = |filter: &[u8], call| run(filter, call, &mut BTreeSet::new());
    for (call, expected) in cases() {
        let expected = match call.number {
            libc::SYS_seccomp => ALLOW,
            libc::SYS_socket => errno(libc::EAFNOSUPPORT),
            _ => expected,
        };
        assert_eq!(answer(&started, call), expected, "{call:?}");
    }
    for number in 0..1024 {
        let is_refused = IMAGE_WORKER_REFUSED.contains(&number) || number == libc::SYS_clone;
        let expected = if is_refused { errno(libc::EPERM) } else { ALLOW };
        assert_eq!(answer(&running, call(number, &[])), expected, "{number}");
    }
    assert_eq!(answer(&running, call(libc::SYS_clone, &[0x003d_0f00])), ALLOW, "a thread");
    assert_eq!(answer(&running, call(libc::SYS_clone, &[0x0120_0011])), errno(libc::EPERM));
    let connecting = 0x2000_0000;
    for (number, flags) in [(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2), (libc::SYS_sendmmsg, 3)]
    {
        let mut args = [0; 4];
        args[flags] = connecting | 0x40;
        assert_eq!(answer(&running, call(number, &args)), errno(libc::EPERM), "{number}");
        args[flags] = 0x4040;
        assert_eq!(answer(&running, call(number, &args)), ALLOW, "{number}");
    }
}

#[test]
fn no_call_is_both_allowed_and_refused() {
    for call in REFUSED {
        assert!(!ALLOWED.contains(call), "{call}");
    }
}

#[test]
fn no_call_is_listed_twice() {
    for list in [ALLOWED, REFUSED, INIT, IMAGE_WORKER_REFUSED] {
        let sorted: BTreeSet<i64> = list.iter().copied().collect();
        assert_eq!(sorted.len(), list.len());
    }
}

#[test]
fn the_filters_fit_the_kernel() {
    for filter in [for_user_code(MemoryBound::Cgroup), for_init(), for_image_worker()] {
        assert!(filter.len() / 8 < 4096, "{}", filter.len() / 8);
    }
}

#[test]
fn memory_that_no_process_has_mapped_is_refused_where_only_mapped_memory_is_counted() {
    let answer =
        |memory, number| run(&for_user_code(memory), call(number, &[]), &mut BTreeSet::new());
    for number in [libc::SYS_memfd_create, libc::SYS_shmget] {
        assert_eq!(answer(MemoryBound::Cgroup, number), ALLOW);
        assert_eq!(answer(MemoryBound::Watcher, number), FAIL | libc::ENOSYS.unsigned_abs());
    }
    assert_eq!(answer(MemoryBound::Watcher, libc::SYS_mmap), ALLOW);
}

#[test]
fn the_daemon_starts_threads_and_neither_programs_nor_processes() {
    let answer =
        |number, args: &[u64]| run(&for_daemon(), call(number, args), &mut BTreeSet::new());
    let refused = FAIL | libc::EPERM.unsigned_abs();
    for number in
        [libc::SYS_execve, libc::SYS_mount, libc::SYS_setns, libc::SYS_ptrace, libc::SYS_bpf]
    {
        assert_eq!(answer(number, &[]), refused, "{number}");
    }
    assert_eq!(answer(libc::SYS_clone, &[0x003d_0f00]), ALLOW);
    assert_eq!(answer(libc::SYS_clone, &[17]), refused);
    assert_eq!(answer(libc::SYS_clone3, &[]), FAIL | libc::ENOSYS.unsigned_abs());
    for number in [libc::SYS_openat, libc::SYS_connect, libc::SYS_accept4, libc::SYS_futex] {
        assert_eq!(answer(number, &[]), ALLOW, "{number}");
    }
}
