"""One price carried out: keys return, instances choose what they give up, the chosen are packed, undone."""

from __future__ import annotations

import numpy as np

from ckpt.rebalance.planners.lag.covering import cheapest_cover
from ckpt.rebalance.planners.lag.draft import Draft
from ckpt.rebalance.planners.lag.field import Field
from ckpt.rebalance.planners.lag.repair import exchange, fill, squeeze, take_back
from ckpt.rebalance.planning.problem import I64, Bool

ROUNDS = 4
"""How often an instance chooses again, after keys that it gave up fit nowhere."""


def attempt(field: Field, price: float) -> Draft:
    """The placement that this price of an entry leads to; it may break a limit."""
    draft = Draft(field.problem)
    _return_home(draft, field, field.returning(price))
    stuck: dict[int, Bool] = {d: np.zeros(len(e.keys), np.bool_) for d, e in field.excesses.items()}
    for _ in range(ROUNDS):
        chosen = _cover(draft, field, stuck, price)
        unplaced = _pack(draft, chosen, price)
        if not len(unplaced):
            break
        for d, excess in field.excesses.items():
            stuck[d] |= np.isin(excess.keys, unplaced)
    if any(load > limit for load, limit in zip(draft.load, draft.limits, strict=True)):
        exchange(draft)
    if any(draft.floors):
        fill(draft, price)
    draft.place = take_back(draft.problem, draft.place, np.array(draft.load))
    return draft


def _return_home(draft: Draft, field: Field, keys: I64) -> None:
    """Free entries that are dearer than what it costs to go home; overloaded homes give up more then."""
    for k, home in zip(keys.tolist(), draft.problem.home[keys].tolist(), strict=True):
        if field.takes_part[home] or draft.fits(k, home):
            draft.move(k, home)


def _cover(draft: Draft, field: Field, stuck: dict[int, Bool], price: float) -> I64:
    """What the overloaded instances give up: the cheapest of their keys, without those that fit nowhere."""
    chosen = [np.empty(0, np.int64)]
    for d, excess in field.excesses.items():
        need = draft.load[d] - draft.limits[d]
        if need <= 0:
            continue
        left = np.flatnonzero(~stuck[d] & (draft.place[excess.keys] == d))
        paid = excess.state[left] + price * excess.entries[left]
        chosen.append(excess.keys[left[cheapest_cover(excess.cost[left], paid, need)]])
    return np.concatenate(chosen)


def _pack(draft: Draft, chosen: I64, price: float) -> I64:
    """Move these keys, heaviest first; those that fit nowhere stay, and are returned."""
    problem = draft.problem
    order = chosen[np.argsort(-problem.cost[chosen], kind="stable")]
    unplaced = []
    for k, home in zip(order.tolist(), problem.home[order].tolist(), strict=True):
        source = int(draft.place[k])
        targets = [] if home == source else [home]
        if problem.backups is not None:
            backups = [int(b) for b in problem.backups[k] if b >= 0]
            targets = [*targets, *backups] if price > problem.state[k] else [*backups, *targets]
        targets.append(draft.roomiest())
        for d in targets:
            if d != source and draft.fits(k, d):
                draft.move(k, d)
                break
        else:
            if not squeeze(draft, k, targets[-1], price):
                unplaced.append(k)
    return np.array(unplaced, np.int64)
