//! A server with sandboxes, and the command pointed at it.

use std::{
    ops::{Deref, DerefMut},
    process::{Child, Command, Stdio},
};

use serde_json::Value;

use crate::command::{Said, Server, ringfence};

/// A server whose sandboxes are removed with it, also when the test fails: they would go on.
pub(crate) struct Keeper(pub(crate) Server);

impl Drop for Keeper {
    fn drop(&mut self) {
        self.0.end();
        let removed = harness::remove_sandboxes(&self.0.data.path().join("sandboxes"));
        assert!(removed.is_ok() || std::thread::panicking(), "{removed:?}");
    }
}

impl Deref for Keeper {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.0
    }
}

impl DerefMut for Keeper {
    fn deref_mut(&mut self) -> &mut Server {
        &mut self.0
    }
}

impl Keeper {
    pub(crate) fn start() -> Self {
        Self(Server::start())
    }

    /// Starts a server and makes a sandbox, `demo`.
    pub(crate) fn with_demo() -> Self {
        let keeper = Self::start();
        assert_eq!(keeper.ask(&["create", "--image", "host", "--name", "demo"]).out, "demo\n");
        keeper
    }

    /// Returns the command, pointed at this server by the environment.
    pub(crate) fn ringfence(&self, arguments: &[&str]) -> Command {
        self.pointed(ringfence(arguments))
    }

    pub(crate) fn pointed(&self, mut command: Command) -> Command {
        command.env("RINGFENCE_URL", &self.url).env("RINGFENCE_DATA", self.data());
        command
    }

    pub(crate) fn ask(&self, arguments: &[&str]) -> Said {
        self.ringfence(arguments).output().unwrap().into()
    }

    pub(crate) fn key(&self) -> String {
        std::fs::read_to_string(self.data.path().join("admin.key")).unwrap().trim().to_owned()
    }

    pub(crate) fn begin(&self, arguments: &[&str]) -> Child {
        self.ringfence(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let said = self.ask(&[arguments, &["--json"]].concat());
        serde_json::from_str(&said.out).map_err(|error| format!("{error}: {said:?}")).unwrap()
    }
}
