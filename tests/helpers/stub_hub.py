"""A Hugging Face hub on loopback: one repository of files at one commit, as huggingface_hub asks for it."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class StubHub:
    """repository: `owner/name`. token: the one that is asked for; None: anybody may read.

    fetched: names of the files whose content was sent. told_tokens: the Authorization headers that came.
    """

    def __init__(self, repository: str, files: Mapping[str, bytes], token: str | None = None) -> None:
        self.repository, self.files, self.token = repository, dict(files), token
        self.fetched: list[str] = []
        self.told_tokens: set[str | None] = set()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._answer(with_body=True)

            def do_HEAD(self) -> None:
                self._answer(with_body=False)

            def log_message(self, format: str, *arguments: object) -> None: ...

            def _answer(self, *, with_body: bool) -> None:
                told = self.headers.get("Authorization")
                hub.told_tokens.add(told)
                path = self.path.partition("?")[0]
                if hub.token is not None and told != f"Bearer {hub.token}":
                    self._send(401, b"{}", {"X-Error-Code": "GatedRepo"}, with_body)
                elif path in (f"/api/models/{hub.repository}", *hub.revision_paths()):
                    siblings = [{"rfilename": name} for name in hub.files]
                    found = {"id": hub.repository, "sha": COMMIT, "siblings": siblings, "private": False}
                    self._send(200, json.dumps(found).encode(), {}, with_body)
                elif path.startswith(f"/api/models/{hub.repository}/tree/"):
                    tree = [
                        {"type": "file", "path": name, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
                        for name, content in hub.files.items()
                    ]
                    self._send(200, json.dumps(tree).encode(), {}, with_body)
                elif path.startswith(f"/{hub.repository}/resolve/{COMMIT}/"):
                    self._send_file(path.partition(f"/resolve/{COMMIT}/")[2], with_body)
                elif path.startswith(f"/api/models/{hub.repository}/revision/"):
                    self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound"}, with_body)
                else:
                    self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"}, with_body)

            def _send_file(self, name: str, with_body: bool) -> None:
                content = hub.files[name]
                if with_body:
                    hub.fetched.append(name)
                headers = {"ETag": f'"{hashlib.sha1(content).hexdigest()}"', "X-Repo-Commit": COMMIT}
                self._send(200, content, headers, with_body)

            def _send(self, status: int, content: bytes, headers: Mapping[str, str], with_body: bool) -> None:
                self.send_response(status)
                for header, value in {"Content-Length": str(len(content)), **headers}.items():
                    self.send_header(header, value)
                self.end_headers()
                if with_body:
                    self.wfile.write(content)

        return Handler

    def revision_paths(self) -> list[str]:
        return [f"/api/models/{self.repository}/revision/{name}" for name in ("main", "v1", COMMIT)]


@contextmanager
def stub_hub(repository: str, files: Mapping[str, bytes], token: str | None = None) -> Iterator[StubHub]:
    hub = StubHub(repository, files, token)
    try:
        yield hub
    finally:
        hub.close()
