"""A failed command ends in one line that says what to do, and an exit code that a script can rely on.

| exit code | meaning |
| --- | --- |
| 0 | done |
| 1 | bad records, unreadable values, differences, or a question answered with no |
| 2 | wrong use: an address, option, namespace, key or version that does not exist |
| 3 | the store did not answer, is in use by another writer, or the operating system refused |
| 130 | interrupted by Ctrl-C |
| 141 | the reader of the output went away (`| head`); nothing is printed |
"""

from __future__ import annotations

import os
import sys
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


class FailsInOneLine(click.Group):
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


def _line(message: str) -> str:
    return " ".join(message.split()) if "\n" in message else message


def _fail(message: str, code: int) -> NoReturn:
    click.echo(f"ckpt: {message}", err=True)
    sys.exit(code)
