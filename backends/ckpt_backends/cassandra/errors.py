"""What went wrong with Cassandra, in words that say what to do: each failure becomes one CkptError.

Messages of the server are shown only for requests that it finds wrong; those name tables and columns. Keys
and values are sent apart from the statements, so none of them appears there.
"""

from __future__ import annotations

import os

import cassandra
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionBusy, ConnectionException, ProtocolError
from cassandra.protocol import ErrorMessage

from ckpt.errors import BackendUnavailableError, CkptError, ConfigError
from ckpt_backends.cells import NotNowError

DRIVER_ERRORS = (
    cassandra.DriverException,
    NoHostAvailable,
    ConnectionException,
    ConnectionBusy,
    ProtocolError,
    ErrorMessage,
    OSError,
    # A session that is being closed.
    RuntimeError,
)
"""What the driver may raise; it has no root of its own for that."""

_SHOWN = 200


def translated(error: Exception, at: str) -> CkptError:
    """The error to raise for one of the driver's."""
    if isinstance(error, CkptError):
        return error
    if isinstance(error, NoHostAvailable):
        return _unreachable(error, at)
    if isinstance(error, (cassandra.OperationTimedOut, cassandra.Timeout)):
        return NotNowError(f"{at} did not answer in time; check that it runs, or raise timeout_s")
    if isinstance(error, cassandra.Unavailable):
        return NotNowError(
            f"{at} has too few replicas alive for the consistency asked for; start the others, or choose a "
            "lower consistency="
        )
    if isinstance(error, cassandra.ReadFailure):
        return NotNowError(f"replicas of {at} failed to read; look at their logs for the reason")
    if isinstance(error, cassandra.WriteFailure):
        return NotNowError(f"replicas of {at} failed to write; look at their logs for the reason")
    if isinstance(error, cassandra.AuthenticationFailed):
        return _refused(at)
    if isinstance(error, cassandra.Unauthorized):
        return ConfigError(
            f"{at} does not permit this user what a store needs: grant SELECT and MODIFY on the keyspace, "
            "and CREATE where it does not exist yet"
        )
    if isinstance(error, cassandra.RequestValidationException):
        return BackendUnavailableError(
            f"{at} refuses a request ({_shown(error)}); if its tables were dropped or altered, open the "
            "store again"
        )
    if isinstance(error, cassandra.UnresolvableContactPoints):
        return NotNowError(f"{at} cannot be reached (no host has an address); check the names of the hosts")
    return NotNowError(f"{at} gave no answer ({type(error).__name__}); check that it runs, then try again")


def _unreachable(error: NoHostAvailable, at: str) -> CkptError:
    reasons = list(error.errors.values()) if isinstance(error.errors, dict) else []
    for reason in reasons:
        if isinstance(reason, cassandra.AuthenticationFailed):
            return _refused(at)
        # The driver makes another error of those of TLS, and keeps only their text.
        if "CERTIFICATE_VERIFY_FAILED" in str(reason):
            return ConfigError(
                f"the certificate of {at} is not trusted, or is for another host; name the authority that "
                "signed it with tls_ca="
            )
        if "[SSL" in str(reason):
            return ConfigError(
                f"{at} and this client do not agree on TLS; ask with tls=true exactly where the server "
                "speaks TLS, with tls_cert and tls_key if it asks for a certificate"
            )
    known = {_reason(reason) for reason in reasons} or {"no host is up"}
    return NotNowError(
        f"{at} cannot be reached ({', '.join(sorted(known))}); check that it runs and can be reached"
    )


def _reason(error: object) -> str:
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno).lower()
    return type(error).__name__


def _refused(at: str) -> ConfigError:
    return ConfigError(
        f"{at} refuses the user or the password; put them into the address (cassandra://user:password@host), "
        "a password_file, or the environment variable that password_env names"
    )


def _shown(error: Exception) -> str:
    text = str(error)
    _, _, quoted = text.partition('message="')
    return (quoted.rstrip('"') or text)[:_SHOWN]
