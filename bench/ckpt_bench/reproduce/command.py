"""`ckpt bench reproduce`: the experiments of a paper, run again here."""

from __future__ import annotations

import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ckpt.cli.failures import INTERRUPTED, UNAVAILABLE, exit_code
from ckpt.cli.show import print_json
from ckpt.contract.addresses import suggestion
from ckpt.errors import CkptError, ConfigError
from ckpt_bench.interrupts import Interrupts
from ckpt_bench.outputs import only_one, refused, require_writable, write_text
from ckpt_bench.reproduce.experiments import Experiment, Lab, Paper, Size
from ckpt_bench.reproduce.papers import PAPERS
from ckpt_bench.reproduce.present import Outcome, Report, document, html, print_outcome

Say = Callable[[str], object]


@click.command()
@click.argument("paper", metavar=f"[{'|'.join(PAPERS)}]", type=click.Choice(list(PAPERS)))
@click.argument("names", nargs=-1, metavar="[EXPERIMENT]...")
@click.option("--full", is_flag=True, help="As large as in the paper: hours.")
@click.option("--quick", is_flag=True, help="Tiny sizes: does it all work?")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, exists=True, writable=True),
    help="Put stores here, on the disk to be measured. Default: the system's temporary folder.",
)
@click.option(
    "--nfs",
    type=click.Path(file_okay=False, exists=True, writable=True),
    help="A folder on NFS for what the paper kept there. Default: the page cache takes its part.",
)
@click.option("--html", "page", type=click.Path(), help="Write charts to this file.")
@click.option("--json", "as_json", is_flag=True, help="Every figure and verdict, as one JSON document.")
def reproduce(
    paper: str,
    names: Sequence[str],
    full: bool,
    quick: bool,
    folder: str | None,
    nfs: str | None,
    page: str | None,
    as_json: bool,
) -> None:
    """Run the experiments of a paper, and check whether what it found holds here.

    s4 is the thesis about checkpoints of Apache S4; its EXPERIMENTs are fig-4.1, fig-4.2, fig-4.5, fig-4.6,
    fig-4.7, fig-5.1, table-5.1 and table-5.2. Default: all of them, in a minute and a half.

    mixed is the paper about the planner Mixed; its EXPERIMENTs are fig-7 to fig-14, fig-17 to fig-21 and
    theorems, in two minutes. They need no folder.

    dlb is the paper about load balancing of complex event processing; its EXPERIMENTs are table-1,
    fig-3a, fig-3b, fig-4a and fig-4b, in the simulator, in half a minute.

    mnrt is the paper about keys that are split on demand; its EXPERIMENTs are fig-3 to fig-8, in a minute and
    a half. They run in the simulator, and need no folder.

    ftlb is the paper about replicas that balance load and survive failures; its EXPERIMENTs are fig-7 to
    fig-11, in the simulator, in a minute.

    A claim that does not hold is a result, and so is one that is unsettled: the quartiles of the rounds
    lie on both sides of what is asserted. The exit code says whether every experiment could run.
    """
    only_one({"--quick": quick, "--full": full})
    chosen = _chosen(PAPERS[paper], names)
    if page is not None:
        require_writable(page)
    codes: list[int] = []
    with Interrupts() as interrupts:  # one more Ctrl-C, while folders are removed, costs no results
        with (
            _new_folder(folder) as place,
            _new_folder(nfs) if nfs else nullcontext() as on_nfs,
            _progress(len(chosen)) as (say, step),
        ):
            size = Size.QUICK if quick else Size.FULL if full else Size.SMALL
            lab = Lab(place, size, nfs=on_nfs, say=say)
            report = Report(PAPERS[paper], lab.size.value, _machine(lab))
            try:
                with interrupts.heard():
                    for experiment in chosen:
                        step(experiment.name)
                        report.outcomes.append(_carried_out(experiment, lab, codes))
            except KeyboardInterrupt:
                codes.insert(0, INTERRUPTED)
                report.missing += [experiment.name for experiment in chosen[len(report.outcomes) :]]
        _present(report, as_json)
        for fault in refused(page, lambda path: write_text(path, html(report))):
            click.echo(f"ckpt: {fault}", err=True)
            codes.append(UNAVAILABLE)
    if codes:
        raise click.exceptions.Exit(codes[0])


def _chosen(paper: Paper, names: Sequence[str]) -> list[Experiment[Any]]:
    known = [experiment.name for experiment in paper.experiments]
    for name in names:
        if name not in known:
            raise ConfigError(f"{paper.name} has no experiment {name!r}; {suggestion(name, known)}")
    return [experiment for experiment in paper.experiments if not names or experiment.name in names]


def _carried_out(experiment: Experiment[Any], lab: Lab, codes: list[int]) -> Outcome:
    outcome = Outcome(experiment)
    started_s = time.monotonic()
    try:
        outcome.figures = experiment.run(lab)
    except (CkptError, OSError) as error:
        outcome.error = str(error)
        codes.append(exit_code(error) if isinstance(error, CkptError) else UNAVAILABLE)
    else:
        outcome.claims = experiment.check(outcome.figures)
        outcome.shown = experiment.show(outcome.figures)
    outcome.seconds = time.monotonic() - started_s
    return outcome


def _present(report: Report, as_json: bool) -> None:
    if as_json:
        print_json(document(report))
        return
    for outcome in report.outcomes:
        print_outcome(outcome, report.paper.kind)
    click.echo(
        f"{report.summary} ({report.size}; {report.machine['cores']} cores, {report.machine['filesystem']})"
    )


def _machine(lab: Lab) -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "filesystem": str(lab.filesystem),
        "shared": lab.shared.name,
    }


def _new_folder(inside: str | None) -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="ckpt-reproduce-", dir=inside, ignore_cleanup_errors=True)


@contextmanager
def _progress(total: int) -> Iterator[tuple[Say, Say]]:
    """Two ways to say what happens: a detail, the next experiment; only the latter where nobody watches."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None, lambda name: click.echo(f"{name} runs", err=True)
        return
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=total, completed=-1)
        current = [""]

        def say(what: str) -> None:
            progress.update(task, description=f"{current[0]}: {what}")

        def step(name: str) -> None:
            current[0] = name
            progress.update(task, advance=1, description=name)

        yield say, step
