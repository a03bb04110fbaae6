"""HBase on one machine: every acknowledged write is in the write-ahead log on stable storage.

The master brings its region server and ZooKeeper along; clients talk to the Thrift server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar
from xml.sax.saxutils import escape

from ckpt.dev import probes
from ckpt.dev.java import JavaServer

TABLE = "ckpt"

_OPEN = ("java.base/java.nio", "java.base/sun.nio.ch", "java.base/java.lang")
_LOG4J = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %-5p %c{2} %m%n
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
"""


class HBaseServer(JavaServer):
    """HBase with two processes, `master` and `thrift`, each of which can be killed alone."""

    kind: ClassVar[str] = "hbase"
    roles: ClassVar[tuple[str, ...]] = ("master", "thrift")
    port_names: tuple[str, ...] = ("thrift", "master", "regionserver", "zookeeper")
    start_timeout_s: ClassVar[float] = 300.0
    stop_grace_s: ClassVar[float] = 15.0
    least_java: ClassVar[int] = 11
    most_java: ClassVar[int | None] = 17

    @property
    def address(self) -> str:
        """`hbase://…/ckpt`: the Thrift server and a table."""
        return f"hbase://{self.host}:{self.port}/{TABLE}"

    def _files(self) -> Mapping[str, str]:
        settings = {
            "hbase.cluster.distributed": "false",
            "hbase.rootdir": f"file://{self._path('data', 'hbase')}",
            "hbase.tmp.dir": self._path("data", "tmp"),
            "hbase.zookeeper.property.dataDir": self._path("data", "zookeeper"),
            "hbase.zookeeper.quorum": self.host,
            "hbase.zookeeper.property.clientPort": self._port("zookeeper"),
            # The checksumming file system over it cannot sync.
            "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
            "hbase.unsafe.stream.capability.enforce": "true",
            "hbase.wal.provider": "filesystem",
            "hbase.wal.hsync": "true",
            "hbase.master.port": self._port("master"),
            "hbase.regionserver.port": self._port("regionserver"),
            "hbase.master.info.port": "-1",
            "hbase.regionserver.info.port": "-1",
            "hbase.thrift.info.port": "-1",
            "hbase.master.hostname": "localhost",
            "hbase.regionserver.hostname": "localhost",
            "hbase.master.ipc.address": self.host,
            "hbase.regionserver.ipc.address": self.host,
            "hbase.thrift.server.socket.read.timeout": "600000",
            "hbase.master.wait.on.regionservers.mintostart": "1",
            "hbase.master.wait.on.regionservers.maxtostart": "1",
            "hbase.regionserver.msginterval": "500",
        }
        properties = "".join(
            f"  <property><name>{name}</name><value>{escape(str(value))}</value></property>\n"
            for name, value in settings.items()
        )
        return {
            "conf/hbase-site.xml": f"<configuration>\n{properties}</configuration>\n",
            "conf/log4j2.properties": _LOG4J,
        }

    def _commands(self) -> Mapping[str, Sequence[str]]:
        opens = [f"--add-opens={module}=ALL-UNNAMED" for module in _OPEN]
        master = self._jvm(*opens, heap="512m", class_path=[self._path("conf")])
        thrift = self._jvm(*opens, heap="128m", class_path=[self._path("conf")])
        listen = ["--bind", self.host, "-p", str(self.port), "--infoport", "-1"]
        return {
            "master": [*master, "org.apache.hadoop.hbase.master.HMaster", "start"],
            "thrift": [*thrift, "org.apache.hadoop.hbase.thrift.ThriftServer", "start", *listen],
        }

    def _answers(self) -> bool:
        return probes.hbase_answers(self.host, self.port)
