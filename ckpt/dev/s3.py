"""An S3 service: S3Proxy on a folder, with one bucket; the objects are plain files in it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import ClassVar
from urllib.parse import urlencode

from ckpt.dev import probes
from ckpt.dev.java import LOGBACK, JavaServer

BUCKET = "ckpt"
ACCESS_KEY, SECRET_KEY = "ckpt-dev", "not-a-secret"
"""No secrets: the server is there for this machine and for tests only."""


class S3Server(JavaServer):
    """One S3Proxy; its bucket is there from the start."""

    kind: ClassVar[str] = "s3"
    roles: ClassVar[tuple[str, ...]] = ("s3",)
    start_timeout_s: ClassVar[float] = 120.0
    least_java: ClassVar[int] = 17

    @property
    def endpoint(self) -> str:
        """The URL of the service, for any S3 client."""
        return f"http://{self.host}:{self.port}"

    @property
    def address(self) -> str:
        """`fsspec+s3://…` with everything that s3fs needs to know."""
        options = {"fs.key": ACCESS_KEY, "fs.secret": SECRET_KEY, "fs.endpoint_url": self.endpoint}
        return f"fsspec+s3://{BUCKET}/dev?{urlencode(options, safe=':/')}"

    def _files(self) -> Mapping[str, str]:
        os.makedirs(self._path("data", BUCKET), mode=0o700, exist_ok=True)
        properties = {
            "s3proxy.endpoint": self.endpoint,
            "s3proxy.authorization": "aws-v2-or-v4",
            "s3proxy.identity": ACCESS_KEY,
            "s3proxy.credential": SECRET_KEY,
            "jclouds.provider": "filesystem-nio2",
            "jclouds.filesystem.basedir": self._path("data").replace("\\", "\\\\"),
        }
        return {
            "s3proxy.properties": "".join(f"{name}={value}\n" for name, value in properties.items()),
            "logback.xml": LOGBACK,
        }

    def _commands(self) -> Mapping[str, Sequence[str]]:
        logging = f"-Dlogback.configurationFile={self._path('logback.xml')}"
        main = ["org.gaul.s3proxy.Main", "--properties", self._path("s3proxy.properties")]
        return {"s3": [*self._jvm(logging, heap="256m"), *main]}

    def _answers(self) -> bool:
        return probes.http_answers(self.host, self.port)
