"""For every test: real servers; in CI nothing is skipped for want of something; no thread of ours is left."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest
import trustme

from ckpt.contract.addresses import parse_address
from ckpt.dev import Server, TlsFiles
from ckpt.testing.servers import own_server, release_servers, server_address
from tests.effort import PROVING

pytest_plugins = ["tests.gate", "tests.proofs"]

IN_CI = os.environ.get("CI", "").lower() in ("1", "true")

# On a busy machine an example may take any time. The gate tries the same ones each time, the proof others.
hypothesis.settings.register_profile(
    "ckpt",
    deadline=None,
    derandomize=IN_CI and not PROVING,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("ckpt")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """A server, a driver or a tool that is missing is a reason to skip on a user's machine, not in CI.

    The conformance suite may skip: it does where a backend declares that it cannot do something.
    """
    report = yield
    if IN_CI and report.skipped and isinstance(report.longrepr, tuple):
        path, line, reason = report.longrepr
        if f"{os.sep}testing{os.sep}" not in path:
            report.outcome = "failed"
            report.longrepr = f"{path}:{line}: skipped in CI, where everything must be there: {reason}"
    return report


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    ours = [t for t in threading.enumerate() if t not in before and t.name.startswith("ckpt")]
    for thread in ours:
        thread.join(timeout=5)
    left = [t.name for t in ours if t.is_alive()]
    assert not left, f"threads left running: {left}; something was not closed"


@pytest.fixture(scope="session")
def dev_server() -> Callable[[str], str]:
    """The address of a shared server by name; it is started on first use and stopped after its last user."""
    return server_address


@pytest.fixture(scope="session")
def hbase_table(dev_server: Callable[[str], str]) -> Iterator[str]:
    """The address of a table of this session alone, which is gone afterwards."""
    happybase = pytest.importorskip("happybase")
    server = parse_address(dev_server("hbase"))
    host, _, port = server.location.partition("/")[0].partition(":")
    table = f"test_{uuid.uuid4().hex[:12]}"
    yield f"hbase://{host}:{port}/{table}"
    connection = happybase.Connection(host, int(port), timeout=60_000)
    if table.encode() in connection.tables():
        connection.delete_table(table, disable=True)
    connection.close()


@pytest.fixture(scope="session")
def cassandra_keyspace(dev_server: Callable[[str], str]) -> Iterator[str]:
    """The address of a keyspace of this session alone, which is gone afterwards."""
    cluster = pytest.importorskip("cassandra.cluster")
    server = parse_address(dev_server("cassandra"))
    host, _, port = server.location.partition("/")[0].partition(":")
    keyspace = f"test_{uuid.uuid4().hex[:12]}"
    yield f"cassandra://{host}:{port}/{keyspace}"
    policy = pytest.importorskip("cassandra.policies").RoundRobinPolicy()
    default = cluster.ExecutionProfile(load_balancing_policy=policy, request_timeout=60)
    profiles = {cluster.EXEC_PROFILE_DEFAULT: default}
    with cluster.Cluster(
        [host], port=int(port), protocol_version=5, execution_profiles=profiles
    ) as connected:
        connected.connect().execute(f"DROP KEYSPACE IF EXISTS {keyspace}")


@pytest.fixture
def private_server(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Starts servers that a test has for itself and may kill: by name, with settings."""
    started: list[Server] = []

    def start(name: str, **settings: object) -> Server:
        started.append(own_server(name, tmp_path / f"{name}-{len(started)}", **settings))
        return started[-1]

    yield start
    for server in started:
        server.kill()


def pytest_sessionfinish() -> None:
    """Not at the end of a fixture: classes and state machines use servers too, and take none."""
    release_servers()


@pytest.fixture
def tls_files(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., TlsFiles]:
    """Makes an authority and a certificate of it for one host; the certificate's file holds its key, too."""

    def issue(name: str, *, host: str = "127.0.0.1") -> TlsFiles:
        folder = tmp_path_factory.mktemp("tls")
        authority = trustme.CA(organization_name=name)
        issued = authority.issue_cert(host, common_name=name)
        pems = {
            "certificate": (folder / f"{name}.pem", issued.private_key_and_cert_chain_pem),
            "key": (folder / f"{name}-key.pem", issued.private_key_pem),
            "authority": (folder / f"{name}-authority.pem", authority.cert_pem),
        }
        for path, pem in pems.values():
            pem.write_to_path(str(path))
        return TlsFiles(**{kind: str(path) for kind, (path, _) in pems.items()})

    return issue
