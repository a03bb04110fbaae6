"""S3 through s3fs, with exactly one HTTP request for each request, and a limit of time for each.

s3fs asks more than it was asked: a HEAD before each GET, a LIST after each HEAD that finds nothing, a listing
of the folder above one that is empty, and five attempts of its own around five of botocore's. Here each
request is one call of the S3 API (`call_s3`), tried once; trying again is for `Requests`, which knows for how
long.

An object is one PUT, whole or not there. One of more than 16 MiB, which only a value or a batch of that size
makes, is uploaded in parts: invisible until they are complete, and complete only if the name is still free.
Whether a store heeds that condition too is tried out before it is relied on; if not, it is one PUT again.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from aiobotocore.config import AioConfig
from aiobotocore.session import AioSession
from fsspec.exceptions import FSTimeoutError
from s3fs import S3FileSystem

from ckpt.contract.addresses import suggestion
from ckpt.errors import ConfigError
from ckpt_backends.objects.drivers import LARGEST_BYTES, seconds_for

_DELETED_AT_ONCE = 1000
_PART_BYTES = 16 << 20
_LEFTOVER_AGE_S = 86400.0
_NOT_FROM_AN_ADDRESS = frozenset({"self", "kwargs", "session", "loop", "asynchronous"})
_REFUSED = frozenset({"PreconditionFailed", "412"})
_CREDENTIALS = (
    "check the credentials (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or fs.profile=NAME) and try again"
)
_ADVICE = {
    **dict.fromkeys(
        ("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken"), _CREDENTIALS
    ),
    **dict.fromkeys(
        ("NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError"), _CREDENTIALS
    ),
    **dict.fromkeys(
        ("AccessDenied", "AllAccessDisabled", "403"),
        "check the credentials; they must allow to list the bucket and to get, put and delete below the path",
    ),
    **dict.fromkeys(
        ("PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "301"),
        'the bucket is elsewhere: name its region with fs.client_kwargs={"region_name":"…"}',
    ),
    "RequestTimeTooSkewed": "this host's clock is wrong: set it and try again",
}
"""By S3's error code, or by the name of botocore's exception: what trying again does not mend."""
_REFUSAL = "the store refuses this kind of request: see that the options fs.… fit it"
_LASTING_STATUSES = frozenset({400, 401, 405, 411, 501})
_WRONG_ADDRESS = {
    "NoSuchBucket": "there is no such bucket; create it, or correct the address",
    "InvalidBucketName": "no bucket can have that name; correct the address",
    "ParamValidationError": "no bucket can have that name; correct the address",
    "ProfileNotFound": "there is no such profile; correct fs.profile, or create it with: aws configure",
}


class S3Driver:
    """Requests to S3 or a store that speaks its language."""

    conditional: bool | None = None
    names_refusals = True
    local_folder: str | None = None

    def __init__(self, filesystem: Any, root: str, *, timeout_s: float, owns_filesystem: bool) -> None:
        self._fs, self._root = filesystem, root.rstrip("/")
        self._timeout_s, self._owns = timeout_s, owns_filesystem
        self._heeds_parts: bool | None = None
        if owns_filesystem:
            filesystem.retries = 1

    def put(self, path: str, data: bytes, *, only_if_absent: bool) -> None:
        condition = {"IfNoneMatch": "*"} if only_if_absent else {}
        if len(data) > _PART_BYTES and (not only_if_absent or self._heeds_conditions_of_parts()):
            self._put_parts(path, data, condition)
        else:
            self._ask("put_object", path, Body=data, **condition)

    def _put_parts(self, path: str, data: bytes, condition: Mapping[str, str]) -> None:
        upload = self._ask("create_multipart_upload", path)["UploadId"]
        try:
            parts = []
            for number, start in enumerate(range(0, len(data), _PART_BYTES), 1):
                part = data[start : start + _PART_BYTES]
                sent = self._ask("upload_part", path, UploadId=upload, PartNumber=number, Body=part)
                parts.append({"PartNumber": number, "ETag": sent["ETag"]})
            done = {"Parts": parts}
            self._ask("complete_multipart_upload", path, UploadId=upload, MultipartUpload=done, **condition)
        except BaseException:
            with contextlib.suppress(Exception):
                self._ask("abort_multipart_upload", path, UploadId=upload)
            raise

    def _heeds_conditions_of_parts(self) -> bool:
        """Whether the store refuses to complete what exists: so the probe, which does."""
        if self._heeds_parts is None:
            try:
                self._put_parts(f"{self._root}/probe", b"?", {"IfNoneMatch": "*"})
                self._heeds_parts = False
            except FileExistsError:
                self._heeds_parts = True
        return self._heeds_parts

    def get(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        limit_s = seconds_for(self._timeout_s, LARGEST_BYTES if end is None else end - start)
        try:
            with _translated(path, limit_s):
                # With a range given, s3fs does not ask for the size first.
                return bytes(self._fs.cat_file(path, start=start, end=end, timeout=limit_s))
        except OSError as error:
            if _code(error) in ("InvalidRange", "416"):
                return b""  # which no object of ours is: its reader will see that it is damaged
            raise

    def head(self, path: str) -> None:
        self._ask("head_object", path)

    def list(self, folder: str) -> dict[str, int]:
        prefix = self._fs.split_path(f"{folder}/")[1]
        found: dict[str, int] = {}
        more: dict[str, str] = {}
        while True:
            page = self._ask("list_objects_v2", folder, Prefix=prefix, Delimiter="/", **more)
            rows = page.get("Contents", ())
            found.update((row["Key"].removeprefix(prefix), int(row["Size"])) for row in rows)
            if not page.get("IsTruncated"):
                return found
            more = {"ContinuationToken": page["NextContinuationToken"]}

    def delete(self, paths: Sequence[str]) -> None:
        for start in range(0, len(paths), _DELETED_AT_ONCE):
            some = paths[start : start + _DELETED_AT_ONCE]
            objects = [{"Key": self._fs.split_path(path)[1]} for path in some]
            self._ask("delete_objects", some[0], Delete={"Objects": objects, "Quiet": True})

    def remove_leftovers(self, folders: Iterable[str]) -> None:
        """Give up uploads in parts that are too old to be under way."""
        del folders
        prefix = self._fs.split_path(f"{self._root}/")[1]
        found = self._ask("list_multipart_uploads", self._root, Prefix=prefix).get("Uploads", ())
        bucket = self._fs.split_path(self._root)[0]
        for one in found:
            if one["Key"].startswith(prefix) and one["Initiated"].timestamp() < time.time() - _LEFTOVER_AGE_S:
                self._ask("abort_multipart_upload", f"{bucket}/{one['Key']}", UploadId=one["UploadId"])

    def lasting_advice(self, error: BaseException | None) -> str | None:
        if error is None:
            return None
        if advice := _ADVICE.get(_code(error)):
            return advice
        if isinstance(error, PermissionError):
            return _CREDENTIALS
        status = _answer(error).get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        return _REFUSAL if status in _LASTING_STATUSES else None

    def wrong_address(self, error: BaseException) -> str | None:
        return _WRONG_ADDRESS.get(_code(error))

    def close(self) -> None:
        if self._owns:
            self._owns = False
            self._fs.close_session(self._fs.loop, self._fs.s3)

    def _ask(self, method: str, path: str, **arguments: Any) -> Any:
        """One call of the S3 API; s3fs leaves out what it does not take, such as the key of a listing."""
        bucket, key, _ = self._fs.split_path(path)
        limit_s = seconds_for(self._timeout_s, len(arguments.get("Body", b"")))
        with _translated(path, limit_s):
            return self._fs.call_s3(method, Bucket=bucket, Key=key, timeout=limit_s, **arguments)


@contextlib.contextmanager
def _translated(path: str, limit_s: float) -> Iterator[None]:
    """S3's own words for what drivers promise to say in Python's."""
    try:
        yield
    except FSTimeoutError as error:
        raise TimeoutError(f"no answer within {limit_s:g} s") from error
    except Exception as error:
        code = _code(error)
        if code in _REFUSED:
            raise FileExistsError(path) from error
        raise


def _code(error: BaseException) -> str:
    """S3's error code if the server said one, else what kind of error it is."""
    return str(_answer(error).get("Error", {}).get("Code", type(error).__name__))


