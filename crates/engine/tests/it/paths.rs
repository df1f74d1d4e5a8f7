//! Paths of the machine in real sandboxes, with the rights of who asks for them.

use std::{
    fs::{self, Permissions},
    os::unix::{
        fs::{MetadataExt as _, PermissionsExt as _, chown, symlink},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use engine::sandboxes::{Caller, SandboxError};
use harness::imaging::{archived, saved, small_system};
use model::{
    exec::ExecEnd,
    execution::Exit,
    life::{FailureCause, Phase},
    sandbox::Sandbox,
    spec::{Access, Copy, Mount, SandboxSpec},
};
use tempfile::TempDir;

use crate::home::{Home, Server, host, tenant};

/// Users of the machine who have no name and own nothing else.
const SOMEBODY: u32 = 54_321;
const ANOTHER: u32 = 54_322;

/// A folder for the sources, and the socket that callers connect to.
struct Machine {
    place: TempDir,
    door: UnixListener,
}

impl Machine {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        // Everybody can go through, and nobody can see what else is there.
        fs::set_permissions(place.path(), Permissions::from_mode(0o711)).unwrap();
        let door = UnixListener::bind(place.path().join("door")).unwrap();
        fs::set_permissions(place.path().join("door"), Permissions::from_mode(0o666)).unwrap();
        Self { place, door }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// The user who runs this test.
    fn own(&self) -> Caller {
        let _client = UnixStream::connect(self.path("door")).unwrap();
        self.accepted()
    }

    /// Another user, who connects with a program of his own.
    fn user(&self, user: u32) -> Caller {
        let script =
            "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])";
        let id = user.to_string();
        let connected = Command::new("setpriv")
            .args(["--reuid", &id, "--regid", &id, "--clear-groups", "/usr/bin/python3", "-c"])
            .arg(script)
            .arg(self.path("door"))
            .status()
            .unwrap();
        assert!(connected.success());
        self.accepted()
    }

    fn accepted(&self) -> Caller {
        let (connection, _) = self.door.accept().unwrap();
        Caller::Peer { connection: Arc::new(connection.into()), home: Some(self.path("home")) }
    }

    /// A file of somebody's that only he can read.
    fn secret_of(&self, name: &str, user: u32) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, format!("of {user}")).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        give(&path, user);
        path
    }

    fn folder_of(&self, name: &str, user: u32) -> PathBuf {
        let path = self.path(name);
        fs::create_dir(&path).unwrap();
        give(&path, user);
        path
    }
}

