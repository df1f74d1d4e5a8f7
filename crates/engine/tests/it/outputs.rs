//! How long the output of commands that are over stays on disk.

use std::time::Duration;

use engine::sandboxes::{
    Defaults, SandboxError,
    attach::{Part, Stream},
};
use model::{
    exec::ExecEnd,
    execution::Exit,
    ids::ExecId,
    life::Phase,
    sandbox::{Sandbox, WhenStopped},
    spec::{ExecSpec, OnFull},
    units::ByteSize,
};
use tokio::time::timeout;

use crate::home::{Home, Server, shell, tenant};

/// Nothing here takes this long unless it is broken.
const PATIENCE: Duration = Duration::from_mins(1);

/// Runs a command to its end, without watching it.
async fn run(server: &Server, sandbox: &Sandbox, id: &str, spec: ExecSpec) -> ExecId {
    let id: ExecId = id.parse().unwrap();
    let (all, name) = (&server.sandboxes, sandbox.id.as_str());
    let refuse = WhenStopped::Refuse;
    all.start_exec(&tenant(), name, Some(id.clone()), spec, refuse).await.unwrap();
    assert_eq!(server.end_of(&id).await, ExecEnd::Exited(Exit::Code(0)));
    id
}

fn short(script: &str, time: Duration) -> ExecSpec {
    ExecSpec { readable: Some(time), ..shell(script) }
}

fn files(home: &Home, sandbox: &Sandbox, id: &ExecId) -> usize {
    let folder = home.folder().join(sandbox.id.as_str()).join("out");
    let names = ["stdout", "stderr"].map(|stream| folder.join(format!("{id}.{stream}.log")));
    names.iter().filter(|name| name.exists()).count()
}

/// Waits until nothing is left of what a command has written.
async fn until_gone(home: &Home, sandbox: &Sandbox, id: &ExecId) {
    let gone = async {
        while files(home, sandbox, id) > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, gone).await.unwrap_or_else(|_| panic!("{id} is still there"));
}

#[tokio::test]
async fn output_goes_when_its_time_is_up_and_what_has_none_stays() {
    let home = Home::new();
    let server = home.start().await;
    let sandbox = server.ready().await;
    let stays = run(&server, &sandbox, "stays", shell("echo stays")).await;
    let long = run(&server, &sandbox, "long", short("echo", Duration::from_hours(1))).await;
    let goes = run(&server, &sandbox, "goes", short("echo x", Duration::from_millis(300))).await;
    let at_once = run(&server, &sandbox, "at-once", short("echo x", Duration::ZERO)).await;
    until_gone(&home, &sandbox, &goes).await;
    until_gone(&home, &sandbox, &at_once).await;
    // Its record goes with it, for those who ask for a command.
    let attached = server.sandboxes.attach(&tenant(), &sandbox.id, &goes).await;
    assert!(matches!(attached, Err(SandboxError::ExecNotFound)), "{attached:?}");
    assert_eq!((files(&home, &sandbox, &stays), files(&home, &sandbox, &long)), (2, 2));
    server.end().await;
}

/// The time may be up while no server is there, and while the sandbox has no process.
#[tokio::test]
async fn output_whose_time_was_up_meanwhile_goes_also_from_a_sandbox_that_is_stopped() {
    let home = Home::new();
    let server = home.start().await;
    let (living, stopped) = (server.ready().await, server.ready().await);
    // Everything up to the crash has to be done before.
    let soon = Duration::from_secs(6);
    let mut all = Vec::new();
    for (number, sandbox) in [&living, &stopped].into_iter().enumerate() {
        let goes = run(&server, sandbox, &format!("goes-{number}"), short("echo x", soon)).await;
        let stays = run(&server, sandbox, &format!("stays-{number}"), shell("echo x")).await;
        all.push((sandbox, goes, stays));
    }
    let later = run(&server, &stopped, "later", short("echo x", 2 * soon)).await;
    server.sandboxes.stop(&tenant(), stopped.id.as_str()).await.unwrap();
    server.until(stopped.id.as_str(), Phase::Stopped).await;
    server.crash().await;
    tokio::time::sleep(soon).await;
    for (sandbox, goes, _) in &all {
        assert_eq!(files(&home, sandbox, goes), 2, "nobody was there");
    }
    let server = home.start().await;
    for (sandbox, goes, stays) in &all {
        until_gone(&home, sandbox, goes).await;
        assert_eq!(files(&home, sandbox, stays), 2);
    }
    // This one's time is up while the server is there.
    until_gone(&home, &stopped, &later).await;
    server.end().await;
}

