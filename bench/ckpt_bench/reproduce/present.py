"""What experiments have found, as text, as JSON and as a page of charts; nothing is measured here."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import click
import msgspec

from ckpt.cli.show import print_table
from ckpt_bench.plot import Section, page
from ckpt_bench.reproduce.experiments import Claim, Experiment, Paper, Shown

_WIDTH = 100
_VERDICTS = {True: "holds", False: "does not hold", None: "not checked"}


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

    @property
    def summary(self) -> str:
        """How many claims hold, in one line."""
        claims = [claim for outcome in self.outcomes for claim in outcome.claims]
        counts = {verdict: sum(claim.holds is verdict for claim in claims) for verdict in _VERDICTS}
        line = f"{counts[True]} of {counts[True] + counts[False]} claims hold"
        line += f", {counts[None]} not checked" if counts[None] else ""
        failed = [outcome.experiment.name for outcome in self.outcomes if outcome.error is not None]
        return line + (f"; could not run: {', '.join(failed)}" if failed else "")


def print_outcome(outcome: Outcome) -> None:
    """One experiment on stdout: what the paper says, the figures here, the verdicts."""
    experiment = outcome.experiment
    click.echo(f"{experiment.name}: {experiment.title}")
    _paragraph("thesis:", experiment.says)
    _paragraph("here:", experiment.here)
    if outcome.shown is not None:
        for note in outcome.shown.notes:
            _paragraph("", note)
        click.echo()
        print_table(outcome.shown.header, outcome.shown.rows)
        click.echo()
    for claim in outcome.claims:
        _paragraph(
            f"{_VERDICTS[claim.holds]}:", f"{claim.says}. Checked: {claim.asserts}; here {claim.ours}."
        )
        if claim.holds is False:
            _paragraph("", f"Likely reason: {claim.why}.")
        elif claim.holds is None:
            _paragraph("", f"Reason: {claim.why}.")
    if outcome.error is not None:
        _paragraph("could not run:", outcome.error)
    click.echo()


def _paragraph(head: str, text: str) -> None:
    indent = " " * 17
    first = f"  {head}".ljust(len(indent))
    click.echo(textwrap.fill(text, _WIDTH, initial_indent=first, subsequent_indent=indent))


def document(report: Report) -> dict[str, Any]:
    """The same for a script."""
    return {
        "format": 1,
        "paper": report.paper.name,
        "size": report.size,
        "machine": report.machine,
        "experiments": [
            {
                "name": outcome.experiment.name,
                "title": outcome.experiment.title,
                "says": outcome.experiment.says,
                "here": outcome.experiment.here,
                "claims": msgspec.to_builtins(list(outcome.claims)),
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
        f"{report.paper.title[0].upper()}{report.paper.title[1:]}, reproduced at size {report.size} on "
        f"{report.machine['cores']} cores and {report.machine['filesystem']}: {report.summary}. "
        f"Shapes and ratios are checked, never the figures of other hardware."
    )
    sections = [section for outcome in report.outcomes for section in _sections(outcome)]
    return page(f"ckpt bench reproduce {report.paper.name}", about, sections)


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
        [_VERDICTS[claim.holds], claim.says, claim.asserts, claim.ours, "" if claim.holds else claim.why]
        for claim in outcome.claims
    ]
    return [
        Section(title, " ".join([about, *shown.notes]), shown.chart, shown.header, shown.rows),
        Section(
            f"{experiment.name}: verdicts",
            "What the paper found, and whether it is so here.",
            "",
            ["verdict", "the paper", "checked", "here", "likely reason"],
            rows,
        ),
    ]
