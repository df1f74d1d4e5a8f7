//! What our own processes have no use for, once they run.

use libc::{
    SYS_accept, SYS_accept4, SYS_bind, SYS_connect, SYS_execve, SYS_execveat, SYS_listen,
    SYS_setgid, SYS_setgroups, SYS_setregid, SYS_setresgid, SYS_setresuid, SYS_setreuid,
    SYS_setuid, SYS_socket,
};

/// What the process that unpacks images does not call.
pub(super) const IMAGE_WORKER_REFUSED: &[i64] = &[
    SYS_accept,
    SYS_accept4,
    SYS_bind,
    SYS_connect,
    SYS_execve,
    SYS_execveat,
    SYS_listen,
    SYS_socket,
    libc::SYS_seccomp,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_fork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_vfork,
];

/// What the daemon has no use for beside what user code is refused.
pub(super) const DAEMON_REFUSED: &[i64] = &[
    SYS_execve,
    SYS_execveat,
    SYS_setgid,
    SYS_setgroups,
    SYS_setregid,
    SYS_setresgid,
    SYS_setresuid,
    SYS_setreuid,
    SYS_setuid,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_setfsgid,
    libc::SYS_setfsuid,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_fork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_vfork,
];

/// What the process that works on volumes has no use for.
pub(super) const KEEPER_REFUSED: &[i64] = &[
    SYS_accept,
    SYS_accept4,
    SYS_connect,
    SYS_listen,
    libc::SYS_add_key,
    libc::SYS_bpf,
    libc::SYS_delete_module,
    libc::SYS_finit_module,
    libc::SYS_init_module,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_kcmp,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_perf_event_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setns,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_userfaultfd,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_kexec_file_load,
];
