"""Every server backend reads passwords, certificates and hosts in one way, and tells no secret."""

from __future__ import annotations

import ssl
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from hypothesis import given
from hypothesis import strategies as st

import ckpt
from ckpt.contract.addresses import parse_address
from ckpt.dev import RedisServer, TlsFiles
from ckpt.errors import CkptError, ConfigError
from ckpt_backends.cells.access import LoginOptions, TlsOptions, read_location, shown_address, tls_context

SERVERS = ("cassandra", "hbase", "redis")
LOGINS = ("cassandra", "redis")
Issue = Callable[[str], TlsFiles]


# -- addresses -----------------------------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
HOSTS = st.lists(
    st.tuples(st.sampled_from(["db", "10.0.0.1", "::1", "a-b.example"]), st.integers(1, 65535)),
    min_size=1,
    max_size=3,
)


@given(user=TEXT, password=TEXT, hosts=HOSTS)
def test_what_is_escaped_is_read_as_it_was_and_the_password_is_not_shown(
    user: str, password: str, hosts: list[tuple[str, int]]
) -> None:
    from urllib.parse import quote

    listed = ",".join(f"[{h}]:{p}" if ":" in h else f"{h}:{p}" for h, p in hosts)
    place = read_location(parse_address(f"x://{quote(user, safe='')}:{quote(password, safe='')}@{listed}/a"))
    assert (place.username, place.password, place.hosts(1)) == (user, password, tuple(hosts))
    again = read_location(parse_address(place.shown(1, place.path)))
    assert (again.username, again.password, again.hosts(1)) == (user, None, tuple(hosts))


@pytest.mark.parametrize("scheme", SERVERS)
@pytest.mark.parametrize(
    "location",
    [
        "ada:hush",
        "ada:hush/0",
        "ada:x?hush@host/0",
        "ada:x?hush=y@host/0",
        "ada:x?a=b&hush@host/0",
        "ada:hu/hush@host/0",
        "ada:hu:hush@host/0",
        "ada:hu@hush@host/0",
        "ada:hush@host:port/0",
        "ada:hush@/0",
    ],
)
def test_a_password_in_an_address_that_cannot_be_read_is_not_repeated(scheme: str, location: str) -> None:
    with pytest.raises(ConfigError, match=r"percent escapes") as caught:
        ckpt.open_backend(f"{scheme}://{location}")
    assert "hush" not in "".join(traceback.format_exception(caught.value)).replace(location, "")


def test_the_shown_address_has_what_differs_from_the_defaults() -> None:
    options = LoginOptions(mode="read", timeout_s=2.5, tls=True, tls_ca="/a b?.pem")
    shown = shown_address("x://host:1/a", options)
    assert dict(parse_address(shown).options) == {
        "mode": "read",
        "timeout_s": "2.5",
        "tls": "true",
        "tls_ca": "/a b?.pem",
    }
    assert shown_address("x://host:1/a", LoginOptions()) == "x://host:1/a"


# -- passwords -----------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", LOGINS)
@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "is empty"), (b"\n", "is empty"), (b"hu\xffsh", "is not UTF-8 text"), (None, "cannot be read")],
)
def test_a_password_file_without_a_password_is_refused(
    scheme: str, content: bytes | None, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "password"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=f"password_file .* {message}") as caught:
        ckpt.open_backend(f"{scheme}://ada@127.0.0.1:9", password_file=str(file))
    told = "".join(traceback.format_exception(caught.value))
    assert "xff" not in told
    assert "hu" not in str(caught.value).replace(str(file), "")


# -- TLS -----------------------------------------------------------------------------------------


def test_without_tls_there_is_no_context() -> None:
    assert tls_context(TlsOptions()) is None


@pytest.mark.parametrize("scheme", SERVERS)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tls_ca": "/ca.pem"}, "need tls=true"),
        ({"tls_cert": "/cert.pem"}, "need tls=true"),
        ({"tls": True, "tls_key": "/key.pem"}, "give both"),
        ({"tls": True, "tls_ca": "/not/there.pem"}, "tls_ca /not/there.pem cannot be used: No such file"),
        ({"tls": True, "tls_cert": "/not/there.pem"}, "tls_cert /not/there.pem cannot be used: No such file"),
    ],
)
def test_tls_that_cannot_work_is_refused_in_the_same_words(
    scheme: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        ckpt.open_backend(f"{scheme}://127.0.0.1:9", **options)


@pytest.mark.parametrize("scheme", SERVERS)
def test_a_file_that_is_no_pem_is_named(scheme: str, tmp_path: Path, tls_files: Issue) -> None:
    file = tmp_path / "some.pem"
    file.write_text("hush")
    for name in ("tls_ca", "tls_cert"):
        with pytest.raises(ConfigError, match=f"{name} .*some.pem cannot be used: it is not"):
            ckpt.open_backend(f"{scheme}://127.0.0.1:9", tls=True, **{name: str(file)})
    # Not the key of that certificate.
    options = {"tls": True, "tls_cert": tls_files("one").certificate, "tls_key": tls_files("other").key}
    with pytest.raises(ConfigError, match=r"tls_cert .*one.pem with tls_key .*other-key.pem cannot be used"):
        ckpt.open_backend(f"{scheme}://127.0.0.1:9", **options)


@pytest.mark.parametrize("scheme", SERVERS)
def test_an_encrypted_key_is_refused_without_asking_at_the_terminal(
    scheme: str, tls_files: Issue, tmp_path: Path
) -> None:
    files = tls_files("locked")
    key = serialization.load_pem_private_key(Path(files.key).read_bytes(), None)
    pass_phrase = serialization.BestAvailableEncryption(b"hush")
    locked = tmp_path / "locked.pem"
    locked.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, pass_phrase)
        + Path(files.certificate).read_bytes()
    )
    with pytest.raises(ConfigError, match="is encrypted; name one without a pass phrase"):
        ckpt.open_backend(f"{scheme}://127.0.0.1:9", tls=True, tls_cert=str(locked))


def test_authorities_of_the_system_are_not_trusted_beside_tls_ca(
    tls_files: Issue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", tls_files("system").authority)
    options = TlsOptions(tls=True, tls_ca=tls_files("ours").authority)
    context = tls_context(options)
    assert context is not None
    (trusted,) = context.get_ca_certs()
    assert (("organizationName", "ours"),) in trusted["subject"]
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize("kind", ["server", "cluster"])
def test_redis_trusts_only_whom_tls_ca_names(
    kind: str,
    private_server: Callable[..., RedisServer],
    tls_files: Issue,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = tls_files("theirs")
    theirs, other = files.authority, tls_files("other").authority
    config = {"cluster-enabled": "yes", "tls-cluster": "yes"} if kind == "cluster" else {}
    server = private_server("redis", tls=files, config=config)
    address = f"rediss://{server.host}:{server.port}/0?cluster={kind == 'cluster'}"
    if kind == "cluster":
        import redis

        with redis.Redis("127.0.0.1", server.port, ssl=True, ssl_ca_certs=theirs) as client:
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
    monkeypatch.setenv("SSL_CERT_FILE", theirs)
    with ckpt.open_backend(address) as backend:
        backend.put_many("words", {b"be": b"2"})
    with ckpt.open_backend(address, tls_ca=theirs) as backend:
        assert backend.get_many("words", [b"be"]) == {b"be": b"2"}
    with pytest.raises(CkptError, match=r"certificate .* is not trusted"):
        ckpt.open_backend(address, tls_ca=other, retry_s=0)
