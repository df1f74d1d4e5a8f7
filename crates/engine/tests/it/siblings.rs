//! Two executions at once: neither sees, signals, starves or reads the other.

use model::execution::{Execution, Status};
use rustix::time::{ClockId, clock_gettime};

use crate::node::{Node, python, see, submit};

/// Lays out everything that another execution could find, says so, and waits for it to be tried.
const HOST: &str = r"
import os, socket, sys, time
token = os.environ['TOKEN']
abstract = socket.socket(socket.AF_UNIX); abstract.bind('\0' + token); abstract.listen()
tcp = socket.socket(); tcp.bind(('127.0.0.1', 34567)); tcp.listen()
for folder in ('/tmp', '/dev/shm', '/workspace', '/home/agbox'):
    open(f'{folder}/{token}', 'w').write(token)
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
# Where limits are soft there is no such memory.
print(libc.shmget(0x52460002, 4096, 0o1666) >= 0 or ctypes.get_errno() == 38, flush=True)
sys.stdin.read()
time.sleep(float(os.environ['STAY']))
print('undisturbed')
";

/// Looks for all of it, and signals every process it can name.
const GUEST: &str = r"
import ctypes, errno, os, socket
token = os.environ['TOKEN']
found = []
def look(name, call):
    try:
        call()
        found.append(name)
    except OSError:
        pass
look('abstract', lambda: socket.socket(socket.AF_UNIX).connect('\0' + token))
look('tcp', lambda: socket.create_connection(('127.0.0.1', 34567), 1))
for folder in ('/tmp', '/dev/shm', '/workspace', '/home/agbox'):
    look(folder, lambda: open(f'{folder}/{token}'))
libc = ctypes.CDLL(None, use_errno=True)
if libc.shmget(0x52460002, 4096, 0) >= 0: found.append('shm')
others = [p for p in os.listdir('/proc') if p.isdigit() and int(p) not in (1, os.getpid())]
if others: found.append(f'processes {others}')
for pid in range(2, 400):
    if pid != os.getpid(): look(f'kill {pid}', lambda: os.kill(pid, 9))
print(found)
";

#[tokio::test]
async fn neither_sees_signals_or_reads_the_other() {
    let node = Node::start().await;
    let (a, b) = (node.engine.client("default"), node.engine.client("default"));
    let env = |stay: &str| {
        vec![("TOKEN".into(), "ringfence-sibling".into()), ("STAY".into(), stay.into())]
    };
    let host = submit(&a, Execution { env: env("0.5"), ..python(HOST) });
    let guest = Execution { env: env("0"), ..python(GUEST) };
    // The host is started first and stays; the guest looks several times while it does.
    let (host, guests) = tokio::join!(see(host), async {
        let mut seen = Vec::new();
        for _ in 0..3 {
            seen.push(see(submit(&b, guest.clone())).await);
        }
        seen
    });
    assert_eq!((host.out(), host.outcome.status), ("True\nundisturbed\n", Status::Completed));
    for guest in guests {
        assert_eq!((guest.out(), guest.err()), ("[]\n", ""));
    }
}

#[tokio::test]
async fn the_next_execution_finds_nothing_of_the_last() {
    let node = Node::start().await;
    let code = "import os\n\
        print([os.listdir(d) for d in ('/tmp', '/dev/shm', '/workspace', '/home/agbox')])\n\
        for d in ('/tmp', '/dev/shm', '/workspace', '/home/agbox'): open(d + '/x', 'w').write('x')";
    for _ in 0..3 {
        assert_eq!(node.run(python(code)).await.out(), "[[], [], ['main.py'], []]\n");
    }
}

#[tokio::test]
async fn the_processor_is_shared_by_weight() {
    let node = Node::start().await;
    let (a, b) = (node.engine.client("default"), node.engine.client("default"));
    // Both count for the same time on the same processor.
    let code = "import os, time\nos.sched_setaffinity(0, {0})\nend = time.time() + 1.5\nn = 0\n\
        while time.time() < end: n += 1\nprint(n)";
    let shares = |shares: u32| {
        let mut execution = python(code);
        execution.limits.cpu_shares = shares;
        execution
    };
    let (light, heavy) = tokio::join!(see(submit(&a, shares(256))), see(submit(&b, shares(4096))));
    let count = |text: &str| text.trim().parse::<f64>().unwrap();
    let ratio = count(heavy.out()) / count(light.out());
    // 16 to 1 by weight; other tests may run on this processor as well.
    if !node.engine.posture().has_soft_limits() {
        assert!(ratio > 3.0, "{ratio}");
    }
}

#[tokio::test]
async fn tenants_share_the_processor_equally_however_many_executions_each_has() {
    let node = Node::start().await;
    harness::needs::require("cgroups", !node.engine.posture().has_soft_limits());
    // All count at the same time on the same processor, once all have started.
    let begin = clock_gettime(ClockId::Realtime).tv_sec + 6;
    let code = format!(
        "import os, time\nos.sched_setaffinity(0, {{0}})\ntime.sleep({begin} - time.time())\nn = 0\n\
         while time.time() < {begin} + 1.5: n += 1\nprint(n)"
    );
    let (hog, other) = (node.engine.client("hog"), node.engine.client("other"));
    let hogs: Vec<_> = (0..6).map(|_| submit(&hog, python(&code))).collect();
    let other = see(submit(&other, python(&code))).await;
    let count = |text: &str| text.trim().parse::<f64>().unwrap();
    let mut most = 0.0_f64;
    for hog in hogs {
        most = most.max(count(see(hog).await.out()));
    }
    // 6 to 1 with equal shares of tenants, 1 to 1 with equal shares of executions.
    let ratio = count(other.out()) / most;
    assert!(ratio > 2.0, "{ratio}");
}
