//! Commands as those see them who watch them.

use std::time::Duration;

use engine::sandboxes::{
    SandboxError,
    attach::{Attached, Part, Stream},
};
use model::{
    exec::ExecEnd,
    execution::Exit,
    ids::ExecId,
    sandbox::{Sandbox, WhenStopped},
    spec::{ExecSpec, Input, OnFull, TerminalSize},
};
use tokio::time::timeout;

use crate::home::{Home, Server, shell, tenant};

/// Nothing here takes this long unless it is broken.
const PATIENCE: Duration = Duration::from_mins(1);

async fn run(server: &Server, sandbox: &Sandbox, id: Option<&str>, spec: ExecSpec) -> Attached {
    let id = id.map(|id| id.parse::<ExecId>().unwrap());
    let tenant = tenant();
    let run = server.sandboxes.run(&tenant, &sandbox.id, id, spec, WhenStopped::Refuse);
    run.await.unwrap()
}

async fn attach(server: &Server, sandbox: &Sandbox, id: &ExecId) -> Attached {
    server.sandboxes.attach(&tenant(), &sandbox.id, id).await.unwrap()
}

/// Reads a stream to its end. What is missing is told as so many stars.
async fn rest(attached: &Attached, stream: Stream, from: u64) -> Vec<u8> {
    let mut output = attached.output(stream, from, OnFull::Wait);
    let mut all = Vec::new();
    loop {
        match timeout(PATIENCE, output.next()).await.expect("nothing comes").unwrap() {
            Part::Bytes { at, bytes } => {
                assert_eq!(at, from + u64::try_from(all.len()).unwrap());
                all.extend(bytes);
            }
            Part::Gap { length, .. } => all.extend(vec![b'*'; length.try_into().unwrap()]),
            Part::End { .. } => return all,
        }
    }
}

/// Waits until this text has come.
async fn until(attached: &Attached, text: &str) -> String {
    let mut output = attached.output(Stream::Stdout, 0, OnFull::Drop);
    let mut all = String::new();
    while !all.contains(text) {
        let next = timeout(PATIENCE, output.next()).await;
        match next.unwrap_or_else(|_| panic!("nothing comes after {all:?}")).unwrap() {
            Part::Bytes { bytes, .. } => all.push_str(&String::from_utf8_lossy(&bytes)),
            other => panic!("{other:?} after {all:?}"),
        }
    }
    all
}

async fn end(attached: &mut Attached) -> ExecEnd {
    timeout(PATIENCE, attached.ended()).await.expect("it does not end").unwrap().0
}

#[tokio::test]
async fn both_streams_are_read_while_the_command_runs_and_after_it() {
    let home = Home::new();
    let server = home.start().await;
    let sandbox = server.ready().await;
    let spec = shell("echo one; echo two >&2; read line; echo got $line; exit 3");
    let mut attached = run(&server, &sandbox, None, spec).await;
    assert!(attached.started().await.is_some());
    until(&attached, "one\n").await;
    attached.input().await.unwrap().write_all(b"this\n").await.unwrap();
    assert_eq!(end(&mut attached).await, ExecEnd::Exited(Exit::Code(3)));
    assert_eq!(rest(&attached, Stream::Stdout, 0).await, b"one\ngot this\n");
    assert_eq!(rest(&attached, Stream::Stderr, 2).await, b"o\n");
    let again = attach(&server, &sandbox, attached.id()).await;
    assert_eq!(rest(&again, Stream::Stdout, 4).await, b"got this\n");
    assert_eq!(again.flow().end, Some(ExecEnd::Exited(Exit::Code(3))));
    assert!(matches!(attached.input().await, Err(SandboxError::ExecEnded)));
    server.end().await;
}

