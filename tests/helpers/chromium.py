"""A headless Chromium on two pipes: pages opened from files, looked at, drawn. Nothing but the browser is needed.

DevTools messages are JSON, each ended by a NUL byte, on the descriptors 3 and 4 of the browser.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
LIMIT_SECONDS = 60.0


def find_chromium() -> str | None:
    """The browser's command; None where there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Chromium:
    """One page. events: all that the browser has told of it so far."""

    def __init__(self, process: subprocess.Popen[bytes], reading: int, writing: int) -> None:
        self.process, self._reading, self._writing = process, reading, writing
        self._numbers = itertools.count(1)
        self._buffer = b""
        self.events: list[dict[str, Any]] = []
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a command. AssertionError for one that fails."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._writing, json.dumps(message).encode() + b"\0")
        while True:
            told = self._next()
            if told.get("id") == number:
                assert "error" not in told, told
                return told["result"]
            self.events.append(told)

    def _next(self) -> dict[str, Any]:
        until = time.monotonic() + LIMIT_SECONDS
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._reading], [], [], max(0.0, until - time.monotonic()))
            assert ready, f"the browser says nothing for {LIMIT_SECONDS} s"
            self._buffer += os.read(self._reading, 1 << 20)
        line, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(line)

    def open(self, path: Path, *, width: int, height: int = 900, scheme: str = "light") -> None:
        """Opens a file as a window of so many pixels shows it, and waits until it is there."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.events.clear()
        self.call("Page.navigate", url=path.resolve().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page."""
        told = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def requests(self) -> list[str]:
        """Addresses that the page has asked for since it was opened."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]

    def complaints(self) -> list[str]:
        """What stands in its console, exceptions and what the policy of the page has stopped among it."""
        methods = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [json.dumps(event["params"]) for event in self.events if event.get("method") in methods]

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """The page, or what of it the window shows, as PNG."""
        drawn = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(drawn["data"]))

    def print_pdf(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"]))


@contextmanager
def chromium(command: str, profile: Path) -> Iterator[Chromium]:
    """A browser with a profile of its own, ended at the end."""
    to_browser, from_browser = os.pipe(), os.pipe()
    # In the browser the pipes are 3 and 4: a shell puts them there, whatever their numbers are here.
    words = [command, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-extensions",
             f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"]  # fmt: skip
    started = ["sh", "-c", f'exec "$@" 3<&{to_browser[0]} 4>&{from_browser[1]}', "sh", *words]
    with (profile.parent / "chromium.log").open("wb") as log:
        process = subprocess.Popen(started, pass_fds=(to_browser[0], from_browser[1]), stdout=log, stderr=log)
    os.close(to_browser[0])
    os.close(from_browser[1])
    try:
        yield Chromium(process, from_browser[0], to_browser[1])
    finally:
        process.terminate()
        process.wait(LIMIT_SECONDS)
        os.close(to_browser[1])
        os.close(from_browser[0])
