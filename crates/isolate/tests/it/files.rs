//! An agent works on the files below a folder and on no others, whatever is done to them meanwhile.

mod races;

use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    os::{
        fd::OwnedFd,
        unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    },
    path::{Path, PathBuf},
    thread::JoinHandle,
};

use harness::supervisor::{SECRET, start_supervisor};
use isolate::{
    files::{
        serve,
        wire::{
            self, Answer, Ask, At, Condition, Event, Fault, Finished, Kind, MAX_PAGE, Stat, Tags,
            Why,
        },
    },
    socket::PacketSocket,
    supervisor::wire::{self as supervisor, Secret, Tell, User},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketType, connect, socket},
};
use tempfile::TempDir;

/// Nothing here takes this long unless it is broken.
const PATIENCE: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

/// An agent that is confined to a folder, beside which there is another.
struct Agent {
    socket: Option<PacketSocket>,
    serving: Option<JoinHandle<()>>,
    folder: TempDir,
}

impl Agent {
    fn new() -> Self {
        Self::over(tempfile::tempdir().unwrap())
    }

    /// An agent whose files are in memory, for what is done a hundred thousand times.
    fn in_memory() -> Self {
        Self::over(tempfile::tempdir_in("/dev/shm").unwrap())
    }

    fn over(folder: TempDir) -> Self {
        fs::create_dir(folder.path().join("in")).unwrap();
        fs::create_dir(folder.path().join("out")).unwrap();
        fs::write(folder.path().join("out/secret"), "secret").unwrap();
        let (socket, theirs) = PacketSocket::pair().unwrap();
        let serving = std::thread::spawn(move || serve(&theirs));
        Self { socket: Some(socket), serving: Some(serving), folder }
    }

    fn inside(&self) -> PathBuf {
        self.folder.path().join("in")
    }

    fn outside(&self) -> PathBuf {
        self.folder.path().join("out")
    }

    fn at(&self, path: &str) -> At {
        let root = self.inside().into_os_string().into_encoded_bytes();
        At { root, path: path.as_bytes().to_vec() }
    }

    fn ask(&self, ask: &Ask) {
        let socket = self.socket.as_ref().unwrap();
        socket.send(&wire::encode(ask).unwrap(), &[], SendFlags::empty()).unwrap();
    }

    fn next(&self) -> (Answer, Option<OwnedFd>) {
        next(self.socket.as_ref().unwrap())
    }

    fn answer(&self, ask: &Ask) -> Answer {
        self.ask(ask);
        self.next().0
    }