#[tokio::test]
async fn an_id_that_is_sent_again_is_watched_and_never_run_twice() {
    let home = Home::new();
    let server = home.start().await;
    let sandbox = server.ready().await;
    let spec = shell("echo ran >> /workspace/runs; echo here; read line");
    let first = run(&server, &sandbox, Some("my-own-id"), spec.clone()).await;
    until(&first, "here").await;
    let mut second = run(&server, &sandbox, Some("my-own-id"), spec.clone()).await;
    first.close_input().await.unwrap();
    assert_eq!(end(&mut second).await, ExecEnd::Exited(Exit::Code(1)));
    let third = run(&server, &sandbox, Some("my-own-id"), spec).await;
    assert_eq!(rest(&third, Stream::Stdout, 0).await, b"here\n");
    assert_eq!(server.run(&sandbox, "cat runs").await.1, "ran\n");
    let id: ExecId = "my-own-id".parse().unwrap();
    let (tenant, other) = (tenant(), shell("echo other"));
    let (one, refuse) = (Some(id.clone()), WhenStopped::Refuse);
    let other = server.sandboxes.run(&tenant, &sandbox.id, one, other, refuse).await;
    assert!(matches!(other, Err(SandboxError::ExecExists)));
    let elsewhere = server.ready().await;
    let found = server.sandboxes.attach(&tenant, &elsewhere.id, &id).await;
    assert!(matches!(found, Err(SandboxError::ExecNotFound)));
    let nobodys = server.sandboxes.attach(&"other".parse().unwrap(), &sandbox.id, &id).await;
    assert!(matches!(nobodys, Err(SandboxError::ExecNotFound)));
    server.end().await;
}

#[tokio::test]
async fn time_that_is_up_ends_a_command_and_its_input_may_be_closed_from_the_start() {
    let home = Home::new();
    let server = home.start().await;
    let sandbox = server.ready().await;
    let limited = ExecSpec {
        timeout: Some(Duration::from_secs(2)),
        ..shell("echo begun; sleep 1000 & sleep 1000")
    };
    let mut attached = run(&server, &sandbox, None, limited).await;
    assert_eq!(end(&mut attached).await, ExecEnd::TimedOut { lost: 0, lost_stderr: 0 });
    assert_eq!(rest(&attached, Stream::Stdout, 0).await, b"begun\n");
    let spec = ExecSpec { input: Input::Closed, ..shell("cat; echo over") };
    let mut attached = run(&server, &sandbox, None, spec).await;
    assert_eq!(end(&mut attached).await, ExecEnd::Exited(Exit::Code(0)));
    let (_, usage) = attached.ended().await.unwrap();
    assert!(usage.peak_memory > 100_000, "{usage:?}");
    server.end().await;
}

#[tokio::test]
async fn a_command_that_nobody_watches_any_more_is_ended_after_its_time() {
    let home = Home::new();
    let server = home.start().await;
    let sandbox = server.ready().await;
    let unattended = Some(Duration::from_secs(1));
    let spec = ExecSpec { unattended, ..shell("echo here; sleep 1000") };
    let watched = run(&server, &sandbox, None, spec.clone()).await;
    let left = run(&server, &sandbox, None, spec).await;
    let id = left.id().clone();
    until(&left, "here").await;
    drop(left);
    assert_eq!(server.end_of(&id).await, ExecEnd::Cancelled);
    assert_eq!(watched.flow().end, None);
    server.end().await;
}

#[tokio::test]
async fn output_beyond_what_is_kept_waits_for_its_reader_and_no_byte_is_missing() {
    let home = Home::new();
    let output = model::units::ByteSize::mib(2);
    let defaults = engine::sandboxes::Defaults { output, ..engine::sandboxes::Defaults::default() };
    let server = home.start_with(defaults).await;
    let sandbox = server.ready().await;
    let spec = ExecSpec { on_full: OnFull::Wait, ..shell("seq 1 3000000") };
    let attached = run(&server, &sandbox, None, spec).await;
    // Nobody reads before everything is written that there is room for.
    let full = async {
        while attached.flow().extents[0].end < 2 << 20 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, full).await.unwrap();
    let expected: Vec<u8> = (1..=3_000_000).flat_map(|n| format!("{n}\n").into_bytes()).collect();
    assert!(rest(&attached, Stream::Stdout, 0).await == expected);
    server.end().await;
}

/// Has something go as far as it can, and waits for nobody.
async fn begin<F: Future>(mut future: std::pin::Pin<&mut F>) -> std::task::Poll<F::Output> {
    std::future::poll_fn(|context| std::task::Poll::Ready(future.as_mut().poll(context))).await
}