#[tokio::test]
async fn of_too_much_output_the_oldest_goes_and_readers_are_told() {
    let home = Home::new();
    let outputs = ByteSize::mib(4);
    let server = home.start_with(Defaults { outputs, ..Defaults::default() }).await;
    let sandbox = server.ready().await;
    let mib = |name: &str| (name.to_owned(), shell("head -c 1048576 /dev/zero | tr '\\0' x"));
    let (name, spec) = mib("held");
    let held = run(&server, &sandbox, &name, spec).await;
    let reader = server.sandboxes.attach(&tenant(), &sandbox.id, &held).await.unwrap();
    let mut execs = Vec::new();
    for number in 0..8 {
        let (name, spec) = mib(&format!("number-{number}"));
        execs.push(run(&server, &sandbox, &name, spec).await);
    }
    for gone in &execs[..5] {
        until_gone(&home, &sandbox, gone).await;
    }
    assert_eq!(files(&home, &sandbox, &execs[7]), 2);
    // What somebody reads stays, however old it is.
    assert_eq!(files(&home, &sandbox, &held), 2);
    let mut output = reader.output(Stream::Stdout, 0, OnFull::Drop);
    assert!(matches!(output.next().await, Ok(Part::Bytes { at: 0, .. })));
    drop((output, reader));
    // The command is there; what it has written is not, and nothing is made up for it.
    let attached = server.sandboxes.attach(&tenant(), &sandbox.id, &execs[0]).await.unwrap();
    assert_eq!(attached.flow().end, Some(ExecEnd::Exited(Exit::Code(0))));
    assert!(attached.flow().is_cleared);
    for stream in Stream::BOTH {
        let read = attached.output(stream, 0, OnFull::Drop).next().await;
        assert!(matches!(read, Err(SandboxError::OutputGone)), "{read:?}");
    }
    // A single one that is too large stays while it is the last.
    let large = shell("head -c 6291456 /dev/zero | tr '\\0' x");
    let large = run(&server, &sandbox, "large", large).await;
    until_gone(&home, &sandbox, &execs[7]).await;
    until_gone(&home, &sandbox, &held).await;
    assert_eq!(files(&home, &sandbox, &large), 2);
    server.crash().await;
    // The next server keeps to it as well.
    let server = home.start_with(Defaults { outputs, ..Defaults::default() }).await;
    let (name, spec) = mib("last");
    run(&server, &sandbox, &name, spec).await;
    until_gone(&home, &sandbox, &large).await;
    server.end().await;
}

/// A reader who does not hold the command up may be overtaken by what is thrown away.
#[tokio::test]
async fn what_is_thrown_away_while_it_is_read_is_a_gap_and_never_zeros() {
    let home = Home::new();
    let output = ByteSize::mib(1);
    let server = home.start_with(Defaults { output, ..Defaults::default() }).await;
    let sandbox = server.ready().await;
    let spec = ExecSpec { on_full: OnFull::Drop, ..shell("yes | head -c 300000000") };
    let (all, refuse) = (&server.sandboxes, WhenStopped::Refuse);
    let attached = all.run(&tenant(), &sandbox.id, None, spec, refuse).await.unwrap();
    let mut output = attached.output(Stream::Stdout, 0, OnFull::Drop);
    let (mut place, mut gaps) = (0, 0);
    loop {
        match timeout(PATIENCE, output.next()).await.unwrap().unwrap() {
            Part::Bytes { at, bytes } => {
                assert_eq!(at, place);
                let is_right = |(index, byte): (usize, &u8)| {
                    *byte
                        == if (place + u64::try_from(index).unwrap()) % 2 == 0 {
                            b'y'
                        } else {
                            b'\n'
                        }
                };
                assert!(bytes.iter().enumerate().all(is_right), "wrong bytes at {at}");
                place += u64::try_from(bytes.len()).unwrap();
            }
            Part::Gap { at, length } => {
                assert_eq!(at, place);
                place += length;
                gaps += 1;
            }
            Part::End { at } => break assert_eq!((at, place), (300_000_000, 300_000_000)),
        }
    }
    assert!(gaps > 0);
    server.end().await;
}
