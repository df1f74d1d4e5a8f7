//! A supervisor runs commands, keeps what they write, and tells it to whoever knows the secret.

use std::{io::Write as _, os::fd::OwnedFd, time::Duration};

use harness::supervisor::{SANDBOX, SECRET, SupervisorProcess, start_supervisor};
use isolate::{
    plan::{Broken, Exit, Step},
    socket::PacketSocket,
    supervisor::{
        journal::{self, Record},
        wire::{
            self, Ask, End, Input, Known, Loopback, Refusal, Secret, Start, Stored, Tell, User,
            Whom, Written,
        },
    },
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect,
        socket_with,
    },
};

/// Nothing here takes this long unless it is broken.
const PATIENCE: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

/// A daemon, as far as these tests need one.
pub(crate) struct Daemon {
    pub(crate) socket: PacketSocket,
}

impl Daemon {
    fn connect(supervisor: &SupervisorProcess) -> PacketSocket {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        connect(&socket, &SocketAddrUnix::new(supervisor.socket()).unwrap()).unwrap();
        PacketSocket::from_fd(socket)
    }

    /// Connects, says the secret, and returns what there is.
    pub(crate) fn greet(supervisor: &SupervisorProcess) -> (Self, Vec<Known>) {
        let mut daemon = Self { socket: Self::connect(supervisor) };
        daemon.ask(&Ask::Hello { secret: SECRET });
        let Tell::Welcome { sandbox, execs } = daemon.next() else { panic!("no welcome") };
        assert_eq!(sandbox, SANDBOX);
        let known = (0..execs).map(|_| match daemon.next() {
            Tell::Known(known) => known,
            other => panic!("{other:?}"),
        });
        let known = known.collect();
        (daemon, known)
    }

    pub(crate) fn ask(&mut self, ask: &Ask) {
        self.socket.send(&wire::encode(ask).unwrap(), &[], SendFlags::empty()).unwrap();
    }

    pub(crate) fn next_with_fd(&mut self) -> (Tell, Option<OwnedFd>) {
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        assert_eq!(poll(&mut fds, Some(&PATIENCE)), Ok(1), "nothing was told");
        let packet = self.socket.receive(RecvFlags::empty()).unwrap().expect("it is gone");
        (wire::decode(&packet.bytes).unwrap(), packet.fds.into_iter().next())
    }

    pub(crate) fn next(&mut self) -> Tell {
        self.next_with_fd().0
    }

    pub(crate) fn start(&mut self, exec: &str, code: &str) {
        self.ask(&Ask::Start(Box::new(shell(exec, code))));
    }

    /// Waits for the end of this exec. What is told before is passed over.
    pub(crate) fn end(&mut self, exec: &str) -> End {
        loop {
            match self.next() {
                Tell::Ended { exec: ended, end } if ended == exec => return end,
                Tell::Known(Known { exec: known, end: Some(end), .. }) if known == exec => {
                    return end;
                }
                _ => {}
            }
        }
    }

    /// Waits until this exec has written so much.
    pub(crate) fn written(&mut self, exec: &str, bytes: u64) {
        loop {
            let (Tell::Output { exec: told, written }
            | Tell::Known(Known { exec: told, written, .. })) = self.next()
            else {
                continue;
            };
            if told == exec && written.stdout.end >= bytes {
                return;
            }
        }
    }
}

pub(crate) fn shell(exec: &str, code: &str) -> Start {
    Start {
        exec: exec.into(),
        argv: ["sh", "-c", code].map(Into::into).into(),
        env: vec!["PATH=/usr/bin:/bin".into(), "WHO=me".into()],
        directory: "/".into(),
        user: User::Plain { user: 0, group: 0 },
        keep: 64 << 20,
        input: Input::Open,
        terminal: None,
        at_most: None,
        wanted: None,
    }
}

