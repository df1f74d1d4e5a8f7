//! Sandboxes made of the layers of an image.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

use harness::{SpawnerProcess, remove_sandboxes, start_spawner_on_disks};
use isolate::{
    plan::Exit,
    sandbox::{BodySpec, HostPaths, Image, SandboxAnswer, SandboxOrder},
    socket::PacketSocket,
    spawner::IdRange,
    supervisor::wire::{self as supervisor, Ask, End, Input, Secret, Start, Tell, User},
    volume::{ByteCount, DiskKind, DiskLimit},
    wire::{self, Notice, Order, Report},
};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketType, connect, socket,
};

const SECRET: Secret = Secret([9; 32]);
const BUSYBOX: &str = "/bin/busybox";

/// A spawner, and the layers that its sandboxes are made of.
struct Ground {
    place: tempfile::TempDir,
    socket: Option<PacketSocket>,
    spawner: SpawnerProcess,
    next: u64,
}

impl Drop for Ground {
    fn drop(&mut self) {
        drop(self.socket.take());
        let ended = self.spawner.wait();
        let removed = remove_sandboxes(&self.place.path().join("sandboxes"));
        assert!((ended.is_ok() && removed.is_ok()) || std::thread::panicking());
    }
}

fn is_root() -> bool {
    rustix::process::getuid().is_root()
}

/// Gives a file to whom user 0 of an image is on disk.
fn give(path: &Path) {
    if is_root() {
        let root = IdRange::ON_DISK.first;
        std::os::unix::fs::lchown(path, Some(root), Some(root)).unwrap();
    }
}

/// A folder on a file system that can be mounted for other users: in memory that takes Linux 6.3.
pub(crate) fn place() -> tempfile::TempDir {
    match std::env::var_os("RINGFENCE_TEST_DISK") {
        Some(disk) => tempfile::tempdir_in(disk).unwrap(),
        None => tempfile::tempdir().unwrap(),
    }
}

impl Ground {
    fn new() -> Self {
        Self::on(None)
    }

    /// With volumes of this kind, or the best that there is.
    fn on(kind: Option<DiskKind>) -> Self {
        let place = place();
        let folder = place.path().join("sandboxes");
        let (socket, spawner) = start_spawner_on_disks(&folder, kind).unwrap();
        let ground = Self { place, socket: Some(socket), spawner, next: 0 };
        let bin = ground.folder("base", "bin");
        fs::copy(BUSYBOX, bin.join("busybox")).unwrap();
        give(&bin.join("busybox"));
        for name in ["sh", "cat", "ls", "id", "rm", "mkdir", "chown", "stat", "readlink"] {
            symlink("busybox", bin.join(name)).unwrap();
            give(&bin.join(name));
        }
        ground
    }

    /// Makes a folder in a layer.
    fn folder(&self, layer: &str, path: &str) -> PathBuf {
        let mut at = self.place.path().join("images/layers").join(layer);
        fs::create_dir_all(at.join("fs")).unwrap();
        at.push("fs");
        give(&at);
        for part in path.split('/').filter(|part| !part.is_empty()) {
            at.push(part);
            if !at.exists() {
                fs::create_dir(&at).unwrap();
                give(&at);
            }
        }
        at
    }

    fn order(&mut self, order: SandboxOrder) -> (SandboxAnswer, Vec<std::os::fd::OwnedFd>) {
        self.next += 1;
        let socket = self.socket.as_ref().unwrap();
        let packet = wire::encode(&Order::Sandbox { ticket: self.next, order }).unwrap();
        socket.send(&packet, &[], SendFlags::empty()).unwrap();
        loop {
            let packet = socket.receive(RecvFlags::empty()).unwrap().unwrap();
            if let Notice::Sandbox { answer, .. } = wire::decode(&packet.bytes).unwrap() {
                return (answer, packet.fds);
            }
        }
    }

    /// Makes a sandbox; says what its init said.
    fn make(&mut self, name: &str, layers: &[&str]) -> Report {
        let spec = BodySpec {
            sandbox: name.to_owned(),
            tenant: 1,
            secret: SECRET,
            hostname: "sandbox".to_owned(),
            max_processes: 100,
            max_open_files: 1024,
            image: Image::Layers(layers.iter().map(ToString::to_string).collect()),
            paths: HostPaths::None,
            disk: DiskLimit::UpTo(ByteCount::mib(16)),
            beside: None,
            hosts: Vec::new(),
        };
        let (answer, fds) = self.order(SandboxOrder::Make(Box::new(spec)));
        let SandboxAnswer::Body { .. } = answer else { panic!("{answer:?}") };
        let control = PacketSocket::from_fd(fds.into_iter().next().unwrap());
        let packet = control.receive(RecvFlags::empty()).unwrap().unwrap();
        wire::decode(&packet.bytes).unwrap()
    }

