"""Every example of the pages, pasted as a stranger would: one shell for each page, one server for all of them."""

import asyncio
import json
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import unittest

import httpx2
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from websockets.sync.client import connect

import pages
import shown
from cleaning import remove_all
from server import TARGET, Server
from terminal import Terminal, failures, without_failures


class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server().start()
        # What the tour of the README has: a checkout, with the program built in it.
        cls.checkout = tempfile.TemporaryDirectory(prefix="ringfence-pages-")
        folder = pathlib.Path(cls.checkout.name)
        # It stands for /tmp too, where the daemon, who is another user, can get at files.
        folder.chmod(0o755)
        (folder / "target/release").mkdir(parents=True)
        (folder / "target/release/ringfence").symlink_to(TARGET / "debug/ringfence")
        # A refusal is an exit code of curl's.
        (folder / ".curlrc").write_text("fail-with-body\nno-progress-meter\n")
        cls.folder = folder

    @classmethod
    def tearDownClass(cls):
        remove_all(cls.server)
        cls.server.stop()
        cls.checkout.cleanup()

    def environment(self, page):
        """What a stranger has in his shell; his server is at another port and in another directory than usual."""
        kept = {name: os.environ[name] for name in ("LANG", "TERM", "USER") if name in os.environ}
        path = f"{TARGET}/pages/bin:{os.environ['PATH']}"
        if page != "README.md":
            path = f"{self.folder}/target/release:{path}"
        return {**kept, "TERM": "xterm", "LANG": "C.UTF-8", "HOME": str(self.folder),
                "TMPDIR": str(self.folder), "PATH": path, "NODE_PATH": "/usr/share/nodejs",
                "RINGFENCE_URL": self.server.url, "RINGFENCE_DATA": str(self.server.path / "data"),
                "XDG_RUNTIME_DIR": str(self.server.runtime)}

    def work_through(self, page):
        visitor = Visitor(self, page)
        try:
            for block in pages.blocks(page):
                visitor.try_out(block)
        finally:
            visitor.leave()


class Visitor:
    """Somebody who reads a page and tries what it shows."""

    def __init__(self, test, page):
        self.test, self.page = test, page
        self.environment = test.environment(page)
        self.place = test.server.listen
        if page in pages.STARTS_ITS_OWN:
            self.start_apart()
        self.terminal = Terminal(test.folder, self.environment)
        # All that was written on this page, and by the last example.
        self.output, self.last = "", ""

    def start_apart(self):
        """Nothing listens where this page starts its own server."""
        self.place = f"127.0.0.1:{free_port()}"
        apart = tempfile.mkdtemp(dir=self.test.folder)
        os.chmod(apart, 0o755)
        self.environment |= {"RINGFENCE_LISTEN": self.place, "RINGFENCE_DATA": f"{apart}/data", "XDG_RUNTIME_DIR": apart,
                             "RINGFENCE_URL": f"http://{self.place}"}

    def leave(self):
        self.terminal.close()

    def here(self, text):
        """Says the port that the server really has."""
        return text.replace("127.0.0.1:7700", self.place).replace("localhost:7700", self.place.replace("127.0.0.1", "localhost"))

    def try_out(self, block):
        if block.find(pages.LEFT_OUT):
            return
        if entry := block.find(BY_HAND):
            BY_HAND[entry](self, block)
            return
        if block.name and block.language in ("python", "js", "toml"):
            (self.test.folder / block.name).write_text(self.here(block.text))
        match block.language:
            case "sh" if block.find(pages.ONLY_LOOKED_AT):
                self.run(block, self.here(block.text) + " --print-config")
            case "sh":
                self.run(block, self.here(block.text))
            case "python" | "js" if block.name is None:
                self.run_program(block)
            case "toml":
                (self.test.folder / "ringfence.toml").write_text(block.text)
                self.run(block, "ringfence serve --config ringfence.toml --print-config")
            case "json":
                self.compare_values(block)
            case "text" if block.follows:
                missing = shown.missing_lines(self.here(block.text).split("\n"), self.last)
                self.test.assertEqual(missing, [], f"{block}: this did not come, but\n{self.last}")

    def run_program(self, block):
        program, suffix = {"python": ("python3", "py"), "js": ("node", "js")}[block.language]
        name = f"line-{block.line}.{suffix}"
        (self.test.folder / name).write_text(self.here(block.text))
        self.run(block, f"{program} {name}")

    def run(self, block, text):
        entry = block.find(pages.WHILE_IT_RUNS)
        came = self.terminal.paste(text, pages.WHILE_IT_RUNS.get(entry, ()))
        self.last = without_failures(came)
        self.output += self.last
        failed = failures(came)
        for command, said in pages.MEANT_TO_FAIL.get(self.page, ()):
            if command in block.text:
                self.test.assertTrue(any(it.startswith(command) for _, it in failed), f"{block}: {command} went well")
                self.test.assertIn(said, came, str(block))
                failed = [it for it in failed if not it[1].startswith(command)]
        # Interrupted, as was meant.
        if entry and failed and failed[-1][0] == 130:
            failed.pop()
        self.test.assertEqual(failed, [], f"{block}: failed, and wrote\n{came}")
        missing = shown.missing_lines(map(self.here, block.output), self.last)
        self.test.assertEqual(missing, [], f"{block}: this did not come, but\n{came}")

    def compare_values(self, block):
        came = shown.written(self.output)
        for value in shown.values(self.here(block.text)):
            is_there = any(shown.is_like(value, it) for it in came)
            self.test.assertTrue(is_there, f"{block}: no such object was written, but\n" + "\n".join(map(json.dumps, came)))

    def tell(self, value):
        """What came by another way than the terminal."""
        self.output += json.dumps(value) + "\n"

    def key(self):
        return (self.test.server.path / "data/admin.key").read_text().strip()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def send_execution(visitor, block):
    """An execution, and one in a language that there is not."""
    headers = {"Authorization": f"Bearer {visitor.key()}", "X-Protocol-Version": "1"}
    request = json.loads(block.text)
    for language in (request["language"], "cobol"):
        with connect(f"ws://{visitor.place}/ws", additional_headers=headers) as server:
            server.send(json.dumps({**request, "language": language}))
            for message in server:
                visitor.tell(json.loads(message))
                if json.loads(message)["type"] in ("result", "error"):
                    break


