"""Every tool, called by the official client as agents call it: by HTTP and by `ringfence mcp`, in both eras of the protocol."""

import asyncio
import contextlib
import json
import unittest

import httpx2
from jsonschema import Draft202012Validator
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import Request, RequestParams, Result
from pydantic import ConfigDict

from cleaning import remove_all
from server import TARGET, Server

TOOLS = ["environment_acquire", "environment_refresh", "environment_heartbeat", "environment_release", "run_code",
         "exec", "read", "write", "edit", "list", "glob", "grep"]

# The one that begins with `initialize`, and the one where every request stands by itself.
ERAS = ["legacy", "auto"]


class Acquire(RequestParams):
    model_config = ConfigDict(alias_generator=None)
    thread_id: str
    mode: str


class Acquired(Result):
    model_config = ConfigDict(alias_generator=None)
    session_id: str
    token: str


class Tools(unittest.IsolatedAsyncioTestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server().start()
        cls.key = (cls.server.path / "data/admin.key").read_text().strip()

    @classmethod
    def tearDownClass(cls):
        remove_all(cls.server)
        cls.server.stop()

    @contextlib.asynccontextmanager
    async def by_http(self, era, credential=None):
        headers = {"Authorization": f"Bearer {credential or self.key}"}
        async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
            transport = streamable_http_client(f"{self.server.url}/mcp", http_client=http)
            async with Client(transport, mode=era) as client:
                yield client

    @contextlib.asynccontextmanager
    async def by_stdio(self, era, credential=None):
        # The key is found by the command itself, unless another is given.
        environment = {"RINGFENCE_DATA": str(self.server.path / "data")}
        if credential:
            environment["RINGFENCE_API_KEY"] = credential
        command = StdioServerParameters(command=str(TARGET / "debug/ringfence"), args=["mcp", "--url", self.server.url],
                                        env=environment)
        async with Client(command, mode=era) as client:
            yield client

    async def ways(self):
        for way in (self.by_http, self.by_stdio):
            for era in ERAS:
                yield f"{way.__name__} {era}", way, era

    async def test_every_tool_is_listed_and_does_what_it_says(self):
        async for name, way, era in self.ways():
            with self.subTest(name):
                async with way(era) as client:
                    await self.use_all(client, name.replace(" ", "-"))

    async def use_all(self, client, thread):
        called = set()

        async def call(tool, **arguments):
            called.add(tool)
            result = await client.call_tool(tool, arguments)
            self.assertFalse(result.is_error, result.content)
            return result

        listed = (await client.list_tools()).tools
        self.assertEqual([tool.name for tool in listed], TOOLS)
        for tool in listed:
            self.assertTrue(tool.description and tool.input_schema["additionalProperties"] is False)
            # The client holds every result against it; others do so with refusals too.
            self.assertEqual(tool.output_schema["type"], "object")
        acquired = await call("environment_acquire", thread_id=thread)
        session = acquired.structured_content["session_id"]
        self.assertNotIn("token", acquired.structured_content)
        self.assertIn(session, acquired.content[0].text)
        written = await call("write", session_id=session, path="a/notes.txt", content="one\ntwo\nthree\n")
        self.assertEqual(written.structured_content["file"]["path"], "/workspace/a/notes.txt")
        read = await call("read", session_id=session, path="a/notes.txt", first_line=2, lines=1)
        self.assertEqual(read.structured_content["content"], "two\n")
        edited = await call("edit", session_id=session, path="a/notes.txt", old_string="two", new_string="zwei")
        self.assertEqual(edited.structured_content["occurrences"], 1)
        names = await call("list", session_id=session, path="a")
        self.assertEqual([entry["name"] for entry in names.structured_content["entries"]], ["notes.txt"])
        found = await call("glob", session_id=session, pattern="**/*.txt")
        self.assertEqual([it["path"] for it in found.structured_content["matches"]], ["/workspace/a/notes.txt"])
        lines = await call("grep", session_id=session, pattern="zwei")
        self.assertEqual([it["line"] for it in lines.structured_content["matches"]], [2])
        ran = await call("exec", session_id=session, command="cat a/notes.txt; echo oh >&2; exit 3")
        self.assertEqual((ran.structured_content["exit_code"], ran.structured_content["stderr"]), (3, "oh\n"))
        self.assertIn("zwei", ran.content[0].text)
        code = await call("run_code", language="python", code="print(6 * 7)")
        self.assertEqual((code.structured_content["stdout"], code.structured_content["exit_code"]), ("42\n", 0))
        beat = await call("environment_heartbeat", session_id=session)
        self.assertEqual(beat.structured_content["binding"]["id"], session)
        token = (await call("environment_refresh", session_id=session)).structured_content["token"]
        self.assertTrue(token)
        await call("environment_release", session_id=session)
        self.assertEqual(sorted(called), sorted(TOOLS))

    async def test_refusals_are_typed_and_a_token_is_good_for_its_scope(self):
        async for name, way, era in self.ways():
            with self.subTest(name):
                async with way(era) as client:
                    bad = await client.call_tool("exec", {"session_id": "ssn_none", "command": "true"})
                    self.assertTrue(bad.is_error)
                    self.assertEqual(bad.structured_content["error"]["code"], "SESSION_NOT_FOUND")
                    asked = {"thread_id": "of-a-token", "requested_capabilities": ["fs_read"], "include_token": True}
                    acquired = (await client.call_tool("environment_acquire", asked)).structured_content
                async with way(era, acquired["token"]) as client:
                    listed = await client.call_tool("list", {})
                    self.assertFalse(listed.is_error, listed.content)
                    refused = await client.call_tool("exec", {"command": "true"})
                    self.assertEqual(refused.structured_content["error"]["missing_capability"], "process")
                    self.assertTrue(refused.is_error)

    async def test_a_command_that_takes_too_long_is_told_with_its_output(self):
        async for name, way, era in self.ways():
            with self.subTest(name):
                async with way(era) as client:
                    session = (await client.call_tool("environment_acquire", {"thread_id": "slow"})).structured_content
                    asked = {"session_id": session["session_id"], "command": "echo begun; sleep 60", "timeout_seconds": 3}
                    late = await client.call_tool("exec", asked)
                    self.assertTrue(late.is_error)
                    self.assertEqual(late.structured_content["error"]["code"], "TIMEOUT")
                    self.assertEqual(late.structured_content["stdout"], "begun\n")

    async def test_a_call_that_is_cancelled_ends_its_command(self):
        async for name, way, era in self.ways():
            with self.subTest(name):
                async with way(era) as client:
                    session = (await client.call_tool("environment_acquire", {"thread_id": "cancelled"})).structured_content
                    own = {"session_id": session["session_id"]}

                    async def exec(command):
                        result = await client.call_tool("exec", {**own, "command": command, "timeout_seconds": 30})
                        self.assertFalse(result.is_error, result.content)
                        return result.structured_content["stdout"]

                    # The second command reads what the first one says when it has begun.
                    await exec("rm -f begun pid && mkfifo begun")
                    running = asyncio.create_task(exec("echo $$ > pid; echo yes > begun; sleep 600"))
                    self.assertEqual(await exec("cat begun"), "yes\n")
                    running.cancel()
                    with self.assertRaises(asyncio.CancelledError):
                        await running
                    await exec("while kill -0 $(cat pid) 2>/dev/null; do sleep 0.05; done")

    async def test_answers_and_refusals_are_as_the_schemas_of_tools_say(self):
        async with self.by_http("auto") as client:
            schemas = {tool.name: Draft202012Validator(tool.output_schema) for tool in (await client.list_tools()).tools}
            asked = {"thread_id": "of-schemas", "include_token": True}
            session = (await client.call_tool("environment_acquire", asked)).structured_content["session_id"]
            late = {"command": "echo begun; sleep 60", "timeout_seconds": 1}
            rows = [
                ("environment_acquire", {"thread_id": "of-schemas"}), ("environment_acquire", asked),
                ("environment_acquire", {"thread_id": ""}), ("environment_heartbeat", {"session_id": "ssn_none"}),
                ("exec", {"session_id": session, "command": "kill -9 $$"}), ("exec", {"session_id": session, **late}),
                ("exec", {"session_id": session, "command": "printf '\\377'"}), ("exec", {}),
                ("run_code", {"language": "shell", "code": "kill -9 $$"}), ("run_code", {"language": "cobol", "code": ""}),
                ("run_code", {"language": "shell", "code": "sleep 60", "timeout_seconds": 1}),
                ("write", {"session_id": session, "path": "a", "content": "/wA=", "encoding": "base64"}),
                ("read", {"session_id": session, "path": "a"}), ("read", {"session_id": session, "path": "b"}),
                ("list", {"session_id": session, "path": "/dev", "limit": 3}),
            ]
            for tool, arguments in rows:
                with self.subTest(tool=tool, arguments=arguments):
                    result = await client.call_tool(tool, arguments)
                    self.assertEqual([it.message for it in schemas[tool].iter_errors(result.structured_content)], [])
                    self.assertEqual(result.is_error, "error" in result.structured_content)
            # They say no more than is so.
            for tool, schema in schemas.items():
                self.assertFalse(schema.is_valid({}), tool)

    async def test_who_wants_to_is_told_what_a_command_writes_meanwhile(self):
        async for name, way, era in self.ways():
            with self.subTest(name):
                async with way(era) as client:
                    session = (await client.call_tool("environment_acquire", {"thread_id": "told"})).structured_content
                    own, told, has_begun = {"session_id": session["session_id"]}, [], asyncio.Event()

                    async def hear(progress, total, message):
                        told.append((progress, total, message))
                        has_begun.set()

                    await client.call_tool("exec", {**own, "command": "rm -f go && mkfifo go"})
                    waiting = {**own, "command": "echo one; cat go; echo two >&2", "timeout_seconds": 30}
                    running = asyncio.create_task(client.call_tool("exec", waiting, progress_callback=hear))
                    # It waits until somebody has heard of it.
                    await has_begun.wait()
                    await client.call_tool("exec", {**own, "command": "echo more > go"})
                    ran = (await running).structured_content
                    self.assertEqual((ran["stdout"], ran["stderr"]), ("one\nmore\n", "two\n"))
                    self.assertEqual(told[0], (4, None, "one\n"))
                    counts = [progress for progress, _, _ in told]
                    self.assertEqual(counts, sorted(set(counts)))

                    told.clear()
                    code = {"language": "python", "code": "import time; print('begun', flush=True); time.sleep(60)", "timeout_seconds": 2}
                    late = await client.call_tool("run_code", code, progress_callback=hear)
                    self.assertEqual(late.structured_content["error"]["code"], "TIMEOUT")
                    self.assertEqual(told, [(6, None, "begun\n")])

    async def test_what_is_told_meanwhile_comes_before_the_answer_and_only_if_it_is_wanted(self):
        headers = {"Authorization": f"Bearer {self.key}", "Accept": "application/json, text/event-stream"}
        async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
            async def messages(tool, arguments, meta, and_then=None):
                params = {"name": tool, "arguments": arguments, "_meta": meta}
                body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
                found = []
                async with http.stream("POST", f"{self.server.url}/mcp", json=body) as answer:
                    async for line in answer.aiter_lines():
                        if line.startswith("data: {"):
                            found.append(json.loads(line.removeprefix("data: ")))
                            if and_then and len(found) == 1:
                                await and_then()
                return found

            acquired = await messages("environment_acquire", {"thread_id": "in-order"}, {})
            own = {"session_id": acquired[-1]["result"]["structuredContent"]["session_id"]}

            async def go():
                await messages("exec", {**own, "command": "echo > go"}, {})

            await messages("exec", {**own, "command": "mkfifo go"}, {})
            much = {**own, "command": "echo one; cat go; seq 200000", "timeout_seconds": 30}
            *told, answer = await messages("exec", much, {"progressToken": "mine"}, go)
            self.assertEqual(answer["id"], 1)
            self.assertTrue(told)
            for message in told:
                self.assertEqual((message["method"], message["params"]["progressToken"]), ("notifications/progress", "mine"))
                self.assertLessEqual(len(message["params"]["message"]), 1024)
            # A client that does not ask hears nothing, and one that is refused neither.
            asked = {"language": "shell", "code": "echo a; echo b"}
            self.assertEqual(len(await messages("run_code", asked, {})), 1)
            self.assertEqual(len(await messages("run_code", {}, {"progressToken": 7})), 1)

    async def test_programs_have_the_methods_of_environments(self):
        for era in ERAS:
            with self.subTest(era):
                async with self.by_http(era) as client:
                    asked = Acquire(thread_id="by-method", mode="ensure")
                    request = Request[Acquire, str](method="environment/acquire", params=asked)
                    acquired = await client.session.send_request(request, Acquired)
                    self.assertTrue(acquired.session_id.startswith("ssn_") and acquired.token)


if __name__ == "__main__":
    unittest.main()