def _answer(error: BaseException) -> Mapping[str, Any]:
    """What the server said, if it said anything."""
    for each in (error, error.__cause__):
        answer = getattr(each, "response", None)
        if isinstance(answer, Mapping):
            return answer
    return {}


def s3_arguments(arguments: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
    """The arguments of an S3FileSystem that answers or fails in bounded time, and is quick to make."""
    known = {*inspect.signature(S3FileSystem.__init__).parameters, "profile"} - _NOT_FROM_AN_ADDRESS
    for name in arguments:
        if name not in known:
            raise ConfigError(f"s3fs has no argument {name!r} for fs.{name}; {suggestion(name, known)}")
    endpoint = arguments.get("endpoint_url")
    if endpoint is not None and not re.match(r"https?://[^/]", endpoint):
        raise ConfigError(
            "fs.endpoint_url starts with http:// or https://, for example http://127.0.0.1:9000"
        )
    config = {
        "connect_timeout": timeout_s,
        "read_timeout": timeout_s,
        "retries": {"total_max_attempts": 1},
        # Together a fifth of the time that botocore needs for a request: to describe itself anew each time,
        # and to check arguments that are right by construction.
        "user_agent": "ckpt",
        "parameter_validation": False,
        **(_no_extra_checksums() if endpoint is not None else {}),
        **(arguments.get("config_kwargs") or {}),
    }
    AioConfig(**config)  # raises TypeError for what botocore does not know
    others = {name: value for name, value in arguments.items() if name not in ("profile", "config_kwargs")}
    session = AioSession(profile=arguments.get("profile"))
    # To read the description of the S3 API takes ten times as long as all the rest.
    session.register_component("data_loader", _api_descriptions())
    return {"session": session, **others, "config_kwargs": config}


def _no_extra_checksums() -> dict[str, str]:
    """For stores other than Amazon's: many refuse the checksums that Amazon has added to its protocol.

    The signature covers what is sent in the clear, TLS the rest, and every frame has checksums of its own.
    """
    names = ("request_checksum_calculation", "response_checksum_validation")
    return {name: "when_required" for name in names if name in AioConfig.OPTION_DEFAULTS}


@functools.cache
def _api_descriptions() -> Any:
    return AioSession().get_component("data_loader")
