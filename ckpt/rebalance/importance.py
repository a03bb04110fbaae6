"""How many replicas each key has, by a document that people write: first rule that matches, else the default.

```toml
replicas = 0                  # of keys that no rule matches; 0 if it is left out

[[keys]]
pattern = "payments/*"        # of the key's name: * any text, ? one character, [ab] one of these
replicas = 2

[[keys]]
hash = 2718281828             # of the key's identity, for keys that have no name
replicas = 1
```

The papers call it a service level agreement (ftlb-2019 §4.1).
"""

from __future__ import annotations

import fnmatch
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ckpt.contract.addresses import suggestion
from ckpt.errors import ConfigError
from ckpt.rebalance.hashing import Name
from ckpt.rebalance.loads import U64

MAX_REPLICAS = 16
MAX_RULES = 10_000
MAX_PATTERN_CHARACTERS = 1024


@dataclass(frozen=True, slots=True)
class Rule:
    """Keys with this name pattern, or this identity, have so many replicas."""

    replicas: int
    pattern: str | None = None
    hash: int | None = None


@dataclass(frozen=True, slots=True)
class Importance:
    """How many replicas each key has.

    Examples
    --------
    >>> importance = Importance.parse('keys = [{pattern = "pay*", replicas = 2}]')
    >>> importance.replicas(np.array([1, 2], np.uint64), ["payments", "clicks"]).tolist()
    [2, 0]
    >>> Importance.parse('[[keys]]\\npatern = "pay*"\\nreplicas = 2')
    Traceback (most recent call last):
        ...
    ckpt.errors.ConfigError: importance: rule 1: unknown field 'patern'; did you mean 'pattern'?
    """

    rules: tuple[Rule, ...] = ()
    default: int = 0

    @classmethod
    def parse(cls, text: str) -> Importance:
        """The document's rules, or a ConfigError that names the first thing that is wrong."""
        try:
            document = tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise ConfigError(f"importance: this is not TOML: {error}") from None
        _only(document, {"replicas", "keys"}, "")
        listed = document.get("keys", [])
        if not isinstance(listed, list) or not all(isinstance(rule, dict) for rule in listed):
            raise ConfigError("importance: keys must be tables: [[keys]]")
        if len(listed) > MAX_RULES:
            raise ConfigError(f"importance: {len(listed)} rules are more than {MAX_RULES}")
        rules = tuple(_rule(rule, f"rule {number}: ") for number, rule in enumerate(listed, start=1))
        return cls(rules, _count(document.get("replicas", 0), ""))

    def replicas(self, keys: U64, names: Sequence[Name | None] | None = None) -> npt.NDArray[np.int64]:
        """How many replicas each key has; keys without a name match rules by hash alone."""
        found = np.full(len(keys), self.default, np.int64)
        open_ = np.ones(len(keys), np.bool_)
        texts = None if names is None else [None if name is None else _text(name) for name in names]
        for rule in self.rules:
            if rule.hash is not None:
                matches = keys == np.uint64(rule.hash)
            elif texts is None or rule.pattern is None:
                continue
            else:
                match = re.compile(fnmatch.translate(rule.pattern)).match
                hits = (text is not None and match(text) is not None for text in texts)
                matches = np.fromiter(hits, np.bool_, len(texts))
            found[open_ & matches] = rule.replicas
            open_ &= ~matches
        return found


def _rule(rule: Mapping[str, Any], where: str) -> Rule:
    _only(rule, {"pattern", "hash", "replicas"}, where)
    if "replicas" not in rule:
        raise ConfigError(f"importance: {where}replicas is missing")
    replicas = _count(rule["replicas"], where)
    if ("pattern" in rule) == ("hash" in rule):
        raise ConfigError(f"importance: {where}give either pattern or hash")
    if "hash" in rule:
        identity = rule["hash"]
        if not isinstance(identity, int) or isinstance(identity, bool) or not 0 <= identity < 1 << 64:
            raise ConfigError(f"importance: {where}hash must be a whole number from 0 to 2**64 - 1")
        return Rule(replicas, hash=identity)
    pattern = rule["pattern"]
    if not isinstance(pattern, str) or not 0 < len(pattern) <= MAX_PATTERN_CHARACTERS:
        limit = f"text of 1 to {MAX_PATTERN_CHARACTERS} characters"
        raise ConfigError(f"importance: {where}pattern must be {limit}")
    try:
        re.compile(fnmatch.translate(pattern))
    except re.error as error:
        raise ConfigError(f"importance: {where}pattern cannot be read: {error}") from None
    return Rule(replicas, pattern=pattern)


def _count(value: Any, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_REPLICAS:
        raise ConfigError(f"importance: {where}replicas must be a whole number from 0 to {MAX_REPLICAS}")
    return value


def _only(table: Mapping[str, Any], known: set[str], where: str) -> None:
    for name in table:
        if name not in known:
            raise ConfigError(f"importance: {where}unknown field {name!r:.80}; {suggestion(name, known)}")


def _text(name: Name) -> str:
    return name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else name
