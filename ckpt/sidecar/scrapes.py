"""What a sidecar counts, for Prometheus: `GET /metrics` over HTTP is answered with it, and nothing else is.

One request is answered at a time, and a client that is stuck is cut, so scrapes take one thread and no more.
They need no token: a page of counts names no namespace, no key and no value.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import TracebackType
from typing import Self

from ckpt.errors import ConfigError

_STUCK_S = 5.0
_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Scrapes:
    """Answers scrapes with what `page` returns until `close`.

    Examples
    --------
    >>> from urllib.request import urlopen
    >>> with Scrapes("127.0.0.1", 0, lambda: "ckpt_sidecar_commits_total 3\\n") as scrapes:
    ...     urlopen(f"http://{scrapes.name}/metrics").read()
    b'ckpt_sidecar_commits_total 3\\n'
    """

    def __init__(self, host: str, port: int, page: Callable[[], str]) -> None:
        class Handler(_Handler):
            make_page = staticmethod(page)

        class ScrapeServer(HTTPServer):
            address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

        try:
            self._server = ScrapeServer((host, port), Handler)
        except OSError as error:
            raise ConfigError(
                f"cannot answer scrapes on {host} port {port}: {error}; choose another for --metrics"
            ) from error
        bound = self._server.server_address
        self.name = f"[{bound[0]!s}]:{bound[1]}" if ":" in host else f"{bound[0]!s}:{bound[1]}"
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.1},
            name="ckpt-sidecar-scrapes",
            daemon=True,
        )
        self._thread.start()

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Handler(BaseHTTPRequestHandler):
    timeout = _STUCK_S
    make_page: Callable[[], str]

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != "/metrics":
            self.send_error(HTTPStatus.NOT_FOUND, "only /metrics is here")
            return
        body = self.make_page().encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", _CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the library's
        """Nothing is logged: scrapes come every few seconds."""
