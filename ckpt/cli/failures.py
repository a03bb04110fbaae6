"""A failed command ends in one line that says what to do, and an exit code that a script can rely on.

| exit code | meaning |
| --- | --- |
| 0 | done |
| 1 | bad records, unreadable values, differences, or a question answered with no |
| 2 | wrong use: an address, option, namespace, key or version that does not exist |
| 3 | the store did not answer, is in use by another writer, or the operating system refused |
| 130 | interrupted by Ctrl-C |
| 141 | the reader of the output went away (`| head`); nothing is printed |
| 143 | told to end by SIGTERM (129: by SIGHUP); temporary folders and started processes are gone |
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import click

from ckpt.errors import (
    BackendUnavailableError,
    BlankStateError,
    CkptError,
    CorruptRecordError,
    FencedError,
    QueueFullError,
    SerializationError,
)

BAD_DATA, WRONG_USE, UNAVAILABLE, INTERRUPTED, BROKEN_PIPE = 1, 2, 3, 130, 141

_ENDINGS = (signal.SIGTERM, signal.SIGHUP)
_BAD_DATA = (CorruptRecordError, SerializationError)
_UNAVAILABLE = (BackendUnavailableError, FencedError, QueueFullError, BlankStateError)


def exit_code(error: CkptError) -> int:
    """The exit code that an error of ckpt stands for; everything not listed is wrong use.

    Examples
    --------
    >>> from ckpt.errors import ConfigError
    >>> exit_code(CorruptRecordError()), exit_code(ConfigError()), exit_code(FencedError())
    (1, 2, 3)
    """
    if isinstance(error, _BAD_DATA):
        return BAD_DATA
    return UNAVAILABLE if isinstance(error, _UNAVAILABLE) else WRONG_USE


class OneLineErrors(click.Group):
    """A group whose commands never end in a traceback for something that a user can put right."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            # Click itself does this differently from version to version.
            click.echo(ctx.get_help(), err=True)
            ctx.exit(WRONG_USE)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # The interpreter flushes stdout once more when it exits; that must go nowhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(BROKEN_PIPE)
        return result

    def main(self, *args: Any, **kwargs: Any) -> NoReturn:
        try:
            with _unwinds_when_told_to_end():
                result = super().main(*args, **{**kwargs, "standalone_mode": False})
        except click.UsageError as error:
            path = error.ctx.command_path if error.ctx else "ckpt"
            _fail(f"{_line(error.format_message())} (see {path} --help)", WRONG_USE)
        except click.ClickException as error:
            _fail(_line(error.format_message()), WRONG_USE)
        except click.Abort as error:
            if isinstance(error.__cause__, KeyboardInterrupt):
                sys.exit(INTERRUPTED)
            _fail("no answer, so nothing was done; answer, or pass --yes", BAD_DATA)
        except FencedError as error:
            _fail(f"{_line(str(error))} (here: --claim)", exit_code(error))
        except CkptError as error:
            _fail(_line(str(error)), exit_code(error))
        except OSError as error:
            _fail(_line(str(error)), UNAVAILABLE)
        sys.exit(result if isinstance(result, int) else 0)


@contextmanager
def _unwinds_when_told_to_end() -> Iterator[None]:
    """A signal ends what is under way as Ctrl-C does, so that nothing temporary is left behind."""

    def end(number: int, _: object) -> None:
        # `timeout` sends it twice, and cleaning up is not to be cut off. Of a signal that arrives just before
        # it is ignored by the system Python complains, so it is heard and nothing is done.
        for each in ours:
            signal.signal(each, lambda *_: None)
        sys.exit(128 + number)

    in_charge = threading.current_thread() is threading.main_thread()
    ours = [each for each in _ENDINGS if in_charge and signal.getsignal(each) is signal.SIG_DFL]
    for each in ours:
        signal.signal(each, end)
    try:
        yield
    finally:
        for each in ours:
            # Python gives up its own handlers before it ends, and the exit code is to say why it does.
            told = signal.getsignal(each) is not end
            signal.signal(each, signal.SIG_IGN if told else signal.SIG_DFL)


def _line(message: str) -> str:
    return " ".join(message.split()) if "\n" in message else message


def _fail(message: str, code: int) -> NoReturn:
    click.echo(f"ckpt: {message}", err=True)
    sys.exit(code)
