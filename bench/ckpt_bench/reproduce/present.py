"""What experiments have found, as text, as JSON and as a page of charts; nothing is measured here."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import click
import msgspec

from ckpt.cli.show import print_table
from ckpt_bench.plot import Section, page
from ckpt_bench.reproduce.claims import Claim, Verdict
from ckpt_bench.reproduce.experiments import Experiment, Paper, Shown

_WIDTH = 100


@dataclass(slots=True)
class Outcome:
    """One experiment after it ran, or could not."""

    experiment: Experiment[Any]
    figures: Any = None
    claims: Sequence[Claim] = ()
    shown: Shown | None = None
    error: str | None = None
    """Why it could not run."""
    seconds: float = 0.0


@dataclass(slots=True)
class Report:
    """Everything that one call of the command has found, and where."""

    paper: Paper
    size: str
    machine: dict[str, Any]
    outcomes: list[Outcome] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    """The experiments that an interrupt kept from running to their end."""

    @property
    def summary(self) -> str:
        """How many claims hold, in one line, and what is not there."""
        counts = Counter(claim.verdict for outcome in self.outcomes for claim in outcome.claims)
        checked = counts.total() - counts[Verdict.NOT_CHECKED]
        line = f"{counts[Verdict.HOLDS]} of {checked} claims hold"
        for verdict in (Verdict.UNSETTLED, Verdict.NOT_CHECKED):
            line += f", {counts[verdict]} {verdict}" if counts[verdict] else ""
        failed = [outcome.experiment.name for outcome in self.outcomes if outcome.error is not None]
        line += f"; could not run: {', '.join(failed)}" if failed else ""
        return line + (f"; {self.interrupted}" if self.missing else "")

    @property
    def interrupted(self) -> str:
        """Which experiments are missing."""
        return f"interrupted, missing: {', '.join(self.missing)}"


def print_outcome(outcome: Outcome, kind: str) -> None:
    """One experiment on stdout: what the paper says, the figures here, the verdicts."""
    experiment = outcome.experiment
    click.echo(f"{experiment.name}: {experiment.title}")
    _paragraph(f"{kind}:", experiment.says)
    _paragraph("here:", experiment.here)
    if outcome.shown is not None:
        for note in outcome.shown.notes:
            _paragraph("", note)
        click.echo()
        print_table(outcome.shown.header, outcome.shown.rows)
        click.echo()
    for claim in outcome.claims:
        checked = "To check" if claim.verdict is Verdict.NOT_CHECKED else "Checked"
        ours = "" if claim.verdict is Verdict.NOT_CHECKED else f"; here {claim.ours}"
        _paragraph(f"{claim.verdict}:", f"{claim.says}. {checked}: {claim.asserts}{ours}.")
        if reason := _reason(claim):
            _paragraph("", f"{reason}.")
    if outcome.error is not None:
        _paragraph("could not run:", outcome.error)
    click.echo()


def _reason(claim: Claim) -> str:
    """What a verdict needs beside it."""
    return {
        Verdict.HOLDS: "",
        Verdict.FAILS: f"Likely reason: {claim.why}",
        Verdict.UNSETTLED: "The quartiles lie on both sides of that: another run may find either",
        Verdict.NOT_CHECKED: f"Reason: {claim.why}",
    }[claim.verdict]


def _paragraph(head: str, text: str) -> None:
    indent = " " * 17
    first = f"  {head}".ljust(len(indent))
    click.echo(textwrap.fill(text, _WIDTH, initial_indent=first, subsequent_indent=indent))


def document(report: Report) -> dict[str, Any]:
    """The same for a script."""
    return {
        "format": 2,
        "paper": report.paper.name,
        "size": report.size,
        "machine": report.machine,
        "missing": report.missing,
        "experiments": [
            {
                "name": outcome.experiment.name,
                "title": outcome.experiment.title,
                "says": outcome.experiment.says,
                "here": outcome.experiment.here,
                "claims": [{**msgspec.to_builtins(claim), "holds": claim.holds} for claim in outcome.claims],
                "figures": msgspec.to_builtins(outcome.figures, str_keys=True),
                "notes": list(outcome.shown.notes) if outcome.shown else [],
                "error": outcome.error,
                "seconds": outcome.seconds,
            }
            for outcome in report.outcomes
        ],
    }


def html(report: Report) -> str:
    """The same as one page with a chart for each experiment."""
    about = (
        f"{_capital(report.paper.title)}, reproduced at size {report.size} on "
        f"{report.machine['cores']} cores and {report.machine['filesystem']}: {report.summary}. "
        f"Shapes and ratios are checked, never the figures of other hardware."
    )
    sections = [section for outcome in report.outcomes for section in _sections(outcome)]
    if report.missing:
        sections.insert(
            0,
            Section(
                "Interrupted",
                f"{_capital(report.interrupted)}. What follows was measured before.",
                "",
                [],
                [],
            ),
        )
    return page(f"ckpt bench reproduce {report.paper.name}", about, sections)


def _capital(words: str) -> str:
    return words[0].upper() + words[1:]


def _sections(outcome: Outcome) -> list[Section]:
    experiment = outcome.experiment
    title = f"{experiment.name}: {experiment.title}"
    about = f"The paper: {experiment.says} Here: {experiment.here}"
    if outcome.shown is None:
        return [
            Section(title, f"{about} Could not run: {outcome.error}", "", ["verdict"], [["could not run"]])
        ]
    shown = outcome.shown
    rows = [
        [str(claim.verdict), claim.says, claim.asserts, claim.ours, _reason(claim)]
        for claim in outcome.claims
    ]
    return [
        Section(title, " ".join([about, *shown.notes]), shown.chart, shown.header, shown.rows),
        Section(
            f"{experiment.name}: verdicts",
            "What the paper found, and whether it is so here: medians [quartiles].",
            "",
            ["verdict", "the paper", "checked", "here", "reason"],
            rows,
            stacks=True,
        ),
    ]
