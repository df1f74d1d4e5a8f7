//! Calling the command, and a server that runs for a test.

use std::{
    ffi::OsStr,
    fs::Permissions,
    io::{BufRead as _, BufReader, Write as _},
    net::TcpStream,
    os::{fd::OwnedFd, unix::fs::PermissionsExt as _},
    path::Path,
    process::{Child, Command, Output, Stdio},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
    time::Timespec,
};
use tempfile::TempDir;

/// Returns the command with no settings from outside.
pub(crate) fn ringfence(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringfence"));
    for (name, _) in std::env::vars() {
        if name.starts_with("RINGFENCE_") {
            command.env_remove(name);
        }
    }
    // A socket of the developer's own server stays his.
    command.env_remove("XDG_RUNTIME_DIR");
    command.args(arguments).stdin(Stdio::null());
    command
}

/// What a call said and how it ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

pub(crate) fn call(arguments: &[&str]) -> Said {
    ringfence(arguments).output().unwrap().into()
}

/// Calls the command with this text as its standard input.
pub(crate) fn call_with_input(arguments: &[&str], input: &str) -> Said {
    let mut child = ringfence(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap().into()
}

/// A server on a port of its own.
pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) data: TempDir,
    pub(crate) greeting: String,
    child: Child,
}

/// The configuration of a server whose operator lists a registry, in its data directory.
const LISTED: &str = "listed.toml";

impl Server {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    pub(crate) fn start_with(flags: &[&str]) -> Self {
        Self::start_by(ringfence(&[]), flags)
    }

    /// Starts a server that does not wait for endless programs when it is to end.
    pub(crate) fn start_hasty() -> Self {
        Self::start_hasty_by(ringfence(&[]))
    }

    /// Starts such a server from a shell with this limit, given as options of `ulimit`.
    pub(crate) fn start_with_limit(limit: &str) -> Self {
        Self::start_hasty_by(limited(limit))
    }

