//! The server under test: started, killed, started again over the same data.

use std::{
    collections::BTreeMap,
    env, fs,
    io::{BufRead as _, BufReader, Read as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open},
};

/// Where a server has its things.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// The builds that take turns.
    binaries: Vec<PathBuf>,
    started: Arc<AtomicUsize>,
    pub(crate) data: PathBuf,
    pub(crate) runtime: PathBuf,
}

impl Place {
    pub(crate) fn new(
        binary: PathBuf,
        other: Option<PathBuf>,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let binaries = std::iter::once(binary).chain(other).collect();
        let (data, runtime) = (folder.join("data"), folder.join("run"));
        let place = Self { binaries, started: Arc::default(), data, runtime };
        fs::create_dir(&place.runtime).context("no folder for the socket")?;
        Ok(place)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.runtime.join("agbox/agboxd.sock")
    }

    pub(crate) fn sandboxes(&self) -> PathBuf {
        self.data.join("sandboxes")
    }

    /// Starts a server, which may be set to die at a certain place, and waits until it serves.
    /// `None`: it died before.
    pub(crate) fn start(&self, failpoint: Option<&str>) -> anyhow::Result<Option<Server>> {
        let turn = self.started.fetch_add(1, Ordering::Relaxed) % self.binaries.len();
        let mut command = Command::new(self.binaries.get(turn).context("there is no program")?);
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(&self.data)
            .env("XDG_RUNTIME_DIR", &self.runtime)
            .env("RINGFENCE_LOG__FILTER", "warn")
            .env_remove("RF_FAILPOINT")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(self.log()?);
        if let Some(failpoint) = failpoint {
            command.env("RF_FAILPOINT", failpoint);
        }
        let mut spawner = command.spawn().context("cannot start the server")?;
        let stdout = spawner.stdout.take().context("it has no standard output")?;
        let is_ready = |line: &String| line.starts_with("Ringfence serves on");
        let mut stdout = BufReader::new(stdout);
        if stdout.by_ref().lines().map_while(Result::ok).any(|line| is_ready(&line)) {
            return Ok(Some(Server { spawner, _stdout: stdout }));
        }
        let status = spawner.wait()?;
        if failpoint.is_none() {
            bail!("the server did not start: {status}; see {}", self.log_path().display());
        }
        Ok(None)
    }

    /// Chooses how the server ends next. Where it is upgraded, it is asked to stop as often as it is
    /// killed.
    pub(crate) fn next_end(&self) -> End {
        if self.binaries.len() > 1 && fastrand::bool() {
            return End::Asked;
        }
        let victim = fastrand::choice([Victim::Daemon, Victim::Spawner, Victim::Both]);
        End::Killed(victim.unwrap_or(Victim::Both))
    }

    fn log(&self) -> anyhow::Result<fs::File> {
        let mut options = fs::OpenOptions::new();
        options.create(true).append(true).open(self.log_path()).context("no log file")
    }

    fn log_path(&self) -> PathBuf {
        self.runtime.join("server.log")
    }

    /// Returns what the server has complained of.
    pub(crate) fn complaints(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }
}

/// A server that serves, or is about to die.
#[derive(Debug)]
pub(crate) struct Server {
    spawner: Child,
    /// Held, because the server goes on writing to it.
    _stdout: BufReader<ChildStdout>,
}

/// A run that breaks off leaves no server.
impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.spawner.try_wait(), Ok(None)) {
            // Its daemon ends with it.
            let _ = self.spawner.kill();
            let _ = self.spawner.wait();
        }
    }
}

/// Which of its two processes is killed. The other ends by itself.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Victim {
    Daemon,
    Spawner,
    Both,
}

/// How a server ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    Asked,
    Killed(Victim),
}

impl Server {
    pub(crate) fn end(self, end: End) -> anyhow::Result<()> {
        match end {
            End::Asked => self.stop(),
            End::Killed(victim) => self.kill(victim),
        }
    }

