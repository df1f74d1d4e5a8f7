//! A real supervisor beside a test: PID 1 of a pid namespace, without the rest of a sandbox.

use std::{
    fs::{self, File, OpenOptions},
    io,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus},
};

use isolate::{
    plan::{Identity, Rights, Rlimits},
    seccomp,
    spawner::enter_user_namespace,
    supervisor::{Groups, Place, Stem, Supervision, wire::Secret},
    sys::{self, process::Fork},
};
use rustix::{
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with},
    process::{Signal, WaitOptions, set_parent_process_death_signal, waitpid},
};

/// Names the directory of the sandbox, and so says that this process is to be a supervisor.
pub(crate) const ROLE: &str = "RINGFENCE_TEST_SUPERVISOR";

/// What the tests know.
pub const SECRET: Secret = Secret([7; 32]);

/// The id of the sandbox.
pub const SANDBOX: &str = "sb_test";

/// A supervisor. It goes on when the test that has started it ends, unless it is ended.
#[derive(Debug)]
pub struct SupervisorProcess {
    child: Child,
    directory: tempfile::TempDir,
}

/// Starts a supervisor and waits until it listens.
pub fn start_supervisor() -> io::Result<SupervisorProcess> {
    let directory = tempfile::tempdir()?;
    fs::create_dir(directory.path().join("out"))?;
    let (ready, tell) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let mut command = Command::new(std::env::current_exe()?);
    let child = command.env(ROLE, directory.path()).stdout(File::from(tell)).spawn()?;
    drop(command);
    // It closes its stdout when it listens.
    io::copy(&mut File::from(ready), &mut io::sink())?;
    Ok(SupervisorProcess { child, directory })
}

impl SupervisorProcess {
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    /// Reads what is kept of a stream.
    pub fn output(&self, exec: &str, stream: &str) -> io::Result<Vec<u8>> {
        fs::read(self.directory.path().join("out").join(format!("{exec}.{stream}.log")))
    }

    pub fn journal(&self) -> io::Result<Vec<u8>> {
        fs::read(self.directory.path().join("journal"))
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }

    /// Ends it as hard as can be, with everything in its namespace.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()
    }
}

impl Drop for SupervisorProcess {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Becomes a supervisor in this directory. Ends with it.
pub(crate) fn be_supervisor(directory: &Path) -> io::Result<()> {
    enter_user_namespace().map_err(io::Error::other)?;
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    bind(&socket, &SocketAddrUnix::new(directory.join("socket"))?)?;
    listen(&socket, 4)?;
    let journal = OpenOptions::new().create(true).append(true).open(directory.join("journal"))?;
    let limits = Rlimits { open_files: 1024, processes: 512 };
    let place = Place {
        sandbox: SANDBOX.to_owned(),
        secret: SECRET,
        rights: Rights {
            limits,
            identity: Identity::Shared,
            filter: seccomp::for_user_code(seccomp::MemoryBound::Cgroup),
        },
        filter: seccomp::for_supervisor(),
        outputs: File::open(directory.join("out"))?.into(),
        journal: journal.into(),
        groups: Groups::default(),
    };
    // Whoever waits for us to be ready reads until this is closed.
    rustix::stdio::dup2_stdout(File::open("/dev/null")?)?;
    match sys::process::fork(PID_NAMESPACE)? {
        Fork::Parent { child, pidfd: _ } => waitpid(Some(child), WaitOptions::empty()).map(drop)?,
        Fork::Child => {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            let stem = Stem::fork(|| Ok(()))?;
            Supervision::begin(place, stem, socket)?.run()?;
        }
    }
    Ok(())
}

const PID_NAMESPACE: u64 = 0x2000_0000;
