//! A PostgreSQL server for one test: in a directory of its own, on a Unix socket only, ended with
//! the process that started it, however that ends.

use std::{
    io::{BufRead as _, BufReader},
    os::unix::fs::chown,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use tokio_postgres::NoTls;

pub(super) struct Server {
    process: Child,
    directory: tempfile::TempDir,
}

impl Server {
    pub(super) fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let programs = programs();
        let user = User::of_server(directory.path());
        let data = directory.path().join("data");
        let mut initdb = user.command(&programs.join("initdb"));
        initdb.args(["-U", "ringfence", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]);
        let made = initdb.arg("-D").arg(&data).output().unwrap();
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));

        let mut postgres = user.command(&programs.join("postgres"));
        postgres.arg("-D").arg(&data).arg("-k").arg(directory.path());
        // The tests kill no machine, so that nothing is gained by waiting for the disk.
        for setting in ["listen_addresses=", "fsync=off", "max_connections=200"] {
            postgres.args(["-c", setting]);
        }
        let mut process = postgres.stderr(Stdio::piped()).spawn().unwrap();
        await_ready(&mut process);
        Self { process, directory }
    }

    /// Makes an empty database and returns its address.
    pub(super) async fn database(&self, name: &str) -> String {
        // The server keeps the first 63 characters of a name.
        let name: String = name.chars().take(60).collect();
        run(&self.address("postgres"), &format!("CREATE DATABASE {name}")).await;
        self.address(&name)
    }

    fn address(&self, database: &str) -> String {
        let host = self.directory.path().display();
        format!("host={host} user=ringfence dbname={database}")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let process = rustix::process::Pid::from_child(&self.process);
        // Both fail only if it has ended already.
        let _ = rustix::process::kill_process(process, rustix::process::Signal::QUIT);
        let _ = self.process.wait();
    }
}

/// Runs statements over a connection of its own.
pub(super) async fn run(address: &str, sql: &str) {
    let (client, connection) = tokio_postgres::connect(address, NoTls).await.unwrap();
    let work = async move { client.batch_execute(sql).await.unwrap() };
    let ((), ended) = futures_util::future::join(work, connection).await;
    ended.unwrap();
}

/// Who runs the server, which refuses to run as root.
enum User {
    Same,
    Postgres,
}

impl User {
    fn of_server(directory: &Path) -> Self {
        if !rustix::process::geteuid().is_root() {
            return Self::Same;
        }
        let id = |flag| {
            let output = Command::new("id").args([flag, "postgres"]).output().unwrap();
            String::from_utf8(output.stdout).unwrap().trim().parse::<u32>().unwrap()
        };
        chown(directory, Some(id("-u")), Some(id("-g"))).unwrap();
        Self::Postgres
    }

    /// Returns a command whose process the kernel tells to quit when this thread ends. A server that
    /// is killed instead leaves a segment of shared memory behind.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "QUIT"]);
        match self {
            Self::Same => {}
            Self::Postgres => {
                command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]);
            }
        }
        command.arg(program).stdin(Stdio::null()).stdout(Stdio::null()).env("LC_ALL", "C");
        command
    }
}

/// Returns where the newest version that is installed has its programs.
fn programs() -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let versions = versions.map(|version| version.path().join("bin"));
    versions
        .filter(|programs| programs.join("initdb").exists())
        .max()
        .expect("PostgreSQL is not installed: apt-get install postgresql")
}

fn await_ready(process: &mut Child) {
    let log = process.stderr.take().expect("it is a pipe");
    let (sender, lines) = mpsc::channel();
    // Reads on, so that the server never waits for somebody to read.
    thread::spawn(move || {
        for line in BufReader::new(log).lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    let mut told = Vec::new();
    loop {
        let line = lines.recv_timeout(Duration::from_mins(1));
        let line = line.unwrap_or_else(|_| panic!("the server does not start: {told:#?}"));
        if line.contains("ready to accept connections") {
            return;
        }
        told.push(line);
    }
}
