"""The host's end of the lab's channel: takes requests from a virtio port, runs them, answers. Standard library
only.

Lines of JSON both ways. A request has ``id`` and ``op``: ``exec`` (argv, stdin, environ, timeout_s), ``put``
(path, data, mode), ``get`` (path); bytes are base64. Answers carry the ``id``, in the order in which they finish.
At the start, and when ``op`` is ``hello``, it says who it is: ``{"hello": BOOT_ID, …}``.
"""

import base64
import contextlib
import fcntl
import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

PORT = "org.linkwright.lab"
SIGNAL = signal.SIGIO  # the driver sends it when somebody connects outside (drivers/char/virtio_console.c)


def find_port() -> str:
    for name in Path("/sys/class/virtio-ports").glob("*/name"):
        if name.read_text().strip() == PORT:
            return f"/dev/{name.parent.name}"
    raise SystemExit(f"there is no virtio port {PORT}")


class Channel:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._writing = threading.Lock()

    def say(self, **message: Any) -> None:
        data = json.dumps(message).encode() + b"\n"
        with self._writing:
            while data:
                data = data[os.write(self._descriptor, data) :]

    def hello(self) -> None:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        uptime = float(Path("/proc/uptime").read_text().split()[0])
        self.say(hello=boot, kernel=os.uname().release, uptime_s=uptime)

    def serve(self, nobody: Callable[[], object]) -> None:
        """For good. ``nobody`` is called while nobody is connected outside, to wait until somebody may be."""
        left = b""
        while True:
            data = os.read(self._descriptor, 1 << 16)
            if not data:  # nobody is connected outside
                left = b""
                nobody()
                continue
            *lines, left = (left + data).split(b"\n")
            for line in filter(None, lines):
                with contextlib.suppress(ValueError):  # the rest of a line whose sender went away
                    threading.Thread(target=self._answer, args=(json.loads(line),), daemon=True).start()

    def _answer(self, request: dict[str, Any]) -> None:
        if request.get("op") == "hello":
            self.hello()
            return
        try:
            answer = OPERATIONS[request["op"]](request)
        except Exception as problem:
            answer = {"error": f"{type(problem).__name__}: {problem}"}
        self.say(id=request.get("id"), **answer)


def _exec(request: dict[str, Any]) -> dict[str, Any]:
    signal.pthread_sigmask(signal.SIG_SETMASK, [])  # not for the child to inherit
    environ = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin", "HOME": "/root", "LANG": "C.UTF-8"}
    process = subprocess.Popen(
        request["argv"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/root",
        env=environ | request.get("environ", {}), start_new_session=True,
    )  # fmt: skip
    late = False
    try:
        given = base64.b64decode(request.get("stdin", ""))
        out, err = process.communicate(given, timeout=request.get("timeout_s"))
    except subprocess.TimeoutExpired:
        late = True
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
    return {"rc": process.returncode, "late": late, "out": _text(out), "err": _text(err)}


def _put(request: dict[str, Any]) -> dict[str, Any]:
    path = Path(request["path"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(base64.b64decode(request["data"]))
    path.chmod(request.get("mode", 0o644))
    return {}


def _get(request: dict[str, Any]) -> dict[str, Any]:
    return {"data": _text(Path(request["path"]).read_bytes())}


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


OPERATIONS = {"exec": _exec, "put": _put, "get": _get}


def main() -> None:
    signal.signal(SIGNAL, lambda *_: None)  # a thread that runs a command may get it
    signal.pthread_sigmask(signal.SIG_BLOCK, {SIGNAL})
    descriptor = os.open(find_port(), os.O_RDWR | os.O_CLOEXEC)
    fcntl.fcntl(descriptor, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_ASYNC)
    channel = Channel(descriptor)
    channel.hello()
    channel.serve(lambda: signal.sigtimedwait({SIGNAL}, 1.0))


if __name__ == "__main__":
    main()
