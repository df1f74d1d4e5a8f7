"""A headless Chromium, driven by its debugging protocol over two pipes."""

import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

# Nothing takes this long unless it is broken.
PATIENCE = 60

FLAGS = ["--headless=new", "--remote-debugging-pipe", "--no-first-run", "--no-default-browser-check", "--disable-gpu",
         "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update", "--disable-sync",
         "--disable-extensions", "--mute-audio", "about:blank"]


def high_pipe():
    """A pipe whose numbers are none of those that it is to have there."""
    pipe = os.pipe()
    high = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 50) for end in pipe)
    for end in pipe:
        os.close(end)
    return high


class Chromium:
    """It reads orders from descriptor 3 and answers on 4, each a JSON text and a zero byte."""

    def __init__(self):
        program = shutil.which("chromium") or shutil.which("chromium-browser")
        if program is None:
            raise RuntimeError("there is no chromium here; scripts/setup test installs it")
        self.profile = tempfile.TemporaryDirectory(prefix="ringfence-chromium-", ignore_cleanup_errors=True)
        (orders, self.orders), (self.answers, answers) = high_pipe(), high_pipe()
        # As root it cannot have a sandbox of its own; the pages that it is shown here are ours.
        alone = ["--no-sandbox"] if os.getuid() == 0 else []
        script = f'exec "$@" 3<&{orders} 4>&{answers} {orders}<&- {answers}>&-'
        command = ["bash", "-c", script, "chromium", program, f"--user-data-dir={self.profile.name}", *alone, *FLAGS]
        self.process = subprocess.Popen(command, pass_fds=(orders, answers), stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(orders)
        os.close(answers)
        self.buffer = b""
        self.last = 0

    def close(self):
        try:
            self.ask("Browser.close")
        except RuntimeError:
            self.process.kill()
        self.process.wait()
        os.close(self.orders)
        os.close(self.answers)
        self.profile.cleanup()

    def ask(self, method, session=None, **parameters):
        """Gives an order and returns the answer. What is told in between is not needed here."""
        self.last += 1
        order = {"id": self.last, "method": method, "params": parameters}
        if session:
            order["sessionId"] = session
        os.write(self.orders, json.dumps(order).encode() + b"\0")
        end = time.monotonic() + PATIENCE
        while True:
            message = self.hear(end)
            if message.get("id") == self.last:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]

    def hear(self, end):
        while b"\0" not in self.buffer:
            if not select.select([self.answers], [], [], max(0, end - time.monotonic()))[0]:
                raise RuntimeError("chromium says nothing")
            heard = os.read(self.answers, 65536)
            if not heard:
                raise RuntimeError("chromium is gone")
            self.buffer += heard
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)

    def visitor(self):
        """Somebody new, without cookies, who has one page open."""
        return Visitor(self)


class Visitor:
    def __init__(self, browser):
        self.browser = browser
        self.context = browser.ask("Target.createBrowserContext")["browserContextId"]
        page = browser.ask("Target.createTarget", url="about:blank", browserContextId=self.context)["targetId"]
        self.session = browser.ask("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]

    def evaluate(self, script):
        """Runs a script in the page, waits for what it promises, and returns that."""
        told = self.browser.ask("Runtime.evaluate", self.session, expression=script, awaitPromise=True,
                                returnByValue=True)
        if "exceptionDetails" in told:
            raise RuntimeError(told["exceptionDetails"])
        return told["result"].get("value")

    def open(self, url):
        """Opens a page as if its address was typed in; returns where that led, its status and its text."""
        answer = self.browser.ask("Page.navigate", self.session, url=url)
        if "errorText" in answer:
            raise RuntimeError(f"{url}: {answer['errorText']}")
        return self.evaluate("""new Promise(resolve => {
            const told = () => resolve({
                url: location.href, title: document.title, text: document.body.innerText,
                status: performance.getEntriesByType('navigation')[0].responseStatus});
            document.readyState === 'complete' ? told() : addEventListener('load', told);
        })""")

    def cookies(self):
        return self.browser.ask("Storage.getCookies", browserContextId=self.context)["cookies"]

    def put_cookie(self, **cookie):
        self.browser.ask("Storage.setCookies", browserContextId=self.context, cookies=[cookie])
