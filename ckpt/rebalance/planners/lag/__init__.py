"""LAG: our own. Overloaded instances give up the state-cheapest load, with a price on table entries.

The problem (mixed-2017 Eq. 3) couples two limits, on loads and on the table. A Lagrangian takes the second
one into the price: if an entry costs λ bytes, then moving key k away costs `state + λ·Δ`, where Δ is +1 for
a key at home (it needs an entry), -1 for one that returns home, else 0. For a given λ each overloaded
instance solves a covering knapsack of its own: lose the excess at the least price.

1. **Price** (`field`, `bins`). Keys of overloaded instances are counted into bins of cost, state and Δ, a
   few thousand for a million keys. On the bins, a ladder of λ is tried; the table's size is not monotone in
   λ, so the whole ladder is scanned, and only the interval below its best rung is refined. Prices whose
   table would fit come first, the least state first. If what is carried out needs more entries than was
   forecast, the next price has to promise as many more free ones.
2. **Return.** Keys away from home whose entry is dearer than what their return costs go home. A return to a
   home without room is paid for by what load costs there: the price per load at the break item. Where the
   table's limit makes a plan dear, homes that are full, but not overloaded, take part too: they take many
   light keys back and give up a few heavy ones, which is the only way to free entries once every instance
   is full.
3. **Cover** (`covering`). With that λ each overloaded instance chooses its keys, exactly at the break item.
4. **Pack** (`attempt`, `draft`). Chosen keys go, heaviest first, to an instance with a backup (free), home
   (no entry), or the instance with the most room. A key that fits nowhere stays, and its instance chooses
   again without it.
5. **Undo** (`repair`). A move that no limit needs is taken back, most state first, until there is none.
6. **Ask Mixed** where limits are not kept, but nearly: its exchanges place heavy keys for which no instance
   has room.
7. **Search** (`local_search`). Small problems, where the coupling through rooms and entries matters most,
   get a tabu search.

What was considered a weakness, and what came of it (docs/performance.md has figures):

- Loads end at their limits, so the next small change may need a plan. The controller therefore plans for a
  part of θ (`aim`).
- The table fills up to its limit within a few intervals. Keeping entries free for later was tried, by
  taking a dearer price while it costs less than 5 % or 20 % more state: over many intervals that moved as
  much state or more. With homes that take part, a full table costs little, so only prices within 1 % are
  taken as alike.
- A table that is too small is kept all the same (`keep_table`).

Cost: O(K) array passes, a forecast on the bins for each price, and Python only for the keys that move.
"""

from __future__ import annotations

from ckpt.rebalance.planners.lag.attempt import attempt
from ckpt.rebalance.planners.lag.field import promising_field
from ckpt.rebalance.planners.lag.local_search import MOST_CELLS, improve
from ckpt.rebalance.planners.lag.repair import keep_table, take_back
from ckpt.rebalance.planners.mixed import mixed
from ckpt.rebalance.planners.mixed_bf import badness
from ckpt.rebalance.planning import Problem, planner
from ckpt.rebalance.planning.problem import I32

ATTEMPTS = 6
"""How many prices are carried out, if what the bins said does not come true."""

NEARLY = 0.25
"""Where limits are not kept, and no more of the table's is missing, Mixed is asked too."""


@planner("lag")
def lag(problem: Problem) -> I32:
    """Little state moves, with loads and table within their limits wherever a planner here can do it."""
    field = promising_field(problem)
    small = len(problem.cost) * problem.instances <= MOST_CELLS
    answers: list[tuple[tuple[float, float, float], I32]] = []
    tried: list[float] = []
    margin = 0.0
    while len(tried) < ATTEMPTS:
        promise = field.promise(margin, tried)
        if promise.price in tried or (promise.over and len(tried) >= 2 and not small):
            break
        tried.append(promise.price)
        draft = attempt(field, promise.price)
        wrong = draft.badness(field.overuse)
        answers.append((wrong, draft.place))
        if wrong[:2] == (0, 0) and not small:
            break
        if wrong[0]:
            margin = max(margin, wrong[0] - field.overuse - promise.grows)
    wrong, place = min(answers, key=lambda answer: answer[0])
    if wrong[:2] != (0, 0) and wrong[0] <= NEARLY * problem.table_limit:
        other = take_back(problem, mixed(problem).target)
        wrong, place = min((wrong, place), (badness(problem, other), other), key=lambda answer: answer[0])
    if wrong[0]:
        place = keep_table(problem, place)
    if small and wrong != (0, 0, 0):
        return take_back(problem, improve(problem, place))
    return place
