"""The null keeper takes everything a SafeKeeper takes, and stores nothing."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import ckpt
from ckpt.keeper.nullkeeper import NullNamespace


def work(keeper: Any) -> Any:
    with keeper:
        words = keeper.namespace("words", every_events=2)
        for n in range(5):
            words.update("be", {"count": n})
        words.save("or", 1).result(5)
        seen = words.load("be"), words.load("never"), words.load_many(["be"])
        words.delete("be").result(5)
        words.evict("or").result(5)
        words.discard("or")
        words.checkpoint()
        keeper.checkpoint()
        keeper.recover(eager=False)
        keeper.tick()
        keeper.flush()
        assert words.accounts().balanced
        return seen


def test_an_operator_runs_unchanged() -> None:
    assert work(ckpt.NullKeeper()) == work(ckpt.SafeKeeper("memory://"))


def test_a_save_keeps_nothing_but_refreshes_a_live_state() -> None:
    words = ckpt.NullKeeper().namespace("words", default=0)
    words.save("be", 1)
    assert words.load("be") == 0
    words.update("be", 2)
    words.save("be", 3)
    assert words.load("be") == 3


def test_options_are_checked_all_the_same() -> None:
    with pytest.raises(ckpt.ConfigError):
        ckpt.NullKeeper().namespace("words", every_event=3)


@pytest.mark.parametrize(
    ("null", "real"), [(ckpt.NullKeeper, ckpt.SafeKeeper), (NullNamespace, ckpt.Namespace)]
)
def test_it_has_every_public_method(null: Any, real: Any) -> None:
    internal = {"tick", "hot_record", "stop_recovery"} if real is ckpt.Namespace else set()
    methods = {n for n, m in inspect.getmembers(real, inspect.isfunction) if not n.startswith("_")} - internal
    assert methods <= {n for n, _ in inspect.getmembers(null, inspect.isfunction)}