    fn start_hasty_by(command: Command) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = write(directory.path(), "hasty.toml", "drain = \"10ms\"");
        Self::start_by(command, &["--config", &file])
    }

    pub(crate) fn start_by(command: Command, flags: &[&str]) -> Self {
        Self::start_at("127.0.0.1:0", data_folder(), command, flags)
    }

    /// Starts a server over this data directory.
    pub(crate) fn start_in(data: TempDir) -> Self {
        Self::start_at("127.0.0.1:0", data, ringfence(&[]), &[])
    }

    /// Starts a server whose operator lists this registry, which is on the loopback of this machine.
    pub(crate) fn start_listing(registry: &str) -> Self {
        let data = data_folder();
        write(data.path(), LISTED, &format!("[images.registries.{registry:?}]\n"));
        Self::start_at("127.0.0.1:0", data, ringfence(&[]), &[])
    }

    fn start_at(address: &str, data: TempDir, mut command: Command, flags: &[&str]) -> Self {
        let listed = data.path().join(LISTED);
        let mut child = command
            .args(["serve", "--listen", address, "--data"])
            .arg(data.path())
            .args(flags)
            .args(
                listed
                    .exists()
                    .then_some([OsStr::new("--config"), listed.as_os_str()])
                    .iter()
                    .flatten(),
            )
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // The last line of the greeting says how to ask whether it is ready.
        let mut greeting = String::new();
        while !greeting.contains("/readyz") {
            greeting += &lines.next().unwrap().unwrap();
            greeting += "\n";
        }
        let url = greeting.split_whitespace().find(|word| word.starts_with("http")).unwrap();
        Self { url: url.to_owned(), data, greeting, child }
    }

    pub(crate) fn address(&self) -> &str {
        self.url.split_once("://").unwrap().1
    }

    pub(crate) fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address()).unwrap()
    }

    /// Returns the process that was started.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the process that clients talk to: a child of the one that was started.
    pub(crate) fn daemon(&self) -> u32 {
        daemon_of(self.child.id())
    }

    /// Returns the process that works on volumes: it runs the same program as the spawner, and is not the daemon.
    pub(crate) fn volume_keeper(&self) -> u32 {
        let program = |pid: u32| std::fs::read_link(format!("/proc/{pid}/exe")).ok();
        let (own, daemon) = (program(self.child.id()), self.daemon());
        let is_it = |pid: &u32| *pid != daemon && program(*pid) == own;
        child_pids(self.child.id()).into_iter().find(is_it).unwrap()
    }

    /// Returns how much of the machine's memory the daemon has now.
    pub(crate) fn daemon_memory_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.daemon())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Returns the value of a metric, by its name and labels.
    pub(crate) fn metric(&self, name: &str) -> Option<String> {
        let mut stream = self.connect();
        let ask = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(ask.as_bytes()).unwrap();
        let text = read_rest(stream);
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).map(Into::into)
    }

    pub(crate) fn data(&self) -> &str {
        self.data.path().to_str().unwrap()
    }

    pub(crate) fn call(&self, arguments: &[&str]) -> Said {
        let place = ["--url", &self.url, "--data", self.data()];
        call(&[arguments, &place].concat())
    }

    /// Kills its processes, as hard as can be. What they keep goes on.
    pub(crate) fn kill(&mut self) {
        let daemon = open_process(self.daemon());
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        pidfd_send_signal(&daemon, Signal::KILL).unwrap_or_default();
        assert!(gone(&daemon), "the daemon goes on");
    }

    /// Starts another server at the same address, over the same data.
    pub(crate) fn start_again(&mut self) {
        let data = std::mem::replace(&mut self.data, tempfile::tempdir().unwrap());
        *self = Self::start_at(self.address(), data, ringfence(&[]), &[]);
    }

    /// Asks the server to end, if it runs, and waits until it has.
    pub(crate) fn end(&mut self) {
        // After its end its number may be another's.
        if matches!(self.child.try_wait(), Ok(None)) {
            signal(self.child.id(), "TERM");
            let _ = self.child.wait();
        }
    }

    /// Asks the server to end; returns its exit code.
    pub(crate) fn stop(mut self) -> (Option<i32>, TempDir) {
        signal(self.child.id(), "TERM");
        let code = self.child.wait().unwrap().code();
        let data = std::mem::replace(&mut self.data, tempfile::tempdir().unwrap());
        (code, data)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// Makes a folder that a server takes for its data: one that no other user can look into.
pub(crate) fn data_folder() -> TempDir {
    tempfile::Builder::new().permissions(Permissions::from_mode(0o700)).tempdir().unwrap()
}

/// Sends a signal to a process of ours.
pub(crate) fn signal(pid: u32, name: &str) {
    let _ =
        Command::new("kill").args(["-s", name, &pid.to_string()]).stderr(Stdio::null()).status();
}

/// Returns the children of a process, each as a descriptor that stays its own.
pub(crate) fn children(pid: u32) -> Vec<OwnedFd> {
    child_pids(pid).into_iter().map(open_process).collect()
}

/// Returns the daemon of this spawner.
pub(crate) fn daemon_of(spawner: u32) -> u32 {
    let is_daemon = |pid: &u32| {
        std::fs::read_to_string(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| line.contains("--as-daemon"))
    };
    child_pids(spawner).into_iter().find(is_daemon).unwrap()
}

pub(crate) fn open_process(pid: u32) -> OwnedFd {
    pidfd_open(Pid::from_raw(pid.try_into().unwrap()).unwrap(), PidfdFlags::empty()).unwrap()
}

fn child_pids(pid: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    list.split_whitespace().map(|child| child.parse().unwrap()).collect()
}

/// Waits for the end of a process; tells whether it came in time.
pub(crate) fn gone(process: &OwnedFd) -> bool {
    let patience = Timespec { tv_sec: 8, tv_nsec: 0 };
    poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&patience)).unwrap() == 1
}

/// Reads what a child writes until it has written this.
pub(crate) fn read_until(stream: &mut impl std::io::Read, text: &str) {
    let mut read = Vec::new();
    let mut byte = [0];
    while !read.ends_with(text.as_bytes()) {
        stream.read_exact(&mut byte).unwrap();
        read.extend(byte);
    }
}

pub(crate) fn read_rest(mut stream: impl std::io::Read) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

pub(crate) fn write(directory: &Path, name: &str, text: &str) -> String {
    let path = directory.join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// The command under a limit of the shell's.
pub(crate) fn limited(limit: &str) -> Command {
    let mut shell = Command::new("/bin/sh");
    let script = format!("ulimit {limit}; exec \"$0\" \"$@\"");
    shell.args(["-c", &script]).arg(ringfence(&[]).get_program()).stdin(Stdio::null());
    shell
}
