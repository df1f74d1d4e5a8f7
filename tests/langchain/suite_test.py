"""Everything that langchain-tests asks of a sandbox, of ours."""

import os
import time

import pytest
from deepagents.backends.langsmith import LangSmithSandbox
from langchain_tests.integration_tests import SandboxIntegrationTests
from langsmith.sandbox import SandboxClient

from server import Server


class TestSandbox(SandboxIntegrationTests):
    @pytest.fixture(scope="class")
    def sandbox(self):
        server = Server().start()
        os.environ["LANGSMITH_ENDPOINT"] = server.url
        os.environ["LANGSMITH_API_KEY"] = (server.path / "data/admin.key").read_text().strip()
        os.environ["LANGSMITH_TRACING"] = "false"
        client = SandboxClient()
        box = client.create_sandbox()
        # The machine has none, so it is the image's own.
        assert not any(os.path.exists(f"{folder}/python") for folder in ("/usr/bin", "/usr/local/bin"))
        assert box.run("command -v python").stdout == "/usr/local/bin/python\n"
        assert box.run("id -u; pwd").stdout == "0\n/root\n"
        yield LangSmithSandbox(sandbox=box)
        client.delete_sandbox(box.name)
        # It is deleted once this was answered, and gone a little later.
        until = time.monotonic() + 60
        while any((server.path / "data/sandboxes").glob("sb_*")):
            assert time.monotonic() < until, "the sandbox is not gone"
            time.sleep(0.05)
        server.stop()
