"""An OpenAI-compatible server of the tests' own: real HTTP on loopback, replies from a script.

A model mocked inside the process never loses its connection, never answers half a body and never sends a tool call in
pieces. Those are the cases an agent has to survive, so the tests speak to a real server through the real client.

    with OpenAIServer([calls(("add", {"a": 1, "b": 2})), answer("3")]) as server:
        model = ChatOpenAI(base_url=server.url, api_key="test", model="test", max_retries=0)
        ...
        assert server.requests[1]["messages"][-1]["content"] == "3"
"""

from __future__ import annotations

import json
import socket
import socketserver
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

PIECES = 4  # into how many chunks a stream cuts each text
PATIENCE = 10  # seconds that a connection may say nothing before the server drops it


@dataclass(frozen=True)
class Reply:
    """What the server says to one request, and how well it manages to say it.

    Attributes:
        text: The content of the assistant's message.
        calls: The tool calls of the message: names, and arguments as the JSON text that is sent.
        finish: The `finish_reason`; by default what fits the message.
        usage: Token counts that replace the estimated ones.
        code: The HTTP status.
        error: The `error` object of a reply that is not 200.
        raw: A body to send as it is, instead of a message: what is sent whole, and what is sent as a stream.
        retry_after: The seconds of the `Retry-After` header.
        wait: Seconds to wait.
        wait_after: How many bytes of the body go out before the wait; with none, not even the headers do.
        cut_after: How many bytes of the body go out before the connection closes.
        clean: Whether a cut body is framed as if it were whole, as a proxy does that gives up politely.
    """

    text: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    finish: str | None = None
    usage: dict[str, Any] | None = None
    code: int = 200
    error: dict[str, Any] | None = None
    raw: tuple[bytes, bytes] | None = None
    retry_after: float | None = None
    wait: float = 0
    wait_after: int | None = None
    cut_after: int | None = None
    clean: bool = False


def answer(text: str, usage: dict[str, Any] | None = None, finish: str | None = None) -> Reply:
    """Say this. With `finish="length"` the model ran out of tokens in the middle of it."""
    return Reply(text=text, usage=usage, finish=finish)


def calls(*wanted: tuple[str, dict[str, Any] | str], text: str = "", usage: dict[str, Any] | None = None) -> Reply:
    """Call these tools. Arguments given as a string are sent as they are, so they need not be JSON."""
    pairs = tuple((name, args if isinstance(args, str) else json.dumps(args)) for name, args in wanted)
    return Reply(text=text, calls=pairs, usage=usage)


def structured(value: dict[str, Any], usage: dict[str, Any] | None = None) -> Reply:
    """Answer with JSON text, as a model does that was given a `response_format`."""
    return answer(json.dumps(value), usage)


def status(code: int, message: str, retry_after: float | None = None, error_code: str | None = None) -> Reply:
    """Refuse with this status and OpenAI's error body."""
    kinds = {429: "rate_limit_error", 403: "permission_error"}
    kind = kinds.get(code, "server_error" if code >= 500 else "invalid_request_error")
    error = {"message": message, "type": kind, "param": None, "code": error_code}
    return Reply(code=code, error=error, retry_after=retry_after)


TOO_LONG = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens."


def overflow(message: str = TOO_LONG) -> Reply:
    """Refuse a request that is longer than the model's context. OpenAI's words for it differ by model."""
    return status(400, message, error_code="context_length_exceeded")


def cut(after_bytes: int, reply: Reply | None = None, *, clean: bool = False) -> Reply:
    """Close the connection after that many bytes of the body. With `clean`, nothing shows that more was to come."""
    return replace(reply or answer("This sentence is never heard to its end."), cut_after=after_bytes, clean=clean)


def slow(seconds: float, reply: Reply, after_bytes: int | None = None) -> Reply:
    """Wait before the reply, or in the middle of its body. Closing the server ends the wait."""
    return replace(reply, wait=seconds, wait_after=after_bytes)


def malformed() -> Reply:
    """Answer 200 with a body that is not JSON."""
    broken = b'{"id": "chatcmpl-broken", "choices": [{"mess'
    return Reply(raw=(broken, b"data: " + broken + b"\n\n"))


def empty() -> Reply:
    """Answer 200 with no choices at all."""
    shape = {"id": "chatcmpl-empty", "object": "chat.completion", "created": 1, "model": "test", "choices": []}
    chunk = {**shape, "object": "chat.completion.chunk"}
    return Reply(raw=(json.dumps(shape).encode(), _event(chunk) + DONE))


def failing_midway(text: str, message: str) -> Reply:
    """Begin to stream this text, then say in the stream that the model failed. Not streamed, it is a plain 500."""
    failed = status(500, message)
    delta = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}
    chunk = {"id": "chatcmpl-failing", "object": "chat.completion.chunk", "created": 1, "model": "test"}
    return replace(failed, raw=(b"", _event({**chunk, "choices": [delta]}) + _event({"error": failed.error})))


