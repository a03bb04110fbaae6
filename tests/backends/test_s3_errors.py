"""S3 that cannot be had: one clear error that says what to do, soon, and never a secret."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from urllib.parse import quote

import pytest

import ckpt
from ckpt.dev.s3 import ACCESS_KEY, BUCKET, SECRET_KEY
from ckpt.errors import BackendUnavailableError, ConfigError

HUSH = "hush-hush"


@pytest.fixture
def endpoint(dev_server: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> str:
    """`fs.endpoint_url=…` of the server; the environment says nothing about credentials."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, os.devnull)
    return "fs.endpoint_url=" + dev_server("s3").partition("fs.endpoint_url=")[2].partition("&")[0]


GOOD = f"fs.key={ACCESS_KEY}&fs.secret={SECRET_KEY}"


@pytest.mark.parametrize(
    ("place", "options", "kind", "advice"),
    [
        (BUCKET, f"fs.key={ACCESS_KEY}&fs.secret={HUSH}", BackendUnavailableError, "check the credentials"),
        (BUCKET, f"fs.key={HUSH}&fs.secret={HUSH}", BackendUnavailableError, "check the credentials"),
        (BUCKET, f"fs.token={HUSH}&{GOOD}", BackendUnavailableError, "refuses this kind of request"),
        (BUCKET, "", BackendUnavailableError, "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
        ("no-such-bucket", GOOD, ConfigError, "no such bucket; create it, or correct the address"),
        ("no bucket's name", GOOD, ConfigError, "no bucket can have that name"),
        (f"me:{HUSH}@bucket", GOOD, ConfigError, "credentials belong in the environment"),
        (f"{BUCKET}/a//b", GOOD, ConfigError, "empty part"),
        (BUCKET, f"{GOOD}&fs.profile=nobody", ConfigError, "no such profile"),
        (BUCKET, f"{GOOD}&fs.secrets={HUSH}", ConfigError, "did you mean 'secret'"),
        (BUCKET, f"{GOOD}&fs.config_kwargs={{%22reed_timeout%22:1}}", ConfigError, "reed_timeout"),
        (BUCKET, f"{GOOD}&timeout_s=0", ConfigError, "timeout_s is above 0"),
    ],
)
def test_what_is_wrong_is_said_at_once(
    endpoint: str,
    caplog: pytest.LogCaptureFixture,
    place: str,
    options: str,
    kind: type[Exception],
    advice: str,
) -> None:
    caplog.set_level(logging.INFO)
    # Were it tried again, the test would time out.
    with pytest.raises(kind, match=advice) as caught:
        ckpt.open_backend(f"fsspec+s3://{quote(place)}?{endpoint}&{options}&retry_s=3600")
    shown = (
        "".join(traceback.format_exception(caught.value)) if kind is not ConfigError else str(caught.value)
    )
    for secret in (HUSH, SECRET_KEY):
        assert secret not in shown
        assert secret not in caplog.text


def test_an_endpoint_without_scheme_and_one_that_nobody_serves() -> None:
    with pytest.raises(ConfigError, match="starts with http:// or https://"):
        ckpt.open_backend(f"fsspec+s3://{BUCKET}?fs.endpoint_url=127.0.0.1:9000&{GOOD}")
    with pytest.raises(BackendUnavailableError, match="check that the store can be reached"):
        ckpt.open_backend(f"fsspec+s3://{BUCKET}?fs.endpoint_url=http://127.0.0.1:1&{GOOD}&retry_s=0.1")


def test_the_address_holds_no_secret_and_opens_the_store_again(
    endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nested = {
        "region_name": "us-east-1",
        "aws_access_key_id": ACCESS_KEY,
        "aws_secret_access_key": SECRET_KEY,
    }
    given = f"fsspec+s3://{BUCKET}/errors?{endpoint}&fs.client_kwargs={quote(json.dumps(nested))}"
    with ckpt.open_backend(given) as backend:
        backend.put_many("words", {b"be": b"2"})
        address, shown = backend.address, repr(backend)
    assert "region_name" in address
    for text in (address, shown):
        assert not any(secret in text for secret in (SECRET_KEY, ACCESS_KEY))
    with pytest.raises(BackendUnavailableError, match="check the credentials"):
        ckpt.open_backend(address)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    with ckpt.open_backend(address) as backend:
        assert backend.get_many("words", [b"be"]) == {b"be": b"2"}
        backend.drop("words")


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_a_missing_driver_is_named_with_its_command() -> None:
    script = "import sys, ckpt; sys.modules['s3fs'] = None; ckpt.open_backend('fsspec+s3://bucket/x')"
    said = run(script).stderr.splitlines()[-1]
    assert said.startswith("ckpt.errors.ConfigError: fsspec+s3 needs a package that is not installed")
    assert said.endswith("pip install 'ckpt[s3]'")


FORKED = """
import os, sys
import ckpt

backend = ckpt.open_backend(sys.argv[1])
backend.put_many("forked", {b"be": b"1"})
child = os.fork()
if child == 0:
    try:
        backend.put_many("forked", {b"be": b"2"})
    except ckpt.ConfigError as error:
        assert "open it again in this one" in str(error), error
        with ckpt.open_backend(sys.argv[1]) as own:
            own.put_many("forked", {b"or": b"3"})
        backend.close()
        os._exit(0)
    os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert backend.get_many("forked", [b"be", b"or"]) == {b"be": b"1", b"or": b"3"}
backend.drop("forked")
backend.close()
"""


def test_a_forked_process_opens_its_own_handle(endpoint: str) -> None:
    address = f"fsspec+s3://{BUCKET}/errors-fork?{endpoint}&{GOOD}"
    ran = run(FORKED, address)
    assert ran.returncode == 0, ran.stderr
