//! A server that is killed at one of its system calls.

use super::ground::{Ground, Strace};

/// Calls by which the server changes something that outlives it.
const CALLS: &str = "write,pwrite64,fsync,fdatasync,rename,renameat,renameat2,mkdirat,unlinkat,\
                     fchown,fchownat,mount,move_mount,clone,clone3,sendmsg";

/// Somebody who kills a process at its n-th call of those.
struct Killer(Strace);

impl Killer {
    fn watch(process: u32, time: u32) -> Self {
        Self(Strace::inject(process, CALLS, &format!("signal=KILL:when={time}")))
    }
}

impl Drop for Killer {
    fn drop(&mut self) {
        // Not asked to let go: it would wait for a leader of threads that it has not seen end.
        self.0.child.kill().unwrap();
        let _ = self.0.child.wait();
    }
}

/// F05: at whichever call one of the two processes is killed, what was answered holds, what was not
/// can be asked for again, and what is deleted leaves nothing.
#[test]
fn f05_a_server_killed_at_any_of_its_calls_keeps_what_it_answered() {
    harness::needs::require_root();
    let mut ground = Ground::new();
    ground.start();
    let mut killed = 0;
    // By turns of the daemon and of the spawner, which makes few calls of each kind: they are
    // counted for each kind and each thread by itself.
    for (round, time) in [1, 1, 3, 2, 6, 3, 11, 4].into_iter().enumerate() {
        let name = format!("box-{round}");
        let victim = if round % 2 == 0 { ground.daemon() } else { ground.spawner() };
        let killer = Killer::watch(victim, time);
        // Clients give up after a while; who is answered is held to it.
        let created = ground.patiently(&["create", "--image", "host", "--name", &name]);
        let ran = created.then(|| {
            let script = "echo once >> note; wc -l < note";
            ground.patiently(&["exec", &name, "--", "sh", "-c", script])
        });
        let removed = ran.is_some_and(|ran| ran) && ground.patiently(&["rm", &name]);
        killed += u32::from(!removed);
        drop(killer);
        ground.kill_rest();
        ground.start();

        let state = ground.state(&name);
        assert!(!created || state != "none", "{time}: {state}");
        if removed || state == "DELETING" || state == "DELETED" {
            let told = ground.ask(&["events", &name, "--follow", "--json"]);
            assert!(told.out.contains("SANDBOX_DELETED"), "{time}: {told:?}");
            continue;
        }
        if state == "none" {
            ground.create(&name);
        }
        ground.until_ready(&name);
        let said = ground.shell(&name, "touch note; wc -l < note");
        let expected = if ran == Some(true) { ["1\n", "1\n"] } else { ["0\n", "1\n"] };
        assert!(expected.contains(&&*said.out), "{time}: {said:?}\n{}", ground.log());
        assert_eq!(ground.ask(&["rm", &name]).code, Some(0), "{time}");
    }
    // The last ones may fall behind the end.
    assert!(killed >= 5, "killed {killed} times");
    let left = std::fs::read_dir(ground.data.join("sandboxes")).unwrap();
    let left = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(left.filter(|name| name.starts_with("sb_")).collect::<Vec<_>>(), [""; 0]);
}
