//! A terminal with the command in it, as somebody sits at it.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    os::fd::OwnedFd,
    process::{Child, Command, Stdio},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    fs::{Mode, OFlags, open},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcgetattr, tcsetwinsize},
    time::Timespec,
};

use crate::command::{gone, open_process};

/// Nothing in these tests takes this long unless it is broken.
const PATIENCE: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

pub(crate) struct Pty {
    master: File,
    /// Held so that the terminal is there after the command has ended.
    slave: OwnedFd,
    pub(crate) child: Child,
    before: String,
    seen: String,
}

impl Pty {
    /// Starts a command in a session of its own, with a terminal of this size.
    pub(crate) fn start(command: &Command, rows: u16, columns: u16) -> Self {
        let master =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let slave = open(name, flags, Mode::empty()).unwrap();
        resize(&slave, rows, columns);
        let before = modes(&slave);
        let end = || Stdio::from(slave.try_clone().unwrap());
        let mut session = Command::new("setsid");
        session.arg("--ctty").arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => session.env(name, value),
                None => session.env_remove(name),
            };
        }
        let child = session.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        Self { master: master.into(), slave, child, before, seen: String::new() }
    }

    pub(crate) fn type_in(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    pub(crate) fn resize(&self, rows: u16, columns: u16) {
        resize(&self.slave, rows, columns);
    }

    /// Reads until this is shown; returns all that came before it since the last time.
    pub(crate) fn until(&mut self, text: &str) -> String {
        loop {
            if let Some(place) = self.seen.find(text) {
                let rest = self.seen.split_off(place + text.len());
                return std::mem::replace(&mut self.seen, rest);
            }
            self.read(text);
        }
    }

    fn read(&mut self, wanted: &str) {
        let mut asked = [PollFd::new(&self.master, PollFlags::IN)];
        let count = poll(&mut asked, Some(&PATIENCE)).unwrap();
        assert!(count == 1, "{wanted:?} does not come; there is {:?}", self.seen);
        let mut bytes = [0; 4096];
        let length = self.master.read(&mut bytes).unwrap();
        self.seen += &String::from_utf8_lossy(&bytes[..length]);
    }

    /// Waits for the end of the command, and returns its exit code. The terminal is as it was.
    pub(crate) fn end(mut self) -> Option<i32> {
        assert!(gone(&open_process(self.child.id())), "it goes on, and shows {:?}", self.seen);
        let code = self.child.wait().unwrap().code();
        assert_eq!(modes(&self.slave), self.before, "the terminal was not restored");
        code
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn resize(terminal: &OwnedFd, ws_row: u16, ws_col: u16) {
    let size = Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).unwrap();
}

fn modes(terminal: &OwnedFd) -> String {
    format!("{:?}", tcgetattr(terminal).unwrap())
}
