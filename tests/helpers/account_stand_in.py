"""An AWS account on loopback: moto's server, which notes each request and can be told to get in the way."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

REGION = "us-west-2"
# Nobody's: the server takes any.
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "stand-in",
    "AWS_SECRET_ACCESS_KEY": "stand-in",
    "AWS_EC2_METADATA_DISABLED": "true",
}
Answer: TypeAlias = tuple[int, bytes]


@dataclass(frozen=True)
class Seen:
    """A request as the server got it; headers with small letters. content: of a POST."""

    method: str
    path: str
    headers: Mapping[str, str]
    content: bytes = b""


class SilentHandler(WSGIRequestHandler):
    def log(self, type: str, message: str, *arguments: Any) -> None: ...


class AccountStandIn:
    """in_the_way: called with each request before it is answered; it may wait, raise to drop the connection, or give an
    answer of its own, `(status, body)`, in the place of moto's."""

    def __init__(self) -> None:
        self._app = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True, request_handler=SilentHandler)
        self.seen: list[Seen] = []
        self.in_the_way: Callable[[Seen], Answer | None] = lambda request: None
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def environment(self) -> dict[str, str]:
        """Variables with which boto3 comes here, and nowhere else."""
        return {**CREDENTIALS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._server.server_port}"}

    def sent(self, method: str, part: str = "") -> list[Seen]:
        """The requests of a method whose path holds a part."""
        return [request for request in self.seen if request.method == method and part in request.path]

    def close(self) -> None:
        self._server.shutdown()

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        headers = {
            name[5:].replace("_", "-").lower(): str(value) for name, value in environ.items() if name[:5] == "HTTP_"
        }
        content = b""
        if environ["REQUEST_METHOD"] == "POST":
            content = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            environ["wsgi.input"] = io.BytesIO(content)
        request = Seen(environ["REQUEST_METHOD"], environ["PATH_INFO"], headers, content)
        self.seen.append(request)
        if (own := self.in_the_way(request)) is not None:
            status, body = own
            start_response(f"{status} Own", [("Content-Length", str(len(body)))])
            return [body]
        return self._app(environ, start_response)


@contextmanager
def account_stand_in() -> Iterator[AccountStandIn]:
    """A server for a while. What is made in it lives as long as this process."""
    account = AccountStandIn()
    try:
        yield account
    finally:
        account.close()
