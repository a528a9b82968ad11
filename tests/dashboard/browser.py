"""A real Chromium, driven by its DevTools protocol."""

import asyncio
import base64
import json
import os
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from ccpipe.process.die_with_parent import die_with_parent

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--remote-debugging-port=0", "--hide-scrollbars",
)  # fmt: skip
START_SECONDS = 60
WAIT_SECONDS = 60


class Page:
    """One page of the browser."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, pid: int) -> None:
        self.pid = pid
        self.problems: list[str] = []
        """Exceptions and what the console shows as an error, blocked content included."""
        self.frames: list[int] = []
        """Sizes of the received WebSocket frames, once the domain Network is enabled."""
        self._socket = socket
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._number = 0
        self._reader = asyncio.create_task(self._read())

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        answer = self._answers[self._number] = asyncio.get_running_loop().create_future()
        request = {"id": self._number, "method": method, "params": parameters}
        await self._socket.send_str(json.dumps(request))
        async with asyncio.timeout(WAIT_SECONDS):
            result: dict[str, Any] = await answer
            return result

    async def _read(self) -> None:
        async for message in self._socket:
            event = json.loads(message.data)
            if "id" in event:
                answer = self._answers.pop(event["id"])
                if not answer.done():
                    answer.set_result(event.get("result", {"error": event.get("error")}))
            else:
                self._note(event["method"], event["params"])

    def _note(self, method: str, event: dict[str, Any]) -> None:
        if method == "Network.webSocketFrameReceived":
            self.frames.append(len(event["response"]["payloadData"]) * 3 // 4)  # it is base64
        elif method == "Runtime.exceptionThrown":
            details = event["exceptionDetails"]
            self.problems.append(str(details.get("exception", {}).get("description", details)))
        elif method == "Log.entryAdded" and event["entry"]["level"] == "error":
            self.problems.append(f"{event['entry']['text']} {event['entry'].get('url', '')}")

    async def open(self, url: str) -> None:
        await self.call("Page.navigate", url=url)

    async def js(self, expression: str) -> Any:
        """Return the value of an expression; raises AssertionError if it throws."""
        answer = await self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def until(
        self, expression: str, holds: Callable[[Any], bool] = bool, seconds: float = WAIT_SECONDS
    ) -> Any:
        """Wait until an expression's value is as wanted; fail with what it was."""
        value = None
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not holds(value := await self.js(expression)):
                    await asyncio.sleep(0.1)
                return value
        raise AssertionError(f"{expression} stays {value!r}; problems: {self.problems}")

    async def text(self) -> str:
        return str(await self.js("document.body.innerText"))

    async def key(self, key: str) -> None:
        text = {"text": key} if len(key) == 1 else {}
        if key == "Enter":
            text = {"text": "\r"}
        codes = {"Enter": 13, "ArrowRight": 39, "ArrowDown": 40, "Tab": 9}
        code = {"windowsVirtualKeyCode": codes[key]} if key in codes else {}
        await self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text, **code)
        await self.call("Input.dispatchKeyEvent", type="keyUp", key=key, **code)

    async def size(self, width: int, height: int) -> None:
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip

    async def dark(self, *, dark: bool) -> None:
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[feature])

    async def screenshot(self, path: Path) -> None:
        answer = await self.call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(answer["data"]))

    async def close(self) -> None:
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)


@asynccontextmanager
async def chromium(program: Path, *flags: str, local_state: str = "{}") -> AsyncIterator[Page]:
    """Run Chromium with one empty page, flags and settings; it ends with the block."""
    with tempfile.TemporaryDirectory(prefix="ccpipe-chromium-", ignore_cleanup_errors=True) as home:
        Path(home, "profile").mkdir()
        Path(home, "profile", "Local State").write_text(local_state)
        process = await asyncio.create_subprocess_exec(
            program, *FLAGS, *flags, f"--user-data-dir={home}/profile", "about:blank",
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
            preexec_fn=die_with_parent, env={**os.environ, "HOME": home, "TMPDIR": home},
        )  # fmt: skip
        try:
            port = await _port(Path(home, "profile", "DevToolsActivePort"), process)
            async with aiohttp.ClientSession() as session:
                async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                    targets = await answer.json()
                [target] = [each for each in targets if each["type"] == "page"]
                url = target["webSocketDebuggerUrl"]
                async with session.ws_connect(url, max_msg_size=0) as socket:
                    page = Page(socket, process.pid)
                    for domain in ("Page", "Runtime", "Log"):
                        await page.call(f"{domain}.enable")
                    yield page
                    await page.close()
        finally:
            await _end(process)


async def _port(file: Path, process: asyncio.subprocess.Process) -> int:
    async with asyncio.timeout(START_SECONDS):
        while not (file.exists() and (lines := file.read_text().split())):
            assert process.returncode is None, "Chromium did not start"
            await asyncio.sleep(0.05)
    return int(lines[0])


async def _end(process: asyncio.subprocess.Process) -> None:
    with suppress(psutil.NoSuchProcess):
        children = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.kill()
    await process.wait()
