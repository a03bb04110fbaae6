"""State that is truly gone is reported as such: what was asked for, what is there, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'ckpt[spark]'")

from py4j.protocol import Py4JJavaError

from ckpt.sidecar import SidecarClient
from ckpt.sidecar.life import Place


@pytest.fixture
def client(address: str) -> Iterator[SidecarClient]:
    """Somebody else who uses the sidecar of the session."""
    with SidecarClient(Place.of(address).socket) as client:
        yield client


def committed(provider: Any, versions: int) -> str:
    """The commit id of the last of some versions."""
    commit_id = None
    for version in range(versions):
        store = provider.open(version, commit_id)
        store.put("a", version, version)
        commit_id = store.commit()
    assert commit_id is not None
    return commit_id


def said_by(call: Any, *arguments: Any) -> str:
    with pytest.raises(Py4JJavaError) as caught:
        call(*arguments)
    return str(caught.value.java_exception.getMessage())  # all that Spark shows in a query's exception


def test_a_namespace_that_was_dropped(provider_of: Any, client: SidecarClient, address: str) -> None:
    provider = provider_of()
    newest = committed(provider, 2)
    client.drop(provider.namespace)
    said = said_by(provider_of().open, 2, newest)
    assert "[CANNOT_LOAD_STATE_STORE.CANNOT_READ_STREAMING_STATE_FILE]" in said
    assert f"{address} answered, so this is no outage" in said
    assert f"does not hold version 2 (commit {newest}) of namespace {provider.namespace}" in said
    assert f"it holds nothing of {provider.namespace}" in said
    assert "ckpt drop" in said
    assert "begin with a new checkpoint location" in said
    store = provider.open(2, newest)  # still in memory, and so the commit is what fails
    store.put("b", 1, 1)
    said = said_by(store.commit)
    assert "CANNOT_COMMIT" in said
    assert "it holds nothing of" in said


def test_a_version_that_is_no_longer_kept(provider_of: Any, client: SidecarClient) -> None:
    provider = provider_of()
    committed(provider, 5)
    client.truncate(provider.namespace, 4)
    said = said_by(provider_of().open, 2)
    assert "it holds versions 4 to 5" in said
    assert "minBatchesToRetain" in said


def test_a_version_that_the_backend_does_not_have_yet(provider_of: Any) -> None:
    provider = provider_of()
    committed(provider, 2)
    said = said_by(provider_of().open, 7)
    assert "it holds versions 1 to 2" in said
    assert "restored from a backup" in said
