"""Which record each operation is about, and which operation it is: endless iterators, one set per thread."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from ckpt.errors import ConfigError
from ckpt_bench.ycsb.generators import (
    BLOCK,
    Exponential,
    Generator,
    Hotspot,
    InsertedKeys,
    ScrambledZipfian,
    Uniform,
    Zipfian,
)
from ckpt_bench.ycsb.records import key_name, key_names
from ckpt_bench.ycsb.settings import Request, ScanLengths, Settings


class Chooser:
    """What the threads of one run share when they choose records."""

    def __init__(self, settings: Settings, inserted: InsertedKeys) -> None:
        self._settings = settings
        self._inserted = inserted
        self._sequence = itertools.count()
        first, count = settings.insertstart, settings.inserts
        if not settings.proportions:
            raise ConfigError("no operation has a proportion above 0; set readproportion, for example")
        self._numbers: Generator
        recent = settings.requestdistribution in (Request.LATEST, Request.EXPONENTIAL)
        if (settings.recordcount if recent else count) < 1:
            if settings.proportions.keys() == {"INSERT"}:
                return  # nobody asks for a key
            raise ConfigError("there are no records to choose from; set recordcount to how many were loaded")
        match settings.requestdistribution:
            case Request.UNIFORM | Request.SEQUENTIAL:
                self._numbers = Uniform(first, first + count - 1)
            case Request.HOTSPOT:
                self._numbers = Hotspot(
                    first, first + count - 1, settings.hotspotdatafraction, settings.hotspotopnfraction
                )
            case Request.ZIPFIAN:
                # Room for records that the run inserts, so that they do not change which ones are popular.
                expected = int((settings.operationcount or 0) * settings.insertproportion * 2)
                self._numbers = ScrambledZipfian(first, first + count + expected)
            case Request.LATEST:
                self._numbers = Zipfian(0, max(inserted.last - 1, 0))
            case Request.EXPONENTIAL:
                self._numbers = Exponential(
                    settings.exponential_percentile, settings.recordcount * settings.exponential_frac
                )

    def keys(self, random: np.random.Generator) -> Iterator[bytes]:
        """The key of one operation after the other."""
        match self._settings.requestdistribution:
            case Request.UNIFORM | Request.HOTSPOT:
                return self._known(random)
            case Request.ZIPFIAN:
                return self._inserted_already(random)
            case Request.SEQUENTIAL:
                return self._in_turn()
            case Request.LATEST:
                return self._before_the_last(random)
            case Request.EXPONENTIAL:
                return self._before_the_last(random)

    def _known(self, random: np.random.Generator) -> Iterator[bytes]:
        while True:
            yield from key_names(self._numbers.draw(random, BLOCK), self._settings)

    def _inserted_already(self, random: np.random.Generator) -> Iterator[bytes]:
        inserted = self._inserted
        while True:
            numbers = self._numbers.draw(random, BLOCK)
            names = key_names(numbers, self._settings)
            for number, name in zip(numbers.tolist(), names, strict=True):
                if number <= inserted.last:
                    yield name

    def _in_turn(self) -> Iterator[bytes]:
        first, count = self._settings.insertstart, self._settings.inserts
        for number in self._sequence:
            yield key_name(first + number % count, self._settings)

    def _before_the_last(self, random: np.random.Generator) -> Iterator[bytes]:
        """Distances are drawn in blocks, but from what is the last record when one is used."""
        inserted, numbers = self._inserted, self._numbers
        while True:
            if isinstance(numbers, Zipfian):
                numbers.grow(inserted.last)
            for distance in numbers.draw(random, BLOCK).tolist():
                if (number := inserted.last - distance) >= 0:
                    yield key_name(number, self._settings)


def operations(settings: Settings, random: np.random.Generator) -> Iterator[str]:
    """The name of one operation after the other, as often as its proportion says."""
    names = list(settings.proportions)
    weights = np.array([settings.proportions[name] for name in names])
    ends = np.cumsum(weights / weights.sum())
    while True:
        for drawn in np.searchsorted(ends, random.random(BLOCK), side="right").tolist():
            yield names[min(drawn, len(names) - 1)]


def scan_lengths(settings: Settings) -> Generator:
    """How many records scans read."""
    if settings.scanlengthdistribution is ScanLengths.ZIPFIAN:
        return Zipfian(settings.minscanlength, settings.maxscanlength)
    return Uniform(settings.minscanlength, settings.maxscanlength)