/// What somebody makes is his already, unless root makes it for another.
fn give(path: &Path, user: u32) {
    if is_root() {
        chown(path, Some(user), Some(user)).unwrap();
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn own_id() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

fn mount(source: &Path, target: &str, access: Access) -> SandboxSpec {
    let mount = Mount { source: text(source), target: target.to_owned(), access };
    SandboxSpec { mounts: vec![mount], ..host() }
}

fn copy(source: &Path, target: &str, exclude: &[&str]) -> SandboxSpec {
    let exclude_patterns = exclude.iter().map(ToString::to_string).collect();
    let copy = Copy { source: text(source), target: target.to_owned(), exclude_patterns };
    SandboxSpec { copies: vec![copy], ..host() }
}

async fn create(
    server: &Server,
    caller: &Caller,
    spec: SandboxSpec,
) -> Result<Sandbox, SandboxError> {
    server.sandboxes.create_for(caller, &tenant(), None, spec).await
}

async fn ready(server: &Server, caller: &Caller, spec: SandboxSpec) -> Sandbox {
    let sandbox = create(server, caller, spec).await.unwrap();
    server.until(sandbox.id.as_str(), Phase::Active).await
}

#[track_caller]
fn refused(created: Result<Sandbox, SandboxError>, why: &str) {
    let message = match created {
        Err(SandboxError::Invalid(message) | SandboxError::Field { message, .. }) => message,
        other => panic!("{other:?}"),
    };
    assert!(message.contains(why), "{message}");
}

#[tokio::test]
async fn a_mount_shows_the_callers_files_as_the_sandboxs_own() {
    let (home, machine) = (Home::new(), Machine::new());
    let server = home.start_behind(&machine.door).await;
    let folder = machine.folder_of("shared", own_id());
    fs::write(folder.join("note"), "hello\n").unwrap();
    let caller = machine.own();
    let spec = mount(&folder, "/workspace/new/place", Access::Writable);
    let sandbox = ready(&server, &caller, spec).await;
    let script = "cd /workspace/new/place && stat -c %u note && cat note && echo back > answer && \
                  chmod 600 answer && stat -c %u /workspace/new";
    assert_eq!(server.run(&sandbox, script).await.1, "1000\nhello\n1000\n");
    let answer = folder.join("answer");
    assert_eq!(fs::read_to_string(&answer).unwrap(), "back\n");
    assert_eq!(fs::metadata(&answer).unwrap().uid(), own_id());
    let read_only =
        ready(&server, &caller, mount(&folder, "/workspace/it", Access::ReadOnly)).await;
    let script = "cat /workspace/it/answer; echo no > /workspace/it/answer || echo kept";
    assert_eq!(server.run(&read_only, script).await.1, "back\nkept\n");
    let file = mount(&folder.join("note"), "/home/agbox/.note", Access::ReadOnly);
    let file = ready(&server, &caller, file).await;
    assert_eq!(server.run(&file, "cat ~/.note").await.1, "hello\n");
    server.end().await;
}

#[tokio::test]
async fn paths_are_opened_with_the_rights_of_who_asks_and_no_others() {
    // Without root there is one user.
    harness::needs::require_root();
    let (home, machine) = (Home::new(), Machine::new());
    let server = home.start_behind(&machine.door).await;
    let own = machine.secret_of("own", SOMEBODY);
    let other = machine.secret_of("other", ANOTHER);
    let roots = machine.secret_of("roots", 0);
    let somebody = machine.user(SOMEBODY);
    let sandbox = ready(&server, &somebody, mount(&own, "/workspace/own", Access::Writable)).await;
    let script = "cat /workspace/own; stat -c ' %u:%g' /workspace/own; echo mine >> /workspace/own";
    assert_eq!(server.run(&sandbox, script).await.1, format!("of {SOMEBODY} 1000:1000\n"));
    assert_eq!(fs::metadata(&own).unwrap().uid(), SOMEBODY);
    assert_eq!(fs::read_to_string(&own).unwrap(), format!("of {SOMEBODY}mine\n"));
    for path in [&other, &roots] {
        let denied = "Permission denied";
        let mounted = mount(path, "/workspace/it", Access::ReadOnly);
        refused(create(&server, &somebody, mounted).await, denied);
        refused(create(&server, &somebody, copy(path, "/workspace/it", &[])).await, denied);
        let opened = server.sandboxes.open_path(&somebody, path).await;
        assert!(matches!(opened, Err(SandboxError::Invalid(_))), "{opened:?}");
    }
    server.sandboxes.open_path(&somebody, &own).await.unwrap();
    // A folder may hold what belongs to others: that stays theirs, also for root inside.
    let folder = machine.folder_of("mixed", SOMEBODY);
    fs::rename(&other, folder.join("other")).unwrap();
    let sandbox =
        ready(&server, &somebody, mount(&folder, "/workspace/it", Access::Writable)).await;
    let script =
        "cat /workspace/it/other && echo read; chmod 777 /workspace/it/other && echo changed";
    assert_eq!(server.run(&sandbox, script).await.1, "");
    let spec = model::spec::ExecSpec { user: Some("root".into()), ..crate::home::shell(script) };
    let as_root = server.start(&sandbox, spec).await;
    server.end_of(&as_root.exec.id).await;
    assert_eq!(fs::read_to_string(as_root.stdout).unwrap(), "");
    server.end().await;
}

#[tokio::test]
async fn rights_cannot_be_made_up_by_handing_over_another_connection() {
    harness::needs::require_root();
    let (home, machine) = (Home::new(), Machine::new());
    let server = home.start_behind(&machine.door).await;
    let secret = machine.secret_of("secret", 0);
    let service = UnixListener::bind(machine.path("service")).unwrap();
    let client = UnixStream::connect(machine.path("service")).unwrap();
    let (accepted, _) = service.accept().unwrap();
    for connection in [client, accepted] {
        let caller = Caller::Peer { connection: Arc::new(connection.into()), home: None };
        let spec = mount(&secret, "/workspace/it", Access::ReadOnly);
        let created = create(&server, &caller, spec).await;
        assert!(matches!(created, Err(SandboxError::Unavailable(_))), "{created:?}");
    }
    server.end().await;
}

#[tokio::test]
async fn strangers_have_only_what_is_beneath_what_is_allowed() {
    let (home, machine) = (Home::new(), Machine::new());
    let server = home.start_behind(&machine.door).await;
    let allowed = machine.folder_of("allowed", own_id());
    fs::create_dir(allowed.join("data")).unwrap();
    fs::write(allowed.join("data/note"), "given").unwrap();
    symlink(machine.path(""), allowed.join("up")).unwrap();
    machine.secret_of("secret", own_id());
    let stranger = Caller::Stranger { allowed: vec![allowed.clone()] };
    let spec = mount(&allowed.join("data"), "/workspace/it", Access::ReadOnly);
    let sandbox = ready(&server, &stranger, spec.clone()).await;
    assert_eq!(server.run(&sandbox, "cat /workspace/it/note").await.1, "given");
    let through_link = mount(&allowed.join("up/secret"), "/workspace/it", Access::ReadOnly);
    refused(create(&server, &stranger, through_link).await, "agbox.host_paths");
    let beside = mount(&machine.path("secret"), "/workspace/it", Access::ReadOnly);
    refused(create(&server, &stranger, beside).await, "agbox.host_paths");
    refused(create(&server, &Caller::nobody(), spec).await, "agbox.host_paths");
    let tools = SandboxSpec { tools: vec!["git".to_owned()], ..host() };
    refused(create(&server, &stranger, tools).await, "home");
    server.end().await;
}

#[tokio::test]
async fn what_cannot_be_mounted_is_refused_with_the_reason() {
    let (home, machine) = (Home::new(), Machine::new());
    let server = home.start_behind(&machine.door).await;
    let caller = machine.own();
    let folder = machine.folder_of("folder", own_id());
    symlink(&folder, machine.path("link")).unwrap();
    let status = Command::new("mkfifo").arg(machine.path("pipe")).status().unwrap();
    assert!(status.success());
    let rows = [
        (machine.path("nothing"), "No such file"),
        (machine.path("link"), "symbolic link"),
        (machine.path("pipe"), "neither a file"),
        (PathBuf::from("/proc/self/root/etc"), "symbolic links"),
        (PathBuf::from("/dev/null"), "neither a file"),
    ];
    for (source, why) in rows {
        let created = create(&server, &caller, mount(&source, "/tmp/it", Access::ReadOnly)).await;
        refused(created, why);
    }
    let door = copy(&machine.path("door"), "/tmp/it", &[]);
    refused(create(&server, &caller, door).await, "only files and folders");
    refused(create(&server, &caller, mount(&folder, "/etc/x", Access::ReadOnly)).await, "/etc/x");
    // Through a link on the way is fine: it leads where it leads the caller.
    fs::create_dir(folder.join("below")).unwrap();
    let below = mount(&machine.path("link/below"), "/tmp/it", Access::ReadOnly);
    ready(&server, &caller, below).await;
    assert_eq!(home.folders().len(), 1, "{:?}", home.folders());
    server.end().await;
}

#[tokio::test]
async fn a_sandbox_reaches_nothing_else_through_a_mount() {
    let (home, machine) = (Home::new(), Machine::new());
    let server = home.start_behind(&machine.door).await;
    let secret = machine.secret_of("secret", own_id());
    let folder = machine.folder_of("folder", own_id());
    symlink(&secret, folder.join("link")).unwrap();
    symlink("../secret", folder.join("up")).unwrap();
    fs::copy("/usr/bin/id", folder.join("id")).unwrap();
    fs::set_permissions(folder.join("id"), Permissions::from_mode(0o4755)).unwrap();
    let caller = machine.own();
    let sandbox = ready(&server, &caller, mount(&folder, "/workspace/it", Access::Writable)).await;
    let script = "cd /workspace/it; cat link up ../secret ../../secret 2>/dev/null; ./id -u; \
                  mount -o remount,suid . 2>/dev/null && echo remounted; grep -c ' /workspace/it ' \
                  /proc/self/mountinfo; grep ' /workspace/it ' /proc/self/mountinfo | \
                  grep -c nosuid,nodev";
    assert_eq!(server.run(&sandbox, script).await.1, "1000\n1\n1\n");
    if is_root() {
        let made = "mknod /workspace/it/device c 1 3 2>/dev/null && echo made";
        assert_eq!(server.run(&sandbox, made).await.1, "");
        let device = folder.join("null");
        assert!(
            Command::new("mknod").arg(&device).args(["c", "1", "3"]).status().unwrap().success()
        );
        fs::set_permissions(&device, Permissions::from_mode(0o666)).unwrap();
        assert_eq!(
            server.run(&sandbox, "cat /workspace/it/null || echo closed").await.1,
            "closed\n"
        );
    }
    server.end().await;
}

#[tokio::test]
async fn a_mounted_socket_can_be_connected_to() {
    let (home, machine) = (Home::new(), Machine::new());
    let server = home.start_behind(&machine.door).await;
    let path = machine.path("agent");
    let agent = UnixListener::bind(&path).unwrap();
    let caller = machine.own();
    let sandbox = ready(&server, &caller, mount(&path, "/tmp/agent", Access::ReadOnly)).await;
    let script = "/usr/bin/python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); \
                  s.connect(\"/tmp/agent\"); s.sendall(b\"hello\")'";
    let (end, _) = server.run(&sandbox, script).await;
    assert_eq!(end, ExecEnd::Exited(Exit::Code(0)));
    let (mut accepted, _) = agent.accept().unwrap();
    let mut heard = String::new();
    std::io::Read::read_to_string(&mut accepted, &mut heard).unwrap();
    assert_eq!(heard, "hello");
    server.end().await;
}

#[tokio::test]
async fn mounts_are_there_again_after_a_new_server_resumes_and_copies_are_not_repeated() {
    let (home, machine) = (Home::new(), Machine::new());
    let server = home.start_behind(&machine.door).await;
    let user = if is_root() { SOMEBODY } else { own_id() };
    let shared = machine.folder_of("shared", user);
    let seed = machine.folder_of("seed", user);
    fs::write(seed.join("file"), "as given\n").unwrap();
    let caller = if is_root() { machine.user(SOMEBODY) } else { machine.own() };
    let spec = SandboxSpec {
        copies: copy(&seed, "/workspace/seed", &[]).copies,
        ..mount(&shared, "/workspace/shared", Access::Writable)
    };
    let sandbox = ready(&server, &caller, spec).await;
    let name = sandbox.id.as_str();
    server.run(&sandbox, "echo changed > /workspace/seed/file").await;
    server.sandboxes.stop(&tenant(), name).await.unwrap();
    server.until(name, Phase::Stopped).await;
    server.end().await;
    drop(caller);
    let server = home.start().await;
    server.sandboxes.resume(&tenant(), name).await.unwrap();
    server.until(name, Phase::Active).await;
    let script = "cat /workspace/seed/file; echo there > /workspace/shared/note";
    assert_eq!(server.run(&sandbox, script).await.1, "changed\n");
    assert_eq!(fs::metadata(shared.join("note")).unwrap().uid(), user);
    // What is not there any more cannot be had again, and that is said.
    server.sandboxes.stop(&tenant(), name).await.unwrap();
    server.until(name, Phase::Stopped).await;
    fs::remove_dir_all(&shared).unwrap();
    server.sandboxes.resume(&tenant(), name).await.unwrap();
    let failed = server.until(name, Phase::Failed).await.life.failure.unwrap();
    assert_eq!(failed.cause, FailureCause::ResumeFailed);
    assert!(failed.message.contains(&text(&shared)), "{failed:?}");
    server.end().await;
}

#[tokio::test]
async fn a_copy_is_the_sandboxs_own_and_leaves_out_what_is_excluded() {
    let (home, machine) = (Home::new(), Machine::new());
    let server = home.start_behind(&machine.door).await;
    let source = machine.folder_of("project", own_id());
    fs::create_dir_all(source.join("src/deep")).unwrap();
    fs::create_dir(source.join("target")).unwrap();
    for (name, content) in [
        ("src/deep/main", "main"),
        ("src/a.o", ""),
        ("target/big", ""),
        (".gitignore", "venv\n"),
        ("run", "#!/bin/sh\necho ran\n"),
    ] {
        fs::write(source.join(name), content).unwrap();
    }
    fs::set_permissions(source.join("run"), Permissions::from_mode(0o4755)).unwrap();
    symlink("src/deep", source.join("inside")).unwrap();
    symlink("/usr", source.join("venv")).unwrap();
    let caller = machine.own();
    let spec = copy(&source, "/workspace/project", &["*.o", "target"]);
    let sandbox = ready(&server, &caller, spec.clone()).await;
    let script = "cd /workspace/project; find . | sort | tr '\\n' ' '; ./run; cat inside/main; \
                  stat -c ' %u %a' run; echo more >> src/deep/main";
    let expected =
        ". ./.gitignore ./inside ./run ./src ./src/deep ./src/deep/main ran\nmain 1000 755\n";
    assert_eq!(server.run(&sandbox, script).await.1, expected);
    assert_eq!(fs::read_to_string(source.join("src/deep/main")).unwrap(), "main");
    let file = ready(&server, &caller, copy(&source.join("run"), "/home/agbox/run", &[])).await;
    assert_eq!(server.run(&file, "~/run").await.1, "ran\n");
    symlink("/etc/passwd", source.join("out")).unwrap();
    let sandbox = create(&server, &caller, spec).await.unwrap();
    let failed = server.until(sandbox.id.as_str(), Phase::Failed).await.life.failure.unwrap();
    assert!(failed.message.contains("\"out\""), "{failed:?}");
    server.end().await;
}

#[tokio::test]
async fn tools_bring_what_is_there_of_the_callers_home() {
    let (home, machine) = (Home::new(), Machine::new());
    let server = home.start_behind(&machine.door).await;
    let caller = machine.own();
    let own_home = machine.folder_of("home", own_id());
    fs::create_dir_all(own_home.join(".npm")).unwrap();
    fs::write(own_home.join(".npm/cache"), "warm\n").unwrap();
    let tools = |names: &[&str]| SandboxSpec {
        tools: names.iter().map(ToString::to_string).collect(),
        ..host()
    };
    let sandbox = ready(&server, &caller, tools(&["npm", "git", "opencode"])).await;
    let script = "cat ~/.npm/cache; ls -A ~";
    assert_eq!(server.run(&sandbox, script).await.1, "warm\n.npm\n");
    refused(create(&server, &caller, tools(&["claude"])).await, ".claude");
    server.end().await;
}

#[tokio::test]
async fn an_image_in_a_file_is_opened_with_the_rights_of_who_asks() {
    let (home, machine) = (Home::new(), Machine::new());
    let server = home.start_behind(&machine.door).await;
    let user = if is_root() { SOMEBODY } else { own_id() };
    let file = machine.secret_of("image.tar", user);
    fs::write(&file, archived(&saved(&small_system()))).unwrap();
    let of_file = SandboxSpec { image: format!("tar:{}", text(&file)), ..host() };
    let caller = if is_root() { machine.user(SOMEBODY) } else { machine.own() };
    let sandbox = ready(&server, &caller, of_file.clone()).await;
    assert_eq!(sandbox.life.images.len(), 1);
    let refused_to = |created: Result<Sandbox, SandboxError>| {
        assert!(matches!(created, Err(SandboxError::Image(_))), "{created:?}");
    };
    refused_to(create(&server, &Caller::nobody(), of_file.clone()).await);
    if is_root() {
        refused(create(&server, &machine.user(ANOTHER), of_file).await, "Permission denied");
    }
    server.end().await;
}

/// A root file system in a folder, with a shell and a file that only its owner can read.
fn root_folder(machine: &Machine, name: &str, user: u32) -> PathBuf {
    let root = machine.folder_of(name, user);
    fs::create_dir(root.join("bin")).unwrap();
    fs::copy("/bin/busybox", root.join("bin/busybox")).unwrap();
    fs::write(root.join("motd"), "in a folder\n").unwrap();
    for (file, mode) in [("bin/busybox", 0o755), ("motd", 0o600)] {
        let file = root.join(file);
        fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        give(&file, user);
    }
    root
}

#[tokio::test]
async fn a_folder_is_an_image_with_the_rights_of_who_asks() {
    let machine = Machine::new();
    let home = Home::new();
    let server = home.start_behind(&machine.door).await;
    let own = root_folder(&machine, "own", own_id());
    let of = |root: &Path| SandboxSpec { image: format!("dir:{}", root.display()), ..host() };
    let look = |sandbox: &Sandbox, user: &str, script: &str| {
        let command = ["/bin/busybox", "sh", "-c", script].map(str::to_owned).to_vec();
        let user = is_root().then(|| user.to_owned());
        let spec = model::spec::ExecSpec { command, user, ..Default::default() };
        let (server, sandbox) = (&server, sandbox.clone());
        async move {
            let started = server.start(&sandbox, spec).await;
            let end = server.end_of(&started.exec.id).await;
            (end, fs::read_to_string(started.stdout).unwrap())
        }
    };
    let sandbox = ready(&server, &machine.own(), of(&own)).await;
    let script = "cat /motd && echo changed > /motd && echo mine > /workspace/mine";
    let (end, said) = look(&sandbox, "root", script).await;
    assert_eq!((end, said.as_str()), (ExecEnd::Exited(Exit::Code(0)), "in a folder\n"));
    assert_eq!(fs::read_to_string(own.join("motd")).unwrap(), "in a folder\n");
    let name = sandbox.id.as_str();
    server.sandboxes.stop(&tenant(), name).await.unwrap();
    server.until(name, Phase::Stopped).await;
    server.sandboxes.resume(&tenant(), name).await.unwrap();
    let sandbox = server.until(name, Phase::Active).await;
    let (_, said) = look(&sandbox, "root", "cat /motd /workspace/mine").await;
    assert_eq!(said, "changed\nmine\n");

    if is_root() {
        // What the folder has of others is nobody's, and its secrets stay theirs.
        let theirs = root_folder(&machine, "theirs", SOMEBODY);
        fs::write(theirs.join("roots"), "of root").unwrap();
        fs::set_permissions(theirs.join("roots"), Permissions::from_mode(0o600)).unwrap();
        let sandbox = ready(&server, &machine.user(SOMEBODY), of(&theirs)).await;
        let (_, said) = look(&sandbox, "root", "cat /motd; cat /roots || echo no").await;
        assert_eq!(said, "in a folder\nno\n");
        fs::set_permissions(&theirs, Permissions::from_mode(0o700)).unwrap();
        refused(create(&server, &machine.user(ANOTHER), of(&theirs)).await, "denied");
    }
    let file = machine.path("file");
    fs::write(&file, "").unwrap();
    refused(create(&server, &machine.own(), of(&file)).await, "no folder");
    refused(create(&server, &machine.own(), of(&machine.path("none"))).await, "No such file");
    let link = machine.path("link");
    symlink(&own, &link).unwrap();
    refused(create(&server, &machine.own(), of(&link)).await, "symbolic link");
    let strangers = create(&server, &Caller::nobody(), of(&own)).await;
    assert!(matches!(strangers, Err(SandboxError::Image(_))), "{strangers:?}");
    server.end().await;
}
