"""A page in headless Chromium, over the DevTools protocol: enough to look at it and to measure it."""

import base64
import itertools
import json
import shutil
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest
import websocket

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


class Browser:
    """Open a page at a width; `seen` holds what the console and the network complained of."""

    def __init__(self, profile: Path):
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"]
        flags += ["--disable-background-networking", "--disable-component-update"]
        flags += ["--disable-sync", "--disable-quic", "--remote-debugging-port=0"]
        flags += [f"--user-data-dir={profile}", "--remote-allow-origins=*"]
        assert CHROMIUM is not None
        self._process = subprocess.Popen(
            [CHROMIUM, *flags, "about:blank"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        port = self._wait(profile / "DevToolsActivePort").read_text().split()[0]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json", timeout=30) as answer:
            pages = [page for page in json.load(answer) if page["type"] == "page"]
        self._socket = websocket.create_connection(pages[0]["webSocketDebuggerUrl"], timeout=60)
        self._ids = itertools.count(1)
        self.seen = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    @staticmethod
    def _wait(path):
        for _ in range(300):
            if path.exists() and path.read_text().count("\n"):
                return path
            time.sleep(0.1)
        raise TimeoutError("Chromium did not start within 30 s.")

    def call(self, method, **params):
        """One call of the protocol; events that arrive meanwhile are noted."""
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv())
            if message.get("id") == number:
                assert "error" not in message, message
                return message["result"]
            self._note(message)

    def _note(self, message):
        kind, params = message.get("method"), message.get("params", {})
        if kind == "Runtime.exceptionThrown":
            self.seen.append(params["exceptionDetails"]["text"])
        elif kind == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.seen.append(str(params["args"]))
        elif kind == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.seen.append(params["entry"]["text"])
        elif kind == "Network.requestWillBeSent":
            url = params["request"]["url"]
            if not url.startswith(("file:", "data:", "about:")):
                self.seen.append(f"asked the network for {url}")

    def open(self, path, *, width, height=900, dark=False):
        """Load a page and wait until it and its images are there."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)
        self.call("Page.navigate", url=path.resolve().as_uri())
        for _ in range(300):
            if self.run("document.readyState === 'complete' && location.href !== 'about:blank'"):
                return
            time.sleep(0.1)
        raise TimeoutError(f"{path} did not load within 30 s.")

    def run(self, script):
        """The value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        return answer["result"].get("value")

    def screenshot(self, path):
        """Write the whole page as a PNG."""
        data = self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(data))

    def close(self):
        self._socket.close()
        self._process.kill()
        self._process.wait()


def check_in_browser(browser, path, *, width, images, dark=False):
    """No complaint, `images` images shown, nothing wider than the window."""
    browser.seen.clear()
    browser.open(path, width=width, dark=dark)
    loaded = browser.run(
        "[...document.images].filter(i => i.complete && i.naturalWidth > 0).length"
    )
    assert (loaded, browser.run("document.images.length")) == (images, images)
    wide, window = browser.run(
        "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    assert wide <= window
    assert browser.seen == []


def check_at_desktop_and_phone_width(path, profile, *, images):
    """Open a page in a browser of its own at both widths; skipped where there is no browser."""
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed (Debian: apt-get install chromium)")
    browser = Browser(profile)
    try:
        for width in (1200, 390):
            check_in_browser(browser, path, width=width, images=images)
    finally:
        browser.close()
