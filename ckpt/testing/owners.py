"""The contract of claims: after another has taken a plain namespace over, the old owner cannot write."""

from __future__ import annotations

import pytest

from ckpt.contract.backend import Backend
from ckpt.errors import CkptError, FencedError, UnsupportedError
from ckpt.testing.harness import BackendHarness
from ckpt.types import Changes


class OwnerConformance(BackendHarness):
    """Epochs only rise, and a write from a lower epoch is never silent."""

    def test_the_owner_writes_and_everybody_reads(self, backend: Backend) -> None:
        other = self.second_handle(backend)
        backend.claim("words")
        backend.put_many("words", {b"be": b"1"})
        assert other.get_many("words", [b"be"]) == {b"be": b"1"}
        assert dict(other.scan("words")) == {b"be": b"1"}
        other.put_many("others", {b"be": b"2"})

    def test_epochs_rise(self, backend: Backend) -> None:
        epochs = [backend.claim("words"), backend.claim("words")]
        backend.release("words")
        epochs.append(backend.claim("words"))
        backend.drop("words")
        epochs.append(backend.claim("words"))
        assert epochs == sorted(set(epochs))
        backend.put_many("words", {b"be": b"1"})
        assert backend.get_many("words", [b"be"]) == {b"be": b"1"}

    def test_epochs_rise_across_reopening(self, backend: Backend) -> None:
        before = backend.claim("words")
        again = self.reopened(backend)
        again.put_many("words", {b"be": b"1"})
        assert again.claim("words") > before

    def test_the_former_owner_is_fenced(self, backend: Backend) -> None:
        other = self.second_handle(backend)
        first = backend.claim("words")
        backend.put_many("words", {b"be": b"1"})
        assert other.claim("words") > first
        with pytest.raises(FencedError, match="words"):
            backend.put_many("words", {b"be": b"stale"})
        with pytest.raises(FencedError, match="words"):
            backend.delete_many("words", [b"be"])
        assert other.get_many("words", [b"be"]) == {b"be": b"1"}
        other.put_many("words", {b"be": b"2"})
        assert backend.get_many("words", [b"be"]) == {b"be": b"2"}

    def test_a_fenced_write_to_several_namespaces_names_the_fenced_one(self, backend: Backend) -> None:
        other = self.second_handle(backend)
        backend.claim("words")
        other.claim("words")
        with pytest.raises(FencedError, match="words"):
            backend.write_many({"words": Changes({b"be": b"stale"})})
        assert other.get_many("words", [b"be"]) == {}

    def test_those_without_a_claim_cannot_write_to_a_claimed_namespace(self, backend: Backend) -> None:
        other = self.second_handle(backend)
        backend.claim("words")
        with pytest.raises(FencedError):
            other.put_many("words", {b"be": b"1"})
        assert backend.namespaces() == []

    def test_a_released_namespace_takes_writes_from_everybody(self, backend: Backend) -> None:
        other = self.second_handle(backend)
        backend.claim("words")
        backend.release("words")
        backend.release("words")
        other.put_many("words", {b"be": b"1"})
        backend.put_many("words", {b"be": b"2"})
        assert other.get_many("words", [b"be"]) == {b"be": b"2"}

    def test_a_fenced_owner_stays_fenced_until_it_claims_again(self, backend: Backend) -> None:
        """Also after the new owner has gone: what the old one would write may be older."""
        other = self.second_handle(backend)
        backend.claim("words")
        other.claim("words")
        other.release("words")
        with pytest.raises(FencedError):
            backend.put_many("words", {b"be": b"stale"})
        backend.claim("words")
        backend.put_many("words", {b"be": b"1"})
        assert other.get_many("words", [b"be"]) == {b"be": b"1"}

    def test_releasing_what_another_owns_changes_nothing(self, backend: Backend) -> None:
        other = self.second_handle(backend)
        backend.claim("words")
        other.claim("words")
        backend.release("words")
        backend.release("never claimed")
        with pytest.raises(FencedError):
            backend.put_many("words", {b"be": b"stale"})
        other.put_many("words", {b"be": b"1"})

    def test_close_releases(self, backend: Backend) -> None:
        other = self.second_handle(backend)
        backend.claim("words")
        backend.close()
        other.put_many("words", {b"be": b"1"})
        assert other.get_many("words", [b"be"]) == {b"be": b"1"}

    def test_a_versioned_namespace_cannot_be_claimed(self, backend: Backend) -> None:
        backend.commit("store", 1, {b"a": b"1"})
        with pytest.raises(UnsupportedError):
            backend.claim("store")
        backend.commit("store", 2, {b"a": b"2"})

    def test_a_second_writer_is_refused_where_there_is_one(self, backend: Backend) -> None:
        if backend.capabilities.shared_writers:
            other = self.handle()
            backend.put_many("words", {b"be": b"1"})
            assert other.get_many("words", [b"be"]) == {b"be": b"1"}
            return
        backend.put_many("words", {b"be": b"1"})
        with pytest.raises(CkptError):
            self.handle()
        backend.put_many("words", {b"be": b"2"})
        backend.close()
        assert self.handle().get_many("words", [b"be"]) == {b"be": b"2"}
