"""Tokens and TLS."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Background, until

import spindle
from spindle import Spindle
from spindle.testing import SpindleServer

TOKENS = """
[[token]]
name = "all"
sha256 = "{all}"
roles = ["submit", "work", "inspect", "manage"]
queues = ["*"]

[[token]]
name = "submit"
sha256 = "{submit}"
roles = ["submit", "read"]
queues = ["*"]

[[token]]
name = "worker"
certificate = "worker.example.com"
roles = ["submit", "work", "inspect"]
queues = ["*"]
"""


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[SpindleServer]:
    """A server that asks for tokens, speaks TLS only, and knows a client's certificate."""
    make_certificates(tmp_path)
    tokens = tmp_path / "tokens.toml"
    digests = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("all", "submit")}
    tokens.write_text(TOKENS.format(**digests))
    tokens.chmod(0o600)
    options = [
        "--sync",
        "os",
        "--segment-size",
        "4MiB",
        "--tokens",
        str(tokens),
        "--require-auth",
        "--http-tls",
        "required",
    ]
    options += ["--tls-cert", f"{tmp_path}/server.pem", "--tls-key", f"{tmp_path}/server.key"]
    options += ["--tls-client-ca", f"{tmp_path}/ca.pem"]
    with SpindleServer(tmp_path / "server", options=options) as server:
        yield server


def make_certificates(folder: Path) -> None:
    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    openssl(
        "req",
        "-x509",
        *key,
        "-days",
        "2",
        "-subj",
        "/CN=Test CA",
        "-keyout",
        "ca.key",
        "-out",
        "ca.pem",
        "-addext",
        "keyUsage=critical,keyCertSign",
    )
    for name, common, usage in (
        ("server", "localhost", "serverAuth"),
        ("client", "worker.example.com", "clientAuth"),
    ):
        (folder / f"{name}.ext").write_text(
            f"subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage={usage}\n"
            "authorityKeyIdentifier=keyid\n"
        )
        openssl(
            "req", *key, "-subj", f"/CN={common}", "-keyout", f"{name}.key", "-out", f"{name}.csr"
        )
        openssl(
            "x509",
            "-req",
            "-in",
            f"{name}.csr",
            "-CA",
            "ca.pem",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-days",
            "2",
            "-out",
            f"{name}.pem",
            "-extfile",
            f"{name}.ext",
        )
        (folder / f"{name}.key").chmod(0o600)


def work_once(app: Spindle, worker: Background) -> None:
    app.task(queue="double")(lambda number: number * 2)
    job = app.submit(app.message("double", {"number": 2}))
    worker.start(app)
    assert job.result(30) == 4
    worker.stop()
    assert worker.join() is not None
    assert worker.error is None


def test_a_token_over_tls_submits_and_works(
    guarded: SpindleServer, tmp_path: Path, worker: Background
) -> None:
    with Spindle(guarded.url, token="all", ca_file=f"{tmp_path}/ca.pem") as app:
        work_once(app, worker)


def test_a_client_certificate_says_who_asks(
    guarded: SpindleServer, tmp_path: Path, worker: Background
) -> None:
    cert, key = f"{tmp_path}/client.pem", f"{tmp_path}/client.key"
    with Spindle(guarded.url, ca_file=f"{tmp_path}/ca.pem", cert_file=cert, key_file=key) as app:
        work_once(app, worker)


def test_a_wrong_token_is_refused_and_ends_a_worker(
    guarded: SpindleServer, tmp_path: Path, worker: Background
) -> None:
    ca_file = f"{tmp_path}/ca.pem"
    with Spindle(guarded.url, token="wrong", ca_file=ca_file) as app:
        with pytest.raises(spindle.UnauthorizedError):
            app.submit(app.message("q"))
        app.task(queue="q")(lambda: None)
        worker.start(app)
        worker.join()
        assert isinstance(worker.error, spindle.WorkerError)
        assert "unauthorized" in str(worker.error)
        assert "wrong" not in str(worker.error)


def test_a_token_may_not_do_what_its_roles_do_not_say(
    guarded: SpindleServer, tmp_path: Path, worker: Background
) -> None:
    with Spindle(guarded.url, token="submit", ca_file=f"{tmp_path}/ca.pem") as app:
        app.task(queue="q")(lambda: 7)
        job = app.submit(app.message("q"))
        with pytest.raises(spindle.ForbiddenError):
            job.cancel()
        worker.start(app)
        worker.join()
        assert isinstance(worker.error, spindle.WorkerError)
        with Spindle(guarded.url, token="all", ca_file=f"{tmp_path}/ca.pem") as other:
            other.task(queue="q")(lambda: 7)
            assert other.worker().drain().completed == 1
        with pytest.raises(spindle.SerializationError, match="role inspect"):
            job.result(30)


def test_a_token_file_is_read_again_when_its_token_is_refused(
    guarded: SpindleServer, tmp_path: Path, worker: Background
) -> None:
    file = tmp_path / "mine.token"
    file.write_text("all\n")
    file.chmod(0o600)
    with Spindle(guarded.url, token_file=str(file), ca_file=f"{tmp_path}/ca.pem") as app:
        double = app.task(queue="double")(lambda number: number * 2)
        worker.start(app)
        assert double.delay(1).result(30) == 2
        file.write_text("new\n")
        digest = hashlib.sha256(b"new").hexdigest()
        old = hashlib.sha256(b"all").hexdigest()
        entries = (tmp_path / "tokens.toml").read_text().replace(old, digest)
        renewed = tmp_path / "renewed"
        renewed.write_text(entries)
        renewed.chmod(0o600)
        renewed.rename(tmp_path / "tokens.toml")
        until(lambda: refuses(guarded, tmp_path, "all"), "the new file")
        assert double.delay(2).result(30) == 4


def refuses(server: SpindleServer, folder: Path, token: str) -> bool:
    with Spindle(server.url, token=token, ca_file=f"{folder}/ca.pem") as app:
        try:
            app.submit(app.message("other"))
        except spindle.UnauthorizedError:
            return True
        return False


def test_a_server_that_nobody_vouches_for_is_refused(guarded: SpindleServer) -> None:
    with (
        Spindle(guarded.url, token="all", retry_for=0) as app,
        pytest.raises(spindle.ConnectionFailedError, match="certificate verify failed"),
    ):
        app.submit(app.message("q"))
    plain = Spindle(guarded.url.replace("https", "http"), token="all", retry_for=0)
    with plain, pytest.raises(spindle.SpindleError):
        plain.submit(plain.message("q"))