    fn end(&mut self, name: &str) {
        let (answer, _) = self.order(SandboxOrder::End { sandbox: name.to_owned() });
        assert_eq!(answer, SandboxAnswer::Done);
    }

    /// Runs a command in a sandbox: its exit and what it wrote.
    fn run(&mut self, name: &str, script: &str, user: User) -> (Exit, String) {
        let folder = self.place.path().join("sandboxes").join(name);
        let to = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        connect(&to, &SocketAddrUnix::new(folder.join("socket")).unwrap()).unwrap();
        let to = PacketSocket::from_fd(to);
        let say = |ask: &Ask| {
            to.send(&supervisor::encode(ask).unwrap(), &[], SendFlags::empty()).unwrap();
        };
        say(&Ask::Hello { secret: SECRET });
        self.next += 1;
        let exec = format!("exec{}", self.next);
        say(&Ask::Start(Box::new(Start {
            exec: exec.clone(),
            argv: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
            env: vec!["PATH=/bin".to_owned()],
            directory: "/".to_owned(),
            user,
            keep: 1 << 20,
            input: Input::Open,
            terminal: None,
            at_most: None,
            wanted: None,
        })));
        loop {
            let packet = to.receive(RecvFlags::empty()).unwrap().unwrap();
            if let Tell::Ended { end: End::Exited { exit, .. }, .. } =
                supervisor::decode(&packet.bytes).unwrap()
            {
                let read = |stream| {
                    fs::read_to_string(folder.join(format!("out/{exec}.{stream}.log"))).unwrap()
                };
                return (exit, read("stdout") + &read("stderr"));
            }
        }
    }
}

const AGBOX: User = User::Plain { user: 1000, group: 1000 };

#[test]
fn what_a_sandbox_writes_is_its_own_and_stays_and_the_layers_do_not_change() {
    let mut ground = Ground::new();
    let etc = ground.folder("top", "etc");
    fs::write(etc.join("motd"), "hello\n").unwrap();
    give(&etc.join("motd"));
    assert_eq!(ground.make("sb_1", &["base", "top"]), Report::Ready);
    assert_eq!(ground.make("sb_2", &["base", "top"]), Report::Ready);
    let script = "cat /etc/motd && echo mine > /workspace/note && cat /workspace/note && id -u";
    assert_eq!(ground.run("sb_1", script, AGBOX), (Exit::Code(0), "hello\nmine\n1000\n".into()));
    if is_root() {
        let script = "echo changed > /etc/motd && rm /bin/stat && cat /etc/motd && id -u";
        assert_eq!(ground.run("sb_1", script, User::Root), (Exit::Code(0), "changed\n0\n".into()));
        let script = "cat /etc/motd && stat -c %u:%a /etc/motd";
        assert_eq!(ground.run("sb_2", script, AGBOX), (Exit::Code(0), "hello\n0:644\n".into()));
    }
    let (_, output) = ground.run("sb_2", "ls /workspace", AGBOX);
    assert_eq!(output, "");
    ground.end("sb_1");
    assert_eq!(ground.make("sb_1", &["base", "top"]), Report::Ready);
    let (exit, output) = ground.run("sb_1", "cat /workspace/note /etc/motd; ls /bin/stat", AGBOX);
    if is_root() {
        assert_ne!(exit, Exit::Code(0));
        assert!(output.starts_with("mine\nchanged\n"), "{output}");
    } else {
        assert!(output.starts_with("mine\nhello\n"), "{output}");
    }
    assert_eq!(fs::read_to_string(etc.join("motd")).unwrap(), "hello\n");
}

