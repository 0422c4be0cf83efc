"""SageMaker's runtime on loopback: it answers with event streams as the service encodes them, and keeps what it got."""

from __future__ import annotations

import json
import struct
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

STRING = 7


def encoded_event(payload: bytes, **headers: str) -> bytes:
    """One message of AWS' event stream: lengths, headers, payload, and two checksums."""
    named = b"".join(
        bytes([len(name)]) + name + bytes([STRING]) + struct.pack(">H", len(value)) + value
        for name, value in ((f":{key.replace('_', '-')}".encode(), value.encode()) for key, value in headers.items())
    )
    prelude = struct.pack(">II", 16 + len(named) + len(payload), len(named))
    message = prelude + struct.pack(">I", zlib.crc32(prelude)) + named + payload
    return message + struct.pack(">I", zlib.crc32(message))


def payload_part(data: bytes) -> bytes:
    return encoded_event(data, event_type="PayloadPart", content_type="application/octet-stream", message_type="event")


def stream_error(kind: str, **members: str) -> bytes:
    return encoded_event(
        json.dumps(members).encode(), exception_type=kind, content_type="application/json", message_type="exception"
    )


def openai_stream(*texts: str, finish: str = "stop", usage: bool = False) -> bytes:
    """Chat completions as server-sent events, as vLLM writes them."""
    deltas = [{"role": "assistant", "content": ""}, *({"content": text} for text in texts)]
    chunks: list[dict] = [
        {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        for delta in deltas
    ]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    if usage:
        chunks.append({"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": len(texts)}})
    lines = [f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n" for chunk in chunks]
    return "".join([": ping\n\n", *lines, "data: [DONE]\n\n"]).encode()


def json_lines(*texts: str, finish: str = "eos_token") -> bytes:
    """LMI's own form."""
    lines: list[dict] = [{"token": {"id": number, "text": text}} for number, text in enumerate(texts)]
    lines[-1] |= {"generated_text": "".join(texts), "details": {"finish_reason": finish}}
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


@dataclass
class Answer:
    """What the next request gets: event-stream messages, or an error of the service.

    hold: the stream stays open after its messages until this is set.
    """

    messages: list[bytes] = field(default_factory=list)
    status: int = 200
    error: str = ""
    members: dict[str, object] = field(default_factory=dict)
    hold: threading.Event | None = None


@dataclass
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: dict


class StubEndpoint:
    """answers: taken in their order, the last one again and again."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.requests: list[Request] = []
        self.url = ""

    def take(self) -> Answer:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def streams(self, *parts: bytes) -> None:
        """The next answer: these bytes of a model server, each as one PayloadPart."""
        self.answers.append(Answer([payload_part(part) for part in parts]))

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME": self.url,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_REGION": "eu-central-1",
            "AWS_DEFAULT_REGION": "eu-central-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": "/nonexistent",
            "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
        }


@contextmanager
def stub_endpoint() -> Iterator[StubEndpoint]:
    stub = StubEndpoint()

    class Handler(BaseHTTPRequestHandler):
        # With chunks, as the service sends them: a client reads each when it is there.
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            stub.requests.append(Request(self.command, self.path, dict(self.headers), body))
            answer = stub.take()
            self.send_response(answer.status)
            if answer.error:
                content = json.dumps(answer.members).encode()
                self.send_header("x-amzn-ErrorType", answer.error)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)
                return
            self.send_header("Content-Type", "application/vnd.amazon.eventstream")
            self.send_header("X-Amzn-SageMaker-Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for message in answer.messages:
                self._chunk(message)
            if answer.hold is not None:
                answer.hold.wait(60)
            self._chunk(b"")

        def _chunk(self, data: bytes) -> None:
            try:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
                self.wfile.flush()
            except (BrokenPipeError, ConnectionResetError):
                # The reader has gone, as after ctrl-C.
                self.close_connection = True

        def log_message(self, format: str, *arguments: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    stub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield stub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
