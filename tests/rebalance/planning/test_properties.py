"""What every planner promises. A new planner is tested here by being registered."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ckpt.rebalance as rb
from ckpt.rebalance.planning.registry import Claim, find
from tests.rebalance.planning.instances import Case, cases, loads_of

PAGE = Path(__file__).parents[3] / "docs" / "planners.md"


def register_planner_of_the_page() -> None:
    """Register the planner that docs/planners.md shows, under the module name that tests/docs uses."""
    shown = re.search(
        r"^@rb\.planner\(.*?^    return target$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    assert shown is not None
    exec(shown[0], {"np": np, "rb": rb, "__name__": "page_planners"})


register_planner_of_the_page()
PLANNERS = rb.planner_names()
quick = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))


def that_claim(claim: Claim) -> pytest.MarkDecorator:
    """The planners that are not exempt from a claim."""
    return pytest.mark.parametrize(
        "planner", [name for name in PLANNERS if claim not in (find(name).exempt or {})]
    )


def recounted(case: Case, plan: rb.Plan) -> None:
    """Compare every figure of a plan with a count of our own, key by key."""
    loads, n = case.loads, case.instances
    home = loads.home_of(n)
    before = [{int(loads.instance[k]): 1.0} for k in range(len(loads))]
    after = [{int(loads.instance[k]): 1.0} for k in range(len(loads))]
    moves = plan.moves
    whole = ~np.isin(moves.kind, [rb.Kind.SPLIT, rb.Kind.MERGE])
    assert len(np.unique(moves.at[whole])) == whole.sum(), "a key moves twice"
    for at, key, source, target in zip(moves.at, moves.key, moves.source, moves.target, strict=True):
        assert loads.keys[at] == key
        assert source != target
        assert 0 <= target < n
    for at, source, target in zip(moves.at[whole], moves.source[whole], moves.target[whole], strict=True):
        assert source == loads.instance[at]
        after[at] = {int(target): 1.0}
    for k, pattern in zip(plan.splits.key, plan.splits.pattern, strict=True):
        shares = plan.splits.shares[pattern]
        after[k] = {d: float(shares[d]) for d in np.flatnonzero(shares)}
        assert len(after[k]) > 1, "a split with one part"
    load = np.zeros(n)
    if loads.rest is not None:
        load += loads.rest[:n]
    bytes_moved, entries = 0.0, {}
    for k in range(len(loads)):
        for d, share in after[k].items():
            load[d] += share * loads.cost[k]
        grown = sum(max(share - before[k].get(d, 0), 0) for d, share in after[k].items())
        bytes_moved += grown * loads.state[k] * (not _switched(case, after[k], k))
        if list(after[k]) != [int(home[k])]:
            entries[int(loads.keys[k])] = max(after[k], key=lambda d: after[k][d])
    assert plan.loads_after == pytest.approx(load)
    assert plan.loads_after.sum() == pytest.approx(plan.loads_before.sum()), "load is conserved"
    assert plan.migrated_bytes == pytest.approx(bytes_moved)
    table = {**dict(zip(plan.table.keys.tolist(), plan.table.active.tolist(), strict=True))}
    if not find(plan.planner).splits:
        assert table == entries
    assert set(table) <= set(entries)


def _switched(case: Case, after: dict[int, float], k: int) -> bool:
    backups = case.arguments.get("backups")
    return backups is not None and len(after) == 1 and next(iter(after)) in backups[k]


def status_is_true(case: Case, plan: rb.Plan) -> None:
    """The status says what the figures say, and everything but OK and NOOP has a reason."""
    limit = case.arguments.get("table_limit")
    table_fits = limit is None or len(plan.table) <= limit
    loads_fit = bool((plan.loads_after <= plan.limits).all())
    assert (plan.status is rb.Status.INFEASIBLE) == (not table_fits)
    if plan.status in (rb.Status.OK, rb.Status.NOOP, rb.Status.GIANT):
        assert loads_fit
        common = (1 + case.arguments["theta"]) * plan.loads_after.mean() * (1 + 1e-8)
        assert plan.status is rb.Status.GIANT or plan.loads_after.max(initial=0) <= common
    if plan.status is rb.Status.NOOP:
        assert len(plan.moves) == 0
    assert plan.reason or plan.status in (rb.Status.OK, rb.Status.NOOP)
    assert plan.applicable == (len(plan.moves) > 0 and plan.status is not rb.Status.INFEASIBLE)


@pytest.mark.parametrize("planner", PLANNERS)
class TestEveryPlan:
    @quick
    @given(case=cases())
    def test_figures_are_an_independent_recount_and_the_status_is_true(
        self, planner: str, case: Case
    ) -> None:
        plan = case.plan(planner)
        recounted(case, plan)
        status_is_true(case, plan)

    @quick
    @given(case=cases())
    def test_it_is_deterministic(self, planner: str, case: Case) -> None:
        one, other = case.plan(planner), case.plan(planner)
        assert np.array_equal(one.place, other.place)
        assert np.array_equal(one.splits.shares, other.splits.shares)
        assert one.table.to_bytes() == other.table.to_bytes()

    @quick
    @given(case=cases())
    def test_planning_again_after_applying_it_moves_nothing(self, planner: str, case: Case) -> None:
        plan = case.plan(planner)
        if plan.status not in (rb.Status.OK, rb.Status.GIANT):
            return
        arguments = {**case.arguments, "table": plan.table, "backups": plan.backups}
        if plan.splits.key.size and not plan.table.splits:
            return  # a router's splits are in no table
        again = rb.plan(plan.applied(), planner, **arguments)
        assert len(again.moves) == 0
        assert again.status in (rb.Status.NOOP, plan.status)

    @quick
    @given(case=cases(extras=False))
    def test_the_bound_is_below_every_plan_within_the_limits(self, planner: str, case: Case) -> None:
        plan = case.plan(planner)
        if plan.status in (rb.Status.OK, rb.Status.NOOP) and not len(plan.splits):
            assert plan.lower_bound <= plan.migrated_bytes * (1 + 1e-9) + 1e-9

    @quick
    @given(case=cases())
    def test_active_is_never_among_backups(self, planner: str, case: Case) -> None:
        plan = case.plan(planner)
        if plan.backups is not None:
            whole = np.ones(len(case.loads), np.bool_)
            whole[plan.splits.key] = False
            moved_onto = (plan.backups == plan.place[:, None]).any(axis=1)
            assert not (moved_onto & whole).any()
            switches = plan.moves.kind == rb.Kind.SWITCH
            assert not plan.moves.state_bytes[switches].any()


class TestClaims:
    """What a planner promises unless it says why it does not."""

    @that_claim("balances")
    @pytest.mark.parametrize("seed", range(3))
    def test_many_small_keys_are_balanced(self, planner: str, seed: int) -> None:
        rng = np.random.default_rng(seed)
        loads = rb.Loads(
            np.arange(1, 401, dtype=np.uint64),
            rng.uniform(1, 3, 400),
            rng.uniform(1, 3, 400),
            np.minimum(rng.integers(0, 7, 400), 4),
            home=rng.integers(0, 5, 400),
        )
        plan = rb.plan(loads, planner, instances=5, theta=0.1)
        assert plan.status is rb.Status.OK, plan.reason

    @that_claim("permute")
    @pytest.mark.parametrize("seed", range(4))
    def test_the_order_of_keys_does_not_matter(self, planner: str, seed: int) -> None:
        rng = np.random.default_rng(seed)
        loads = loads_of(rng, 60, 5, generic=True)
        shuffled = rng.permutation(60)
        one = rb.plan(loads, planner, instances=5, table_limit=30)
        other = rb.plan(loads.take(shuffled), planner, instances=5, table_limit=30)
        assert np.array_equal(one.place[shuffled], other.place)

    @that_claim("relabel")
    @pytest.mark.parametrize("seed", range(4))
    def test_the_numbers_of_instances_do_not_matter(self, planner: str, seed: int) -> None:
        rng = np.random.default_rng(seed)
        loads = loads_of(rng, 60, 5, generic=True)
        label = rng.permutation(5)
        renamed = rb.Loads(
            loads.keys, loads.cost, loads.state, label[loads.instance], home=label[loads.home_of(5)]
        )
        one = rb.plan(loads, planner, instances=5, table_limit=30)
        other = rb.plan(renamed, planner, instances=5, table_limit=30)
        assert np.array_equal(label[one.place], other.place)

    @that_claim("rescale")
    @pytest.mark.parametrize("seed", range(4))
    def test_units_do_not_matter(self, planner: str, seed: int) -> None:
        loads = loads_of(np.random.default_rng(seed), 60, 5, generic=True)
        scaled = rb.Loads(loads.keys, loads.cost * 4, loads.state / 16, loads.instance, home=loads.home)
        one = rb.plan(loads, planner, instances=5, table_limit=30)
        other = rb.plan(scaled, planner, instances=5, table_limit=30)
        assert np.array_equal(one.place, other.place)

    @that_claim("minimal")
    @quick
    @given(case=cases())
    def test_no_single_move_can_be_taken_back(self, planner: str, case: Case) -> None:
        plan = case.plan(planner)
        if plan.status is not rb.Status.OK:
            return
        for k in np.flatnonzero(case.loads.state[plan.moves.at] > 0):
            at, source, target = plan.moves.at[k], plan.moves.source[k], plan.moves.target[k]
            if source >= case.instances or plan.moves.kind[k] == rb.Kind.SWITCH:
                continue
            load = plan.loads_after.copy()
            load[source] += case.loads.cost[at]
            load[target] -= case.loads.cost[at]
            home = case.loads.home_of(case.instances)[at]
            entries = len(plan.table) + int(source != home) - int(target != home)
            limit = case.arguments["table_limit"]
            fits = (load <= plan.limits * (1 - 1e-6)).all() and (limit is None or entries <= limit)
            if case.arguments.get("two_sided"):
                fits = fits and load.min() >= (1 - case.arguments["theta"]) * load.mean() * (1 + 1e-6)
            assert not fits, f"the move of key {at} is not needed"


@pytest.mark.parametrize("planner", PLANNERS)
def test_what_exempts_a_planner_is_a_reason(planner: str) -> None:
    assert all(len(reason) > 10 for reason in (find(planner).exempt or {}).values())


@given(st.sampled_from(PLANNERS))
@settings(max_examples=len(PLANNERS), deadline=None)
def test_arrays_that_were_given_are_not_changed(planner: str) -> None:
    loads = loads_of(np.random.default_rng(0), 50, 4)
    before = [column.copy() for column in (loads.cost, loads.state, loads.instance, loads.home_of(4))]
    rb.plan(loads, planner, instances=4, table_limit=10)
    after = (loads.cost, loads.state, loads.instance, loads.home_of(4))
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


def test_every_promised_planner_is_there() -> None:
    hashes = "kg pkg dynamic bi bi6 taskb"
    papers = "lptf readj dlb-l dlb-h simple llfd mintable minmig mixed mixed-bf ftlb qmmp mnrt"
    assert {*hashes.split(), *papers.split(), "lag", "portfolio", "exact", "lightest-first"} <= set(PLANNERS)