class Request(dict[str, Any]):
    """The body of one request as it was received, and its headers by their lower-case names."""

    def __init__(self, body: dict[str, Any], headers: dict[str, str]) -> None:
        super().__init__(body)
        self.headers = headers


Script = Sequence[Reply] | Callable[[Request], Reply]


class OpenAIServer:
    """Serves `POST /v1/chat/completions` from a script until it is closed.

    Attributes:
        url: The base address to give to a client.
        requests: Every request, in the order of arrival.
        failures: What went wrong with the test itself: the script ended too early, or raised.
    """

    def __init__(self, script: Script, *, keep_alive: bool = False) -> None:
        """Start to serve.

        Args:
            script: The replies in order, or a function that finds the reply to a request. The function is called
                from the server's threads, several at once when requests are.
            keep_alive: Whether connections stay open between requests, as OpenAI's do. Off by default, because the
                clients that `ChatOpenAI` caches would keep their ends of them for as long as the process lives.
        """
        self.requests: list[Request] = []
        self.failures: list[str] = []
        self.keep_alive = keep_alive
        self.closing = threading.Event()
        self._script = script if callable(script) else list(script)
        self._tag = uuid.uuid4().hex[:8]
        self._lock = threading.Lock()
        self._listener = _Listener(self)
        self._thread = threading.Thread(target=self._listener.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The base address to give to a client."""
        return f"http://127.0.0.1:{self._listener.server_address[1]}/v1"

    @property
    def connections(self) -> int:
        """How many connections were ever accepted."""
        return self._listener.accepted

    def reply_to(self, request: Request) -> tuple[str, Reply]:
        """Record a request and find its reply, with an id that no other reply of any server has."""
        with self._lock:
            self.requests.append(request)
            number = len(self.requests)
            if not callable(self._script):
                return f"{self._tag}-{number}", self._next(number)
        return f"{self._tag}-{number}", self._call(self._script, request)

    def fail(self, message: str, code: int = 500) -> Reply:
        """Record that the test itself is wrong, and say so to the client as well."""
        self.failures.append(message)
        return status(code, message)

    def close(self) -> None:
        """Stop the server: waits end, open connections close, threads are gone when this returns."""
        if self.closing.is_set():
            return
        self.closing.set()
        self._listener.shutdown()
        self._listener.hang_up()
        self._listener.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _next(self, number: int) -> Reply:
        script: list[Reply] = self._script  # type: ignore[assignment]
        if number <= len(script):
            return script[number - 1]
        return self.fail(f"the script is exhausted: request {number} came, {len(script)} replies were written")

    def _call(self, script: Callable[[Request], Reply], request: Request) -> Reply:
        try:
            return script(request)
        except Exception as error:
            return self.fail(f"the script raised {error!r}")


class _Listener(ThreadingHTTPServer):
    """Threads that are waited for at the end, and connections that can be closed under them."""

    daemon_threads = False
    request_queue_size = 128  # requests of a fan-out arrive together

    def __init__(self, owner: OpenAIServer) -> None:
        self.owner = owner
        self.accepted = 0
        self._open: set[socket.socket] = set()
        self._guard = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Handler)

    def server_bind(self) -> None:
        """Bind without the look-up of the host's full name, which may ask the network."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "localhost", self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._guard:
            self.accepted += 1
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._guard:
            self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing when a client is gone, which is what many of these tests are about; keep what else went wrong."""
        if not isinstance(error := sys.exception(), OSError):
            self.owner.failures.append(f"the server itself failed: {error!r}")

    def hang_up(self) -> None:
        """End every open connection, so that a thread that reads from it goes on."""
        with self._guard:
            for connection in self._open:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue  # the client was quicker


class _Handler(BaseHTTPRequestHandler):
    """One connection: reads requests, sends replies or as much of them as the script wants."""

    protocol_version = "HTTP/1.1"
    timeout = PATIENCE
    disable_nagle_algorithm = True
    server: _Listener

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        owner = self.server.owner
        self.close_connection = not owner.keep_alive
        if self.path != "/v1/chat/completions":
            return self._send("none", owner.fail(f"nothing is served at {self.path}", 404), {})
        try:
            request = Request(json.loads(body), {name.lower(): value for name, value in self.headers.items()})
        except (ValueError, TypeError):
            return self._send("none", owner.fail("the request is not a JSON object", 400), {})
        return self._send(*owner.reply_to(request), request)

    def log_message(self, *_: object) -> None:
        """Keep the tests' output clean."""

    def _send(self, tag: str, reply: Reply, request: dict[str, Any]) -> None:
        if reply.wait and reply.wait_after is None and self._closed_within(reply.wait):
            return
        if request.get("stream") and (reply.error is None or reply.raw):
            self._send_stream(reply, reply.raw[1] if reply.raw else b"".join(_events(tag, reply, request)))
        else:
            self._send_whole(reply, (reply.raw and reply.raw[0]) or json.dumps(_body(tag, reply, request)).encode())

    def _send_whole(self, reply: Reply, body: bytes) -> None:
        promised = min(reply.cut_after, len(body)) if reply.clean and reply.cut_after is not None else len(body)
        self._begin(reply.code, reply, {"Content-Type": "application/json", "Content-Length": str(promised)})
        for part in self._parts(reply, body):
            self.wfile.write(part)

    def _send_stream(self, reply: Reply, body: bytes) -> None:
        self._begin(200, reply, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"})
        for part in self._parts(reply, body):
            for piece in part.splitlines(keepends=True):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        broken_off = reply.cut_after is not None or self.server.owner.closing.is_set()
        if reply.clean or not broken_off:
            self.wfile.write(b"0\r\n\r\n")

    def _begin(self, code: int, reply: Reply, headers: dict[str, str]) -> None:
        self.send_response(code)
        if reply.cut_after is not None:
            self.close_connection = True
        if self.close_connection:
            headers["Connection"] = "close"
        if reply.retry_after is not None:
            headers["Retry-After"] = f"{reply.retry_after:g}"
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _parts(self, reply: Reply, body: bytes) -> Iterator[bytes]:
        """Give what of a body is sent, with the wait in its middle."""
        body = body[: reply.cut_after]
        if reply.wait and reply.wait_after is not None:
            yield body[: reply.wait_after]
            body = body[reply.wait_after :]
            if self._closed_within(reply.wait):
                return
        yield body

    def _closed_within(self, seconds: float) -> bool:
        if closed := self.server.owner.closing.wait(seconds):
            self.close_connection = True
        return closed


DONE = b"data: [DONE]\n\n"


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def _body(tag: str, reply: Reply, request: dict[str, Any]) -> dict[str, Any]:
    if reply.error is not None:
        return {"error": reply.error}
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None, "refusal": None}
    if reply.calls:
        message["tool_calls"] = _tool_calls(tag, reply)
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(reply)}
    return {**_head(tag, "chat.completion", request), "choices": [choice], "usage": _usage(reply, request)}


