//! Shells: joined by name, and what their terminals show.

use std::{sync::Arc, time::Duration};

use engine::sandboxes::{
    Defaults, SandboxError,
    attach::Attached,
    shells::{Painting, Shell, ShellSpec},
};
use model::{
    exec::ExecEnd,
    execution::Exit,
    ids::ShellName,
    sandbox::{Sandbox, WhenStopped},
    spec::TerminalSize,
    units::ByteSize,
};
use tokio::time::timeout;

use crate::home::{Home, Server, tenant};

/// Nothing here takes this long unless it is broken.
const PATIENCE: Duration = Duration::from_mins(1);

fn name(name: &str) -> ShellName {
    name.parse().unwrap()
}

/// Without anything that only people want.
fn plain() -> ShellSpec {
    let command = ["/bin/sh", "-c", "PS1='$ ' exec sh"].map(str::to_owned).to_vec();
    ShellSpec { command, ..ShellSpec::default() }
}

async fn start(server: &Server, sandbox: &Sandbox, shell: &str) -> Shell {
    let (tenant, resume) = (tenant(), WhenStopped::Resume);
    let shell = name(shell);
    server.sandboxes.start_shell(&tenant, &sandbox.id, &shell, plain(), resume).await.unwrap()
}

async fn join(server: &Server, sandbox: &Sandbox, shell: &str) -> Result<Shell, SandboxError> {
    server.sandboxes.join_shell(&tenant(), &sandbox.id, &name(shell)).await
}

async fn write(attached: &Attached, text: &str) {
    attached.input().await.unwrap().write_all(text.as_bytes()).await.unwrap();
}

/// Waits until the screen shows this.
async fn until(shell: &Shell, text: &str) -> Arc<Painting> {
    let mut flow = shell.attached.output(
        engine::sandboxes::attach::Stream::Stdout,
        shell.terminal.paint().await.unwrap().at,
        model::spec::OnFull::Drop,
    );
    loop {
        let painting = shell.terminal.paint().await.unwrap();
        if painting.text.contains(text) {
            return painting;
        }
        let next = timeout(PATIENCE, flow.next()).await;
        next.unwrap_or_else(|_| panic!("{text:?} does not come: {:?}", painting.text)).unwrap();
    }
}

#[tokio::test]
async fn those_who_come_at_once_join_the_same_shell_and_a_name_is_free_after_it() {
    let home = Home::new();
    let server = home.start().await;
    let sandbox = server.ready().await;
    let missing = join(&server, &sandbox, "one").await;
    assert!(matches!(missing, Err(SandboxError::ShellNotFound)), "{missing:?}");
    let starts: Vec<_> = (0..20).map(|_| start(&server, &sandbox, "one")).collect();
    let shells = futures_util::future::join_all(starts).await;
    let id = shells[0].attached.id().clone();
    assert!(shells.iter().all(|shell| *shell.attached.id() == id));
    let other = start(&server, &sandbox, "two").await;
    assert_ne!(*other.attached.id(), id);
    // It is no command that whoever runs commands could watch.
    let found = server.sandboxes.attach(&tenant(), &sandbox.id, &id).await;
    assert!(matches!(found, Err(SandboxError::ExecNotFound)), "{found:?}");
    let elsewhere = server.ready().await;
    for (tenant, sandbox) in [(tenant(), &elsewhere), ("other".parse().unwrap(), &sandbox)] {
        let found = server.sandboxes.join_shell_by_id(&tenant, &sandbox.id, &id).await;
        assert!(matches!(found, Err(SandboxError::ShellNotFound)), "{found:?}");
    }
    write(&shells[0].attached, "exit 3\n").await;
    for mut shell in shells {
        let ended = timeout(PATIENCE, shell.attached.ended()).await.unwrap().unwrap();
        assert_eq!(ended.0, ExecEnd::Exited(Exit::Code(3)));
    }
    let by_id = server.sandboxes.join_shell_by_id(&tenant(), &sandbox.id, &id).await;
    assert!(matches!(by_id, Err(SandboxError::ShellNotFound)), "{by_id:?}");
    let again = start(&server, &sandbox, "one").await;
    assert_ne!(*again.attached.id(), id);
    server.end().await;
}

