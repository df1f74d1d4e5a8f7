//! Files that programs leave in their workspace, collected after their end.

use std::{fmt::Write as _, fs::File, io::Read as _, os::fd::OwnedFd, time::Duration};

use engine::{
    collect::{
        Collect, CollectEnd, CollectLimit, CollectedContent, CollectedEntry, CollectedFiles,
        OtherKind,
    },
    executions::Event,
};
use model::{
    execution::{Execution, Exit, Freshness, Status, StopReason},
    limits::{FixedLimits, Limits},
    units::ByteSize,
};

use crate::node::{Node, Seen, python, see, shell};

/// What tools ask for.
fn asked() -> Collect {
    Collect {
        files: vec!["result.json".into()],
        folders: vec!["output".into()],
        max_entries: 1000,
        max_depth: 32,
        max_file_bytes: 64 << 20,
        max_total_bytes: 64 << 20,
    }
}

async fn run(node: &Node, execution: Execution, collect: Collect) -> (Seen, CollectedFiles) {
    let client = node.engine.client("default");
    let accepted = client.submit_and_collect(execution, collect).unwrap();
    let mut files = accepted.files;
    let seen = see(accepted.submitted).await;
    // They are there before the end is told.
    let collected = files.try_recv().unwrap();
    (seen, collected)
}

/// Runs a program, and returns how it ended and what was collected of it, a line for each entry.
async fn collected(node: &Node, execution: Execution) -> (Status, String) {
    let (seen, collected) = run(node, execution, asked()).await;
    (seen.outcome.status, lines(collected))
}

fn lines(collected: CollectedFiles) -> String {
    let mut lines = String::new();
    for CollectedEntry { path, content } in collected.entries {
        write!(lines, "{} ", path.escape_ascii()).unwrap();
        match content {
            CollectedContent::File { size, file } => {
                let text = read(file);
                assert_eq!(size, text.len() as u64);
                writeln!(lines, "{text:?}").unwrap();
            }
            other => writeln!(lines, "{other:?}").unwrap(),
        }
    }
    if collected.end != CollectEnd::Complete {
        writeln!(lines, "{:?}", collected.end).unwrap();
    }
    lines
}

fn read(file: OwnedFd) -> String {
    let mut text = String::new();
    File::from(file).read_to_string(&mut text).unwrap();
    text
}

/// A program that writes its result and two files, and then does this.
fn writes_and(then: &str) -> Execution {
    let write = "import os, sys, time\n\
        open('result.json', 'w').write('{}')\n\
        os.makedirs('output/plots')\n\
        open('output/plots/a.png', 'w').write('png')\n\
        open('output/table.csv', 'w').write('csv')\n";
    python(&format!("{write}{then}"))
}

const WRITTEN: &str = "result.json \"{}\"\noutput/plots/a.png \"png\"\noutput/table.csv \"csv\"\n";

#[tokio::test]
async fn files_of_a_program_are_collected_however_it_exits() {
    let node = Node::start().await;
    for (then, status) in [
        ("", Status::Completed),
        ("sys.exit(3)", Status::Failed),
        ("raise ValueError", Status::Failed),
        ("os.kill(os.getpid(), 11)", Status::Failed),
        ("os._exit(0)", Status::Completed),
        // A process that is left behind is killed first.
        ("if os.fork() == 0: time.sleep(1000)", Status::Completed),
        ("if os.fork() == 0: os.setsid(); time.sleep(1000)\nos._exit(4)", Status::Failed),
    ] {
        assert_eq!(collected(&node, writes_and(then)).await, (status, WRITTEN.into()), "{then}");
        let strict = Execution { freshness: Freshness::Strict, ..writes_and(then) };
        assert_eq!(collected(&node, strict).await, (status, WRITTEN.into()), "{then}");
    }
}

#[tokio::test]
async fn output_and_exit_status_are_those_of_an_execution_without_collection() {
    let node = Node::start().await;
    let then = "print('out'); print('x' * 300_000, file=sys.stderr); sys.exit(3)";
    let (seen, files) = run(&node, writes_and(then), asked()).await;
    assert_eq!((seen.out(), seen.stderr.len()), ("out\n", 300_001));
    assert_eq!((seen.outcome.status, seen.outcome.exit), (Status::Failed, Some(Exit::Code(3))));
    assert_eq!(lines(files), WRITTEN);
}

