"""Version histories: chains, branches, replacement, truncation, against a model that copies whole states."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt.contract.versions import EMPTY, MAX_VERSION, Commit, History, Settled, require_plain
from ckpt.errors import ConfigError, UnsupportedError, VersionNotFoundError
from ckpt.testing.model import ModelNamespace

actions = st.lists(
    st.tuples(st.sampled_from(["commit", "branch", "truncate"]), st.integers(-3, 3), st.integers(0, 30)),
    max_size=40,
)


def commit(history: History, version: int, base: str | None = None, commit_id: str | None = None) -> Commit:
    made = history.prepare(version, base, commit_id)
    history.add(made)
    return made


def play(script: list[tuple[str, int, int]]) -> tuple[History, ModelNamespace]:
    """Do the same to a history and to the model; every refusal must be shared."""
    history, model = History(), ModelNamespace()
    for number, (action, step, choice) in enumerate(script):
        version = max(1, model.tip_version + step)
        key = b"%d" % number
        if action == "truncate":
            keep_from = max(0, version - 1)
            if model.tip is None or max(keep_from, model.truncated_below) > model.tip_version:
                with pytest.raises(VersionNotFoundError):
                    history.plan_truncation(keep_from)
            else:
                history.apply(history.plan_truncation(keep_from))
                model.truncate(keep_from)
            continue
        named = model.named()
        base = named[choice % len(named)] if action == "branch" and named else None
        if version < model.truncated_below:
            with pytest.raises(VersionNotFoundError):
                history.prepare(version, base)
        elif base is not None and model.commits[base].version >= version:
            with pytest.raises(ConfigError):
                history.prepare(version, base)
        elif base is None and model.tip and version <= model.tip_version and not model.can_replace(version):
            with pytest.raises(VersionNotFoundError):
                history.prepare(version)
        else:
            made = commit(history, version, base, f"c{number}")
            model.commit(made.id, version, base, {key: b"1"}, [])
    return history, model


def rebuilt(history: History) -> History:
    return History(reversed(history.stored()), settled=history.settled)


@given(actions)
def test_a_history_is_what_the_model_says(script: list[tuple[str, int, int]]) -> None:
    history, model = play(script)
    assert (history.tip.id if history.tip else None) == model.tip
    assert sorted(c.id for c in history.commits()) == sorted(model.named())
    assert history.truncated_below == model.truncated_below
    for start in [None, *model.named()]:
        for version in range(model.tip_version + 3):
            if model.readable(version, start):
                seen = history.resolve(version, start)
                assert (model.commits[seen.id].state if seen else {}) == model.as_of(version, start)
            else:
                with pytest.raises(VersionNotFoundError):
                    history.resolve(version, start)


@given(actions)
def test_a_history_is_rebuilt_from_what_is_stored(script: list[tuple[str, int, int]]) -> None:
    history, _ = play(script)
    again = rebuilt(history)
    assert again.tip == history.tip
    assert again.commits() == history.commits()
    assert again.stored() == history.stored()
    assert again.truncated_below == history.truncated_below
    assert again.next_sequence == history.next_sequence
    assert rebuilt(again).commits() == history.commits()


@given(actions)
def test_truncation_keeps_what_retained_chains_need(script: list[tuple[str, int, int]]) -> None:
    history, _ = play(script)
    if history.tip is None:
        return
    keep_from = max(history.truncated_below, history.tip.version)
    plan = history.plan_truncation(keep_from)
    before = {c.id for c in history.stored()}
    readable = {
        c.id: [a.id for a in history.chain(c)] for c in history.commits() if c.id not in plan.forgotten
    }
    history.apply(plan)
    assert {c.id for c in history.stored()} == before - set(plan.forgotten)
    for commit_id, chain in readable.items():
        assert [a.id for a in history.chain(history[commit_id])] == chain[
            : len([*history.chain(history[commit_id])])
        ]
    assert all(history[floor].base is None for floor in plan.floors)
    again = history.plan_truncation(keep_from)
    assert again.forgotten == ()


def test_sequences_order_commits_and_are_never_used_twice() -> None:
    history = History()
    made = [commit(history, version) for version in (1, 2, 3)]
    assert [c.sequence for c in made] == [1, 2, 3]
    history.apply(history.plan_truncation(3))
    assert commit(history, 4).sequence == 4
    assert commit(rebuilt(history), 5).sequence == 5


@pytest.mark.parametrize("version", [0, -1, True, 1.0, "1", None, MAX_VERSION + 1])
def test_wrong_versions_are_refused(version: object) -> None:
    with pytest.raises(ConfigError, match="whole number from 1"):
        History().prepare(version)


def test_the_highest_version_is_allowed() -> None:
    history = History()
    commit(history, MAX_VERSION)
    assert history.resolve(MAX_VERSION) == history.tip


def test_a_taken_commit_id_is_refused_also_when_it_is_garbage() -> None:
    history = History()
    commit(history, 1, commit_id="one")
    commit(history, 1, commit_id="again")
    for taken in ("one", "again"):
        with pytest.raises(ConfigError, match="taken"):
            history.prepare(2, commit_id=taken)


def test_garbage_cannot_be_built_on() -> None:
    history = History()
    commit(history, 1, commit_id="one")
    commit(history, 1, commit_id="again")
    with pytest.raises(VersionNotFoundError, match="'one'"):
        history.prepare(2, base="one")
    with pytest.raises(VersionNotFoundError, match="'one'"):
        history.resolve(commit_id="one")


def test_preparing_changes_nothing() -> None:
    history = History()
    history.prepare(1)
    assert len(history) == 0
    assert history.tip is None
    assert history.resolve(0) is None


def test_a_branch_outlives_the_garbage_it_builds_on() -> None:
    """The garbage stays stored because the branch needs it, but no reader may name it, also when rebuilt."""
    history = History()
    commit(history, 1, commit_id="one")
    commit(history, 2, commit_id="two")
    commit(history, 3, commit_id="three")
    commit(history, 3, base="two", commit_id="branch")
    commit(history, 2, commit_id="retry")
    history.apply(history.plan_truncation(1))
    for seen in (history, rebuilt(history)):
        assert [c.id for c in seen.commits()] == ["one", "retry", "branch"]
        assert seen.tip is not None
        assert seen.tip.id == "retry"
        assert [c.id for c in seen.chain(seen["branch"])] == ["branch", "two", "one"]
        with pytest.raises(VersionNotFoundError):
            seen.resolve(commit_id="two")


def test_two_attempts_at_the_first_version_both_stay_readable() -> None:
    history = History()
    commit(history, 1, base=EMPTY, commit_id="first")
    commit(history, 1, base=EMPTY, commit_id="second")
    commit(history, 2, base="second", commit_id="next")
    for seen in (history, rebuilt(history)):
        assert [c.id for c in seen.chain(seen["first"])] == ["first"]
        assert [c.id for c in seen.chain(seen["next"])] == ["next", "second"]
        assert seen.tip is not None
        assert seen.tip.id == "next"


def test_no_commit_has_the_id_of_the_empty_state() -> None:
    with pytest.raises(ConfigError, match="is taken"):
        History().prepare(1, commit_id=EMPTY)


def test_an_empty_history_with_a_truncation_knows_it() -> None:
    history = History(settled=Settled(truncated_below=5, through_sequence=9))
    assert history.next_sequence == 10
    assert history.truncated_below == 5


def test_plain_writes_are_refused_where_there_are_versions() -> None:
    require_plain("words", False)
    with pytest.raises(UnsupportedError, match="'words' is versioned"):
        require_plain("words", True)
