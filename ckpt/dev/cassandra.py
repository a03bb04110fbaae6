"""Cassandra: one node; without settings every acknowledged write is on stable storage (`batch`)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import ClassVar

from ckpt.dev import probes
from ckpt.dev.jars import jars
from ckpt.dev.java import LOGBACK, JavaServer

SUPERUSER, PASSWORD = "cassandra", "cassandra"
"""The account that Cassandra itself makes where passwords are asked for."""
KEYSPACE = "ckpt"

_OPEN = (
    "--add-exports=java.base/jdk.internal.misc",
    "--add-exports=java.base/jdk.internal.ref",
    "--add-opens=java.base/sun.nio.ch",
    "--add-opens=java.base/java.io",
)


class CassandraServer(JavaServer):
    """One node of Cassandra; with `authenticator="PasswordAuthenticator"` it asks for a password.

    Then it has started when `SUPERUSER` can log in.
    """

    kind: ClassVar[str] = "cassandra"
    roles: ClassVar[tuple[str, ...]] = ("cassandra",)
    port_names: tuple[str, ...] = ("port", "storage", "ssl_storage")
    start_timeout_s: ClassVar[float] = 300.0
    stop_grace_s: ClassVar[float] = 20.0
    least_java: ClassVar[int] = 11
    most_java: ClassVar[int | None] = 17

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        authenticator: str = "AllowAllAuthenticator",
        commitlog_sync: str = "batch",
    ) -> None:
        super().__init__(folder)
        self._authenticator, self._commitlog_sync = authenticator, commitlog_sync

    @property
    def address(self) -> str:
        """`cassandra://…/ckpt`; a user and a password are the caller's to add."""
        return f"cassandra://{self.host}:{self.port}/{KEYSPACE}"

    def _files(self) -> Mapping[str, str]:
        with_passwords = self._authenticator == "PasswordAuthenticator"
        settings = {
            "cluster_name": "ckpt",
            "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
            "endpoint_snitch": "SimpleSnitch",
            "seed_provider": [
                {
                    "class_name": "org.apache.cassandra.locator.SimpleSeedProvider",
                    "parameters": [{"seeds": f"{self.host}:{self._port('storage')}"}],
                }
            ],
            "listen_address": self.host,
            "rpc_address": self.host,
            "storage_port": self._port("storage"),
            "ssl_storage_port": self._port("ssl_storage"),
            "native_transport_port": self.port,
            "authenticator": self._authenticator,
            "authorizer": "CassandraAuthorizer" if with_passwords else "AllowAllAuthorizer",
            "commitlog_sync": self._commitlog_sync,
            "num_tokens": 1,
            "initial_token": "0",
            "auto_bootstrap": False,
            "hinted_handoff_enabled": False,
            "memtable_heap_space": "64MiB",
            "memtable_offheap_space": "64MiB",
            "commitlog_segment_size": "8MiB",
            "commitlog_total_space": "128MiB",
            "file_cache_size": "32MiB",
            "key_cache_size": "8MiB",
            "concurrent_writes": 64,
            "concurrent_compactors": 1,
            "auto_snapshot": False,
            "disk_failure_policy": "die",
            "commit_failure_policy": "die",
        }
        if self._commitlog_sync == "periodic":
            settings["commitlog_sync_period"] = "10s"
        # JSON is YAML.
        return {"cassandra.yaml": json.dumps(settings, indent=2), "logback.xml": LOGBACK}

    def _commands(self) -> Mapping[str, Sequence[str]]:
        options = [
            f"-javaagent:{jars(self.kind)}/jamm-0.4.0.jar",
            "-Xms512m",
            "-XX:TieredStopAtLevel=1",
            "-XX:MaxDirectMemorySize=256m",
            f"-Dcassandra.config=file://{self._path('cassandra.yaml')}",
            f"-Dcassandra.storagedir={self.folder}",
            f"-Dlogback.configurationFile={self._path('logback.xml')}",
            "-Dcassandra-foreground=yes",
            "-Dcassandra.skip_wait_for_gossip_to_settle=0",
            "-Dcassandra.ring_delay_ms=0",
            "-Dcassandra.superuser_setup_delay_ms=0",
            "-Dio.netty.tryReflectionSetAccessible=true",
            "-Djdk.attach.allowAttachSelf=true",
            *(f"{option}=ALL-UNNAMED" for option in _OPEN),
        ]
        daemon = "org.apache.cassandra.service.CassandraDaemon"
        return {"cassandra": [*self._jvm(*options, heap="512m"), daemon]}

    def _answers(self) -> bool:
        # Later on, the user may have changed the password, so a login proves nothing any more.
        log_in = not self._has_answered and self._authenticator == "PasswordAuthenticator"
        user, password = (SUPERUSER, PASSWORD) if log_in else ("", "")
        return probes.cassandra_answers(self.host, self.port, user=user, password=password)