#[tokio::test]
async fn a_program_that_writes_no_files_has_none() {
    let node = Node::start().await;
    assert_eq!(collected(&node, python("")).await, (Status::Completed, String::new()));
    let broken = python("syntax error");
    assert_eq!(collected(&node, broken).await, (Status::Failed, String::new()));
}

#[tokio::test]
async fn files_of_a_program_killed_at_its_deadline_are_collected() {
    let node = Node::start().await;
    let limits = Limits { timeout: Duration::from_secs(1), ..python("").limits };
    for then in ["time.sleep(1000)", "while True: pass"] {
        let execution = Execution { limits, ..writes_and(then) };
        let (seen, files) = run(&node, execution, asked()).await;
        assert_eq!(seen.outcome.stopped_for, Some(StopReason::Deadline));
        assert_eq!(lines(files), WRITTEN);
    }
}

#[tokio::test]
async fn files_of_a_cancelled_program_are_collected() {
    let node = Node::start().await;
    let client = node.engine.client("default");
    let execution = writes_and("print('written', flush=True); time.sleep(1000)");
    let mut accepted = client.submit_and_collect(execution, asked()).unwrap();
    loop {
        match accepted.submitted.events.recv().await.unwrap() {
            Event::Started => {}
            Event::Output { .. } => break,
            other => panic!("{other:?}"),
        }
    }
    accepted.submitted.canceller.cancel(StopReason::Cancelled);
    assert_eq!(see(accepted.submitted).await.outcome.status, Status::Cancelled);
    assert_eq!(lines(accepted.files.await.unwrap()), WRITTEN);
}

#[tokio::test]
async fn an_execution_that_is_cancelled_in_the_queue_has_no_files() {
    let node = Node::start().await;
    let client = node.engine.client("default");
    let accepted = client.submit_and_collect(writes_and(""), asked()).unwrap();
    accepted.submitted.canceller.cancel(StopReason::Cancelled);
    let seen = see(accepted.submitted).await;
    assert_eq!(seen.outcome.status, Status::Cancelled);
    // It may have started already.
    assert!(seen.started || accepted.files.await.is_err());
}

#[tokio::test]
async fn files_of_a_program_that_ran_out_of_memory_are_collected() {
    let node = Node::start().await;
    let execution = writes_and("x = bytearray(1 << 30); print(len(x))");
    assert_eq!(collected(&node, execution).await, (Status::Oom, WRITTEN.into()));
}

#[tokio::test]
async fn files_of_a_fork_bomb_are_collected() {
    let node = Node::start().await;
    let limits = Limits { timeout: Duration::from_secs(2), ..python("").limits };
    let then = "while True:\n\x20try: os.fork()\n\x20except OSError: pass";
    let execution = Execution { limits, ..writes_and(then) };
    let (status, files) = collected(&node, execution).await;
    // So many interpreters may run out of memory before.
    assert!(matches!(status, Status::Timeout | Status::Oom), "{status:?}");
    assert_eq!(files, WRITTEN);
}

#[tokio::test]
async fn files_and_directories_without_any_permission_are_collected() {
    let node = Node::start().await;
    let then = "import tempfile\n\
        fd, path = tempfile.mkstemp(dir='output')\n\
        os.write(fd, b'temporary'); os.rename(path, 'output/mkstemp')\n\
        os.mkdir('output/private'); open('output/private/x', 'w').write('x')\n\
        for path in ['result.json', 'output/plots/a.png', 'output/private/x', 'output/private', \
        'output/plots', 'output', '.']: os.chmod(path, 0)";
    let expected = "result.json \"{}\"\noutput/mkstemp \"temporary\"\n\
        output/plots/a.png \"png\"\noutput/private/x \"x\"\noutput/table.csv \"csv\"\n";
    assert_eq!(collected(&node, writes_and(then)).await, (Status::Completed, expected.into()));
}