#[tokio::test]
async fn a_reader_whom_a_command_waits_for_is_heard_although_the_inbox_was_full() {
    let home = Home::new();
    let output = model::units::ByteSize::mib(2);
    let defaults = engine::sandboxes::Defaults { output, ..engine::sandboxes::Defaults::default() };
    let server = home.start_with(defaults).await;
    let sandbox = server.ready().await;
    let spec = ExecSpec { on_full: OnFull::Wait, ..shell("seq 1 700000") };
    let attached = run(&server, &sandbox, None, spec).await;
    let mut output = attached.output(Stream::Stdout, 0, OnFull::Wait);
    let mut read = 0;
    loop {
        // Whatever is said of this reader finds no room, until somebody else has his turn.
        let mut asks: Vec<_> = (0..100).map(|_| Box::pin(attached.signal(0))).collect();
        for ask in &mut asks {
            let _ = tokio::task::unconstrained(begin(ask.as_mut())).await;
        }
        let mut next = std::pin::pin!(output.next());
        let begun = begin(next.as_mut()).await;
        // Those who found no room either do not wait for it.
        drop(asks);
        let next = match begun {
            std::task::Poll::Ready(next) => next,
            std::task::Poll::Pending => timeout(PATIENCE, next).await.expect("nothing comes"),
        };
        match next.unwrap() {
            Part::Bytes { bytes, .. } => read += bytes.len(),
            Part::Gap { .. } => panic!("output is missing"),
            Part::End { .. } => break,
        }
    }
    assert_eq!(read, (1..=700_000).map(|n| format!("{n}\n").len()).sum::<usize>());
    server.end().await;
}

#[tokio::test]
async fn a_command_with_a_terminal_has_one_and_its_size_can_change() {
    let home = Home::new();
    let server = home.start().await;
    let sandbox = server.ready().await;
    let terminal = Some(TerminalSize { rows: 30, columns: 100 });
    let spec =
        ExecSpec { terminal, ..shell("tty; stty size; [ -O $(tty) ] && echo mine; exec sh") };
    let mut attached = run(&server, &sandbox, None, spec).await;
    let said = until(&attached, "mine").await;
    assert!(said.contains("/dev/pts/") && said.contains("30 100"), "{said}");
    let input = attached.input().await.unwrap();
    input.resize(TerminalSize { rows: 10, columns: 20 });
    input.write_all(b"stty size; echo $((6*7)) > /dev/tty\n").await.unwrap();
    assert!(until(&attached, "42").await.contains("10 20"));
    // What people type there is a signal to what runs there.
    // The trap itself ends the shell: a signal that comes before the sleep leaves nothing that reads further words.
    let trap = b"trap 'echo interr''upted; exit 5' INT; echo tra''pped; sleep 1000\n";
    input.write_all(trap).await.unwrap();
    until(&attached, "trapped").await;
    for _ in 0..100 {
        // It may be over by now.
        let _ = input.write_all(b"\x03").await;
        if timeout(Duration::from_millis(100), until(&attached, "interrupted")).await.is_ok() {
            break;
        }
    }
    until(&attached, "interrupted").await;
    assert_eq!(end(&mut attached).await, ExecEnd::Exited(Exit::Code(5)));
    server.end().await;
}

#[tokio::test]
async fn another_server_goes_on_where_the_last_one_was() {
    let home = Home::new();
    let server = home.start().await;
    let sandbox = server.ready().await;
    let attached = run(&server, &sandbox, Some("over-a-crash"), shell("echo one; read x; echo $x"));
    let attached = attached.await;
    until(&attached, "one").await;
    let id = attached.id().clone();
    drop(attached);
    server.crash().await;
    let server = home.start().await;
    let mut attached = attach(&server, &sandbox, &id).await;
    assert!(attached.started().await.is_some());
    attached.input().await.unwrap().write_all(b"two\n").await.unwrap();
    assert_eq!(rest(&attached, Stream::Stdout, 0).await, b"one\ntwo\n");
    assert_eq!(end(&mut attached).await, ExecEnd::Exited(Exit::Code(0)));
    server.end().await;
}
