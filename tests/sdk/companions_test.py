"""Companions through agents-sandbox-sdk: reached by name, told of once for each start, over a stop and a kill."""

import datetime
import pathlib
import unittest

from agents_sandbox import (
    AgentsSandboxClient,
    CompanionContainerSpec,
    HealthcheckConfig,
    SandboxEventType,
    SandboxState,
)

from server import Server

READY, FAILED = SandboxEventType.COMPANION_CONTAINER_READY, SandboxEventType.COMPANION_CONTAINER_FAILED

WEB = ("/usr/bin/python3", "-c", """
import http.server, os
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(os.environ["WORD"].encode())
http.server.HTTPServer(("127.0.0.1", 8000), Answer).serve_forever()
""")
FETCH = "import urllib.request; print(urllib.request.urlopen('http://web:8000').read().decode())"


def soon(command, retries=100):
    return HealthcheckConfig(test=("CMD", *command), interval=datetime.timedelta(milliseconds=50), retries=retries)


WEB_COMPANION = CompanionContainerSpec(
    name="web", image="host", envs={"WORD": "served"}, command=WEB,
    healthcheck=soon(("grep", "-q", ":1F40", "/proc/net/tcp")),
    post_start_on_primary=("echo seeded > /workspace/seed",))


class Companions(unittest.IsolatedAsyncioTestCase):
    def setUp(self):
        self.server = Server().start()

    async def asyncSetUp(self):
        self.client = AgentsSandboxClient(stream_timeout_seconds=60)

    async def asyncTearDown(self):
        for sandbox in await self.client.list_sandboxes():
            await self.client.delete_sandbox(sandbox.sandbox_id)
        await self.client.aclose()

    def tearDown(self):
        self.server.stop()

    async def outcomes(self, sandbox_id, count, start=0):
        """What is told of companions, until there are so many."""
        told = {}
        async for event in self.client.subscribe_sandbox_events(sandbox_id, from_sequence=start):
            if event.companion_container:
                self.assertNotIn(event.companion_container.name, told)
                told[event.companion_container.name] = event
            if len(told) == count:
                return told

    async def fetched(self, sandbox_id):
        run = await self.client.run(sandbox_id, ["/usr/bin/python3", "-c", FETCH])
        return pathlib.Path(run.stdout_log_path).read_text()

    async def test_companions_are_reached_by_name_and_live_with_their_sandbox(self):
        side = CompanionContainerSpec(name="side", image="host", command=("sleep", "1000"))
        sandbox = await self.client.create_sandbox(image="host", companion_containers=[WEB_COMPANION, side])
        sandbox_id = sandbox.sandbox_id
        self.assertEqual([c.name for c in sandbox.companion_containers], ["web", "side"])
        told = await self.outcomes(sandbox_id, 2)
        self.assertEqual({event.event_type for event in told.values()}, {READY})
        # One without a check is told of before the sandbox is ready.
        self.assertEqual(told["side"].sandbox_state, SandboxState.PENDING)
        self.assertEqual(await self.fetched(sandbox_id), "served\n")
        seed = await self.client.run(sandbox_id, ["cat", "seed"])
        self.assertEqual(pathlib.Path(seed.stdout_log_path).read_text(), "seeded\n")

        stopped = await self.client.stop_sandbox(sandbox_id)
        await self.client.resume_sandbox(sandbox_id)
        told = await self.outcomes(sandbox_id, 2, stopped.last_event_sequence)
        self.assertEqual({event.event_type for event in told.values()}, {READY})
        self.assertEqual(await self.fetched(sandbox_id), "served\n")

        before = (await self.client.get_sandbox(sandbox_id)).last_event_sequence
        self.server.kill()
        self.server.start()
        await self.client.aclose()
        self.client = AgentsSandboxClient(stream_timeout_seconds=60)
        self.assertEqual(await self.fetched(sandbox_id), "served\n")
        after = await self.client.get_sandbox(sandbox_id)
        async for event in self.client.subscribe_sandbox_events(sandbox_id, from_sequence=before):
            self.assertIsNone(event.companion_container)
            if event.sequence == after.last_event_sequence:
                break

    async def test_a_companion_that_fails_is_told_of_and_the_sandbox_goes_on(self):
        sick = CompanionContainerSpec(
            name="sick", image="host", command=("sleep", "1000"), healthcheck=soon(("false",), retries=2))
        sandbox = await self.client.create_sandbox(image="host", companion_containers=[sick])
        event = (await self.outcomes(sandbox.sandbox_id, 1))["sick"]
        self.assertEqual(event.event_type, FAILED)
        self.assertEqual(event.companion_container.error_code, "COMPANION_CONTAINER_FAILED")
        self.assertIn("2 times in a row", event.companion_container.error_message)
        self.assertEqual((await self.client.get_sandbox(sandbox.sandbox_id)).state, SandboxState.READY)
        self.assertEqual((await self.client.run(sandbox.sandbox_id, ["true"])).exit_code, 0)


if __name__ == "__main__":
    unittest.main()
