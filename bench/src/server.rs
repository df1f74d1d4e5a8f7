//! A server of our own, on a free port and an empty data directory.

use std::{
    collections::BTreeMap,
    fs::{self, File, Permissions},
    io::{self, BufRead as _, BufReader, Write as _},
    net::SocketAddr,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, bail};
use client::{
    address::Address,
    admin::{Admin, NewToken},
    sandboxes::Sandboxes,
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, geteuid, kill_process, pidfd_open},
};
use tempfile::TempDir;
use tokio::time::sleep;

use crate::connection::Connection;

#[derive(Debug)]
pub(crate) struct Server {
    address: SocketAddr,
    key: String,
    child: Child,
    /// Kept open, so that the server can go on writing.
    stdout: BufReader<ChildStdout>,
    directory: TempDir,
}

impl Server {
    /// Starts a server and waits until it says where it serves.
    pub(crate) fn start(ringfence: &Path) -> anyhow::Result<Self> {
        // The daemon's user has to get through to the data directory, which is its own.
        let directory = tempfile::Builder::new()
            .prefix("ringfence-bench-")
            .permissions(Permissions::from_mode(0o755))
            .tempdir()?;
        let (child, stdout, address) = spawn(ringfence, directory.path())?;
        let key = fs::read_to_string(directory.path().join("data/admin.key"))?.trim().to_owned();
        Ok(Self { address, key, child, stdout, directory })
    }

    /// Kills the server at once, with its daemon. Sandboxes go on.
    pub(crate) fn crash(&mut self) -> anyhow::Result<()> {
        let pid = self.child.id();
        // The first child is the daemon; it would also end by itself.
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
        let daemon = children.split_whitespace().next().and_then(|pid| pid.parse().ok());
        self.child.kill()?;
        if let Some(daemon) = daemon.and_then(Pid::from_raw) {
            let _ = kill_process(daemon, Signal::KILL);
        }
        self.child.wait()?;
        Ok(())
    }

    /// Starts another server over the data of one that was killed.
    pub(crate) fn start_again(&mut self, ringfence: &Path) -> anyhow::Result<()> {
        (self.child, self.stdout, self.address) = spawn(ringfence, self.directory.path())?;
        Ok(())
    }

    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the process that clients talk to.
    pub(crate) fn daemon(&self) -> anyhow::Result<u32> {
        let pid = self.child.id();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
        let is_daemon = |pid: &u32| {
            fs::read_to_string(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|line| line.contains("--as-daemon"))
        };
        let mut children = children.split_whitespace().filter_map(|pid| pid.parse().ok());
        children.find(is_daemon).context("the server has no daemon")
    }

    pub(crate) async fn sandboxes(&self) -> anyhow::Result<Sandboxes> {
        let address = Address::parse(&format!("http://{}", self.address))?;
        Ok(Sandboxes::connect(&address, &self.key).await?)
    }

    /// Returns a token for a sandbox, and what the paths of its data plane begin with.
    pub(crate) async fn token(
        &self,
        sandbox: &str,
        scope: &str,
    ) -> anyhow::Result<(String, String)> {
        let admin = Admin::new(Address::parse(&format!("http://{}", self.address))?, &self.key);
        let (sandbox, scope) = (sandbox.to_owned(), Some(scope.to_owned()));
        let new = NewToken {
            sandbox,
            scope,
            ttl: None,
            paths: Vec::new(),
            agent: None,
            is_opaque: false,
        };
        let minted = admin.mint(new).await?;
        Ok((minted.token, format!("/dp/{}", minted.sandbox_id)))
    }

    /// Returns the memory of the server and of all that it started, shared pages counted in parts.
    pub(crate) fn memory(&self) -> anyhow::Result<u64> {
        let of = |pid: u32| {
            let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
            let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
            line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()
        };
        Ok(self.processes()?.into_keys().filter_map(of).sum::<u64>() << 10)
    }

    pub(crate) async fn connect(&self) -> anyhow::Result<Connection> {
        Connection::open(self.address, &self.key).await
    }

    /// Waits until the server and all that it started have nothing to do: its slots are there.
    pub(crate) async fn settle(&self) -> anyhow::Result<()> {
        const LOOKS: u32 = 4;
        const BETWEEN: Duration = Duration::from_millis(50);
        const LONGEST: u32 = 1200;
        let (mut before, mut alike) = (BTreeMap::new(), 0);
        for _ in 0..LONGEST {
            let now = self.processes()?;
            alike = if now == before { alike + 1 } else { 0 };
            if alike >= LOOKS {
                return Ok(());
            }
            before = now;
            sleep(BETWEEN).await;
        }
        writeln!(
            io::stderr(),
            "bench: the server is still at work, although nothing was asked for"
        )?;
        Ok(())
    }

    /// Returns the server's processes, each with the processor time it has used.
    pub(crate) fn processes(&self) -> anyhow::Result<BTreeMap<u32, u64>> {
        let mut all = BTreeMap::new();
        for entry in fs::read_dir("/proc")? {
            let path = entry?.path();
            // It may be gone by now.
            if let Ok(stat) = fs::read_to_string(path.join("stat"))
                && let Some((pid, parent, ticks)) = read_stat(&stat)
            {
                all.insert(pid, (parent, ticks));
            }
        }
        let is_ours = |pid: u32| {
            let mut ancestors = std::iter::successors(Some(pid), |pid| Some(all.get(pid)?.0));
            ancestors.any(|pid| pid == self.child.id())
        };
        let ours = all.iter().filter(|(pid, _)| is_ours(**pid));
        Ok(ours.map(|(pid, (_, ticks))| (*pid, *ticks)).collect())
    }
}

/// Runs a server over the data in a folder, and waits until it says where it serves.
fn spawn(
    ringfence: &Path,
    folder: &Path,
) -> anyhow::Result<(Child, BufReader<ChildStdout>, SocketAddr)> {
    let (data, log) = (folder.join("data"), folder.join("log"));
    let mut command = Command::new(ringfence);
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(&data);
    if !geteuid().is_root() {
        command.arg("--allow-soft-limits");
    }
    let mut child = command
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(File::create(&log)?)
        .spawn()
        .with_context(|| format!("cannot start {}", ringfence.display()))?;
    let mut stdout = BufReader::new(child.stdout.take().context("no pipe")?);
    let mut line = String::new();
    stdout.read_line(&mut line)?;
    let Some(address) = line.trim().strip_prefix("Ringfence serves on http://") else {
        child.kill()?;
        child.wait()?;
        bail!("the server does not start: {line}{}", fs::read_to_string(&log)?);
    };
    let address = address.parse()?;
    Ok((child, stdout, address))
}

/// Returns number, parent and processor time; the name in between may hold anything.
fn read_stat(stat: &str) -> Option<(u32, u32, u64)> {
    let pid = stat.split(' ').next()?.parse().ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some((pid, u32::try_from(number(1)?).ok()?, number(11)? + number(12)?))
}

impl Drop for Server {
    fn drop(&mut self) {
        const PATIENCE: Timespec = Timespec { tv_sec: 15, tv_nsec: 0 };
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid
            && let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty())
        {
            let _ = kill_process(pid, Signal::TERM);
            let _ = poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&PATIENCE));
        }
        // Does nothing to one that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_whatever_its_name() {
        let stat = "12 (a) b (c)) S 7 12 12 0 -1 4194304 100 0 0 0 5 6 0 0 20 0 1 0 100 0 0";
        assert_eq!(read_stat(stat), Some((12, 7, 11)));
        assert_eq!(read_stat(""), None);
    }
}
