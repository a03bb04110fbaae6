"""One price carried out: keys return, instances choose what they give up, the chosen are packed, undone."""

from __future__ import annotations

import numpy as np

from ckpt.rebalance.planners.lag.bins import Excess
from ckpt.rebalance.planners.lag.covering import cheapest_cover
from ckpt.rebalance.planners.lag.draft import Draft
from ckpt.rebalance.planners.lag.field import Field
from ckpt.rebalance.planners.lag.repair import exchange, fill, squeeze, take_back
from ckpt.rebalance.planning import Problem
from ckpt.rebalance.planning.problem import I64, Bool

ROUNDS = 8
"""How often an instance chooses again, after keys that it gave up fit nowhere."""


_NONE = np.empty(0, np.int64)


def attempt(field: Field, price: float) -> Draft:
    """The placement that this price of an entry leads to; it may break a limit."""
    draft = Draft(field.problem)
    _return_home(draft, field, field.returning(price))
    offers = [_Offer(field.problem, d, excess) for d, excess in field.excesses.items()]
    for _ in range(ROUNDS):
        chosen = [offer.cover(draft, price) for offer in offers]
        free = [offer.is_free(keys) for offer, keys in zip(offers, chosen, strict=True)]
        unplaced = _pack(
            draft, np.concatenate([_NONE, *chosen]), np.concatenate([_NONE.astype(np.bool_), *free]), price
        )
        if not len(unplaced):
            break
        for offer in offers:
            offer.withdraw(unplaced)
    if any(load > limit for load, limit in zip(draft.load, draft.limits, strict=True)):
        exchange(draft)
    if any(draft.floors):
        fill(draft, price)
    draft.place = take_back(draft.problem, draft.place, np.array(draft.load))
    return draft


class _Offer:
    """The keys that an instance may still give up, and for how much state."""

    def __init__(self, problem: Problem, d: int, excess: Excess) -> None:
        self._problem, self._d, self._excess = problem, d, excess
        self._open = np.ones(len(excess.keys), np.bool_)
        self._state = excess.state

    def cover(self, draft: Draft, price: float) -> I64:
        """The cheapest keys with which the instance loses what it has above its limit."""
        need, excess = draft.load[self._d] - draft.limits[self._d], self._excess
        if need <= 0:
            return _NONE
        left = np.flatnonzero(self._open & (draft.place[excess.keys] == self._d))
        paid = self._state[left] + price * excess.entries[left]
        return excess.keys[left[cheapest_cover(excess.cost[left], paid, need)]]

    def is_free(self, keys: I64) -> Bool:
        """True for keys whose state was not counted, since they have a backup."""
        at = np.searchsorted(self._excess.keys, keys)
        return np.asarray(self._state[at] < self._problem.state[keys])

    def withdraw(self, unplaced: I64) -> None:
        """Keys that fit nowhere: those that were free are offered for their state, others not any more."""
        at = np.flatnonzero(np.isin(self._excess.keys, unplaced))
        if not len(at):
            return
        state = self._problem.state[self._excess.keys[at]]
        self._open[at[self._state[at] == state]] = False
        self._state = self._state.copy()
        self._state[at] = state


def _return_home(draft: Draft, field: Field, keys: I64) -> None:
    """Free entries that are dearer than what it costs to go home; overloaded homes give up more then."""
    for k, home in zip(keys.tolist(), draft.problem.home[keys].tolist(), strict=True):
        if field.takes_part[home] or draft.fits(k, home):
            draft.move(k, home)


def _pack(draft: Draft, chosen: I64, free: Bool, price: float) -> I64:
    """Move these keys, heaviest first; those that fit nowhere stay, and are returned.

    A key that was chosen because its move is free goes to a backup, or stays.
    """
    problem = draft.problem
    by_cost = np.argsort(-problem.cost[chosen], kind="stable")
    order = chosen[by_cost]
    unplaced = []
    for k, home, is_free in zip(
        order.tolist(), problem.home[order].tolist(), free[by_cost].tolist(), strict=True
    ):
        source = int(draft.place[k])
        targets = [] if home == source else [home]
        if problem.backups is not None:
            backups = [int(b) for b in problem.backups[k] if b >= 0]
            targets = [*targets, *backups] if price > problem.state[k] else [*backups, *targets]
            if is_free:
                targets = backups
        roomiest = draft.roomiest()
        for d in targets if is_free else [*targets, roomiest]:
            if d != source and draft.fits(k, d):
                draft.move(k, d)
                break
        else:
            if is_free or not squeeze(draft, k, roomiest, price):
                unplaced.append(k)
    return np.array(unplaced, np.int64)
