"""What the machine has is found without being asked twice; what it lacks is one line with the next step."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ckpt.dev import MissingToolError, cache, tools
from ckpt.dev.install import install
from ckpt.dev.jars import jars

Write = Callable[[str, str], None]


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Programs that a test writes, in sh, before those of the system; there is no redis-server."""
    folder = tmp_path / "bin"
    folder.mkdir()
    system = os.environ["PATH"].split(os.pathsep)
    rest = [place for place in system if not os.path.exists(os.path.join(place, "redis-server"))]
    monkeypatch.setenv("PATH", os.pathsep.join([str(folder), *rest]))

    def write(name: str, script: str) -> None:
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)

    return write


def java(folder: Path, name: str, version: str, *, with_file: bool = True) -> str:
    """A Java of a version, which says it in a file or when asked."""
    (folder / name / "bin").mkdir(parents=True)
    path = folder / name / "bin" / "java"
    if with_file:
        (folder / name / "release").write_text(f'JAVA_VERSION="{version}"\n')
        path.write_text("#!/bin/sh\nexit 1\n")
    else:
        path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-21' >&2\n")
    path.chmod(0o755)
    return str(path)


class TestJava:
    @pytest.mark.parametrize("with_file", [True, False])
    def test_the_first_that_fits(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_file: bool
    ) -> None:
        java(tmp_path, "a", "1.8.0_412", with_file=with_file)
        middle = java(tmp_path, "b", "17.0.15", with_file=with_file)
        newest = java(tmp_path, "c", "25", with_file=with_file)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "a"))
        monkeypatch.setenv("PATH", os.path.dirname(newest))
        monkeypatch.setattr(tools, "SYSTEM_JAVAS", str(tmp_path / "*" / "bin" / "java"))
        assert tools.java("it", 11) == newest
        assert tools.java("it", 11, 17) == middle
        with pytest.raises(MissingToolError, match=r"it needs Java 18 to 21, but .*/a/bin/java is Java 8, "):
            tools.java("it", 18, 21)

    def test_one_that_cannot_be_started_does_not_fit(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "java").touch(0o755)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        monkeypatch.setenv("PATH", "")
        monkeypatch.setattr(tools, "SYSTEM_JAVAS", "")
        with pytest.raises(MissingToolError, match="is Java of an unknown version"):
            tools.java("it", 11)


class TestJars:
    FILLS = (
        'for word in "$@"; do case $word in -DoutputDirectory=*) echo jar > "${word#*=}/a.jar";; esac; done'
    )

    def test_an_interrupted_fetch_leaves_nothing_and_the_next_one_is_whole(
        self, empty_cache: Path, programs: Write
    ) -> None:
        programs("mvn", f"{self.FILLS}\necho '[ERROR] no route to host'\necho '[ERROR] more'\nexit 1")
        with pytest.raises(MissingToolError, match="of s3: no route to host; check the network"):
            jars("s3")
        assert os.listdir(empty_cache / "jars") == []
        programs("mvn", self.FILLS)
        folder = jars("s3")
        assert sorted(os.listdir(folder)) == ["a.jar", "pom.xml"]

    def test_they_are_fetched_once(self, empty_cache: Path, programs: Write, tmp_path: Path) -> None:
        programs("mvn", f"{self.FILLS}\necho called >> {tmp_path}/calls")
        said: list[str] = []
        assert jars("s3", report=said.append) == jars("s3", report=said.append)
        assert (tmp_path / "calls").read_text() == "called\n"
        assert said == ["fetching its jars with Maven, once"]


class TestInstall:
    def test_what_apt_cannot_do_is_one_line(self, empty_cache: Path, programs: Write) -> None:
        programs("apt-get", "echo 'E: Unable to locate package redis-server' >&2; exit 100")
        with pytest.raises(MissingToolError) as raised:
            install("redis")
        assert str(raised.value) == (
            "redis-server is missing; install it: sudo apt-get install redis-server (or: ckpt dev install "
            "redis) (tried in vain: apt-get: E: Unable to locate package redis-server)"
        )
        assert os.listdir(empty_cache / "tools") == []

    def test_without_apt_it_says_what_is_missing(
        self, empty_cache: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PATH", "")
        with pytest.raises(MissingToolError, match=r"^redis-server is missing; install it: sudo apt-get"):
            install("redis")

    def test_packages_are_unpacked_and_not_installed(
        self, empty_cache: Path, programs: Write, tmp_path: Path
    ) -> None:
        """Lists of packages are missing at first, as in a fresh container; nothing asks for rights."""
        programs(
            "apt-get",
            f"""echo "$@" >> {tmp_path}/calls
case "$*" in
  *update*) touch {tmp_path}/lists;;
  *--print-uris*) [ -e {tmp_path}/lists ] || exit 100
      echo "'http://debian/liblzf1_3.6_amd64.deb' liblzf1_3.6_amd64.deb 10192 SHA256:00";;
  *download*) touch liblzf1.deb redis-server.deb redis-tools.deb;;
esac""",
        )
        programs(
            "dpkg-deb",
            """case $2 in *redis-tools.deb)
  mkdir -p $3/usr/bin; printf '#!/bin/sh\\necho v=7' > $3/usr/bin/redis-server
  chmod +x $3/usr/bin/redis-server;;
*liblzf1.deb) mkdir -p $3/usr/lib/x; touch $3/usr/lib/x/liblzf.so.1;; esac""",
        )
        for _ in range(2):
            install("redis")
        calls = (tmp_path / "calls").read_text().splitlines()
        assert [call for call in calls if "download" in call][-1].endswith(
            "download liblzf1 redis-server redis-tools"
        )
        assert sum("update" in call for call in calls) == 1
        found = tools.redis_server()
        root = cache.folder("tools", "redis")
        assert found.path == f"{root}/usr/bin/redis-server"
        assert f"{root}/usr/lib/x" in found.environment["LD_LIBRARY_PATH"].split(":")

    def test_a_browser_is_unpacked_with_its_libraries(
        self, empty_cache: Path, programs: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        for name in ("sh", "mkdir", "touch", "chmod"):
            (tmp_path / "bin" / name).symlink_to(shutil.which(name) or "")
        monkeypatch.setenv("PATH", str(tmp_path / "bin"))
        with pytest.raises(
            MissingToolError, match=r"chromium is missing, .* \(or: ckpt dev install chromium\)"
        ):
            tools.chromium()
        programs("apt-get", "case $* in *download*) touch chromium-headless-shell.deb;; esac")
        programs(
            "dpkg-deb",
            """mkdir -p $3/usr/lib/chromium; touch $3/usr/lib/chromium/libx.so
printf '#!/bin/sh\\necho v=1' > $3/usr/lib/chromium/chromium-headless-shell
chmod +x $3/usr/lib/chromium/chromium-headless-shell""",
        )
        install("chromium")
        folder = cache.folder("tools", "chromium", "usr", "lib", "chromium")
        found = tools.chromium()
        assert found.path == f"{folder}/chromium-headless-shell"
        assert folder in found.environment["LD_LIBRARY_PATH"].split(":")

    def test_a_browser_that_sees_none_of_our_files_does_not_count(
        self, empty_cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        (tmp_path / "snap").touch(0o755)
        (tmp_path / "chromium").symlink_to(tmp_path / "snap")
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(MissingToolError, match="chromium is missing"):
            tools.chromium()
        (tmp_path / "chromium-headless-shell").touch(0o755)
        assert tools.chromium().path == str(tmp_path / "chromium-headless-shell")