    /// Kills it and waits until nothing is left of it but its sandboxes.
    pub(crate) fn kill(mut self, victim: Victim) -> anyhow::Result<()> {
        let spawner = pid(self.spawner.id())?;
        let daemon = self.daemon();
        match victim {
            Victim::Daemon => kill(daemon),
            Victim::Spawner => kill(Some(spawner)),
            Victim::Both => {
                kill(Some(spawner));
                kill(daemon);
            }
        }
        self.spawner.wait()?;
        wait_until_gone(daemon)
    }

    /// Waits until it has died by itself, for at most so long. Gives it back if it lives.
    pub(crate) fn wait_for_its_death(mut self, at_most: Duration) -> anyhow::Result<Option<Self>> {
        let daemon = self.daemon();
        let until = Instant::now() + at_most;
        while Instant::now() < until {
            if self.spawner.try_wait()?.is_some() {
                wait_until_gone(daemon)?;
                return Ok(None);
            }
            pause();
        }
        Ok(Some(self))
    }

    /// Asks it to stop, and waits until it has.
    pub(crate) fn stop(mut self) -> anyhow::Result<()> {
        kill_process(pid(self.spawner.id())?, Signal::TERM)?;
        let status = self.spawner.wait()?;
        if !status.success() {
            bail!("the server did not end in order: {status}");
        }
        Ok(())
    }

    /// Returns the descriptors and the memory, in KiB, that each of its processes has.
    pub(crate) fn weight(&self) -> anyhow::Result<BTreeMap<&'static str, (usize, u64)>> {
        let daemon = self.daemon().context("there is no daemon")?.as_raw_nonzero().get();
        let spawner = i32::try_from(self.spawner.id())?;
        let mut weights = BTreeMap::new();
        for (name, pid) in [("daemon", daemon), ("spawner", spawner)] {
            let descriptors = fs::read_dir(format!("/proc/{pid}/fd"))?.count();
            let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
            let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
            let memory = memory.and_then(|text| text.split_whitespace().next()?.parse().ok());
            weights.insert(name, (descriptors, memory.context("no memory")?));
        }
        Ok(weights)
    }

    /// The daemon is the child of the spawner that runs the same program.
    fn daemon(&self) -> Option<Pid> {
        let children = format!("/proc/{0}/task/{0}/children", self.spawner.id());
        let children = fs::read_to_string(children).ok()?;
        let is_daemon = |pid: &&str| {
            let name = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&name).contains("--as-daemon")
        };
        let daemon = children.split_whitespace().find(is_daemon)?;
        Pid::from_raw(daemon.parse().ok()?)
    }
}

fn pid(number: u32) -> anyhow::Result<Pid> {
    i32::try_from(number).ok().and_then(Pid::from_raw).context("no such process number")
}

fn kill(process: Option<Pid>) {
    if let Some(process) = process {
        // It may have died by itself.
        let _ = kill_process(process, Signal::KILL);
    }
}

/// It is not our child. Its first thread may be gone before those that wait for the disk.
fn wait_until_gone(process: Option<Pid>) -> anyhow::Result<()> {
    let Some(process) = process else { return Ok(()) };
    let pidfd = match pidfd_open(process, PidfdFlags::empty()) {
        Err(Errno::SRCH) => return Ok(()),
        other => other?,
    };
    let at_most = Timespec { tv_sec: 30, tv_nsec: 0 };
    match poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&at_most))? {
        0 => bail!("the daemon {process:?} does not end"),
        _ => Ok(()),
    }
}

#[expect(clippy::disallowed_methods, reason = "a process that is not ours can only be looked at")]
fn pause() {
    std::thread::sleep(Duration::from_millis(5));
}

/// Returns the program under test: beside this one.
pub(crate) fn default_binary() -> anyhow::Result<PathBuf> {
    let own = env::current_exe()?;
    Ok(own.with_file_name("ringfence"))
}
