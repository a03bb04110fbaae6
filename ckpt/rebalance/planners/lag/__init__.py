"""LAG: our own. Overloaded instances give up the state-cheapest load, with a price on table entries.

The problem (mixed-2017 Eq. 3) couples two limits, on loads and on the table. A Lagrangian takes the second
one into the price: if an entry costs λ bytes, then moving key k away costs `state + λ·Δ`, where Δ is +1 for
a key at home (it needs an entry), -1 for one that returns home, else 0. For a given λ each overloaded
instance solves a covering knapsack of its own: lose the excess at the least price.

1. **Price** (`field`, `bins`). Keys of overloaded instances are counted into bins of cost, state and Δ, a few
   thousand for a million keys. On the bins, a ladder of λ is tried; the table's size is not monotone in λ, so
   the whole ladder is scanned, and only the interval below its best rung is refined. Prices whose table would
   fit come first, the least state first.
2. **Return.** Keys away from home whose entry is dearer than what their return costs go home. A return to an
   overloaded home is paid for by what its load costs there: the price per load at the break item.
3. **Cover** (`covering`). With that λ each overloaded instance chooses its keys, exactly at the break item.
4. **Pack** (`attempt`, `draft`). Chosen keys go, heaviest first, to an instance with a backup (free), home
   (no entry), or the instance with the most room. A key that fits nowhere stays, and its instance chooses
   again without it.
5. **Undo** (`repair`). A move that no limit needs is taken back, most state first, until there is none.
6. **Search** (`local_search`). Small problems, where the coupling through rooms and entries matters most, get
   a tabu search.

Known weaknesses: loads end at their limits, so it may be needed again sooner than a planner that balances
more; and where the drift of each interval is large, cheap keys fill the table within a few intervals.
Against the second, of prices within 1 % of state the one with the smaller table is taken, and among keys
whose price per load is alike, the heaviest go first. A table that is too small is kept all the same
(`keep_table`).

Cost: O(K) array passes, and Python only for the keys that move.
"""

from __future__ import annotations

from ckpt.rebalance.planners.lag.attempt import attempt
from ckpt.rebalance.planners.lag.field import Field
from ckpt.rebalance.planners.lag.local_search import improve
from ckpt.rebalance.planners.lag.repair import keep_table, take_back
from ckpt.rebalance.planning import Problem, planner
from ckpt.rebalance.planning.problem import I32


@planner("lag")
def lag(problem: Problem) -> I32:
    """Little state moves, with loads and table within their limits wherever a planner here can do it."""
    field = Field(problem)
    answers = []
    for price in field.prices():
        draft = attempt(field, price)
        answers.append((draft.badness(field.overuse), draft.place))
        if answers[-1][0][:2] == (0, 0) and not field.small:
            break
    wrong, place = min(answers, key=lambda answer: answer[0])
    if wrong[0]:
        place = keep_table(problem, place)
    if field.small and wrong != (0, 0, 0):
        return take_back(problem, improve(problem, place))
    return place
