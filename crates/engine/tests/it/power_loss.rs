//! A loss of power just after a creation: the record is on disk, and what the spawner has written down may not be.

use std::{fs, path::Path, time::Duration};

use engine::{
    sandboxes::shells::ShellSpec,
    sessions::{Acquire, Records, Sessions, Settings},
};
use model::{
    event::EventKind,
    exec::{ExecEnd, Loss},
    life::{Phase, SuspendReason},
    policy::Quotas,
    sandbox::WhenStopped,
    scope::Scope,
    session::Request,
};
use rustix::process::{Signal, kill_process};

use crate::home::{Home, Server, host, tenant};

/// What a loss of power can leave of a sandbox beside its files.
#[derive(Clone, Copy, Debug)]
enum Left {
    /// It is where those wait that are no sandbox's, because the rename is lost.
    Waiting,
    /// The same, and what marks its supervisor is empty.
    WaitingAndTorn,
    /// What marks its supervisor is empty.
    Torn,
    /// What marks its supervisor is missing.
    Unmarked,
}

fn lose(left: Left, sandboxes: &Path, name: &str) {
    let (folder, waiting) = (sandboxes.join(name), sandboxes.join(".waiting").join(name));
    let body = folder.join("body");
    match left {
        Left::Waiting => {
            // As it is on a machine that has been started since.
            let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
            let (boot, mut marks) = (boot.trim().as_bytes(), fs::read(&body).unwrap());
            let at = marks.windows(boot.len()).position(|part| part == boot).unwrap();
            marks[at] = if boot[0] == b'0' { b'1' } else { b'0' };
            fs::write(&body, marks).unwrap();
            fs::rename(&folder, &waiting).unwrap();
        }
        Left::WaitingAndTorn => {
            fs::write(&body, b"").unwrap();
            fs::rename(&folder, &waiting).unwrap();
        }
        Left::Torn => fs::write(&body, b"").unwrap(),
        Left::Unmarked => fs::remove_file(&body).unwrap(),
    }
    fs::write(sandboxes.join(".boot"), "another boot").unwrap();
}

#[tokio::test]
async fn a_sandbox_created_just_before_a_loss_of_power_is_stopped_and_keeps_its_files() {
    for left in [Left::Waiting, Left::WaitingAndTorn, Left::Torn, Left::Unmarked] {
        let home = Home::new();
        let server = home.start().await;
        let sandbox = server.ready().await;
        let id = sandbox.id.as_str();
        server.run(&sandbox, "echo kept > /workspace/file; sync").await;
        let supervisor = home.supervisor_of(id);
        server.crash().await;
        kill_process(supervisor, Signal::KILL).unwrap();
        lose(left, &home.folder(), id);

        let server = home.start().await;
        let stopped = server.until(id, Phase::Stopped).await;
        assert_eq!(stopped.life.suspended_for, Some(SuspendReason::HostRebooted), "{left:?}");
        server.sandboxes.resume(&tenant(), id).await.unwrap();
        let sandbox = server.until(id, Phase::Active).await;
        assert_eq!(server.run(&sandbox, "cat /workspace/file").await.1, "kept\n", "{left:?}");
        server.end().await;
    }
}

fn wanted() -> Acquire {
    Acquire {
        tenant: tenant(),
        scope: Scope::thread("thr_1".parse().unwrap()),
        request: Request::Ensure,
        spec: host(),
        image: None,
        hint: None,
        quotas: Quotas::default(),
        created_by: "key_1".to_owned(),
        wait: Duration::from_mins(1),
        key: None,
        records: Records::none(),
    }
}

#[tokio::test]
async fn after_a_reboot_a_lost_shell_is_reported_and_ensure_starts_the_session_with_its_files() {
    let home = Home::new();
    let server = home.start().await;
    let open = async |server: &Server| {
        Sessions::open(server.sandboxes.clone(), Settings::default()).await.unwrap()
    };
    let sessions = open(&server).await;
    let before = sessions.acquire(wanted()).await.unwrap().shown.session;
    let sandbox = server.until(before.sandbox.as_str(), Phase::Active).await;
    let id = sandbox.id.as_str();
    server.run(&sandbox, "echo kept > /workspace/file; sync").await;
    let (name, command) = ("main".parse().unwrap(), vec!["/bin/sh".to_owned()]);
    let spec = ShellSpec { command, ..ShellSpec::default() };
    let (tenant, resume) = (tenant(), WhenStopped::Resume);
    let shell = server.sandboxes.start_shell(&tenant, &sandbox.id, &name, spec, resume);
    let shell = shell.await.unwrap().attached.id().clone();
    let supervisor = home.supervisor_of(id);
    drop(sessions);
    server.crash().await;
    kill_process(supervisor, Signal::KILL).unwrap();
    lose(Left::Torn, &home.folder(), id);

    let server = home.start().await;
    let stopped = server.until(id, Phase::Stopped).await;
    assert!(stopped.life.shells.is_empty(), "{:?}", stopped.life.shells);
    let lost = ExecEnd::Lost(Loss::HostRebooted);
    let history = server.history(&stopped).await;
    assert!(history.contains(&EventKind::ExecEnded { exec: shell, end: lost }), "{history:?}");
    let after = open(&server).await.acquire(wanted()).await.unwrap().shown.session;
    assert_eq!(
        (&after.id, &after.sandbox, after.generation),
        (&before.id, &before.sandbox, before.generation)
    );
    let sandbox = server.until(id, Phase::Active).await;
    assert_eq!(server.run(&sandbox, "cat /workspace/file").await.1, "kept\n");
    server.end().await;
}