#[test]
fn files_on_disk_belong_to_nobodys_users() {
    harness::needs::require_root();
    let mut ground = Ground::on(Some(DiskKind::Unlimited));
    assert_eq!(ground.make("sb_1", &["base"]), Report::Ready);
    let script = "echo x > /root/mine && chown 7:9 /root/mine && stat -c %u:%g /root/mine";
    assert_eq!(ground.run("sb_1", script, User::Root).1, "7:9\n");
    // A mere directory, which can be looked at without being mounted for anybody.
    let upper = ground.place.path().join("disks/directories/sb_1/files/upper");
    let mine = fs::metadata(upper.join("root/mine")).unwrap();
    let first = IdRange::ON_DISK.first;
    assert_eq!((mine.uid(), mine.gid()), (first + 7, first + 9));
    let home = fs::metadata(upper.join("home/agbox")).unwrap();
    assert_eq!((home.uid(), home.permissions().mode() & 0o7777), (first + 1000, 0o755));
}

#[test]
fn devices_proc_and_its_masks_are_there_whatever_the_image_has() {
    let mut ground = Ground::new();
    assert_eq!(ground.make("sb_1", &["base"]), Report::Ready);
    let script = "echo x > /dev/null && cat /proc/1/comm 2>/dev/null; cat /proc/kallsyms; \
                  ls /dev; echo y > /dev/shm/y && cat /dev/shm/y";
    let (exit, output) = ground.run("sb_1", script, AGBOX);
    assert_eq!(exit, Exit::Code(0), "{output}");
    for name in ["null", "zero", "urandom", "ptmx", "pts", "shm", "y"] {
        assert!(output.lines().any(|line| line == name), "{name}: {output}");
    }
    let (_, mounts) = ground.run("sb_1", "cat /proc/self/mountinfo", AGBOX);
    // The overlay is the root and nothing stands under or over it; the rest is below /dev and /proc.
    let points: Vec<&str> = mounts.lines().filter_map(|line| line.split(' ').nth(4)).collect();
    assert_eq!(points.first(), Some(&"/"), "{mounts}");
    let is_known = |point: &&str| point.starts_with("/dev") || point.starts_with("/proc");
    assert!(points[1..].iter().all(is_known), "{mounts}");
    assert!(!mounts.contains("/dev/vda") && !mounts.contains("sysfs"), "{mounts}");
    let root = mounts.lines().find(|line| line.split(' ').nth(4) == Some("/")).unwrap();
    assert!(root.contains("nosuid,nodev") && root.contains(" - overlay "), "{root}");
}

#[test]
fn links_of_a_hostile_image_lead_nowhere_else() {
    let outside = tempfile::tempdir().unwrap();
    fs::set_permissions(outside.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let mut ground = Ground::new();
    let evil = ground.folder("evil", "");
    for name in ["home", "workspace", "tmp", "root", "run", "proc", "dev"] {
        symlink(outside.path(), evil.join(name)).unwrap();
        give(&evil.join(name));
    }
    // Nothing is where the links lead, in the image: so it cannot be made, and says at which step.
    let report = ground.make("sb_1", &["base", "evil"]);
    assert!(matches!(report, Report::Broken(_)), "{report:?}");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    // A link to a folder of the image itself is as good as a folder.
    let usual = ground.folder("usual", "var/home");
    symlink("/var/home", usual.parent().unwrap().parent().unwrap().join("home")).unwrap();
    assert_eq!(ground.make("sb_2", &["base", "usual"]), Report::Ready);
    let script = "readlink /home; echo here > /home/agbox/x; cat /var/home/agbox/x";
    assert_eq!(ground.run("sb_2", script, AGBOX), (Exit::Code(0), "/var/home\nhere\n".into()));
}

#[test]
fn a_layer_that_is_not_there_or_has_a_strange_name_is_refused() {
    let mut ground = Ground::new();
    for name in ["missing", "../sandboxes", "", "a/b", "."] {
        let spec = BodySpec {
            sandbox: "sb_1".to_owned(),
            tenant: 1,
            secret: SECRET,
            hostname: "sandbox".to_owned(),
            max_processes: 100,
            max_open_files: 1024,
            image: Image::Layers(vec![name.to_owned()]),
            paths: HostPaths::None,
            disk: DiskLimit::UpTo(ByteCount::mib(16)),
            beside: None,
            hosts: Vec::new(),
        };
        let (answer, _) = ground.order(SandboxOrder::Make(Box::new(spec)));
        assert!(matches!(answer, SandboxAnswer::Failed { .. }), "{name}: {answer:?}");
    }
    assert_eq!(ground.make("sb_1", &["base"]), Report::Ready);
}
