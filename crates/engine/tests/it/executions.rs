//! What goes in, what comes out, and how it ends.

use std::time::Duration;

use model::{
    admission::Load,
    execution::{Execution, Exit, Status, StopReason},
    limits::{FixedLimits, Limits},
    units::ByteSize,
};

use crate::node::{Node, python, see, shell, submit};

#[tokio::test]
async fn output_and_exit_code_come_back() {
    let node = Node::start().await;
    // It works for several ticks of the kernel: the time of a shorter one may not be counted yet when it ends.
    let code = "import sys\nprint('out')\nprint('err', file=sys.stderr)\nsum(range(3_000_000))\nsys.exit(3)";
    let seen = node.run(python(code)).await;
    assert_eq!((seen.started, seen.out(), seen.err()), (true, "out\n", "err\n"));
    assert_eq!((seen.outcome.status, seen.outcome.exit), (Status::Failed, Some(Exit::Code(3))));
    assert_eq!((seen.outcome.output_bytes, seen.outcome.truncated), (8, false));
    assert!(seen.outcome.usage.peak_memory > ByteSize::mib(1), "{:?}", seen.outcome.usage);
    assert!(seen.outcome.usage.cpu_time > Duration::ZERO, "{:?}", seen.outcome.usage);
}

#[tokio::test]
async fn env_and_stdin_reach_the_program() {
    let node = Node::start().await;
    let execution = Execution {
        env: vec![("GREETING".into(), "grüß dich = hallo".into()), ("HOME".into(), "/tmp".into())],
        stdin: "line one\nline two".into(),
        ..shell("echo \"$GREETING $HOME\"; cat")
    };
    assert_eq!(node.run(execution).await.out(), "grüß dich = hallo /tmp\nline one\nline two");
}

#[tokio::test]
async fn a_signal_is_told_apart_from_an_exit_code() {
    let node = Node::start().await;
    let seen = node.run(shell("kill -SEGV $$")).await;
    assert_eq!((seen.outcome.status, seen.outcome.exit), (Status::Failed, Some(Exit::Signal(11))));
}

#[tokio::test]
async fn killing_oneself_is_not_running_out_of_memory() {
    let node = Node::start().await;
    let seen = node.run(shell("kill -KILL $$")).await;
    assert_eq!((seen.outcome.status, seen.outcome.exit), (Status::Failed, Some(Exit::Signal(9))));
}

/// On a busy machine everything takes longer now and then, and so the best of a few attempts counts.
#[tokio::test]
async fn the_deadline_ends_a_program_that_ignores_every_signal() {
    let node = Node::start().await;
    let limits = Limits { timeout: Duration::from_secs(1), ..Limits::default() };
    let code = "trap '' HUP INT TERM QUIT; echo on; while :; do :; done";
    let mut late = Vec::new();
    for _ in 0..3 {
        let seen = node.run(Execution { limits, ..shell(code) }).await;
        assert_eq!((seen.out(), seen.outcome.status), ("on\n", Status::Timeout));
        assert_eq!(seen.outcome.stopped_for, Some(StopReason::Deadline));
        late.push(seen.outcome.duration.saturating_sub(limits.timeout));
    }
    assert!(late.iter().any(|late| *late < Duration::from_millis(250)), "{late:?}");
}

#[tokio::test]
async fn too_much_memory_is_oom_by_the_kernels_word() {
    let node = Node::start().await;
    let seen = node.run(python("x = bytearray(1 << 30)\nprint(len(x))")).await;
    assert_eq!((seen.out(), seen.outcome.status), ("", Status::Oom));
    assert_eq!(seen.outcome.stopped_for, None);
}

#[tokio::test]
async fn output_is_cut_exactly_at_the_limit() {
    let node = Node::start().await;
    let limits = Limits { max_output: ByteSize::bytes(100_001), ..Limits::default() };
    let seen = node.run(Execution { limits, ..shell("yes") }).await;
    assert_eq!((seen.stdout.len(), seen.outcome.output_bytes), (100_001, 100_001));
    assert_eq!((seen.outcome.status, seen.outcome.truncated), (Status::Failed, true));
    assert_eq!(seen.outcome.stopped_for, Some(StopReason::OutputLimit));
}

#[tokio::test]
async fn output_of_exactly_the_limit_is_not_cut() {
    let node = Node::start().await;
    let limits = Limits { max_output: ByteSize::bytes(5), ..Limits::default() };
    let seen = node.run(Execution { limits, ..shell("printf 12345") }).await;
    assert_eq!((seen.out(), seen.outcome.status), ("12345", Status::Completed));
    assert!(!seen.outcome.truncated);
}

#[tokio::test]
async fn a_cancelled_execution_ends_at_once() {
    let node = Node::start().await;
    let client = node.engine.client("default");
    let submitted = submit(&client, shell("sleep 100"));
    submitted.canceller.cancel(StopReason::Cancelled);
    let seen = see(submitted).await;
    assert_eq!(seen.outcome.status, Status::Cancelled);
    assert!(seen.outcome.duration < Duration::from_secs(50));
}