pub(crate) fn exit_of(end: &End) -> Exit {
    match end {
        End::Exited { exit, .. } => *exit,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_command_runs_and_its_output_is_kept() {
    let supervisor = start_supervisor().unwrap();
    let (mut daemon, known) = Daemon::greet(&supervisor);
    assert_eq!(known, []);
    daemon.start("ex_1", "echo out $WHO; echo err >&2; pwd; exit 3");
    let end = daemon.end("ex_1");
    assert_eq!(exit_of(&end), Exit::Code(3));
    let End::Exited { written, .. } = end else { panic!() };
    let stored = |end| Stored { start: 0, end, lost: 0 };
    assert_eq!(written, Written { stdout: stored(9), stderr: stored(4) });
    assert_eq!(supervisor.output("ex_1", "stdout").unwrap(), b"out me\n/\n");
    assert_eq!(supervisor.output("ex_1", "stderr").unwrap(), b"err\n");
}

#[test]
fn nobody_is_let_in_without_the_secret() {
    let supervisor = start_supervisor().unwrap();
    for secret in [[0; 32], [8; 32]] {
        let stranger = Daemon::connect(&supervisor);
        let hello = wire::encode(&Ask::Hello { secret: Secret(secret) }).unwrap();
        stranger.send(&hello, &[], SendFlags::empty()).unwrap();
        assert!(stranger.receive(RecvFlags::empty()).unwrap().is_none());
    }
    let stranger = Daemon::connect(&supervisor);
    stranger.send(b"\x01\xff\xff", &[], SendFlags::empty()).unwrap();
    assert!(stranger.receive(RecvFlags::empty()).unwrap().is_none());
    let stranger = Daemon::connect(&supervisor);
    let start = wire::encode(&Ask::Start(Box::new(shell("ex", "true")))).unwrap();
    stranger.send(&start, &[], SendFlags::empty()).unwrap();
    assert!(stranger.receive(RecvFlags::empty()).unwrap().is_none());
    // Those who say nothing do not keep others out.
    let _silent: Vec<_> = (0..9).map(|_| Daemon::connect(&supervisor)).collect();
    let (_daemon, known) = Daemon::greet(&supervisor);
    assert_eq!(known, []);
}

#[test]
fn what_happens_while_no_daemon_is_there_is_told_to_the_next() {
    let supervisor = start_supervisor().unwrap();
    let (mut daemon, _) = Daemon::greet(&supervisor);
    daemon.start("ends", "read line; echo got $line; exit 7");
    daemon.start("stays", "echo one; read line; echo two; sleep 1000");
    daemon.written("stays", 4);
    let inputs = ["ends", "stays"].map(|exec| open_input(&mut daemon, exec).unwrap());
    drop(daemon);
    for mut input in inputs.map(std::fs::File::from) {
        input.write_all(b"x\n").unwrap();
    }
    // Whatever comes first: another daemon finds everything.
    let (mut daemon, known) = Daemon::greet(&supervisor);
    assert_eq!(known.iter().map(|k| k.exec.as_str()).collect::<Vec<_>>(), ["ends", "stays"]);
    let ended = known.into_iter().find_map(|known| known.end.filter(|_| known.exec == "ends"));
    assert_eq!(exit_of(&ended.unwrap_or_else(|| daemon.end("ends"))), Exit::Code(7));
    let (mut daemon, _) = Daemon::greet(&supervisor);
    daemon.start("marker", "true");
    daemon.end("marker");
    assert_eq!(supervisor.output("ends", "stdout").unwrap(), b"got x\n");
    let (mut daemon, known) = Daemon::greet(&supervisor);
    if known.iter().all(|known| known.exec != "stays" || known.written.stdout.end < 8) {
        daemon.written("stays", 8);
    }
    assert_eq!(supervisor.output("stays", "stdout").unwrap(), b"one\ntwo\n");
}

pub(crate) fn open_input(daemon: &mut Daemon, exec: &str) -> Option<OwnedFd> {
    daemon.ask(&Ask::OpenInput { exec: exec.into() });
    loop {
        if let (Tell::Input { exec: of }, fd) = daemon.next_with_fd() {
            assert_eq!(of, exec);
            return fd;
        }
    }
}

#[test]
fn an_id_starts_one_command_however_often_it_is_sent() {
    let supervisor = start_supervisor().unwrap();
    let (mut daemon, _) = Daemon::greet(&supervisor);
    for _ in 0..3 {
        daemon.start("once", "echo ran; exit 4");
    }
    assert_eq!(exit_of(&daemon.end("once")), Exit::Code(4));
    daemon.start("once", "echo ran");
    assert_eq!(exit_of(&daemon.end("once")), Exit::Code(4));
    assert_eq!(supervisor.output("once", "stdout").unwrap(), b"ran\n");
    // A file of that name is there, so that not even a supervisor that has forgotten it starts it.
    daemon.ask(&Ask::Forget { exec: "once".into() });
    daemon.start("once", "echo again");
    let again = Broken { step: Step::Writable, errno: libc::EEXIST };
    // The end of the first may have been told once for every time that it was asked for.
    let is_first = |end: &End| matches!(end, End::Exited { exit: Exit::Code(4), .. });
    let end = std::iter::repeat_with(|| daemon.end("once")).find(|end| !is_first(end));
    assert_eq!(end, Some(End::NotStarted(again)));
}

#[test]
fn what_cannot_be_started_is_told_by_its_step() {
    let supervisor = start_supervisor().unwrap();
    let (mut daemon, _) = Daemon::greet(&supervisor);
    let rows = [
        (
            Start { argv: vec!["no-such-program".into()], ..shell("a", "") },
            Step::Exec,
            libc::ENOENT,
        ),
        (Start { argv: vec!["/etc/passwd".into()], ..shell("b", "") }, Step::Exec, libc::EACCES),
        (Start { directory: "/no/such".into(), ..shell("c", "") }, Step::Directory, libc::ENOENT),
        (Start { argv: Vec::new(), ..shell("d", "") }, Step::Exec, libc::EINVAL),
        (Start { env: vec!["A=\0".into()], ..shell("e", "") }, Step::Exec, libc::EINVAL),
    ];
    for (start, step, errno) in rows {
        let exec = start.exec.clone();
        daemon.ask(&Ask::Start(Box::new(start)));
        assert_eq!(daemon.end(&exec), End::NotStarted(Broken { step, errno }));
    }
    for id in ["", "../x", "a/b"] {
        daemon.start(id, "true");
        let refused = Tell::Refused { exec: id.into(), why: Refusal::BadId };
        assert_eq!(daemon.next(), refused);
    }
    daemon.ask(&Ask::OpenInput { exec: "unknown".into() });
    let refused = Tell::Refused { exec: "unknown".into(), why: Refusal::NoSuchExec };
    assert_eq!(daemon.next(), refused);
}

#[test]
fn signals_and_the_end_of_input_reach_a_command() {
    let supervisor = start_supervisor().unwrap();
    let (mut daemon, _) = Daemon::greet(&supervisor);
    daemon.start("term", "echo up; sleep 1000");
    daemon.written("term", 3);
    daemon.ask(&Ask::Signal { exec: "term".into(), signal: libc::SIGTERM, whom: Whom::Group });
    assert_eq!(exit_of(&daemon.end("term")), Exit::Signal(libc::SIGTERM));
    daemon.start("cat", "cat; echo end");
    let mut input = std::fs::File::from(open_input(&mut daemon, "cat").unwrap());
    input.write_all(b"in\n").unwrap();
    drop(input);
    daemon.ask(&Ask::CloseInput { exec: "cat".into() });
    assert_eq!(exit_of(&daemon.end("cat")), Exit::Code(0));
    assert_eq!(supervisor.output("cat", "stdout").unwrap(), b"in\nend\n");
    assert!(open_input(&mut daemon, "cat").is_none());
}

#[test]
fn a_signal_reaches_a_command_that_was_asked_for_just_now() {
    let supervisor = start_supervisor().unwrap();
    let (mut daemon, _) = Daemon::greet(&supervisor);
    for (whom, signal) in [(Whom::Leader, 15), (Whom::Group, 2), (Whom::All, 15), (Whom::All, 9)] {
        let exec = format!("ex_{whom:?}_{signal}");
        daemon.start(&exec, "exec sleep 1000");
        daemon.ask(&Ask::Signal { exec: exec.clone(), signal, whom });
        assert_eq!(exit_of(&daemon.end(&exec)), Exit::Signal(signal), "{exec}");
    }
}

/// Root inside may kill the process that commands are forked from, the first after PID 1.
#[test]
fn commands_are_run_after_what_they_are_forked_from_was_killed() {
    let supervisor = start_supervisor().unwrap();
    let (mut daemon, _) = Daemon::greet(&supervisor);
    daemon.start("ex_1", "kill -9 2; while kill -0 2 2> /dev/null; do :; done; echo gone");
    assert_eq!(exit_of(&daemon.end("ex_1")), Exit::Code(0));
    daemon.start("ex_2", "echo again");
    assert_eq!(exit_of(&daemon.end("ex_2")), Exit::Code(0));
    assert_eq!(supervisor.output("ex_2", "stdout").unwrap(), b"again\n");
}

#[test]
fn what_a_command_leaves_behind_goes_on_and_adds_nothing_to_its_output() {
    let supervisor = start_supervisor().unwrap();
    let (mut daemon, _) = Daemon::greet(&supervisor);
    let code = "(sleep 0.2; echo late; echo done > left) & echo early";
    let start = Start { directory: "/tmp".into(), ..shell("parent", code) };
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().to_str().unwrap().to_owned();
    daemon.ask(&Ask::Start(Box::new(Start { directory, ..start })));
    let End::Exited { exit: Exit::Code(0), written, .. } = daemon.end("parent") else { panic!() };
    assert_eq!(written.stdout.end, 6);
    daemon.ask(&Ask::Forget { exec: "parent".into() });
    let wait = format!("until [ -s {}/left ]; do sleep 0.02; done", folder.path().display());
    daemon.start("waits", &wait);
    assert_eq!(exit_of(&daemon.end("waits")), Exit::Code(0));
    assert_eq!(supervisor.output("parent", "stdout").unwrap(), b"early\n");
}

#[test]
fn a_stop_ends_everything_and_the_journal_says_how() {
    let mut supervisor = start_supervisor().unwrap();
    let (mut daemon, _) = Daemon::greet(&supervisor);
    daemon.start("polite", "trap 'exit 5' TERM; echo up; while :; do sleep 0.02; done");
    daemon.start("stubborn", "trap '' TERM; echo up; while :; do sleep 0.02; done");
    daemon.written("polite", 3);
    // Whichever was told first: both are asked anew.
    let (mut daemon, known) = Daemon::greet(&supervisor);
    if known.iter().any(|known| known.written.stdout.end < 3) {
        daemon.written("stubborn", 3);
    }
    daemon.ask(&Ask::Stop { grace: Duration::from_secs(5) });
    daemon.start("late", "true");
    let mut told = Vec::new();
    while told.last() != Some(&Tell::Stopped) {
        told.push(daemon.next());
    }
    assert!(told.contains(&Tell::Refused { exec: "late".into(), why: Refusal::Stopping }));
    assert!(supervisor.wait().unwrap().success());
    let records = journal::read(&supervisor.journal().unwrap());
    let ended = |name: &str| {
        records.iter().find_map(|record| match record {
            Record::Ended { exec, end } if exec == name => Some(exit_of(end)),
            _ => None,
        })
    };
    assert_eq!(ended("polite"), Some(Exit::Code(5)));
    assert_eq!(ended("stubborn"), Some(Exit::Signal(libc::SIGKILL)));
    assert_eq!(records.last(), Some(&Record::Stopped));
}

#[test]
fn a_daemon_that_does_not_listen_holds_nobody_up() {
    let supervisor = start_supervisor().unwrap();
    let (mut deaf, _) = Daemon::greet(&supervisor);
    let code = "for i in 1 2 3 4 5 6 7 8; do head -c 1000000 /dev/zero; done; exit 2";
    for number in 0..20 {
        deaf.start(&format!("ex_{number}"), code);
    }
    // Each of these has an answer, which nobody takes.
    for number in 0..100 {
        deaf.ask(&Ask::Signal { exec: format!("no_{number}"), signal: 1, whom: Whom::Leader });
    }
    let (mut daemon, known) = Daemon::greet(&supervisor);
    let mut open: Vec<_> = known.iter().filter(|k| k.end.is_none()).map(|k| &k.exec).collect();
    while let Some(exec) = open.pop() {
        let end = daemon.end(exec);
        let End::Exited { exit: Exit::Code(2), written, .. } = end else { panic!("{end:?}") };
        assert_eq!(written.stdout.end, 8_000_000);
        // What was told of the others in the meantime is told again.
        let (next, known) = Daemon::greet(&supervisor);
        daemon = next;
        open.retain(|exec| known.iter().any(|k| k.exec == **exec && k.end.is_none()));
    }
    drop(deaf);
}

#[test]
fn a_socket_into_the_sandbox_is_for_whoever_knows_the_secret() {
    let supervisor = start_supervisor().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (mut daemon, _) = Daemon::greet(&supervisor);
    let mut asker = Daemon { socket: Daemon::connect(&supervisor) };
    asker.ask(&Ask::Connect { secret: SECRET, port, at: Loopback::V4 });
    let (told, socket) = asker.next_with_fd();
    assert_eq!(told, Tell::Connecting);
    let mut socket = std::net::TcpStream::from(socket.unwrap());
    let (mut other, _) = listener.accept().unwrap();
    socket.write_all(b"hello").unwrap();
    let mut heard = [0; 5];
    std::io::Read::read_exact(&mut other, &mut heard).unwrap();
    assert_eq!(&heard, b"hello");
    let stranger = Daemon::connect(&supervisor);
    let ask = Ask::Connect { secret: Secret([8; 32]), port, at: Loopback::V4 };
    stranger.send(&wire::encode(&ask).unwrap(), &[], SendFlags::empty()).unwrap();
    assert!(stranger.receive(RecvFlags::empty()).unwrap().is_none());
    // The daemon that was there first is still the one.
    daemon.start("ex_1", "exit 4");
    assert_eq!(exit_of(&daemon.end("ex_1")), Exit::Code(4));
}

#[test]
fn of_what_is_started_again_for_ever_only_the_last_outputs_stay() {
    let supervisor = start_supervisor().unwrap();
    let (mut daemon, _) = Daemon::greet(&supervisor);
    let callers = ["ex_1".to_owned(), "1-1".to_owned()];
    let own = (1..=6).flat_map(|number| [format!("_main-{number}"), format!("_post-{number}")]);
    for exec in callers.iter().cloned().chain(own).chain(["_check-7".to_owned()]) {
        daemon.start(&exec, "echo here; echo there >&2");
        daemon.end(&exec);
        daemon.ask(&Ask::Forget { exec });
    }
    // It does one thing after the other: when this has run, the rest is forgotten.
    daemon.start("ex_2", "true");
    daemon.end("ex_2");
    let is_there = |exec: &str| {
        let streams = ["stdout", "stderr"].map(|stream| supervisor.output(exec, stream).is_ok());
        assert_eq!(streams[0], streams[1], "{exec}");
        streams[0]
    };
    for kind in ["_main", "_post"] {
        let kept: Vec<u32> = (1..=6).filter(|it| is_there(&format!("{kind}-{it}"))).collect();
        assert_eq!(kept, [4, 5, 6], "{kind}");
    }
    assert!(callers.iter().all(|exec| is_there(exec)));
    assert!(!is_there("_check-7"));
}
