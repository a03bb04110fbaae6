"""What a sidecar counts can be scraped, and nothing else can be asked for at that port."""

from __future__ import annotations

import signal
import socket
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from ckpt.errors import ConfigError
from ckpt.sidecar import SidecarClient
from ckpt.sidecar.scrapes import Scrapes


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def scraped(name: str, path: str = "/metrics", **request: Any) -> str:
    with urllib.request.urlopen(
        urllib.request.Request(f"http://{name}{path}", **request), timeout=30
    ) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        text: str = answer.read().decode()
        return text


def test_a_sidecar_is_scraped(serve: Callable[..., Any], tmp_path: Path) -> None:
    name = f"127.0.0.1:{free_port()}"
    process = serve(f"log://{tmp_path}/log", "--metrics", name)
    with SidecarClient(process.ready()) as client:
        client.commit("store", 1, {b"be": b"2"})
        page = scraped(name)
    assert "\nckpt_sidecar_commits_total 1\n" in page
    assert "\nckpt_sidecar_group_size " in page
    process.popen.send_signal(signal.SIGTERM)
    assert process.end() == (0, "")


def test_a_port_that_is_taken(serve: Callable[..., Any], tmp_path: Path) -> None:
    """Who asked for the page on a command line is told; a sidecar on demand does its work without it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        name = f"127.0.0.1:{server.getsockname()[1]}"
        code, said = serve(f"log://{tmp_path}/log", "--metrics", name).end()
        assert code == 2
        assert "choose another for --metrics" in said
        process = serve("--on-demand", "-", "--metrics", name, stdin_line=f"log://{tmp_path}/log")
        with SidecarClient(process.ready()) as client:
            client.ping()


@pytest.mark.parametrize(
    ("path", "request_", "code"), [("/", {}, 404), ("/metrics", {"method": "POST", "data": b"x"}, 501)]
)
def test_nothing_else_is_there(path: str, request_: dict[str, Any], code: int) -> None:
    with Scrapes("127.0.0.1", 0, lambda: "") as scrapes, pytest.raises(HTTPError) as caught:
        scraped(scrapes.name, path, **request_)
    assert caught.value.code == code
    caught.value.close()


def test_ipv6() -> None:
    with Scrapes("::1", 0, lambda: "ok\n") as scrapes:
        assert scrapes.name.startswith("[::1]:")
        assert scraped(scrapes.name) == "ok\n"


def test_garbage_does_not_end_it() -> None:
    with Scrapes("127.0.0.1", 0, lambda: "ok\n") as scrapes:
        host, _, port = scrapes.name.partition(":")
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(b"\x00\xff" * 100 + b"\r\n\r\n")
            assert connection.recv(4096)
        assert scraped(scrapes.name) == "ok\n"


def test_a_place_that_does_not_exist() -> None:
    with pytest.raises(ConfigError, match="choose another for --metrics"):
        Scrapes("192.0.2.1", 1, lambda: "")