def use_configuration(visitor, block):
    """Does what an agent does with its configuration, with our server in the place of the example's."""
    text = block.text.replace("https://sandboxes.example.com", visitor.test.server.url).replace("rf_…", visitor.key())
    asyncio.run(list_tools(visitor, json.loads(text)["mcpServers"]["ringfence"]))


async def list_tools(visitor, server):
    if "command" in server:
        command = shutil.which(server["command"], path=visitor.environment["PATH"])
        environment = {**visitor.environment, **server.get("env", {})}
        async with Client(StdioServerParameters(command=command, args=server["args"], env=environment)) as client:
            tools = await client.list_tools()
    else:
        visitor.test.assertEqual(server["type"], "http")
        async with httpx2.AsyncClient(headers=server["headers"], timeout=60) as http:
            async with Client(streamable_http_client(server["url"], http_client=http)) as client:
                tools = await client.list_tools()
    visitor.test.assertIn("exec", [tool.name for tool in tools.tools])


def be_refused(visitor, block):
    """A token that may only read, and a command."""
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "exec", "arguments": {"command": "true"}}}
    command = f"""ringfence create --image host --name demo-refused
TOKEN=$(env -u RINGFENCE_API_KEY ringfence token mint --sandbox demo-refused --scope fs:ro)
curl -sH "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream' \\
    -d '{json.dumps(request)}' http://127.0.0.1:7700/mcp"""
    visitor.run(block, visitor.here(command))
    answers = [value for value in shown.written(visitor.last) if "result" in value]
    visitor.tell(answers[-1]["result"]["structuredContent"])
    visitor.compare_values(block)


def run_languages(visitor, block):
    """A server with these settings runs programs in both languages."""
    server = Server(block.text).start()
    try:
        data = str(server.path / "data")
        programs = {"perl": 'print 6 * 7, "\\n"', "awk": "BEGIN { print 6 * 7 }"}
        for language, code in programs.items():
            command = ["ringfence", "run", "--url", server.url, "--data", data, "--language", language, "-c", code]
            came = subprocess.run(command, env=visitor.environment, check=True, capture_output=True, text=True)
            visitor.test.assertEqual(came.stdout, "42\n", str(block))
    finally:
        server.stop()
        os.environ["XDG_RUNTIME_DIR"] = str(visitor.test.server.runtime)


# Examples that are no commands, programs or answers to them.
BY_HAND = {
    ("docs/protocol.md", '"type": "execute"'): send_execution,
    ("docs/mcp.md", '"mcpServers"'): use_configuration,
    ("docs/mcp.md", '"CAPABILITY_DENIED"'): be_refused,
    ("docs/configuration.md", "[languages.perl]"): run_languages,
}


def add_test(number, page):
    name = page.removesuffix(".md").replace("/", "_").lower()
    setattr(Pages, f"test_{number:02}_{name}_works_as_pasted", lambda self: self.work_through(page))


for number, page in enumerate(pages.PAGES):
    add_test(number, page)


class Lists(unittest.TestCase):
    """What a list names has to be there."""

    def test_every_entry_of_the_lists_means_an_example(self):
        examples = [block for page in pages.PAGES for block in pages.blocks(page)]
        entries = [*pages.LEFT_OUT, *pages.ONLY_LOOKED_AT, *pages.WHILE_IT_RUNS, *BY_HAND,
                   *((page, command) for page, all in pages.MEANT_TO_FAIL.items() for command, _ in all)]
        idle = [entry for entry in entries if not any(block.find([entry]) for block in examples)]
        self.assertEqual(idle, [])

    def test_every_page_with_an_example_is_tried(self):
        there = {f"docs/{path.name}" for path in (pages.ROOT / "docs").glob("*.md")}
        shows = {page for page in there if any(block.language != "text" for block in pages.blocks(page))}
        self.assertEqual(shows - set(pages.PAGES), set())

    def test_every_language_of_an_example_is_known(self):
        languages = {block.language for page in pages.PAGES for block in pages.blocks(page)}
        self.assertEqual(languages - {"sh", "python", "js", "json", "toml", "text", "http"}, set())


if __name__ == "__main__":
    unittest.main()
