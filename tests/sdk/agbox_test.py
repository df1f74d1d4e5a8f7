"""What agents-sandbox-sdk can do, done: every call, every typed exception, waiting, and a server that is killed."""

import asyncio
import datetime
import pathlib
import socket
import unittest
import uuid

from agents_sandbox import (
    AgentsSandboxClient,
    ExecAlreadyTerminalError,
    ExecNotFoundError,
    ExecState,
    PortMapping,
    SandboxClientError,
    SandboxConflictError,
    SandboxEventType,
    SandboxNotFoundError,
    SandboxNotReadyError,
    SandboxSequenceExpiredError,
    SandboxState,
)

from server import Server


def fresh(kind):
    return f"{kind}-{uuid.uuid4().hex[:12]}"


# A web server that says one word, and what to run beside it to wait until it listens.
WEB = ["/usr/bin/python3", "-c", """
import http.server
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"served")
http.server.HTTPServer(("127.0.0.1", 8000), Answer).serve_forever()
"""]
LISTENS = "until grep -q :1F40 /proc/net/tcp; do sleep 0.01; done"


def free_port():
    """Finds a port that nobody listens on, below those that the kernel gives to whoever connects."""
    for port in range(30000, 32000):
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) != 0:
                return port
    raise AssertionError("no port is free")


