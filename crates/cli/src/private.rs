//! A server for one call: started by `ringfence run` when none is there, and ended with it.
//!
//! It tells where it listens through its standard output, and ends when its standard input does,
//! which the kernel sees to however we end.

use std::{
    env,
    fs::File,
    io::{BufRead as _, BufReader, Read as _, Seek as _},
    process::{Child, Command, Stdio},
};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

/// A running private server.
#[derive(Debug)]
pub(crate) struct Private {
    pub(crate) url: String,
    pub(crate) key: String,
    /// What slots are made of on this machine, and which languages it has.
    pub(crate) machine: Value,
    child: Child,
}

/// Starts a server and waits until it serves.
pub(crate) fn start() -> anyhow::Result<Private> {
    start_with(&[])
}

/// Starts a server with these flags as well.
pub(crate) fn start_with(flags: &[&str]) -> anyhow::Result<Private> {
    let program = env::current_exe().context("cannot find this program's own file")?;
    let mut log = tempfile::tempfile().context("cannot make a temporary file")?;
    let mut child = Command::new(program)
        .args(["serve", "--private"])
        .args(flags)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(log.try_clone().context("cannot share a temporary file")?)
        .spawn()
        .context("cannot start a private server")?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line).context("cannot hear the private server")?;
    }
    if let Some((url, key, machine)) = read_ready(&line) {
        return Ok(Private { url, key, machine, child });
    }
    child.wait().context("cannot wait for the private server")?;
    bail!("the private server did not start\n{}", read_log(&mut log))
}

fn read_log(log: &mut File) -> String {
    let mut text = String::new();
    match log.rewind().and_then(|()| log.read_to_string(&mut text)) {
        Ok(_) => text,
        Err(error) => format!("and its log cannot be read: {error}"),
    }
}

/// Writes the line that tells the starter where the server is.
pub(crate) fn ready_line(url: &str, key: &str, machine: &Value) -> String {
    json!({ "url": url, "key": key, "machine": machine }).to_string()
}

fn read_ready(line: &str) -> Option<(String, String, Value)> {
    let mut ready: Value = serde_json::from_str(line).ok()?;
    let machine = ready["machine"].take();
    Some((ready["url"].as_str()?.to_owned(), ready["key"].as_str()?.to_owned(), machine))
}

impl Drop for Private {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        if let Err(error) = self.child.wait() {
            crate::output::complain(&format!("cannot wait for the private server: {error}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ready_line_is_read_back() {
        let line = ready_line("http://127.0.0.1:1", "rf_x", &json!(7));
        let expected = ("http://127.0.0.1:1".to_owned(), "rf_x".to_owned(), json!(7));
        assert_eq!(read_ready(&line), Some(expected));
        assert_eq!(read_ready(""), None);
        assert_eq!(read_ready("error"), None);
    }
}
