"""A shell at a terminal, for what somebody pastes and types."""

import os
import pty
import re
import select
import signal
import time

# How long anything may take until it has said what it is waited for.
PATIENCE = 30

CTRL_C = "\x03"
LEAVE = "\x1d"

FAILED = re.compile(r"\(failed with (\d+): (.*?) :failed\)", re.DOTALL)
ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[a-zA-Z]|\][^\x07]*\x07|[=>()][A-Z0-9]?)")


class Terminal:
    """Nothing that is typed is shown, so that all there is to read was written by what was started."""

    def __init__(self, folder, environment):
        self.environment = environment
        self.process, self.terminal = pty.fork()
        if self.process == 0:
            os.chdir(folder)
            # Whoever is started in the background ignores what keys of a terminal send, and so would all that it starts.
            for key in (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP):
                signal.signal(key, signal.SIG_DFL)
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "--noediting", "-i"], environment)
        self.text = ""
        self.seen = 0
        self.questions = 0
        # What fails is seen also if nobody looks at its exit code.
        self.type("stty -echo rows 50 columns 200; PS1='(ready)' PS2=; trap 'echo \"(failed with $?: $BASH_COMMAND :failed)\"' ERR\n")
        self.paste("")
        self.seen = len(self.text)

    def type(self, keys):
        data = keys.encode()
        while data:
            data = data[os.write(self.terminal, data):]

    def paste(self, text, then=()):
        """Pastes a text, does what is to be done when it has said something, and returns what came until its end."""
        begin = self.seen
        if text:
            self.type(text + "\n")
        for wanted, act in then:
            self.wait_for(wanted)
            act(self)
        if then:
            # The shell has its terminal back.
            self.wait_for("(ready)")
        self.questions += 1
        self.type(f"echo; echo '('done {self.questions}')'\n")
        self.wait_for(f"(done {self.questions})")
        return self.text[begin:self.seen].replace(f"(done {self.questions})", "").replace("(ready)", "")

    def wait_for(self, wanted):
        until = time.monotonic() + PATIENCE
        while (at := self.text.find(wanted, self.seen)) < 0:
            ready, _, _ = select.select([self.terminal], [], [], max(0, until - time.monotonic()))
            if not ready:
                raise AssertionError(f"{wanted!r} did not come; what did was:\n{self.text[self.seen:]}")
            read = os.read(self.terminal, 65536).decode(errors="replace")
            self.text = ESCAPES.sub("", self.text + read.replace("\r", ""))
        self.seen = at + len(wanted)

    def close(self):
        """Hangs up, as a window that is closed does."""
        os.close(self.terminal)
        os.kill(self.process, signal.SIGHUP)
        os.waitpid(self.process, 0)


def failures(text):
    """Returns what failed: the exit code, the command."""
    return [(int(code), command) for code, command in FAILED.findall(text)]


def without_failures(text):
    return FAILED.sub("", text)
