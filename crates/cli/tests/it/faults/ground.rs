//! A server whose disk, clock and processes a test can spoil.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    net::TcpStream,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{Child, ChildStderr, Command, Stdio},
};

use rustix::{
    mount::{MountPropagationFlags, mount_change},
    process::{Signal, pidfd_send_signal},
};
use serde_json::Value;
use tempfile::TempDir;

use crate::command::{Said, gone, open_process, ringfence};

/// A server over data that outlives it. What it leaves is removed in the end.
pub(crate) struct Ground {
    pub(crate) data: PathBuf,
    url: String,
    key: String,
    server: Option<Child>,
    pub(crate) folder: TempDir,
    is_mounted: bool,
    /// Settings of every server that is started.
    settings: Vec<(String, String)>,
}

impl Ground {
    /// A place for a server that has not been started.
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        Self {
            data,
            url: String::new(),
            key: String::new(),
            server: None,
            folder,
            is_mounted: false,
            settings: Vec::new(),
        }
    }

    /// Gives a setting, by its variable, to every server that is started from now on.
    pub(crate) fn set(&mut self, variable: &str, value: &str) {
        self.settings.push((variable.to_owned(), value.to_owned()));
    }

    /// The same, with a disk of its own of this size, in MiB, for the data.
    pub(crate) fn with_disk(size: u64) -> Self {
        // Other servers on this machine copy what is mounted, and would keep the disk busy.
        isolate::sys::process::unshare_mounts().unwrap();
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        mount_change("/", private).unwrap();
        let mut ground = Self::new();
        let image = ground.image();
        fs::create_dir(&ground.data).unwrap();
        fs::File::create(&image).unwrap().set_len(size << 20).unwrap();
        // Without room that only root has: the daemon is not root.
        must(Command::new("mkfs.ext4").args(["-q", "-m", "0"]).arg(&image));
        ground.mount(&[]);
        fs::set_permissions(&ground.data, fs::Permissions::from_mode(0o700)).unwrap();
        ground
    }

    fn image(&self) -> PathBuf {
        self.folder.path().join("disk.ext4")
    }

    pub(crate) fn mount(&mut self, options: &[&str]) {
        let mut mount = Command::new("mount");
        must(mount.args(["-o", "loop"]).args(options).arg(self.image()).arg(&self.data));
        self.is_mounted = true;
    }

    pub(crate) fn unmount(&mut self) {
        must(Command::new("umount").arg(&self.data));
        self.is_mounted = false;
    }

    /// Starts a server and waits until it serves.
    pub(crate) fn start(&mut self) {
        self.start_by(ringfence(&[]));
    }

    pub(crate) fn start_by(&mut self, command: Command) {
        let started = self.try_start(command);
        assert_eq!(started, Ok(()), "the server does not start\n{}", self.log());
    }

    /// Starts a server; returns how it ended if it did not come to serving.
    pub(crate) fn try_start(&mut self, mut command: Command) -> Result<(), String> {
        let log = fs::File::options().create(true).append(true).open(self.log_path()).unwrap();
        let address = self.url.strip_prefix("http://").unwrap_or("127.0.0.1:0");
        command.args(["serve", "--listen", address, "--data"]).arg(&self.data);
        command.envs(self.settings.iter().map(|(variable, value)| (variable, value)));
        if self.is_mounted {
            // So small a disk has no room for volumes.
            command
                .arg("--allow-unlimited-disk")
                .env("RINGFENCE_SANDBOXES__DISK", "unlimited")
                .env("RINGFENCE_SANDBOXES__KEEP_FREE", "0MiB");
        }
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let greeting = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        for line in greeting {
            if let Some(url) = line.strip_prefix("Ringfence serves on ") {
                url.clone_into(&mut self.url);
            }
            if line.contains("/readyz") {
                self.server = Some(child);
                // Read once: the disk may be gone later.
                self.key = fs::read_to_string(self.data.join("admin.key")).unwrap();
                return Ok(());
            }
        }
        Err(child.wait().unwrap().to_string())
    }

    /// The process that was started, which makes sandboxes.
    pub(crate) fn spawner(&self) -> u32 {
        self.server.as_ref().unwrap().id()
    }

    /// The process that clients talk to.
    pub(crate) fn daemon(&self) -> u32 {
        crate::command::daemon_of(self.spawner())
    }

    /// Kills both processes of the server and waits until they are gone.
    pub(crate) fn kill(&mut self) {
        let daemon = open_process(self.daemon());
        let mut server = self.server.take().unwrap();
        server.kill().unwrap();
        pidfd_send_signal(&daemon, Signal::KILL).unwrap_or_default();
        server.wait().unwrap();
        assert!(gone(&daemon), "the daemon goes on");
    }

    /// Kills what is left of a server of which one process may be gone: the other ends with it.
    pub(crate) fn kill_rest(&mut self) {
        let mut server = self.server.take().unwrap();
        server.kill().unwrap_or_default();
        server.wait().unwrap();
    }

    /// Gives up the process, which has ended or is to go on by itself.
    pub(crate) fn take_server(&mut self) -> Child {
        self.server.take().unwrap()
    }

    /// Asks the server to end, and waits until it has.
    pub(crate) fn stop(&mut self) {
        if let Some(mut server) = self.server.take() {
            crate::command::signal(server.id(), "TERM");
            server.wait().unwrap();
        }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn key(&self) -> &str {
        self.key.trim()
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = ringfence(arguments);
        command.env("RINGFENCE_URL", &self.url).env("RINGFENCE_DATA", &self.data);
        command.env("RINGFENCE_API_KEY", self.key());
        command
    }

    pub(crate) fn ask(&self, arguments: &[&str]) -> Said {
        self.command(arguments).output().unwrap().into()
    }

    /// Whether something is answered well, soon: the server may die over it.
    pub(crate) fn patiently(&self, arguments: &[&str]) -> bool {
        let client = self.command(arguments);
        let mut timed = Command::new("timeout");
        timed.arg("5").arg(client.get_program()).args(client.get_args());
        timed.envs(client.get_envs().filter_map(|(name, value)| Some((name, value?))));
        timed.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        timed.status().unwrap().success()
    }

    /// Waits until sandboxes are there that nobody has asked for, those that are whole and one of the others,
    /// which come after them.
    pub(crate) fn until_stocked(&self) {
        let folder = self.data.join("sandboxes/.waiting");
        let count = || fs::read_dir(&folder).map_or(0, Iterator::count);
        while count() < 3 {
            // A client is the clock.
            assert_eq!(self.ask(&["ps"]).code, Some(0), "{}", self.log());
        }
    }

    /// Makes a sandbox of this name, which must work.
    pub(crate) fn create(&self, name: &str) {
        let said = self.ask(&["create", "--image", "host", "--name", name]);
        assert_eq!(said.code, Some(0), "{said:?}\n{}", self.log());
    }

    /// Follows a sandbox until it is ready.
    pub(crate) fn until_ready(&self, sandbox: &str) {
        self.until_ready_again(sandbox, 1);
    }

    /// Follows a sandbox until it is ready for the so many-th time.
    pub(crate) fn until_ready_again(&self, sandbox: &str, times: usize) {
        let mut following = self.command(&["events", sandbox, "--follow", "--json"]);
        let mut following = following.stdout(Stdio::piped()).spawn().unwrap();
        let mut told = BufReader::new(following.stdout.take().unwrap()).lines();
        let is_ready =
            |line: &std::io::Result<String>| line.as_ref().unwrap().contains("\"SANDBOX_READY\"");
        let is_ready = told.by_ref().filter(is_ready).nth(times - 1).is_some();
        following.kill().unwrap();
        following.wait().unwrap();
        assert!(is_ready, "{}", self.log());
    }

    /// Runs a script in a sandbox, to its end.
    pub(crate) fn shell(&self, sandbox: &str, script: &str) -> Said {
        self.ask(&["exec", sandbox, "--", "sh", "-c", script])
    }

    /// Starts a script in a sandbox and returns the id of the command.
    pub(crate) fn detach(&self, sandbox: &str, script: &str) -> String {
        let said = self.ask(&["exec", sandbox, "--detach", "--", "sh", "-c", script]);
        assert_eq!(said.code, Some(0), "{said:?}");
        said.out.trim().to_owned()
    }

    /// Returns all that a command has written to stdout, once it has ended.
    pub(crate) fn output(&self, exec: &str) -> String {
        let said = self.ask(&["logs", exec, "--follow"]);
        assert_eq!(said.code, Some(0), "{said:?}");
        said.out
    }

    /// Returns the events of a sandbox.
    pub(crate) fn events(&self, sandbox: &str) -> Vec<Value> {
        let said = self.ask(&["events", sandbox, "--json"]);
        assert_eq!(said.code, Some(0), "{said:?}");
        said.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Follows the events of a sandbox until one of its commands has ended.
    pub(crate) fn until_ended(&self, sandbox: &str, exec: &str) {
        let mut follow = self.command(&["events", sandbox, "--follow", "--json"]);
        let mut follow = follow.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(follow.stdout.take().unwrap()).lines();
        let mut events = lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
        let is_end = |event: &Value| {
            event["exec_id"] == exec
                && matches!(event["exec_state"].as_str(), Some("FINISHED" | "FAILED"))
        };
        assert!(events.any(|event| is_end(&event)), "the events of {sandbox} end before {exec}");
        follow.kill().unwrap();
        follow.wait().unwrap();
    }

    pub(crate) fn state(&self, sandbox: &str) -> String {
        let said = self.ask(&["ps", "-a", "--json"]);
        let listed: Value = serde_json::from_str(&said.out).unwrap();
        let all = listed["sandboxes"].as_array().unwrap();
        let found = all.iter().find(|found| found["sandbox_id"] == sandbox);
        found.map_or("none", |found| found["state"].as_str().unwrap()).to_owned()
    }

    /// Makes a request by hand; returns the status and the rest.
    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        use std::io::Write as _;
        let mut stream = TcpStream::connect(self.url.strip_prefix("http://").unwrap()).unwrap();
        let ask = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(ask.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        (text.split(' ').nth(1).unwrap().parse().unwrap(), text)
    }

    fn log_path(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// The folder of a sandbox, when there is only one.
    pub(crate) fn only_sandbox(&self) -> PathBuf {
        let mut all =
            fs::read_dir(self.data.join("sandboxes")).unwrap().map(|entry| entry.unwrap());
        let only = all.find(|entry| entry.file_name().to_string_lossy().starts_with("sb_"));
        only.unwrap().path()
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        self.stop();
        let removed = harness::remove_sandboxes(&self.data.join("sandboxes"));
        if self.is_mounted {
            // Lazily, because what a broken test left may still be there.
            let _ = Command::new("umount").arg("--lazy").arg(&self.data).status();
        }
        assert!(removed.is_ok() || std::thread::panicking(), "{removed:?}");
    }
}

/// Somebody who changes what system calls of a process come to.
pub(crate) struct Strace {
    pub(crate) child: Child,
    /// It tells of every thread that begins, and would end if nobody could hear that.
    _told: BufReader<ChildStderr>,
}

impl Strace {
    pub(crate) fn inject(process: u32, calls: &str, what: &str) -> Self {
        let mut child = Command::new("strace")
            .args(["-f", "-o", "/dev/null", "-e", &format!("trace={calls}")])
            .args(["-e", &format!("inject={calls}:{what}")])
            .args(["-p", &process.to_string()])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut told = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        told.read_line(&mut line).unwrap();
        assert!(line.contains("attached"), "{line}");
        Self { child, _told: told }
    }
}

/// Runs a program that must work.
pub(crate) fn must(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
