"""The world that effects are made in: a process of its own that counts what it was told to do, and by whom.

`python -m tests.proofs.world` serves on a loopback port, which it prints, until its standard input ends.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import urllib.request
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class Books:
    """What was done, in order; an effect that comes with a key is done once for each key."""

    def __init__(self) -> None:
        self.done: list[tuple[str, str]] = []
        self.keys: dict[str, str] = {}
        self.lock = threading.Lock()

    def do(self, thread: str, what: str, key: str) -> str:
        with self.lock:
            if not key or key not in self.keys:
                self.done.append((thread, what))
                self.keys[key] = what
            return f"did {what}"

    def counts(self, thread: str) -> Counter[str]:
        with self.lock:
            return Counter(what for who, what in self.done if who == thread)


class Handler(BaseHTTPRequestHandler):
    """POST does; GET counts."""

    server: Any

    def do_POST(self) -> None:
        raw = self.rfile.read(size := int(self.headers["content-length"]))
        if len(raw) < size:  # whoever asked died in the middle of it
            return
        asked = json.loads(raw)
        self._say(self.server.books.do(asked["thread"], asked["what"], asked["key"]))

    def do_GET(self) -> None:
        self._say(dict(self.server.books.counts(urllib.request.unquote(self.path[1:]))))

    def _say(self, answer: Any) -> None:
        raw = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


class World:
    """How tests speak to it."""

    def __init__(self, url: str, process: subprocess.Popen[str] | None = None) -> None:
        self.url, self._process = url, process

    @classmethod
    def start(cls) -> World:
        """Start one; it ends with this process."""
        code = [sys.executable, "-m", "tests.proofs.world"]
        process = subprocess.Popen(code, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        return cls(process.stdout.readline().strip(), process)

    def do(self, thread: str, what: str, key: str = "") -> str:
        """Make an effect; one with a key is made once."""
        body = json.dumps({"thread": thread, "what": what, "key": key}).encode()
        asked = urllib.request.Request(self.url, body)  # noqa: S310  a process of our own
        with urllib.request.urlopen(asked, timeout=30) as answer:  # noqa: S310
            return str(json.load(answer))

    def counts(self, thread: str) -> Counter[str]:
        """Tell how often each effect of a thread was made."""
        asked = f"{self.url}/{urllib.request.quote(thread)}"
        with urllib.request.urlopen(asked, timeout=30) as answer:  # noqa: S310  a process of our own
            return Counter(json.load(answer))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.communicate()


def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  who asked has died before the answer came
    server.daemon_threads, server.books = True, Books()  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    sys.stdin.read()
    server.shutdown()


if __name__ == "__main__":
    main()
