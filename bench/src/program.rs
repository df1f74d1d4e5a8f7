//! A program that is run bare, again and again.

use std::{
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};

/// The environment of a slot. Nothing else is in that of a bare run.
pub(crate) const ENVIRONMENT: [(&str, &str); 4] = [
    ("PATH", "/usr/local/bin:/usr/bin:/bin"),
    ("LANG", "C.UTF-8"),
    ("USER", "agbox"),
    ("HOME", "/home/agbox"),
];

/// A program with its arguments.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    command: Vec<String>,
}

impl Program {
    pub(crate) fn new<S: Into<String>>(command: impl IntoIterator<Item = S>) -> Self {
        Self { command: command.into_iter().map(Into::into).collect() }
    }

    /// Returns this program as the last arguments of another.
    pub(crate) fn below<S: Into<String>>(&self, outer: impl IntoIterator<Item = S>) -> Self {
        let mut all = Self::new(outer);
        all.command.extend(self.command.iter().cloned());
        all
    }

    pub(crate) fn arguments(&self) -> &[String] {
        &self.command
    }

    /// Runs it: from before it is spawned until its output is read and its exit is known.
    pub(crate) fn time(&self) -> anyhow::Result<Duration> {
        let mut output = Vec::with_capacity(64);
        let mut command = self.as_command()?;
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let start = Instant::now();
        let mut child = command.spawn().with_context(|| self.name())?;
        child.stdout.take().context("no pipe")?.read_to_end(&mut output)?;
        let status = child.wait()?;
        let elapsed = start.elapsed();
        if !status.success() || output != b"1\n" {
            bail!("{}: {status}, {:?}", self.name(), String::from_utf8_lossy(&output));
        }
        Ok(elapsed)
    }

    /// Runs it: from before it is spawned until its exit is known. Nobody reads what it prints.
    pub(crate) fn time_exit(&self) -> anyhow::Result<Duration> {
        let mut command = self.as_command()?;
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let start = Instant::now();
        let status = command.spawn().with_context(|| self.name())?.wait()?;
        let elapsed = start.elapsed();
        ensure!(status.success(), "{}: {status}", self.name());
        Ok(elapsed)
    }

    /// Runs it and returns what it printed.
    pub(crate) fn output(&self) -> anyhow::Result<String> {
        let output = self.as_command()?.output().with_context(|| self.name())?;
        if !output.status.success() {
            let complaint = String::from_utf8_lossy(&output.stderr);
            let last = complaint.lines().last().unwrap_or("no reason given");
            bail!("{}: {last}", output.status);
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    }

    fn name(&self) -> String {
        self.command.first().cloned().unwrap_or_default()
    }

    fn as_command(&self) -> anyhow::Result<Command> {
        let (program, arguments) = self.command.split_first().context("an empty command")?;
        let mut command = Command::new(program);
        command.args(arguments).env_clear().envs(ENVIRONMENT).stdin(Stdio::null());
        Ok(command)
    }
}

/// In a process of its own, such as one that sees other mounts: runs the program once for each
/// line of input, and writes the nanoseconds that each took.
pub(crate) fn time_on_request(program: &Program) -> anyhow::Result<()> {
    for line in io::stdin().lock().lines() {
        line?;
        writeln!(io::stdout(), "{}", program.time()?.as_nanos())?;
    }
    Ok(())
}

/// The other side of [`time_on_request`].
#[derive(Debug)]
pub(crate) struct Timer {
    child: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Timer {
    /// Starts `wrapped`, which is to end up as this very program in the role of a timer.
    pub(crate) fn start(wrapped: &Program) -> anyhow::Result<Self> {
        let mut child =
            wrapped.as_command()?.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let requests = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().context("no pipe")?);
        Ok(Self { child, requests, answers })
    }

    pub(crate) fn time(&mut self) -> anyhow::Result<Duration> {
        self.requests.as_mut().context("it has ended")?.write_all(b"\n")?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        Ok(Duration::from_nanos(answer.trim().parse().context("the timer does not answer")?))
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // It ends with its input.
        self.requests = None;
        let _ = self.child.wait();
    }
}