def _events(tag: str, reply: Reply, request: dict[str, Any]) -> Iterator[bytes]:
    """Give the same reply in the pieces that OpenAI streams: text, calls, the reason to stop, the usage."""
    with_usage = bool((request.get("stream_options") or {}).get("include_usage"))
    head = {**_head(tag, "chat.completion.chunk", request), **({"usage": None} if with_usage else {})}
    for delta in _deltas(tag, reply):
        yield _event({**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}]})
    last = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": _finish(reply)}
    yield _event({**head, "choices": [last]})
    if with_usage:
        yield _event({**head, "choices": [], "usage": _usage(reply, request)})
    yield DONE


def _deltas(tag: str, reply: Reply) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": None if reply.calls and not reply.text else "", "refusal": None}
    for piece in _pieces(reply.text):
        yield {"content": piece}
    for index, call in enumerate(_tool_calls(tag, reply)):
        arguments = call["function"]["arguments"]
        begun = {**call, "index": index, "function": {**call["function"], "arguments": ""}}
        yield {"tool_calls": [begun]}
        for piece in _pieces(arguments):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _pieces(text: str) -> list[str]:
    size = max(1, -(-len(text) // PIECES))
    return [text[at : at + size] for at in range(0, len(text), size)]


def _tool_calls(tag: str, reply: Reply) -> list[dict[str, Any]]:
    return [
        {"id": f"call_{tag}-{index}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for index, (name, arguments) in enumerate(reply.calls)
    ]


def _head(tag: str, kind: str, request: dict[str, Any]) -> dict[str, Any]:
    model = request.get("model", "test")
    return {"id": f"chatcmpl-{tag}", "object": kind, "created": 1_700_000_000, "model": model}


def _finish(reply: Reply) -> str:
    return reply.finish or ("tool_calls" if reply.calls else "stop")


def _usage(reply: Reply, request: dict[str, Any]) -> dict[str, Any]:
    """Estimate what the request and the reply took, at four characters a token."""
    said = reply.text + "".join(name + arguments for name, arguments in reply.calls)
    asked = json.dumps([request.get("messages"), request.get("tools")])
    usage = {"prompt_tokens": len(asked) // 4 + 1, "completion_tokens": len(said) // 4 + 1, **(reply.usage or {})}
    return {"total_tokens": usage["prompt_tokens"] + usage["completion_tokens"], **usage}