    fn why(&self, ask: &Ask) -> Why {
        match self.answer(ask) {
            Answer::Failed(Fault { why, .. }) => why,
            other => panic!("{other:?}"),
        }
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, Why> {
        self.ask(&Ask::Open { at: self.at(path) });
        match self.next() {
            (Answer::Opened(_), Some(file)) => {
                let mut bytes = Vec::new();
                File::from(file).read_to_end(&mut bytes).unwrap();
                Ok(bytes)
            }
            (Answer::Failed(fault), None) => Err(fault.why),
            other => panic!("{other:?}"),
        }
    }

    fn begin(&self, path: &str, condition: Condition) -> Result<File, Why> {
        self.ask(&Ask::Begin { at: self.at(path), condition, parents: true });
        match self.next() {
            (Answer::Begun(_), Some(file)) => Ok(file.into()),
            (Answer::Failed(fault), None) => Err(fault.why),
            other => panic!("{other:?}"),
        }
    }

    fn commit(&self) -> Result<Stat, Why> {
        match self.answer(&Ask::Commit { mode: None }) {
            Answer::Done(Some(stat)) => Ok(stat),
            Answer::Failed(fault) => Err(fault.why),
            other => panic!("{other:?}"),
        }
    }

    fn write(&self, path: &str, bytes: &[u8], condition: Condition) -> Result<Stat, Why> {
        self.begin(path, condition)?.write_all(bytes).unwrap();
        self.commit()
    }

    /// Collects what a list or a search tells.
    fn collect(&self, ask: &Ask) -> (Vec<String>, Finished) {
        self.ask(ask);
        let mut all = Vec::new();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        loop {
            match self.next().0 {
                Answer::Entries(entries) => all.extend(entries.into_iter().map(|it| text(it.path))),
                Answer::Matches(matches) => all.extend(
                    matches
                        .into_iter()
                        .map(|it| format!("{}:{}:{}", text(it.path), it.line, text(it.text))),
                ),
                Answer::Finished(finished) => return (all, finished),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Lets go of the socket, and waits until the agent has gone.
    fn leave(&mut self) {
        self.socket = None;
        self.serving.take().unwrap().join().unwrap();
    }
}

/// Returns how often something is done: less often on a machine that says how much slower it is.
fn scaled(times: usize) -> usize {
    let slower = std::env::var("RINGFENCE_TEST_SLOWER").ok().and_then(|text| text.parse().ok());
    times / slower.unwrap_or(1)
}

fn next(socket: &PacketSocket) -> (Answer, Option<OwnedFd>) {
    let mut fds = [PollFd::new(socket, PollFlags::IN)];
    assert_eq!(poll(&mut fds, Some(&PATIENCE)), Ok(1), "no answer");
    let packet = socket.receive(RecvFlags::empty()).unwrap().expect("it is gone");
    (wire::decode(&packet.bytes).unwrap(), packet.fds.into_iter().next())
}

fn any() -> Condition {
    Condition::default()
}

fn is(stat: &Stat) -> Condition {
    Condition { is: Some(Tags::These(vec![stat.tag()])), is_not: None }
}

fn is_absent() -> Condition {
    Condition { is: None, is_not: Some(Tags::Any) }
}

fn names(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> =
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn what_is_written_is_there_all_at_once_and_can_be_read() {
    let agent = Agent::new();
    let mut file = agent.begin("deep/er/a.txt", any()).unwrap();
    file.write_all(b"hello").unwrap();
    assert_eq!(names(&agent.inside().join("deep/er")), Vec::<String>::new());
    let stat = agent.commit().unwrap();
    assert_eq!((stat.kind, stat.size, stat.mode), (Kind::File, 5, 0o644));
    assert_eq!(agent.read("deep/er/a.txt").unwrap(), b"hello");
    let Answer::Stat(again) =
        agent.answer(&Ask::Stat { at: agent.at("deep/er/a.txt"), follow: true })
    else {
        panic!()
    };
    assert_eq!(again.tag(), stat.tag());
    // What replaces it has its mode, and is another file: whoever has the old one open keeps it.
    let path = agent.inside().join("deep/er/a.txt");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4751)).unwrap();
    fs::hard_link(&path, agent.inside().join("hard")).unwrap();
    let second = agent.write("deep/er/a.txt", b"bye", any()).unwrap();
    assert_eq!(second.mode, 0o751);
    assert_eq!(agent.read("hard").unwrap(), b"hello");
    assert_eq!(names(&agent.inside().join("deep/er")), ["a.txt"]);
}

#[test]
fn of_two_writers_with_the_same_version_one_is_too_late() {
    let agent = Agent::new();
    let first = agent.write("a", b"1", is_absent()).unwrap();
    assert_eq!(agent.write("a", b"2", is_absent()), Err(Why::Precondition));
    let second = agent.write("a", b"22", is(&first)).unwrap();
    assert_eq!(agent.write("a", b"3", is(&first)), Err(Why::Precondition));
    // The condition is looked at again when it is done.
    agent.begin("a", is(&second)).unwrap().write_all(b"4").unwrap();
    fs::write(agent.inside().join("a"), "other").unwrap();
    assert_eq!(agent.commit(), Err(Why::Precondition));
    agent.begin("new", is_absent()).unwrap();
    fs::write(agent.inside().join("new"), "other").unwrap();
    assert_eq!(agent.commit(), Err(Why::Precondition));
    assert_eq!(names(&agent.inside()), ["a", "new"]);
    let remove = |condition| Ask::Remove { at: agent.at("a"), recursive: false, condition };
    assert_eq!(agent.why(&remove(is(&second))), Why::Precondition);
    assert_eq!(agent.answer(&remove(any())), Answer::Done(None));
}

#[test]
fn what_is_not_committed_leaves_nothing() {
    let mut agent = Agent::new();
    agent.begin("a", any()).unwrap().write_all(b"x").unwrap();
    assert_eq!(agent.answer(&Ask::Abandon), Answer::Done(None));
    agent.begin("b", any()).unwrap().write_all(b"x").unwrap();
    agent.leave();
    assert_eq!(names(&agent.inside()), Vec::<String>::new());
}

/// P08, P09: nothing but a regular file is ever opened.
#[test]
fn p08_what_is_no_regular_file_is_refused_at_once() {
    let agent = Agent::new();
    let inside = agent.inside();
    let mode = rustix::fs::Mode::from_raw_mode(0o666);
    rustix::fs::mkfifoat(rustix::fs::CWD, inside.join("fifo"), mode).unwrap();
    let _listener = std::os::unix::net::UnixListener::bind(inside.join("socket")).unwrap();
    fs::create_dir(inside.join("directory")).unwrap();
    assert_eq!(agent.read("fifo"), Err(Why::NotRegular));
    assert_eq!(agent.read("socket"), Err(Why::NotRegular));
    assert_eq!(agent.read("directory"), Err(Why::IsDirectory));
    assert_eq!(agent.read("missing"), Err(Why::NotFound));
    let everywhere = |path: &str| At { root: b"/".to_vec(), path: path.as_bytes().to_vec() };
    for path in ["dev/null", "dev/zero", "proc/version", "proc/self/status", "sys/kernel/mm"] {
        let why = agent.why(&Ask::Open { at: everywhere(path) });
        assert!(matches!(why, Why::NotRegular | Why::IsDirectory), "{path}: {why:?}");
    }
    for path in ["proc/self/root/etc/passwd", "proc/self/fd/0", "proc/1/root/etc", "dev/stdin"] {
        let why = agent.why(&Ask::Open { at: everywhere(path) });
        assert!(matches!(why, Why::Loop | Why::Denied), "{path}: {why:?}");
    }
    for path in ["fifo", "socket"] {
        assert_eq!(agent.begin(path, any()).unwrap_err(), Why::NotRegular);
    }
    assert_eq!(agent.begin("directory", any()).unwrap_err(), Why::IsDirectory);
}

/// P04: links lead nowhere but below the folder, and nothing is written through one.
#[test]
fn p04_links_never_lead_out_and_nothing_is_written_through_one() {
    let agent = Agent::new();
    let inside = agent.inside();
    fs::write(inside.join("file"), "inside").unwrap();
    fs::create_dir(inside.join("directory")).unwrap();
    let rows = [
        ("good", "file", Ok(b"inside".to_vec())),
        ("up", "../out/secret", Err(Why::Outside)),
        ("absolute", "/etc/passwd", Err(Why::Outside)),
        ("loop", "loop", Err(Why::Loop)),
        ("dangling", "nowhere", Err(Why::NotFound)),
        ("magic", "/proc/self/root", Err(Why::Outside)),
        ("sub", "directory", Err(Why::IsDirectory)),
    ];
    for (name, target, expected) in rows {
        symlink(target, inside.join(name)).unwrap();
        assert_eq!(agent.read(name), expected, "{name}");
        assert_eq!(agent.begin(name, any()).unwrap_err(), Why::Symlink, "{name}");
    }
    symlink("../out", inside.join("way")).unwrap();
    assert_eq!(agent.read("way/secret"), Err(Why::Outside));
    assert_eq!(agent.begin("way/new", any()).unwrap_err(), Why::Outside);
    let make = Ask::MakeDirectory { at: agent.at("way/a/b"), parents: true, mode: None };
    assert_eq!(agent.why(&make), Why::Outside);
    let remove = |path| Ask::Remove { at: agent.at(path), recursive: true, condition: any() };
    assert_eq!(agent.why(&remove("way/secret")), Why::Outside);
    // The link itself goes, and what it leads to stays.
    assert_eq!(agent.answer(&remove("way")), Answer::Done(None));
    assert_eq!(names(&agent.outside()), ["secret"]);
    // A folder that has become a link confines nobody, so that nobody is let in.
    fs::rename(&inside, agent.folder.path().join("was")).unwrap();
    symlink("out", &inside).unwrap();
    assert_eq!(agent.read("secret"), Err(Why::Loop));
}

/// P18: iterative, by descriptors, never through a link, and never the root.
#[test]
fn p18_a_tree_is_removed_however_deep_it_is_and_nothing_beside_it() {
    let deep = scaled(100_000);
    let agent = Agent::in_memory();
    let inside = agent.inside();
    fs::create_dir(inside.join("tree")).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o755);
    let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
    let mut here: OwnedFd = File::open(inside.join("tree")).unwrap().into();
    for number in 0..deep {
        rustix::fs::mkdirat(&here, "d", mode).unwrap();
        if number % 1000 == 0 {
            rustix::fs::symlinkat(agent.outside(), &here, "link").unwrap();
            rustix::fs::openat(&here, "file", rustix::fs::OFlags::CREATE, mode).unwrap();
        }
        here = rustix::fs::openat(&here, "d", flags, mode).unwrap();
    }
    drop(here);
    let remove =
        |path: &str, recursive| Ask::Remove { at: agent.at(path), recursive, condition: any() };
    assert_eq!(agent.why(&remove("tree", false)), Why::NotEmpty);
    assert_eq!(agent.answer(&remove("tree", true)), Answer::Done(None));
    assert_eq!(names(&inside), Vec::<String>::new());
    assert_eq!(names(&agent.outside()), ["secret"]);
    assert_eq!(agent.why(&remove("", true)), Why::InvalidPath);
    assert_eq!(agent.why(&remove("missing", true)), Why::NotFound);
}

/// P19.
#[test]
fn p19_a_move_never_goes_onto_what_is_there_by_accident() {
    let agent = Agent::new();
    for path in ["a", "b", "d/x"] {
        agent.write(path, path.as_bytes(), any()).unwrap();
    }
    let rename = |from, to, replace| Ask::Move {
        from: agent.at(from),
        to: agent.at(to),
        condition: any(),
        replace,
    };
    assert_eq!(agent.why(&rename("a", "b", false)), Why::Exists);
    assert_eq!(agent.why(&rename("a", "d", true)), Why::Exists);
    assert_eq!(agent.why(&rename("d", "d/below", false)), Why::Conflict);
    assert_eq!(agent.why(&rename("none", "c", false)), Why::NotFound);
    assert_eq!(agent.why(&rename("", "c", false)), Why::InvalidPath);
    assert!(matches!(agent.answer(&rename("a", "b", true)), Answer::Done(Some(_))));
    assert!(matches!(agent.answer(&rename("d", "e", false)), Answer::Done(Some(_))));
    assert_eq!(agent.read("b").unwrap(), b"a");
    assert_eq!(agent.read("e/x").unwrap(), b"d/x");
}

/// P17: pages in the order of names, whatever comes and goes between them.
#[test]
fn p17_a_directory_is_listed_page_by_page() {
    let agent = Agent::new();
    let name = |number: usize| format!("f{number:05}");
    for number in 0..2500 {
        File::create(agent.inside().join(name(number))).unwrap();
    }
    let mut seen = Vec::new();
    let mut after: Option<Vec<u8>> = None;
    let mut pages = 0;
    loop {
        let limit = MAX_PAGE + 5;
        let (page, finished) = agent.collect(&Ask::List { at: agent.at(""), after, limit });
        after = page.last().map(|name| name.as_bytes().to_vec());
        seen.extend(page);
        pages += 1;
        fs::remove_file(agent.inside().join(name(pages))).unwrap();
        if !finished.more {
            break;
        }
    }
    assert_eq!((seen, pages), ((0..2500).map(name).collect(), 3));
    let why = agent.why(&Ask::List { at: agent.at("f00005"), after: None, limit: 1 });
    assert_eq!(why, Why::NotADirectory);
}

#[test]
fn files_are_found_by_pattern_and_lines_by_what_stands_in_them() {
    let agent = Agent::new();
    for path in ["a.rs", "src/b.rs", "src/deep/c.rs", "src/deep/d.py"] {
        agent.write(path, b"one\nfn two()\r\nthree fn two\n", any()).unwrap();
    }
    agent.write("binary", b"fn two\0", any()).unwrap();
    symlink("..", agent.inside().join("src/link")).unwrap();
    let glob = |pattern: &str, limit| Ask::Glob {
        at: agent.at(""),
        patterns: vec![pattern.as_bytes().to_vec()],
        limit,
    };
    let found = |ask: &Ask| {
        let (mut found, finished) = agent.collect(ask);
        found.sort();
        (found, finished.more)
    };
    let own = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(found(&glob("*.rs", 10)), (own(&["a.rs"]), false));
    let all = own(&["a.rs", "src/b.rs", "src/deep/c.rs"]);
    assert_eq!(found(&glob("**/*.rs", 10)), (all.clone(), false));
    assert_eq!(found(&glob("**/*.rs", 3)), (all, false));
    let (some, more) = found(&glob("**/*.rs", 2));
    assert_eq!((some.len(), more), (2, true));
    assert_eq!(found(&glob("src/{b,deep}*", 10)).0, ["src/b.rs", "src/deep"]);
    let grep = |text: &str, pattern: &[&str], limit| Ask::Grep {
        at: agent.at("src"),
        text: text.as_bytes().to_vec(),
        patterns: pattern.iter().map(|it| it.as_bytes().to_vec()).collect(),
        limit,
    };
    let lines = own(&["deep/d.py:2:fn two()", "deep/d.py:3:three fn two"]);
    assert_eq!(found(&grep("fn two", &["*.py"], 10)), (lines, false));
    assert_eq!(found(&grep("fn two", &[], 10)).0.len(), 6);
    let (some, more) = found(&grep("fn two", &[], 5));
    assert_eq!((some.len(), more), (5, true));
    assert_eq!(agent.why(&grep("", &[], 5)), Why::InvalidPath);
}

/// A line may be longer than what is looked at at once.
#[test]
fn a_text_is_found_across_pieces_of_a_long_line() {
    let agent = Agent::new();
    let mut text = vec![b'x'; (256 << 10) - 3];
    text.extend_from_slice(b"needle and needle");
    text.extend_from_slice(&vec![b'y'; 600 << 10]);
    text.extend_from_slice(b"\nshort needle\n");
    agent.write("long", &text, any()).unwrap();
    let ask = Ask::Grep {
        at: agent.at("long"),
        text: b"needle".to_vec(),
        patterns: Vec::new(),
        limit: 10,
    };
    let (found, _) = agent.collect(&ask);
    let numbers: Vec<_> = found.iter().map(|line| line.split(':').nth(1).unwrap()).collect();
    assert_eq!(numbers, ["1", "2"]);
    assert_eq!(found[1], ":2:short needle");
}

/// P12: what somebody has left who was killed goes when the next one writes there.
#[test]
fn p12_what_a_killed_writer_has_left_is_taken_away_by_the_next() {
    let agent = Agent::new();
    agent.write("a", b"1", any()).unwrap();
    // As it is between the moment that it gets a name and the moment that it is in its place.
    fs::write(agent.inside().join(".ringfence-0~"), "left").unwrap();
    let held = File::create(agent.inside().join(".ringfence-1~")).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    fs::create_dir(agent.inside().join(".ringfence-2~")).unwrap();
    agent.write("a", b"2", any()).unwrap();
    assert_eq!(names(&agent.inside()), [".ringfence-1~", ".ringfence-2~", "a"]);
    assert_eq!(agent.read("a").unwrap(), b"2");
}

/// P06: a directory that is moved away while it is written to is another place.
#[test]
fn p06_a_directory_that_was_moved_is_not_written_to() {
    let agent = Agent::new();
    agent.begin("d/a", any()).unwrap().write_all(b"x").unwrap();
    fs::rename(agent.inside().join("d"), agent.outside().join("d")).unwrap();
    assert_eq!(agent.commit(), Err(Why::Conflict));
    fs::create_dir(agent.inside().join("d")).unwrap();
    agent.begin("d/a", any()).unwrap();
    fs::rename(agent.inside().join("d"), agent.outside().join("e")).unwrap();
    fs::create_dir(agent.inside().join("d")).unwrap();
    assert_eq!(agent.commit(), Err(Why::Conflict));
    assert_eq!(names(&agent.outside().join("d")), Vec::<String>::new());
    assert_eq!(names(&agent.outside().join("e")), Vec::<String>::new());
}

/// P21.
#[test]
fn p21_what_happens_to_files_is_told() {
    let agent = Agent::new();
    agent.write("deep/er/a", b"1", any()).unwrap();
    agent.ask(&Ask::Watch { at: agent.at(""), recursive: true });
    assert_eq!(agent.next().0, Answer::Watching { directories: 3 });
    let until = |wanted: &Event| {
        let mut told = Vec::new();
        while !told.contains(wanted) {
            match agent.next().0 {
                Answer::Events(events) => told.extend(events),
                other => panic!("{other:?}"),
            }
        }
        told
    };
    let path = |path: &str| path.as_bytes().to_vec();
    fs::write(agent.inside().join("deep/er/a"), "22").unwrap();
    until(&Event::Changed { path: path("deep/er/a") });
    fs::create_dir_all(agent.inside().join("new/below")).unwrap();
    until(&Event::Created { path: path("new/below"), is_directory: true });
    fs::write(agent.inside().join("new/below/b"), "x").unwrap();
    until(&Event::Created { path: path("new/below/b"), is_directory: false });
    fs::rename(agent.inside().join("new"), agent.inside().join("renamed")).unwrap();
    until(&Event::Created { path: path("renamed/below/b"), is_directory: false });
    fs::remove_dir_all(agent.inside().join("deep")).unwrap();
    until(&Event::Deleted { path: path("deep"), is_directory: true });
    fs::remove_dir_all(agent.inside()).unwrap();
    until(&Event::Gone);
    assert_eq!(agent.next().0, Answer::Done(None));
}

/// P21: whatever is too much is said to be.
#[test]
fn p21_more_events_than_the_kernel_keeps_are_said_to_be() {
    let agent = Agent::new();
    agent.ask(&Ask::Watch { at: agent.at(""), recursive: false });
    assert_eq!(agent.next().0, Answer::Watching { directories: 1 });
    let queue = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let queue: usize = queue.trim().parse().unwrap();
    let (one, other) = (agent.inside().join("one"), agent.inside().join("other"));
    fs::write(&one, "").unwrap();
    // Its socket is full after a while, since nobody reads, and then the kernel's queue.
    for _ in 0..queue {
        fs::rename(&one, &other).unwrap();
        fs::rename(&other, &one).unwrap();
    }
    loop {
        match agent.next().0 {
            Answer::Events(events) if events.contains(&Event::Overflow) => return,
            Answer::Events(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_search_ends_when_nobody_wants_to_know_any_more() {
    let mut agent = Agent::new();
    for number in 0..50 {
        fs::create_dir_all(agent.inside().join(format!("{number}/a/b/c/d/e"))).unwrap();
    }
    let patterns = vec![b"**".to_vec()];
    let everything = At { root: b"/".to_vec(), path: b"usr".to_vec() };
    agent.ask(&Ask::Glob { at: everything, patterns, limit: u32::MAX });
    agent.leave();
}

/// The process that a supervisor starts has the rights of a command, and ends with its socket.
#[test]
fn a_supervisor_starts_an_agent_for_whoever_knows_the_secret() {
    let supervisor = start_supervisor().unwrap();
    let ask = |secret| {
        let socket = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        connect(&socket, &SocketAddrUnix::new(supervisor.socket()).unwrap()).unwrap();
        let socket = PacketSocket::from_fd(socket);
        let user = User::Plain { user: 0, group: 0 };
        let packet = supervisor::encode(&supervisor::Ask::Files { secret, user }).unwrap();
        socket.send(&packet, &[], SendFlags::empty()).unwrap();
        socket.receive(RecvFlags::empty()).unwrap()
    };
    assert!(ask(Secret([8; 32])).is_none());
    let answer = ask(SECRET).unwrap();
    assert_eq!(supervisor::decode::<Tell>(&answer.bytes).unwrap(), Tell::Files);
    let agent = PacketSocket::from_fd(answer.fds.into_iter().next().unwrap());
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a"), "x").unwrap();
    let at = |path: &[u8]| At {
        root: folder.path().to_path_buf().into_os_string().into_encoded_bytes(),
        path: path.to_vec(),
    };
    let stat = wire::encode(&Ask::Stat { at: at(b"a"), follow: true }).unwrap();
    agent.send(&stat, &[], SendFlags::empty()).unwrap();
    let Answer::Stat(stat) = next(&agent).0 else { panic!() };
    assert_eq!(stat.inode, fs::metadata(folder.path().join("a")).unwrap().ino());
    // Whoever says what it does not understand is left.
    agent.send(b"\x01\xff", &[], SendFlags::empty()).unwrap();
    assert!(agent.receive(RecvFlags::empty()).unwrap().is_none());
}
