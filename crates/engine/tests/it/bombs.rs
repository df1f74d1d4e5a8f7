//! Rows X31, X32 and F86 to F90: programs that use as much as they can get. Each ends with the
//! right status, while a sibling and the engine go on.

use std::time::Duration;

use model::{
    execution::{Execution, Status},
    limits::Limits,
    units::ByteSize,
};

use crate::node::{Node, Seen, python, see, shell, submit};

fn limited(execution: Execution, memory: u64, timeout: Duration) -> Execution {
    let memory = ByteSize::mib(memory);
    Execution { limits: Limits { memory, timeout, ..Limits::default() }, ..execution }
}

/// Sets the bomb off beside a sibling, which must not notice.
async fn set_off(bomb: Execution) -> Seen {
    let node = Node::start().await;
    let sibling = "import time\nfor i in range(20):\n    print(i, flush=True)\n    time.sleep(.02)";
    let (client, other) = (node.engine.client("default"), node.engine.client("default"));
    let (bomb, sibling) = (submit(&client, bomb), submit(&other, python(sibling)));
    let (bomb, sibling) = tokio::join!(see(bomb), see(sibling));
    assert_eq!(sibling.outcome.status, Status::Completed, "{sibling:?}");
    assert_eq!(sibling.out().lines().count(), 20);
    // And afterwards everything is as before.
    assert_eq!(node.run(shell("echo after")).await.out(), "after\n");
    bomb
}

#[tokio::test]
async fn a_fork_bomb_is_held_and_ended() {
    let bomb = limited(shell("f() { f | f & }; f; wait; sleep 100"), 128, Duration::from_secs(1));
    let seen = set_off(bomb).await;
    assert!(matches!(seen.outcome.status, Status::Timeout | Status::Oom), "{:?}", seen.outcome);
}

#[tokio::test]
async fn many_small_blocks_of_memory_are_oom() {
    let code = "x = []\nwhile True: x.append(bytearray(1 << 20))";
    let seen = set_off(limited(python(code), 64, Duration::from_mins(1))).await;
    assert_eq!(seen.outcome.status, Status::Oom);
}

#[tokio::test]
async fn a_child_that_takes_the_memory_is_oom() {
    let code = "import subprocess, sys\n\
        subprocess.run([sys.executable, '-c', 'x = bytearray(1 << 30)'])\nprint('survived')";
    let seen = set_off(limited(python(code), 64, Duration::from_mins(1))).await;
    assert_eq!((seen.out(), seen.outcome.status), ("", Status::Oom));
}

#[tokio::test]
async fn many_children_that_take_memory_together_are_oom() {
    let code = "import os, time\n\
        for _ in range(40):\n    if os.fork() == 0:\n        x = bytearray(8 << 20)\n        \
        time.sleep(10)\ntime.sleep(10)";
    let seen = set_off(limited(python(code), 64, Duration::from_mins(1))).await;
    assert_eq!(seen.outcome.status, Status::Oom);
}

#[tokio::test]
async fn memory_that_is_reserved_but_not_used_does_no_harm() {
    let code = "import mmap\n\
        x = [mmap.mmap(-1, 1 << 34, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000) \
        for _ in range(8)]\nprint('done')";
    let seen = set_off(limited(python(code), 64, Duration::from_mins(1))).await;
    assert_eq!((seen.out(), seen.outcome.status), ("done\n", Status::Completed));
}

#[tokio::test]
async fn descriptors_run_out_inside_alone() {
    let code = "import os\nn = 0\ntry:\n    while True:\n        os.dup(0)\n        n += 1\n\
        except OSError as e:\n    print(e.errno, n)";
    let seen = set_off(limited(python(code), 64, Duration::from_mins(1))).await;
    assert_eq!((seen.out(), seen.outcome.status), ("24 1021\n", Status::Completed));
}

#[tokio::test]
async fn threads_run_out_inside_alone() {
    let code = "import threading, time\nn = 0\ntry:\n    while True:\n        \
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n        n += 1\n\
        except RuntimeError as e:\n    print(e, n <= 256)";
    let seen = set_off(limited(python(code), 128, Duration::from_mins(1))).await;
    assert_eq!(seen.out(), "can't start new thread True\n");
}

#[tokio::test]
async fn timers_and_watches_run_out_inside_alone() {
    let code = "import ctypes, errno\nlibc = ctypes.CDLL(None, use_errno=True)\n\
        libc.inotify_init.restype = ctypes.c_int\nn = 0\n\
        while libc.inotify_init() >= 0: n += 1\n\
        print(errno.errorcode[ctypes.get_errno()], n <= 1024)";
    let seen = set_off(limited(python(code), 64, Duration::from_mins(1))).await;
    assert_eq!((seen.out(), seen.outcome.status), ("EMFILE True\n", Status::Completed));
}

#[tokio::test]
async fn a_full_disk_is_an_error_inside_and_the_program_goes_on() {
    let code = "import errno\nn = 0\ntry:\n    with open('/workspace/x', 'wb', 0) as f:\n        \
        while True:\n            n += f.write(bytes(1 << 20))\n\
        except OSError as e:\n    print(errno.errorcode[e.errno], n >> 20)";
    let seen = set_off(limited(python(code), 256, Duration::from_mins(1))).await;
    assert_eq!((seen.out(), seen.outcome.status), ("ENOSPC 63\n", Status::Completed));
}

#[tokio::test]
async fn too_many_files_and_too_deep_folders_are_errors_inside() {
    let code = "import errno, os\nn = 0\ntry:\n    while True:\n        os.mkdir('d')\n        \
        os.chdir('d')\n        n += 1\nexcept OSError as e:\n    print(errno.errorcode[e.errno], n > 4096)";
    let seen = set_off(limited(python(code), 256, Duration::from_mins(1))).await;
    assert_eq!((seen.out(), seen.outcome.status), ("ENOSPC True\n", Status::Completed));
}

#[tokio::test]
async fn a_huge_sparse_file_takes_no_room() {
    let code = "f = open('/tmp/x', 'wb')\nf.truncate((1 << 63) - 1)\nprint('done')";
    let seen = set_off(limited(python(code), 64, Duration::from_mins(1))).await;
    assert!(matches!(seen.outcome.status, Status::Completed | Status::Failed), "{seen:?}");
}

#[tokio::test]
async fn spinning_on_every_processor_ends_at_the_deadline() {
    let code = "import os\nfor _ in range(8): os.fork()\nwhile True: pass";
    let seen = set_off(limited(python(code), 256, Duration::from_millis(1500))).await;
    assert!(matches!(seen.outcome.status, Status::Timeout | Status::Oom | Status::Failed));
}

#[tokio::test]
async fn a_flood_on_both_streams_is_cut_at_the_limit() {
    let flood = shell("yes out & yes err >&2");
    let seen = set_off(limited(flood, 64, Duration::from_mins(1))).await;
    assert_eq!((seen.outcome.status, seen.outcome.truncated), (Status::Failed, true));
    assert_eq!(seen.stdout.len() + seen.stderr.len(), 1 << 20);
}

#[tokio::test]
async fn ten_million_tiny_writes_and_one_huge_line_are_counted_to_the_byte() {
    for code in ["import os\nwhile True: os.write(1, b'x')", "print('y' * (64 << 20))"] {
        let seen = set_off(limited(python(code), 256, Duration::from_mins(1))).await;
        assert_eq!((seen.stdout.len(), seen.outcome.truncated), (1 << 20, true), "{code}");
    }
}
