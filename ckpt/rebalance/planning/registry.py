"""From a name to a planner. A planner is registered by existing.

Every module of `ckpt.rebalance.planners` is imported on first use, and registers what it decorates with
`planner`. A planner of your own is registered as soon as its module is imported; installed packages name
theirs by an entry point in the group `ckpt.planners`, which is imported when an unknown name is asked for.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from inspect import Parameter, signature
from typing import Any, Literal, TypeVar

from ckpt.contract.addresses import suggestion
from ckpt.errors import ConfigError
from ckpt.rebalance.planning.problem import I32, Placement, Problem

ENTRY_POINT_GROUP = "ckpt.planners"

Claim = Literal["balances", "permute", "relabel", "rescale", "minimal"]
"""What the property suite expects of every planner that does not say why it is otherwise.

- `balances`: many small keys and no table limit: the plan's status is OK.
- `permute`: the order of the keys does not matter.
- `relabel`: the numbers of the instances do not matter.
- `rescale`: the units of cost and state do not matter.
- `minimal`: taking back any single move breaks a limit.
"""

Function = Callable[..., "I32 | Placement"]
F = TypeVar("F", bound=Function)


@dataclass(frozen=True)
class Planner:
    """A planning function and what is known about it."""

    name: str
    function: Function
    splits: bool = False
    """It may split keys, so it is also given giants and the keys that are split now."""
    exempt: Mapping[Claim, str] | None = None
    """Claims that it does not make, each with the reason."""

    def answer(self, problem: Problem, options: Mapping[str, Any]) -> Placement:
        """The planner's placement; its options are checked by name first."""
        known = [
            p.name for p in signature(self.function).parameters.values() if p.kind is Parameter.KEYWORD_ONLY
        ]
        for option in options:
            if option not in known:
                hint = suggestion(option, known) if known else "it has none"
                raise ConfigError(f"planner {self.name!r} has no option {option!r}; {hint}")
        answer = self.function(problem, **options)
        return answer if isinstance(answer, Placement) else Placement(answer)


_PLANNERS: dict[str, Planner] = {}


def planner(
    name: str, *, splits: bool = False, exempt: Mapping[Claim, str] | None = None
) -> Callable[[F], F]:
    """Register a planning function under a name.

    Examples
    --------
    >>> from ckpt.rebalance.planning.problem import I32, Problem
    >>> @planner("stay", exempt={"balances": "moves nothing"})
    ... def stay(problem: Problem) -> I32:
    ...     return problem.current
    >>> find("stay").function is stay
    True
    >>> forget("stay")
    """

    def register(function: F) -> F:
        taken = _PLANNERS.get(name)
        if taken is not None and taken.function.__module__ != function.__module__:
            raise ConfigError(f"planner {name!r} is there already, in {taken.function.__module__}")
        _PLANNERS[name] = Planner(name, function, splits, exempt)
        return function

    return register


def forget(name: str) -> None:
    """Take a planner out of the registry."""
    del _PLANNERS[name]


def planner_names() -> list[str]:
    """The name of every planner that is registered now, ours and others'."""
    _import_ours()
    return sorted(_PLANNERS)


def find(name: str) -> Planner:
    """The planner of this name, or a ConfigError that names the nearest one."""
    _import_ours()
    if name not in _PLANNERS:
        for entry in entry_points(group=ENTRY_POINT_GROUP, name=name):
            entry.load()
    if name not in _PLANNERS:
        raise ConfigError(f"no planner {name!r}; {suggestion(name, planner_names())}")
    return _PLANNERS[name]


@cache
def _import_ours() -> None:
    package = importlib.import_module("ckpt.rebalance.planners")
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
