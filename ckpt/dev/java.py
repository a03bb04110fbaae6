"""What all servers on a Java virtual machine have in common: jars, a Java that fits, and how to start it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ckpt.dev import cache, tools
from ckpt.dev.jars import jars
from ckpt.dev.server import Server

LOGBACK = """\
<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d %-5level %logger{36} %msg%n</pattern></encoder>
  </appender>
  <root level="warn"><appender-ref ref="out"/></root>
</configuration>
"""
"""What a server that logs with Logback has to say: warnings, on standard output."""


class JavaServer(Server):
    """A server whose processes are Java virtual machines with the jars of its kind."""

    least_java: ClassVar[int]
    most_java: ClassVar[int | None] = None

    def prepare(self, report: cache.Report = cache.silent, /) -> None:
        """Check Java's version, and fetch the jars if they are not there."""
        self._java()
        jars(self.kind, report=report)

    def _java(self) -> str:
        return tools.java(self.kind, self.least_java, self.most_java)

    def _jvm(self, *options: str, heap: str, class_path: Sequence[str] = ()) -> list[str]:
        """The command up to, and without, the main class."""
        return [
            self._java(),
            f"-Xmx{heap}",
            "-XX:+UseSerialGC",  # the least memory and threads
            "-XX:+ExitOnOutOfMemoryError",
            "-Djava.net.preferIPv4Stack=true",
            *options,
            "-cp",
            ":".join([*class_path, f"{jars(self.kind)}/*"]),
        ]