async def fetch(port):
    """Asks a published port for a page and returns what is on it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.0\r\n\r\n")
    answer = await reader.read()
    writer.close()
    return answer.rpartition(b"\r\n\r\n")[2].decode()


class Agbox(unittest.IsolatedAsyncioTestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server().start()

    @classmethod
    def tearDownClass(cls):
        asyncio.run(cls.remove_all())
        cls.server.stop()

    @staticmethod
    async def remove_all():
        async with AgentsSandboxClient(stream_timeout_seconds=60) as client:
            for sandbox in await client.list_sandboxes():
                await client.delete_sandbox(sandbox.sandbox_id)

    async def asyncSetUp(self):
        self.client = AgentsSandboxClient(stream_timeout_seconds=60)
        self.addAsyncCleanup(self.client.aclose)

    async def sandbox(self, **more):
        return await self.client.create_sandbox(image="host", **more)

    async def test_ping_tells_version_and_name(self):
        info = await self.client.ping()
        self.assertTrue(info.version)
        self.assertTrue(info.daemon)

    async def test_a_sandbox_is_created_used_and_deleted(self):
        sandbox = await self.sandbox(labels={"kind": "whole"})
        self.assertEqual(sandbox.state, SandboxState.READY)
        self.assertGreater(sandbox.last_event_sequence, 0)
        run = await self.client.run(sandbox.sandbox_id, ["sh", "-lc", "printf ready"])
        self.assertEqual((run.state, run.exit_code), (ExecState.FINISHED, 0))
        deleted = await self.client.delete_sandbox(sandbox.sandbox_id)
        self.assertEqual(deleted.state, SandboxState.DELETED)
        again = await self.client.delete_sandbox(sandbox.sandbox_id)
        self.assertEqual(again.state, SandboxState.DELETED)

    async def test_output_is_in_the_files_that_are_told(self):
        sandbox = await self.sandbox(envs={"GREETING": "hello"})
        started = await self.client.create_exec(
            sandbox.sandbox_id, ["sh", "-c", 'echo "$GREETING $NAME from $PWD"; echo oops >&2; exit 3'],
            cwd="/tmp", env_overrides={"NAME": "you"}, wait=True)
        self.assertEqual((started.state, started.exit_code), (ExecState.FAILED, 3))
        self.assertEqual(pathlib.Path(started.stdout_log_path).read_text(), "hello you from /tmp\n")
        self.assertEqual(pathlib.Path(started.stderr_log_path).read_text(), "oops\n")

    async def test_a_command_is_cancelled(self):
        sandbox = await self.sandbox()
        exec_ = await self.client.create_exec(sandbox.sandbox_id, ["sleep", "1000"])
        active = await self.client.list_active_execs(sandbox_id=sandbox.sandbox_id)
        self.assertEqual([e.exec_id for e in active], [exec_.exec_id])
        cancelled = await self.client.cancel_exec(exec_.exec_id)
        self.assertEqual(cancelled.state, ExecState.CANCELLED)
        self.assertEqual(await self.client.list_active_execs(sandbox_id=sandbox.sandbox_id), [])
        with self.assertRaises(ExecAlreadyTerminalError):
            await self.client.cancel_exec(exec_.exec_id)

    async def test_files_stay_over_stop_and_resume(self):
        sandbox = await self.sandbox()
        await self.client.run(sandbox.sandbox_id, ["sh", "-c", "echo kept > note"])
        stopped = await self.client.stop_sandbox(sandbox.sandbox_id)
        self.assertEqual(stopped.state, SandboxState.STOPPED)
        with self.assertRaises(SandboxNotReadyError):
            await self.client.run(sandbox.sandbox_id, ["true"])
        again = await self.client.stop_sandbox(sandbox.sandbox_id)
        self.assertEqual(again.state, SandboxState.STOPPED)
        resumed = await self.client.resume_sandbox(sandbox.sandbox_id)
        self.assertEqual(resumed.state, SandboxState.READY)
        again = await self.client.resume_sandbox(sandbox.sandbox_id)
        self.assertEqual(again.state, SandboxState.READY)
        run = await self.client.run(sandbox.sandbox_id, ["grep", "-q", "kept", "/workspace/note"])
        self.assertEqual(run.exit_code, 0)

    async def test_sandboxes_are_found_by_label(self):
        mark = fresh("mark")
        one, other = [await self.sandbox(labels={"mark": mark, "n": n}) for n in "12"]
        found = await self.client.list_sandboxes(label_selector={"mark": mark})
        self.assertEqual([s.sandbox_id for s in found], [other.sandbox_id, one.sandbox_id])
        deleted = await self.client.delete_sandboxes({"mark": mark, "n": "1"})
        self.assertEqual(list(deleted.deleted_sandbox_ids), [one.sandbox_id])
        self.assertEqual(len(await self.client.list_sandboxes(label_selector={"mark": mark})), 1)
        everything = await self.client.list_sandboxes(label_selector={"mark": mark}, include_deleted=True)
        self.assertEqual(len(everything), 2)
        with self.assertRaises(SandboxClientError):
            await self.client.delete_sandboxes({})

    async def test_events_come_from_any_sequence_without_gap(self):
        sandbox = await self.sandbox()
        for _ in range(3):
            await self.client.run(sandbox.sandbox_id, ["true"])
        latest = (await self.client.get_sandbox(sandbox.sandbox_id)).last_event_sequence
        for start in range(latest):
            seen = []
            async for event in self.client.subscribe_sandbox_events(sandbox.sandbox_id, from_sequence=start):
                seen.append(event.sequence)
                if event.sequence == latest:
                    break
            self.assertEqual(seen, list(range(start + 1, latest + 1)))
        with self.assertRaises(SandboxSequenceExpiredError):
            async for _ in self.client.subscribe_sandbox_events(sandbox.sandbox_id, from_sequence=latest + 10):
                pass

    async def test_a_snapshot_comes_first_and_names_what_runs(self):
        sandbox = await self.sandbox()
        exec_ = await self.client.create_exec(sandbox.sandbox_id, ["sleep", "1000"])
        latest = (await self.client.get_sandbox(sandbox.sandbox_id)).last_event_sequence
        stream = self.client.subscribe_sandbox_events(
            sandbox.sandbox_id, from_sequence=latest, include_current_snapshot=True)
        first, second = await anext(stream), await anext(stream)
        self.assertTrue(first.snapshot and second.snapshot)
        self.assertEqual((first.sequence, second.sequence), (latest, latest))
        self.assertEqual(second.event_type, SandboxEventType.EXEC_STARTED)
        self.assertEqual(second.exec.exec_id, exec_.exec_id)
        await self.client.cancel_exec(exec_.exec_id)
        third = await anext(stream)
        self.assertEqual((third.sequence, third.snapshot), (latest + 1, False))

    async def test_ids_of_the_callers_own_are_unique_while_their_sandbox_exists(self):
        sandbox_id, exec_id = fresh("box"), fresh("exec")
        sandbox = await self.sandbox(sandbox_id=sandbox_id)
        self.assertEqual(sandbox.sandbox_id, sandbox_id)
        with self.assertRaises(SandboxConflictError):
            await self.sandbox(sandbox_id=sandbox_id)
        exec_ = await self.client.create_exec(sandbox_id, ["true"], exec_id=exec_id, wait=True)
        self.assertEqual(exec_.exec_id, exec_id)
        with self.assertRaises(SandboxConflictError):
            await self.client.create_exec(sandbox_id, ["true"], exec_id=exec_id)
        await self.client.delete_sandbox(sandbox_id)
        again = await self.sandbox(sandbox_id=sandbox_id)
        self.assertEqual((again.sandbox_id, again.state), (sandbox_id, sandbox.state))

    async def test_what_is_not_there_is_not_found(self):
        with self.assertRaises(SandboxNotFoundError):
            await self.client.get_sandbox("no-such-sandbox")
        with self.assertRaises(SandboxNotFoundError):
            await self.client.stop_sandbox("no-such-sandbox")
        with self.assertRaises(SandboxNotFoundError):
            await self.client.create_exec("no-such-sandbox", ["true"])
        with self.assertRaises(ExecNotFoundError):
            await self.client.get_exec("no-such-exec")
        with self.assertRaises(ExecNotFoundError):
            await self.client.cancel_exec("no-such-exec")

    async def test_what_makes_no_sense_is_refused(self):
        for wrong in ({"image": ""}, {"image": "host", "sandbox_id": "x"}, {"image": "host", "gpus": "all"},
                      {"image": "host", "memory_limit": "-1"}, {"image": "host", "config_yaml": "imagee: host"}):
            with self.assertRaises(SandboxClientError, msg=str(wrong)):
                await self.client.create_sandbox(**wrong)

    async def test_yaml_is_the_base_and_arguments_win(self):
        yaml = "image: nothing\nenvs: {A: yaml, B: yaml}\nidle_ttl: 1m30s\n"
        sandbox = await self.sandbox(config_yaml=yaml, envs={"B": "argument"})
        run = await self.client.create_exec(sandbox.sandbox_id, ["sh", "-c", "echo $A $B"], wait=True)
        self.assertEqual(pathlib.Path(run.stdout_log_path).read_text(), "yaml argument\n")

    async def test_an_idle_sandbox_is_stopped(self):
        sandbox = await self.sandbox(idle_ttl=datetime.timedelta(seconds=2))
        async for event in self.client.subscribe_sandbox_events(sandbox.sandbox_id):
            if event.event_type == SandboxEventType.SANDBOX_STOPPED:
                self.assertEqual(event.sandbox_phase.reason, "idle_ttl")
                break

    async def test_a_port_is_published_while_the_sandbox_is_ready(self):
        port = free_port()
        published = PortMapping(container_port=8000, host_port=port)
        sandbox = await self.sandbox(ports=[published], command=WEB)
        await self.client.run(sandbox.sandbox_id, ["sh", "-c", LISTENS])
        self.assertEqual(await fetch(port), "served")
        second = fresh("second")
        with self.assertRaises(SandboxClientError):
            await self.sandbox(sandbox_id=second, ports=[published])
        failed = await self.client.get_sandbox(second)
        self.assertEqual((failed.state, failed.error_code), (SandboxState.FAILED, "SANDBOX_CREATE_FAILED"))
        self.assertIn(str(port), failed.error_message)
        self.server.kill()
        self.server.start()
        await self.client.aclose()
        self.client = AgentsSandboxClient(stream_timeout_seconds=60)
        self.addAsyncCleanup(self.client.aclose)
        await self.client.run(sandbox.sandbox_id, ["true"])
        self.assertEqual(await fetch(port), "served")
        await self.client.stop_sandbox(sandbox.sandbox_id)
        with self.assertRaises(ConnectionRefusedError):
            await fetch(port)

    async def test_a_killed_server_loses_nothing(self):
        sandbox = await self.sandbox()
        exec_ = await self.client.create_exec(
            sandbox.sandbox_id, ["sh", "-c", "echo $$; until [ -e go ]; do sleep 0.01; done; echo $$; exit 9"])
        before = await self.client.get_exec(exec_.exec_id)
        self.server.kill()
        self.server.start()
        await self.client.aclose()
        self.client = AgentsSandboxClient(stream_timeout_seconds=60)
        self.addAsyncCleanup(self.client.aclose)
        after = await self.client.get_exec(exec_.exec_id)
        self.assertEqual((after.state, after.last_event_sequence), (ExecState.RUNNING, before.last_event_sequence))
        await self.client.run(sandbox.sandbox_id, ["touch", "go"])
        async for event in self.client.subscribe_sandbox_events(
                sandbox.sandbox_id, from_sequence=after.last_event_sequence):
            if event.exec and event.exec.exec_id == exec_.exec_id:
                self.assertEqual(event.exec.exit_code, 9)
                break
        one, other = pathlib.Path(exec_.stdout_log_path).read_text().split()
        self.assertEqual(one, other)


if __name__ == "__main__":
    unittest.main()