#[tokio::test]
async fn links_are_reported_and_never_followed() {
    let node = Node::start().await;
    let code = "import os\nos.mkdir('output'); open('secret', 'w').write('s')\n\
        os.mkdir('folder'); open('folder/secret', 'w').write('s')\n\
        for name, target in [('absolute', '/etc/passwd'), ('broken', 'nothing'), \
        ('folder', '../folder'), ('host', '/proc/1/root'), ('inside', 'file'), ('itself', 'itself'), \
        ('magic', '/proc/self/fd/0'), ('outside', '../secret'), ('up', '..')]:\n\
        \x20os.symlink(target, 'output/' + name)\n\
        open('output/file', 'w').write('f'); os.symlink('secret', 'result.json')";
    let expected = "result.json Other(SymbolicLink)\n\
        output/absolute Other(SymbolicLink)\noutput/broken Other(SymbolicLink)\n\
        output/file \"f\"\noutput/folder Other(SymbolicLink)\noutput/host Other(SymbolicLink)\n\
        output/inside Other(SymbolicLink)\noutput/itself Other(SymbolicLink)\n\
        output/magic Other(SymbolicLink)\noutput/outside Other(SymbolicLink)\n\
        output/up Other(SymbolicLink)\n";
    assert_eq!(collected(&node, python(code)).await, (Status::Completed, expected.into()));
}

#[tokio::test]
async fn what_is_not_a_file_is_reported_without_being_opened() {
    let node = Node::start().await;
    let code = "import os, socket\nos.mkdir('output'); os.mkfifo('output/fifo')\n\
        socket.socket(socket.AF_UNIX).bind('output/socket')\n\
        try: os.mknod('output/device', 0o20666, 0)\n\
        except OSError: open('output/no-device', 'w').close()\n\
        os.mkfifo('result.json')";
    let (status, files) = collected(&node, python(code)).await;
    let device = if files.contains("no-device") {
        "output/fifo Other(Fifo)\noutput/no-device \"\"\n"
    } else {
        "output/device Other(Device)\noutput/fifo Other(Fifo)\n"
    };
    let expected = format!("result.json Other(Fifo)\n{device}output/socket Other(Socket)\n");
    assert_eq!((status, files), (Status::Completed, expected));
}

#[tokio::test]
async fn a_path_of_another_kind_than_expected_is_reported_as_what_it_is() {
    let node = Node::start().await;
    for (code, expected) in [
        ("mkdir result.json; touch result.json/x", "result.json Other(Directory)\n"),
        ("ln -s /etc output", "output Other(SymbolicLink)\n"),
        ("mkdir a; touch a/x; ln -s a output", "output Other(SymbolicLink)\n"),
        ("ln -s /proc/self/cwd output", "output Other(SymbolicLink)\n"),
        ("echo text > output", "output \"text\\n\"\n"),
        ("mkfifo output", "output Other(Fifo)\n"),
        ("mkdir output", ""),
    ] {
        assert_eq!(
            collected(&node, shell(code)).await,
            (Status::Completed, expected.into()),
            "{code}"
        );
    }
}

#[tokio::test]
async fn names_are_delivered_as_the_bytes_that_they_are() {
    let node = Node::start().await;
    let code = "import os\nos.mkdir('output')\n\
        for name in [b'a b', b'new\\nline', b'\\xff\\xfe', b'..x', b'-', b'n' * 255]:\n\
        \x20open(b'output/' + name, 'w').close()";
    let long = "n".repeat(255);
    let expected = format!(
        "output/- \"\"\noutput/..x \"\"\noutput/a b \"\"\noutput/new\\nline \"\"\noutput/{long} \"\"\n\
         output/\\xff\\xfe \"\"\n"
    );
    assert_eq!(collected(&node, python(code)).await, (Status::Completed, expected));
}

#[tokio::test]
async fn a_hundred_thousand_files_stop_at_the_limit() {
    let node = Node::start().await;
    let fixed = FixedLimits { inodes: 120_000, ..FixedLimits::default() };
    let memory = ByteSize::mib(512);
    let code = "import os\nopen('result.json', 'w').write('{}'); os.mkdir('output')\n\
        for n in range(100_000): os.close(os.open(f'output/{n:06}', os.O_CREAT))";
    let limits = Limits { fixed, memory, ..python("").limits };
    let (seen, files) = run(&node, Execution { limits, ..python(code) }, asked()).await;
    assert_eq!(seen.outcome.status, Status::Completed, "{}", seen.err());
    assert_eq!(files.end, CollectEnd::Limit(CollectLimit::Entries));
    let paths = files.entries.iter().map(|entry| String::from_utf8(entry.path.clone()).unwrap());
    // The folder counts, too.
    let expected = (0..998).map(|number| format!("output/{number:06}"));
    assert!(paths.eq(["result.json".to_owned()].into_iter().chain(expected)));
    assert!(files.entries.iter().all(|it| matches!(it.content, CollectedContent::File { .. })));
}

