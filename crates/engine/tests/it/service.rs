//! The processes that serve a sandbox: nothing inside can stop them, end them or change their limits.

use std::time::Duration;

use engine::sandboxes::files::{Parents, Place};
use model::{
    exec::ExecEnd,
    execution::Exit,
    file::Condition,
    path::CleanPath,
    sandbox::{Sandbox, WhenStopped},
    spec::ExecSpec,
};

use crate::home::{Home, Server, shell, tenant};

/// Users of a sandbox. Without users of their own sandboxes have no root.
fn users() -> Vec<Option<String>> {
    let root = rustix::process::getuid().is_root().then(|| Some("root".to_owned()));
    root.into_iter().chain([None]).collect()
}

async fn run(server: &Server, sandbox: &Sandbox, spec: ExecSpec) -> (ExecEnd, String) {
    let started = server.start(sandbox, spec).await;
    let end = server.end_of(&started.exec.id).await;
    (end, std::fs::read_to_string(started.stdout).unwrap())
}

async fn write_a_file(server: &Server, sandbox: &Sandbox) {
    let name = sandbox.id.as_str();
    let files = server.sandboxes.files(&tenant(), name, WhenStopped::Refuse).await.unwrap();
    let path = CleanPath::read(b"/workspace/file", "/workspace").unwrap();
    let at = Place::new("/", path).unwrap();
    let mut writing = files.write(&at, &Condition::default(), Parents::Make).await.unwrap();
    writing.write("text".to_owned()).await.unwrap();
    writing.commit(None).await.unwrap();
}

#[tokio::test]
async fn commands_timeouts_and_files_go_on_after_a_command_has_signalled_everything() {
    let home = Home::new();
    let server = home.start().await;
    let sandbox = server.ready().await;
    write_a_file(&server, &sandbox).await;
    for user in users() {
        for signal in ["STOP", "TERM", "KILL", "STOP"] {
            let script = format!("trap '' TERM; kill -{signal} -1; echo done");
            let spec = ExecSpec { user: user.clone(), ..shell(&script) };
            let (end, out) = run(&server, &sandbox, spec).await;
            assert_eq!((end, out.as_str()), (ExecEnd::Exited(Exit::Code(0)), "done\n"), "{signal}");
            let (end, out) = server.run(&sandbox, "echo after").await;
            assert_eq!((end, out.as_str()), (ExecEnd::Exited(Exit::Code(0)), "after\n"));
            let timeout = Some(Duration::from_millis(300));
            let (end, _) =
                run(&server, &sandbox, ExecSpec { timeout, ..shell("sleep 1000") }).await;
            assert_eq!(end, ExecEnd::TimedOut { lost: 0, lost_stderr: 0 }, "{signal}");
            write_a_file(&server, &sandbox).await;
        }
    }
    server.end().await;
}

#[tokio::test]
async fn the_limits_of_the_supervisor_cannot_be_changed_from_inside() {
    let home = Home::new();
    let server = home.start().await;
    let sandbox = server.ready().await;
    let code = "import resource, os\n\
        for pid in [1] + [int(p) for p in os.listdir('/proc') if p.isdigit() and int(p) != os.getpid()]:\n    \
        try: print(pid, resource.prlimit(pid, resource.RLIMIT_NOFILE, (0, 0)))\n    \
        except PermissionError: pass\n\
        print(resource.prlimit(0, resource.RLIMIT_CORE, (0, 0)))";
    for user in users() {
        let command = ["/usr/bin/python3", "-c", code].map(str::to_owned).to_vec();
        let spec = ExecSpec { command, user, ..ExecSpec::default() };
        let (end, out) = run(&server, &sandbox, spec).await;
        assert_eq!((end, out.as_str()), (ExecEnd::Exited(Exit::Code(0)), "(0, 0)\n"));
    }
    server.end().await;
}

#[tokio::test]
async fn a_server_inside_can_listen_on_any_port() {
    let home = Home::new();
    let server = home.start().await;
    let sandbox = server.ready().await;
    let code = "import socket\nsocket.create_server(('127.0.0.1', 80))\n\
        socket.create_server(('::1', 22), family=socket.AF_INET6)\nprint('listening')";
    for user in users() {
        let command = ["/usr/bin/python3", "-c", code].map(str::to_owned).to_vec();
        let spec = ExecSpec { command, user, ..ExecSpec::default() };
        let (end, out) = run(&server, &sandbox, spec).await;
        assert_eq!((end, out.as_str()), (ExecEnd::Exited(Exit::Code(0)), "listening\n"));
    }
    server.end().await;
}
