//! What every slot and sandbox sees of the machine's files is an overlay of its own: neither locks nor file events
//! pass between them.

use engine::executions::{Event, Submitted};
use harness::needs;
use model::execution::{Exit, StopReason};

use crate::{
    home::{Home, shell},
    node::{Node, python, see, submit},
};

/// Prints the file systems that a program sees, and stays.
const FILE_SYSTEMS: &str = "import os, signal\n\
    print(*[os.stat(path).st_dev for path in ('/', '/usr', '/etc', '/dev')], flush=True)\n\
    signal.pause()";

async fn first_line(submitted: &mut Submitted) -> String {
    let mut said = String::new();
    while !said.ends_with('\n') {
        let event = submitted.events.recv().await.expect("the execution goes on");
        assert!(!matches!(event, Event::Ended(_)), "{event:?} after {said:?}");
        if let Event::Output { data, .. } = event {
            said.push_str(&String::from_utf8_lossy(&data));
        }
    }
    said
}

#[tokio::test]
async fn executions_that_run_at_the_same_time_share_no_file_system() {
    let node = Node::with(&["python"]).await;
    let mut running = [(); 2].map(|()| submit(&node.engine.client("one"), python(FILE_SYSTEMS)));
    let mut seen = Vec::new();
    for execution in &mut running {
        seen.push(first_line(execution).await);
    }
    for (one, other) in seen[0].split_whitespace().zip(seen[1].split_whitespace()) {
        assert_ne!(one, other, "{seen:?}");
    }
    for execution in running {
        execution.canceller.cancel(StopReason::Cancelled);
        see(execution).await;
    }
}

#[tokio::test]
async fn every_device_works_and_is_a_device() {
    let node = Node::with(&["python"]).await;
    let code = "import os, stat\n\
        assert all(stat.S_ISCHR(os.stat('/dev/' + it).st_mode)\n\
        \x20for it in ('null', 'zero', 'full', 'random', 'urandom', 'tty'))\n\
        assert open('/dev/zero', 'rb').read(3) == bytes(3)\n\
        assert len(open('/dev/urandom', 'rb').read(16)) == 16\n\
        open('/dev/null', 'wb').write(b'x')\n\
        try: os.write(os.open('/dev/full', os.O_WRONLY), b'x')\n\
        except OSError as error: print(error.errno)";
    let seen = node.run(python(code)).await;
    assert_eq!((seen.out(), seen.outcome.exit), ("28\n", Some(Exit::Code(0))), "{}", seen.err());
}

/// Prints each file event of the machine's files until something named `stop` appears in its own `/tmp`.
const WATCHER: &str = "import ctypes, os, struct\n\
    libc = ctypes.CDLL(None)\n\
    fd = libc.inotify_init1(0)\n\
    for path in ('/usr/bin', '/usr/lib', '/etc', '/dev', '/dev/null'):\n\
    \x20assert libc.inotify_add_watch(fd, path.encode(), 0xfff) > 0, path\n\
    assert libc.inotify_add_watch(fd, b'/tmp', 0x100) > 0\n\
    open('/tmp/watching', 'w').close()\n\
    while True:\n\
    \x20data = os.read(fd, 65536)\n\
    \x20while data:\n\
    \x20\x20_, mask, _, size = struct.unpack_from('iIII', data)\n\
    \x20\x20name = data[16:16 + size].rstrip(bytes(1)).decode()\n\
    \x20\x20data = data[16 + size:]\n\
    \x20\x20if name == 'stop': raise SystemExit\n\
    \x20\x20if name != 'watching': print(hex(mask), name, flush=True)";

#[tokio::test]
async fn a_sandbox_sees_no_file_events_of_another_sandbox_or_of_the_machine() {
    needs::require_root();
    let home = Home::new();
    let server = home.start().await;
    let (watching, other) = (server.ready().await, server.ready().await);
    let watcher = model::spec::ExecSpec {
        command: ["/usr/bin/python3", "-I", "-c", WATCHER].map(str::to_owned).to_vec(),
        user: Some("root".to_owned()),
        ..Default::default()
    };
    let watcher = server.start(&watching, watcher).await;
    let wait = "until [ -e /tmp/watching ]; do :; done";
    server.end_of(&server.start(&watching, shell(wait)).await.exec.id).await;
    // Nothing else opens these.
    let files = ["/usr/bin/tac", "/etc/protocols", "/dev/full"];
    let (end, _) = server.run(&other, &format!("head -c1 {} >/dev/null", files.join(" "))).await;
    assert_eq!(end.exit_code(), Some(0), "{end:?}");
    for path in files {
        drop(std::fs::File::open(path).unwrap());
    }
    // It reads events in the order in which they come, so this one is the last.
    server.end_of(&server.start(&watching, shell("touch /tmp/stop")).await.exec.id).await;
    server.end_of(&watcher.exec.id).await;
    let seen = std::fs::read_to_string(&watcher.stdout).unwrap();
    for name in ["tac", "protocols", "full"] {
        assert!(!seen.lines().any(|line| line.ends_with(&format!(" {name}"))), "{seen}");
    }
    server.end().await;
}