#[tokio::test]
async fn nested_directories_are_entered_down_to_the_deepest_level() {
    let node = Node::start().await;
    let code = "import os\nos.mkdir('output'); open('output/z', 'w').close(); os.chdir('output')\n\
        for n in range(3000): os.mkdir('d' * 200); os.chdir('d' * 200); open('f', 'w').close()";
    let deep = |max_depth| Collect { max_depth, ..asked() };
    for (asked, given) in [(32, 32), (64, 64), (5000, 64)] {
        let (seen, files) = run(&node, python(code), deep(asked)).await;
        assert_eq!(seen.outcome.status, Status::Completed, "{}", seen.err());
        assert_eq!(files.end, CollectEnd::Complete);
        // In each entered directory but the first: `d…/`, and then `f`.
        assert_eq!(files.entries.len(), given + 1);
        let deepest = &files.entries[0];
        assert!(matches!(deepest.content, CollectedContent::Other(OtherKind::Directory)));
        assert_eq!(deepest.path.len(), 6 + 201 * given);
    }
}

#[tokio::test]
async fn a_sparse_file_counts_with_its_size() {
    let node = Node::start().await;
    let code = "import os\nos.mkdir('output'); open('output/z', 'w').close()\n\
        os.truncate(os.open('output/sparse', os.O_CREAT | os.O_WRONLY), 1 << 30)";
    let expected = "output/sparse TooLarge { size: 1073741824 }\noutput/z \"\"\n";
    assert_eq!(collected(&node, python(code)).await, (Status::Completed, expected.into()));
    let large = Collect { max_file_bytes: 2 << 30, ..asked() };
    let (_, files) = run(&node, python(code), large.clone()).await;
    assert_eq!(lines(files), "Limit(TotalBytes)\n");
    let (_, files) = run(&node, python(code), Collect { max_total_bytes: 2 << 30, ..large }).await;
    let CollectedContent::File { size, file } = &files.entries[0].content else { panic!() };
    assert_eq!(*size, 1 << 30);
    let mut byte = [1];
    assert_eq!(rustix::io::pread(file, &mut byte, (1 << 30) - 1), Ok(1));
    assert_eq!(byte, [0]);
}

#[tokio::test]
async fn hard_links_are_files() {
    let node = Node::start().await;
    let code = "mkdir output; echo x > file; ln file output/a; ln file output/b; ln file result.json; rm file";
    let expected = "result.json \"x\\n\"\noutput/a \"x\\n\"\noutput/b \"x\\n\"\n";
    assert_eq!(collected(&node, shell(code)).await, (Status::Completed, expected.into()));
}

#[tokio::test]
async fn a_collected_file_can_be_read_after_its_slot_is_gone_and_not_be_written() {
    let node = Node::start().await;
    let (_, files) = run(&node, writes_and(""), asked()).await;
    for _ in 0..20 {
        node.run(shell("echo next > result.json")).await;
    }
    let writable = |file: &OwnedFd| rustix::io::write(file, b"x").is_ok();
    let is_file = |entry: &CollectedEntry| match &entry.content {
        CollectedContent::File { file, .. } => !writable(file),
        _ => false,
    };
    assert!(files.entries.iter().all(is_file));
    assert_eq!(lines(files), WRITTEN);
}

#[tokio::test]
async fn collection_needs_no_reader_of_the_files_or_of_the_output() {
    let node = Node::start().await;
    let client = node.engine.client("default");
    let code = "import os\nos.mkdir('output')\n\
        for n in range(900): open(f'output/{n}', 'w').close()\nprint('x' * 900_000)";
    let accepted = client.submit_and_collect(python(code), asked()).unwrap();
    drop(accepted.files);
    assert_eq!(see(accepted.submitted).await.stdout.len(), 900_001);
    // A client that reads no event for a while.
    let accepted = client.submit_and_collect(python(code), asked()).unwrap();
    assert_eq!(node.run(shell("echo other")).await.out(), "other\n");
    assert_eq!(see(accepted.submitted).await.stdout.len(), 900_001);
    assert_eq!(accepted.files.await.unwrap().entries.len(), 900);
}

#[tokio::test]
async fn files_written_at_work_are_those_of_the_workspace() {
    let node = Node::start().await;
    let code = "mkdir /work/output; echo r > /work/result.json; echo a > /work/output/a";
    let expected = "result.json \"r\\n\"\noutput/a \"a\\n\"\n";
    assert_eq!(collected(&node, shell(code)).await, (Status::Completed, expected.into()));
}
