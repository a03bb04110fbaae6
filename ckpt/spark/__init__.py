"""Spark Structured Streaming on ckpt: the state of stateful operators in any backend.

`configure` prepares a session; `provider_jar` finds or builds the provider that Spark loads. The provider
itself is Scala, in `jvm`, and talks to the sidecar of its host (`ckpt.sidecar`).
"""

from ckpt.spark.jar import provider_jar
from ckpt.spark.settings import Reach, configure, session_settings

__all__ = ["Reach", "configure", "provider_jar", "session_settings"]