#[tokio::test]
async fn a_background_process_does_not_delay_the_end() {
    let node = Node::start().await;
    let seen = node.run(shell("sleep 1000 & setsid sleep 1000 & echo done")).await;
    assert_eq!((seen.out(), seen.outcome.status), ("done\n", Status::Completed));
}

#[tokio::test]
async fn stdin_that_nobody_reads_and_large_code_do_no_harm() {
    let node = Node::start().await;
    let code = format!("# {}\nprint('done')", "x".repeat(500 * 1024));
    let execution = Execution { stdin: b"y".repeat(1 << 20), ..python(&code) };
    assert_eq!(node.run(execution).await.out(), "done\n");
}

#[tokio::test]
async fn a_client_that_does_not_read_holds_up_only_its_own_program() {
    let node = Node::start().await;
    let stalled =
        submit(&node.engine.client("default"), shell("yes | head -c 900000; echo end >&2"));
    assert_eq!(node.run(shell("echo other")).await.out(), "other\n");
    let seen = see(stalled).await;
    assert_eq!((seen.stdout.len(), seen.err()), (900_000, "end\n"));
    assert_eq!(seen.outcome.status, Status::Completed);
}

#[tokio::test]
async fn an_execution_that_nobody_listens_to_is_ended() {
    let node = Node::start().await;
    drop(submit(&node.engine.client("default"), shell("sleep 1000")));
    // There is room for one at a time to prove it: the load goes back to nothing.
    while node.engine.load() != Load::default() {
        tokio::task::yield_now().await;
    }
}

/// A runtime that was started ahead has used processor time before its request came. A program cannot
/// use more than all processors have while it runs.
#[tokio::test]
async fn the_processor_time_of_a_result_is_that_of_the_code_alone() {
    let processors = u32::try_from(std::thread::available_parallelism().unwrap().get()).unwrap();
    // Reading the counters takes a moment before and after.
    let inaccuracy = Duration::from_millis(20);
    for (language, code) in
        [("python", "print(1)"), ("javascript", "console.log(1)"), ("elixir", "IO.puts(1)")]
    {
        let node = Node::with(&[language]).await;
        let execution = Execution { language: language.into(), ..python(code) };
        let outcome = node.run(execution).await.outcome;
        let most = outcome.duration * processors + inaccuracy;
        assert!(outcome.usage.cpu_time <= most, "{language}: {outcome:?}");
    }
    let node = Node::start().await;
    let busy =
        "import time\nstart = time.process_time()\nwhile time.process_time() < start + 0.2: pass";
    let cpu_time = node.run(python(busy)).await.outcome.usage.cpu_time;
    assert!(cpu_time >= Duration::from_millis(200), "{cpu_time:?}");
}

fn limited(fixed: FixedLimits, execution: Execution) -> Execution {
    let memory = ByteSize::mib(512);
    Execution { limits: Limits { fixed, memory, ..execution.limits }, ..execution }
}

#[tokio::test]
async fn a_program_has_room_for_a_pool_of_100_threads() {
    let node = Node::start().await;
    let code = "import threading\n\
        barrier = threading.Barrier(101)\n\
        for _ in range(100): threading.Thread(target=barrier.wait).start()\n\
        barrier.wait(); print('all')";
    let seen = node.run(python(code)).await;
    assert_eq!((seen.out(), seen.outcome.status), ("all\n", Status::Completed), "{}", seen.err());
}

#[tokio::test]
async fn processes_disk_and_inodes_are_what_the_request_asks_for() {
    let node = Node::start().await;
    let usual = FixedLimits::default();
    let small = FixedLimits { processes: 8, disk: ByteSize::mib(1), inodes: 64 };
    let large = FixedLimits { processes: 600, disk: ByteSize::mib(200), inodes: 40_000 };
    let processes = "import os, time\nn = 0\ntry:\n while n < 500:\n  if os.fork() == 0: time.sleep(99)\n  n += 1\n\
        except OSError: pass\nprint(n)";
    let bytes = "f = open('f', 'wb', 0)\nn = 0\ntry:\n while n < 150: n += f.write(bytes(1 << 20)) >> 20\n\
        except OSError: pass\nprint(n)";
    let files = "n = 0\ntry:\n while n < 30000: open(f'f{n}', 'w').close(); n += 1\nexcept OSError: pass\nprint(n)";
    let rows = [
        (processes, small, 0..8),
        (processes, usual, 200..256),
        (processes, large, 500..501),
        (bytes, small, 0..1),
        (bytes, usual, 60..65),
        (bytes, large, 150..151),
        (files, small, 0..64),
        (files, usual, 16_000..16_384),
        (files, large, 30_000..30_001),
    ];
    for (code, fixed, expected) in rows {
        let seen = node.run(limited(fixed, python(code))).await;
        let reached: usize = seen.out().trim().parse().unwrap();
        assert!(expected.contains(&reached), "{fixed:?}: {reached}, {code}");
    }
}