#[tokio::test]
async fn another_server_shows_the_same_screen() {
    let home = Home::new();
    let server = home.start().await;
    let sandbox = server.ready().await;
    let shell = start(&server, &sandbox, "one").await;
    until(&shell, "$ ").await;
    let wide = TerminalSize { rows: 10, columns: 60 };
    shell.terminal.resize(wide);
    timeout(PATIENCE, shell.terminal.resized(TerminalSize::USUAL)).await.unwrap();
    // Some of it is shown before the crash, some is left to the next server to show.
    let script = "stty size; seq 1 100000; printf '\\033[?1049h\\033[5;7Hth''ere\\033[2;9r'\n";
    write(&shell.attached, script).await;
    let before = until(&shell, "there").await;
    assert_eq!((before.size, before.lost), (wide, 0));
    assert!(before.at > 500_000, "{}", before.at);
    let id = shell.attached.id().clone();
    drop(shell);
    server.crash().await;
    let server = home.start().await;
    let shell = join(&server, &sandbox, "one").await.unwrap();
    assert_eq!(*shell.attached.id(), id);
    assert_eq!(*shell.terminal.paint().await.unwrap(), *before);
    // It is the same shell, and as large.
    let script = "printf '\\033[?1049l\\033[r\\033[2J'; stty si''ze\n";
    write(&shell.attached, script).await;
    until(&shell, "10 60").await;
    server.end().await;
}

#[tokio::test]
async fn what_nobody_watches_is_kept_exactly_however_much_it_is() {
    let home = Home::new();
    let defaults = Defaults { output: ByteSize::mib(2), ..Defaults::default() };
    let server = home.start_with(defaults).await;
    let sandbox = server.ready().await;
    let shell = start(&server, &sandbox, "one").await;
    until(&shell, "$ ").await;
    let id = shell.attached.id().clone();
    // 4 MB, of which 2 MiB are kept.
    write(&shell.attached, "seq 1 600000; printf 'th''ere'; echo > over; read x; exit 7\n").await;
    drop(shell);
    // It is shown although nobody looks.
    server.run(&sandbox, "until [ -e over ]; do sleep 0.01; done").await;
    let shell = join(&server, &sandbox, "one").await.unwrap();
    let painting = until(&shell, "there").await;
    drop(shell);
    assert_eq!(painting.lost, 0);
    assert!(painting.at > 4_000_000, "{}", painting.at);
    for number in 599_979..600_000 {
        assert!(painting.text.contains(&number.to_string()), "{:?}", painting.text);
    }
    let screens = || std::fs::read_dir(home.data().join("screens")).unwrap().count();
    assert_eq!(screens(), 1);
    let mut shell = join(&server, &sandbox, "one").await.unwrap();
    write(&shell.attached, "\n").await;
    timeout(PATIENCE, shell.attached.ended()).await.unwrap();
    assert_eq!(server.end_of(&id).await, ExecEnd::Exited(Exit::Code(7)));
    // Its screen goes with it, at the latest when the next server begins.
    drop(shell);
    server.end().await;
    home.start().await.end().await;
    assert_eq!(screens(), 0);
}

#[tokio::test]
async fn of_many_wishes_for_a_size_the_last_counts() {
    let home = Home::new();
    let server = home.start().await;
    let sandbox = server.ready().await;
    let shell = start(&server, &sandbox, "one").await;
    until(&shell, "$ ").await;
    for number in 1..=100_000_u32 {
        shell.terminal.resize(TerminalSize::clamped(number % 50 + 1, number % 100 + 1));
    }
    shell.terminal.resize(TerminalSize { rows: 31, columns: 77 });
    let mut size = TerminalSize::USUAL;
    while size != (TerminalSize { rows: 31, columns: 77 }) {
        size = timeout(PATIENCE, shell.terminal.resized(size)).await.unwrap().size;
    }
    write(&shell.attached, "stty si''ze\n").await;
    assert_eq!(until(&shell, "31 77").await.size, size);
    shell.terminal.resize(TerminalSize { rows: 1000, columns: 1000 });
    let large = timeout(PATIENCE, shell.terminal.resized(size)).await.unwrap().size;
    assert_eq!(large, TerminalSize { rows: 65, columns: 1000 });
    server.end().await;
}

/// Whoever sits at a terminal that is taken away is hung up on: shells do not hear that they are to end.
#[tokio::test]
async fn a_shell_ends_at_once_when_its_sandbox_is_stopped() {
    let home = Home::new();
    let server = home.start().await;
    let sandbox = server.ready().await;
    let mut shell = start(&server, &sandbox, "one").await;
    until(&shell, "$ ").await;
    server.sandboxes.stop(&tenant(), sandbox.id.as_str()).await.unwrap();
    let ended = timeout(PATIENCE, shell.attached.ended()).await.unwrap().unwrap();
    // Otherwise it would have been killed in the end.
    assert_eq!(ended.0, ExecEnd::Exited(Exit::Signal(1)));
    server.end().await;
}
