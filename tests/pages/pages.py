"""The pages, what stands in them, and what cannot be pasted here."""

import dataclasses
import pathlib
import subprocess

from terminal import CTRL_C, LEAVE

ROOT = pathlib.Path(__file__).resolve().parents[2]

# In the order in which somebody would read them.
PAGES = ["README.md", *(f"docs/{name}.md" for name in (
    "sandboxes", "tokens", "sessions", "exec", "files", "shell", "ports", "agbox", "langsmith", "mcp", "a2a", "audit",
    "protocol", "providers", "configuration", "tls", "openapi", "metrics", "security"))]

# Pages that start their server themselves, where there is none.
STARTS_ITS_OWN = {"docs/tls.md"}

# By page and what an example has in it: why nobody pastes it here.
LEFT_OUT = {
    ("README.md", "make run     #"): "it builds, installs packages and runs until it is stopped; `make test` is what this is a part of",
    ("README.md", "make run\n"): "the server of the tour is the one that is here",
    ("README.md", "websocat"): "Debian 12 has no package of it; the two programs before it do the same",
    ("docs/langsmith.md", "docker.io/library/python:3.12"): "it pulls from a registry of the internet; images::it::pulling has a registry of its own",
    ("docs/providers.md", "docker pull"): "it takes a Docker engine with that image, and root; tests/docker has one",
    ("docs/providers.md", '"provider_preference": "docker"'): "as before",
    ("docs/protocol.md", "GET /ws HTTP/1.1"): "it is what a WebSocket client sends, as that of the execution below does",
}

# Commands that would listen where this machine may not: their settings are looked at, and nothing is started.
ONLY_LOOKED_AT = {
    ("docs/tls.md", "--listen 0.0.0.0:443"),
    ("docs/tls.md", "--behind-proxy"),
}

# What a page says that ends badly, and what is said then.
MEANT_TO_FAIL = {
    "README.md": [
        ("ringfence run --language shell -", "exit code 5"),
        ("ringfence run -l python -c 'print(open(", "No such file or directory"),
        ("ringfence run -l python -c 'import urllib", "urlopen error"),
        ("ringfence run --memory 64", "out of memory"),
        ("ringfence run --timeout 500ms", "timed out"),
        ("ringfence exec demo -- sh -c 'exit 5'", "exit code 5"),
    ],
}


def keys(text):
    return lambda terminal: terminal.type(text)


def meanwhile(*command):
    """In another terminal."""
    return lambda terminal: subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=terminal.environment)


IN_A_SHELL = [("$", keys("echo typed-$((20 + 3))\r")), ("typed-23", keys(LEAVE))]

# What somebody types, or another does, while an example runs: when this text has come, that.
WHILE_IT_RUNS = {
    ("README.md", "ringfence shell shared"): IN_A_SHELL,
    ("docs/sandboxes.md", "ringfence shell first"): IN_A_SHELL,
    ("docs/sandboxes.md", "/v1/events?from=0"): [("SANDBOX_READY", keys(CTRL_C))],
    ("docs/files.md", "/v1/files/watch"): [
        ("watching", meanwhile("ringfence", "exec", "demo-files", "--", "touch", "a")), ("created", keys(CTRL_C))],
    ("docs/shell.md", "ringfence shell demo-shell\n"): IN_A_SHELL,
    ("docs/shell.md", "ringfence shell demo-shell --name build"): IN_A_SHELL,
    # It is shown what was typed in the first one.
    ("docs/shell.md", "ringfence shell demo-shell --observe"): [("typed-23", keys(LEAVE))],
    ("docs/shell.md", "python3 shell.py"): [("typed-23", keys("echo again-$((30 + 1))\r")), ("again-31", keys(LEAVE))],
}


@dataclasses.dataclass
class Block:
    """An example: its language, its text, and whether it stands right behind the one before it."""
    page: str
    line: int
    language: str
    text: str
    follows: bool

    def find(self, table):
        """Returns the entry of a table that means this block."""
        for entry in table:
            if entry[0] == self.page and entry[1] in self.text + "\n":
                return entry
        return None

    @property
    def name(self):
        """The file that it is to be saved in, if its first line says so."""
        first = self.text.split("\n", 1)[0]
        is_name = first.startswith("# ") and " " not in first[2:] and "." in first
        return first[2:] if is_name else None

    @property
    def output(self):
        """What it shows of its own output: comments that are lines of their own."""
        if self.language != "sh":
            return []
        return [line[2:] for line in self.text.split("\n") if line.startswith("# ")]

    def __str__(self):
        return f"{self.page}:{self.line}"


def blocks(page):
    found, inside, before = [], None, []
    for number, line in enumerate((ROOT / page).read_text().split("\n"), 1):
        if line.startswith("```") and inside is None:
            follows = bool(found) and not any(before)
            inside = Block(page, number, line[3:], "", follows)
        elif line.startswith("```"):
            inside.text = inside.text.removesuffix("\n")
            found.append(inside)
            inside, before = None, []
        elif inside is not None:
            inside.text += line + "\n"
        else:
            before.append(line.strip())
    return found
