//! A process that works on volumes, in a mount namespace of its own, and may die at any step.

use std::{
    io::{Read as _, Write as _},
    os::fd::AsFd as _,
    path::Path,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
};

use isolate::{
    disk::{
        ByteCount, DiskKind, DiskLimit, DiskSettings, Disks, VolumeName,
        work::{Job, Work, carry_out},
    },
    spawner::enter_user_namespace,
    sys,
};
use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    io::Errno,
    mount::{MountPropagationFlags, mount_change},
    process::{WaitOptions, waitpid},
};

/// Names the data directory, and so says that this process is to work on volumes.
pub(crate) const ROLE: &str = "RINGFENCE_TEST_DISKS";
/// The one kind that a spawner's sandboxes are to have.
pub(crate) const ONLY: &str = "RINGFENCE_TEST_SPAWNER_DISKS";
/// The one kind that is wanted.
const KIND: &str = "RINGFENCE_TEST_DISKS_KIND";
/// What is to be done, one word after the other.
const WORDS: &str = "RINGFENCE_TEST_DISKS_WORDS";
/// After which step the process dies.
const LAST_STEP: &str = "RINGFENCE_TEST_DISKS_LAST_STEP";

/// How a process ends that came to its last step.
const DIED: i32 = 77;

static STEPS: AtomicUsize = AtomicUsize::new(0);
static LAST: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Settings for tests: this kind alone, whatever the operator would have to allow for it.
pub fn settings(kind: DiskKind) -> DiskSettings {
    DiskSettings {
        only: Some(kind),
        allow_tmpfs: true,
        allow_unlimited_disk: true,
        keep_free: ByteCount(0),
        ..DiskSettings::default()
    }
}

/// Settings for a spawner: the best that the machine has, which for an ordinary user is volumes without
/// a limit. A test may name the one kind that it is about.
pub(crate) fn spawner_settings() -> DiskSettings {
    DiskSettings {
        only: std::env::var(ONLY).ok().and_then(|kind| DiskKind::named(&kind)),
        allow_unlimited_disk: true,
        keep_free: ByteCount(0),
        ..DiskSettings::default()
    }
}

/// Gives this thread a mount namespace of its own, from which nothing spreads.
pub fn enter_own_mounts() -> Result<(), Errno> {
    sys::process::unshare_mounts()?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
}

/// What is asked of a process.
#[derive(Clone, Copy, Debug)]
pub struct Script<'a> {
    pub data: &'a Path,
    pub kind: DiskKind,
    /// `make NAME MIB`, `allow NAME MIB` (without a promise), `remove NAME`, `limit NAME MIB`, `usage NAME`. `hold`: leave a process behind
    /// that keeps the mount namespace until the standard input ends. `fork`: let forked workers do
    /// what comes after.
    pub words: &'a str,
    pub last_step: Option<usize>,
}

/// How a process has ended.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    Done,
    /// It came to its last step.
    Died,
}

/// A process at its script.
#[derive(Debug)]
pub struct Worker {
    child: Child,
}

impl Script<'_> {
    pub fn begin(self) -> std::io::Result<Worker> {
        let mut command = Command::new(std::env::current_exe()?);
        command.env(ROLE, self.data).env(KIND, self.kind.name()).env(WORDS, self.words);
        if let Some(step) = self.last_step {
            command.env(LAST_STEP, step.to_string());
        }
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        Ok(Worker { child })
    }

    /// Runs to the end.
    pub fn run(self) -> std::io::Result<End> {
        self.begin()?.end()
    }
}

impl Worker {
    /// Waits until it has done all of its words and waits itself.
    pub fn wait_until_done(&mut self) -> std::io::Result<()> {
        let out = self.child.stdout.as_mut().ok_or_else(|| std::io::Error::other("no output"))?;
        out.read_exact(&mut [0])
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills it as a machine would that runs out of memory. What it left behind is held until this
    /// is dropped.
    pub fn kill(&mut self) -> std::io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }

    /// Waits until all that a killed one left behind has ended.
    pub fn end_held(mut self) -> std::io::Result<()> {
        drop(self.child.stdin.take());
        match &mut self.child.stdout {
            Some(out) => out.read_to_end(&mut Vec::new()).map(drop),
            None => Ok(()),
        }
    }

    /// Lets it end, and waits until all that it left behind has ended too.
    pub fn end(mut self) -> std::io::Result<End> {
        drop(self.child.stdin.take());
        if let Some(out) = &mut self.child.stdout {
            out.read_to_end(&mut Vec::new())?;
        }
        match self.child.wait()?.code() {
            Some(0) => Ok(End::Done),
            Some(DIED) => Ok(End::Died),
            other => Err(std::io::Error::other(format!("{other:?}"))),
        }
    }
}

pub(crate) fn be_worker(data: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let word = |name| std::env::var(name).unwrap_or_default();
    if let Ok(step) = word(LAST_STEP).parse() {
        LAST.store(step, Ordering::Relaxed);
    }
    if !rustix::process::getuid().is_root() {
        enter_user_namespace()?;
    }
    enter_own_mounts()?;
    let kind = DiskKind::named(&word(KIND)).ok_or("no kind")?;
    let settings = DiskSettings { observe: count_step, ..settings(kind) };
    let data = openat(CWD, data, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let disks = Disks::open(data.as_fd(), &settings)?;
    let words = word(WORDS);
    let mut words = words.split_whitespace();
    let mut is_forked = false;
    while let Some(word) = words.next() {
        if word == "fork" {
            is_forked = true;
            continue;
        }
        if word == "hold" {
            hold()?;
            continue;
        }
        let name = VolumeName::new(words.next().unwrap_or_default())?;
        let mut limit = || words.next().and_then(|count| count.parse().ok()).map(ByteCount::mib);
        let job = match word {
            "make" => Job::Make { name, limit: DiskLimit::Promised(limit().ok_or("no limit")?) },
            "allow" => Job::Make { name, limit: DiskLimit::UpTo(limit().ok_or("no limit")?) },
            "limit" => Job::SetLimit { name, limit: limit().ok_or("no limit")? },
            "usage" => Job::Usage { name },
            "remove" => Job::Remove { name },
            _ => return Err("no such word".into()),
        };
        if is_forked {
            let work = Work::begin(&disks, &job)?;
            let pid = work.pid;
            work.finish()?;
            waitpid(Some(pid), WaitOptions::empty())?;
        } else {
            carry_out(&disks, &job)?;
        }
    }
    let mut out = std::io::stdout();
    out.write_all(b".")?;
    out.flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Leaves a process behind that reads the same standard input, and so ends with it.
fn hold() -> std::io::Result<()> {
    let mut command = Command::new("sh");
    command.args(["-c", "echo held >&2; exec cat"]).stderr(Stdio::piped());
    let mut held = command.spawn()?;
    // That it was started does not mean that it has let go of our descriptors already, and of the
    // lock with them. That it speaks does.
    match &mut held.stderr {
        Some(said) => said.read_exact(&mut [0]),
        None => Ok(()),
    }
}

fn count_step(_step: &'static str) {
    if STEPS.fetch_add(1, Ordering::Relaxed) + 1 == LAST.load(Ordering::Relaxed) {
        sys::process::exit_now(DIED);
    }
}
