"""What went wrong with Redis, in words that say what to do: every failure is a CkptError without secrets.

Redis quotes arguments in some of its messages, and arguments are keys and values. So a message of the server
is shown only up to the point where it begins to quote.
"""

from __future__ import annotations

import re

from redis import exceptions
from redis.sentinel import MasterNotFoundError

from ckpt.errors import BackendUnavailableError, CkptError, ConfigError
from ckpt_backends.cells import NotNowError

_QUOTES = re.compile(r"[,:]? with args|['\"`]")
_CODE = re.compile(r"[A-Z]{3,} ")
_PASSING = {
    "LOADING": "is still loading its data",
    "READONLY": "is a replica and takes no writes; name the primary, or the sentinels with sentinel=",
    "MASTERDOWN": "is a replica that has lost its primary",
    "CLUSTERDOWN": "is part of a cluster that does not work; look at CLUSTER INFO",
    "TRYAGAIN": "is moving the slot of this namespace",
    "MOVED": "is part of a cluster and not responsible for this namespace; ask with cluster=true",
    "ASK": "is moving the slot of this namespace",
    "BUSY": "is busy with a script of another client",
    "NOREPLICAS": "has fewer replicas than its min-replicas-to-write",
}
"""Answers that may be others a moment later."""
_CODES: tuple[tuple[type[Exception], str], ...] = (
    (exceptions.BusyLoadingError, "LOADING"),
    (exceptions.MovedError, "MOVED"),
    (exceptions.AskError, "ASK"),
    (exceptions.TryAgainError, "TRYAGAIN"),
    (exceptions.MasterDownError, "MASTERDOWN"),
    (exceptions.ClusterDownError, "CLUSTERDOWN"),
    (exceptions.ReadOnlyError, "READONLY"),
    (exceptions.OutOfMemoryError, "OOM"),
    (exceptions.NoPermissionError, "NOPERM"),
    (exceptions.AuthenticationError, "WRONGPASS"),
    (exceptions.AuthenticationWrongNumberOfArgsError, "WRONGPASS"),
    (exceptions.ExecAbortError, "EXECABORT"),
)
"""The driver takes the code off the messages that it has a class for."""

ASK_ELSEWHERE = frozenset({"READONLY", "MASTERDOWN", "MOVED", "ASK", "CLUSTERDOWN", "LOADING"})
"""Answers of a server that is not, or not yet, the one to ask: connections to it are of no use."""


def code_of(error: Exception) -> str:
    """The word that Redis begins an error with; empty for failures of the connection."""
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    text = str(error)
    return text.partition(" ")[0] if _CODE.match(text) else ""


def translated(error: Exception, at: str) -> CkptError:
    """The error to raise for one of the driver's, or for an answer that is an error."""
    code = code_of(error)
    if code in _PASSING:
        return NotNowError(f"{at} {_PASSING[code]} ({code}); try again later")
    if code == "OOM":
        return BackendUnavailableError(
            f"{at} is full: it has reached its maxmemory and takes no writes; raise maxmemory, delete or "
            "truncate checkpoints, or give them a time to live"
        )
    if code == "MISCONF":
        return BackendUnavailableError(
            f"{at} takes no writes because it cannot write to its disk; make room or mend the disk, then "
            "look at its log"
        )
    if code in ("WRONGPASS", "NOAUTH"):
        return ConfigError(
            f"{at} refuses the user or the password; put them into the address (redis://user:password@host), "
            "a password_file, or the environment variable that password_env names"
        )
    if code == "NOPERM":
        return ConfigError(
            f"{at} does not permit this user what a store needs; allow the commands and the keys of the "
            "prefix that docs/redis.md lists, with ACL SETUSER"
        )
    if code == "WRONGTYPE":
        return ConfigError(
            f"{at} holds something else under the keys of this store; choose another prefix= or database"
        )
    if isinstance(error, exceptions.MaxConnectionsError):
        return NotNowError(f"too many calls to {at} at once; try again later")
    if isinstance(error, exceptions.TimeoutError):
        return NotNowError(f"{at} did not answer in time; check that it runs, or raise timeout_s")
    if isinstance(error, (exceptions.ConnectionError, exceptions.RedisClusterException, OSError)):
        return _unreachable(error, at)
    if isinstance(error, exceptions.ResponseError):
        return BackendUnavailableError(f"{at} answered with an error: {_shown(str(error))}; look at its log")
    return NotNowError(
        f"{at} gave no answer that Redis would give ({type(error).__name__}); check that Redis is there"
    )


def _unreachable(error: Exception, at: str) -> CkptError:
    text = str(error)
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return ConfigError(
            f"the certificate of {at} is not trusted, or is for another host; name the authority that signed "
            "it with tls_ca="
        )
    if "[SSL" in text:
        return ConfigError(
            f"{at} and this client do not agree on TLS; use tls=true exactly where the server speaks TLS, "
            "with tls_cert and tls_key if it asks for a certificate"
        )
    if isinstance(error, MasterNotFoundError):
        return NotNowError(
            f"no sentinel of {at} names a primary; check that the sentinels run, and that sentinel= is their "
            "name for it"
        )
    return NotNowError(f"{at} cannot be reached ({_reason(error)}); check that it runs and can be reached")


def _reason(error: Exception) -> str:
    cause = error if isinstance(error, OSError) else error.__cause__ or error.__context__
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror.lower()
    return _shown(str(error)).rstrip(".").lower() or type(error).__name__


def _shown(text: str) -> str:
    return _QUOTES.split(text, maxsplit=1)[0][:200].strip()
