//! An exit status is the kernel's: nothing that a program writes anywhere can change it.

use model::execution::{Execution, Exit, Freshness};

use crate::node::{Node, python};

const KILLED: Exit = Exit::Signal(9);

fn execution(language: &str, freshness: Freshness, code: &str) -> Execution {
    Execution { language: language.into(), freshness, ..python(code) }
}

/// Runs each program in a warm slot and in one of its own, and compares how it ended.
async fn end_alike(language: &str, rows: &[(&str, Exit)]) {
    let node = Node::with(&[language]).await;
    for freshness in [Freshness::Shared, Freshness::Strict] {
        for (code, exit) in rows {
            let seen = node.run(execution(language, freshness, code)).await;
            let err = seen.err();
            assert_eq!(seen.outcome.exit, Some(*exit), "{language} {freshness:?}: {code} {err}");
        }
    }
}

/// Lists what the descriptors of a program lead to, without numbers, in a warm slot and in one of its own.
async fn have_the_same_descriptors(language: &str, code: &str) {
    let node = Node::with(&[language]).await;
    let warm = node.run(execution(language, Freshness::Shared, code)).await;
    let strict = node.run(execution(language, Freshness::Strict, code)).await;
    assert!(!warm.stdout.is_empty(), "{}", warm.err());
    assert_eq!(warm.out(), strict.out(), "{language}: {}", warm.err());
}

#[tokio::test]
async fn a_python_program_ends_as_the_kernel_says_whatever_it_writes() {
    const WRITE_EVERYWHERE: &str = "import os, signal\n\
        for fd in range(3, 5000):\n\
        \x20try: os.write(fd, b'\\0')\n\
        \x20except OSError: pass\n";
    let lie_and = |end: &str| format!("{WRITE_EVERYWHERE}{end}");
    let rows = [
        ("import os; os._exit(7)", Exit::Code(7)),
        ("import sys; sys.exit(256 + 3)", Exit::Code(3)),
        ("raise SystemExit", Exit::Code(0)),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", KILLED),
        (&*lie_and("os._exit(7)"), Exit::Code(7)),
        (&*lie_and("os.kill(os.getpid(), signal.SIGKILL)"), KILLED),
        // Any thread may end the process; a child ends only itself.
        (
            "import os, threading, time\nthreading.Thread(target=lambda: os._exit(6)).start()\n\
          time.sleep(60)",
            Exit::Code(6),
        ),
        ("import os\nif os.fork() == 0: os._exit(0)\nos.wait(); os._exit(7)", Exit::Code(7)),
        ("import os, signal\nif os.fork() == 0: os.kill(os.getppid(), 9)\nsignal.pause()", KILLED),
        // A child that goes on does not hide how its parent ended.
        ("import os, time\nif os.fork() == 0: time.sleep(60)\nos._exit(5)", Exit::Code(5)),
        // Memory that cannot be inspected does not make a failure look like a success.
        ("import ctypes, os\nctypes.CDLL(None).prctl(4, 0)\nos._exit(0)", Exit::Code(0)),
        ("import ctypes, os\nctypes.CDLL(None).prctl(4, 0)\nos._exit(8)", Exit::Code(8)),
        ("import os; os.execv('/bin/sh', ['sh', '-c', 'exit 9'])", Exit::Code(9)),
    ];
    end_alike("python", &rows).await;
}

#[tokio::test]
async fn a_node_program_ends_as_the_kernel_says_whatever_it_writes() {
    const WRITE_EVERYWHERE: &str = "for (let fd = 3; fd < 5000; fd++) \
        { try { require('fs').writeSync(fd, Buffer.from([0])) } catch {} }\n";
    let lie_and = |end: &str| format!("{WRITE_EVERYWHERE}{end}");
    let rows = [
        ("process.reallyExit(7)", Exit::Code(7)),
        ("process.exitCode = 6", Exit::Code(6)),
        ("process.on('exit', () => process.kill(process.pid, 'SIGKILL'))", KILLED),
        ("process.reallyExit = () => {}; process.exitCode = 4", Exit::Code(4)),
        (&*lie_and("process.reallyExit(7)"), Exit::Code(7)),
        (&*lie_and("process.kill(process.pid, 'SIGKILL')"), KILLED),
    ];
    end_alike("javascript", &rows).await;
}

#[tokio::test]
async fn a_shell_program_ends_as_the_kernel_says_whatever_it_writes() {
    const WRITE_EVERYWHERE: &str =
        "for fd in /proc/self/fd/*; do fd=${fd##*/}; [ $fd -lt 3 ] || printf '\\0' >&$fd; done\n";
    let lie_and = |end: &str| format!("{{ {WRITE_EVERYWHERE} }} 2> /dev/null\n{end}");
    let rows = [
        ("exit 7", Exit::Code(7)),
        ("kill -KILL $$", KILLED),
        ("sleep 60 & exit 5", Exit::Code(5)),
        (&*lie_and("exit 7"), Exit::Code(7)),
        (&*lie_and("kill -KILL $$"), KILLED),
    ];
    end_alike("shell", &rows).await;
}

#[tokio::test]
async fn an_elixir_program_ends_as_the_kernel_says_whatever_it_writes() {
    const WRITE: &str = "for fd <- [3, 4, 1024], {:ok, file} <- \
        [:prim_file.file_desc_to_ref(fd, [:raw, :write])], do: :prim_file.write(file, <<0>>)\n";
    let lie_and = |end: &str| format!("{WRITE}{end}");
    let rows = [
        ("System.halt(7)", Exit::Code(7)),
        ("exit({:shutdown, 6})", Exit::Code(6)),
        ("System.at_exit(fn _ -> System.halt(5) end)", Exit::Code(5)),
        ("System.cmd(\"kill\", [\"-KILL\", System.pid()]); Process.sleep(:infinity)", KILLED),
        (&*lie_and("System.halt(7)"), Exit::Code(7)),
    ];
    end_alike("elixir", &rows).await;
}

#[tokio::test]
async fn no_descriptor_of_ours_is_open_in_a_python_program() {
    let code = "import os, resource\n\
        print(sorted(os.readlink(f'/proc/self/fd/{fd}').split(':')[0] for fd in range(5000)\n\
        \x20if os.path.lexists(f'/proc/self/fd/{fd}')), resource.getrlimit(resource.RLIMIT_NOFILE))";
    have_the_same_descriptors("python", code).await;
}

#[tokio::test]
async fn no_descriptor_of_ours_is_open_in_a_node_program() {
    // Node.js opens a descriptor of its own with the first stream.
    let code = "process.stdout.write(''); const fs = require('fs'); \
        console.log(fs.readdirSync('/proc/self/fd').map((fd) => \
        { try { return fs.readlinkSync(`/proc/self/fd/${fd}`).split(':')[0] } catch { return '' } })\
        .filter(Boolean).sort().join())";
    have_the_same_descriptors("javascript", code).await;
}

#[tokio::test]
async fn no_descriptor_of_ours_is_open_in_an_elixir_program() {
    let code = "{:ok, fds} = :file.list_dir(~c\"/proc/self/fd\")\n\
        links = for fd <- fds, {:ok, link} <- [:file.read_link(~c\"/proc/self/fd/\" ++ fd)], \
        do: hd(String.split(List.to_string(link), \":\"))\nIO.inspect(Enum.sort(links), limit: 99)";
    have_the_same_descriptors("elixir", code).await;
}
