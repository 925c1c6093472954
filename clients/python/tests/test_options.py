"""Options as people write them, and tasks that cannot be."""

from __future__ import annotations

import math
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from conftest import WORKSPACE

import spindle
from spindle import Backoff, BytesSerializer, ConfigError, Spindle
from spindle._options import fields_of
from spindle._settings import Settings


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({}, {}),
        (
            {"priority": -5, "parked": True, "tags": ("a",)},
            {"priority": -5, "parked": True, "tags": ["a"]},
        ),
        ({"retries": 0}, {"fails_max": 1}),
        ({"retries": 4}, {"fails_max": 5}),
        ({"retries": 9}, {"fails_max": 10, "attempts_max": 50}),
        ({"retries": 9, "attempts": 12}, {"fails_max": 10, "attempts_max": 12}),
        ({"retries": math.inf}, {"fails_max": 0, "attempts_max": 0}),
        (
            {"ttr": 90, "ttl": timedelta(days=1), "keep": 0.0015},
            {"ttr_ms": 90_000, "ttl_ms": 86_400_000, "keep_ms": 2},
        ),
        ({"backoff": 5}, {"backoff": {"base_ms": 5000}}),
        (
            {"backoff": Backoff(1, factor=1.5, cap=60, jitter=0.5)},
            {"backoff": {"base_ms": 1000, "factor": 1.5, "cap_ms": 60_000, "jitter": 0.5}},
        ),
        (
            {"run_at": datetime(2030, 1, 31, 10, tzinfo=timezone(timedelta(hours=2)))},
            {"run_at": "2030-01-31T08:00:00.000Z"},
        ),
    ],
)
def test_options_are_fields_of_the_api(options: Any, fields: dict[str, Any]) -> None:
    assert fields_of(options, None) == fields


def test_a_delay_counts_from_the_submit() -> None:
    before = datetime.now(timezone.utc)
    run_at = fields_of({"delay": timedelta(hours=1)}, None)["run_at"]
    at = datetime.strptime(run_at, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=timezone.utc)
    late = (at - before).total_seconds() - 3600
    assert -0.01 < late < 60


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"retires": 3}, "no option retires"),
        ({"retries": -1}, "retries: -1 is no count"),
        ({"retries": 1.5}, "retries: 1.5 is no count"),
        ({"ttr": -1}, "ttr: -1 is no duration"),
        ({"ttl": math.inf}, "ttl: inf is no duration"),
        ({"ttr": "60s"}, "ttr: '60s' is no duration"),
        ({"run_at": datetime(2030, 1, 1)}, "no time zone"),
        ({"delay": 1, "run_at": datetime.now(timezone.utc)}, "only one of them"),
        ({"unique": True, "unique_mode": "skip"}, "none of existing, reject, replace"),
    ],
)
def test_wrong_options_are_refused_where_the_task_is_defined(options: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        Spindle().task(**options)(lambda: None)


def test_a_new_time_replaces_the_one_before() -> None:
    @Spindle().task(delay=60)
    def remind() -> None: ...

    at = datetime(2030, 1, 1, tzinfo=timezone.utc)
    assert remind.configure(run_at=at).message().fields["run_at"] == "2030-01-01T00:00:00.000Z"
    assert remind.configure(run_at=at).configure(delay=1).message().fields["run_at"] < "2030"


def test_arguments_that_a_payload_cannot_name_are_refused_at_the_definition() -> None:
    app = Spindle()
    with pytest.raises(TypeError, match="'args' has no name in a payload"):

        @app.task
        def all_of(*args: int) -> None: ...

    with pytest.raises(TypeError, match="one argument, the payload"):

        @app.task(raw=True)
        def two(one: int, other: int) -> None: ...


def test_wrong_arguments_are_refused_by_the_submitter() -> None:
    @Spindle("http://127.0.0.1:1").task
    def add(a: int, b: int) -> None: ...

    with pytest.raises(TypeError, match="missing a required argument: 'b'"):
        add.delay(1)  # type: ignore[call-arg]


def test_payloads_are_the_arguments_by_name() -> None:
    app = Spindle()

    @app.task
    def add(a: int, b: int = 2, **more: int) -> None: ...

    @app.task(raw=True, serializer=BytesSerializer())
    def store(content: bytes) -> None: ...

    assert add.message(1, c=3).content == b'{"a":1,"c":3}'
    message = store.message(b"\x00\xff")
    assert (message.content_type, message.content) == ("bytes", b"\x00\xff")


@pytest.mark.parametrize("value", [math.nan, {1, 2}, b"bytes", "\ud800"])
def test_a_payload_that_has_no_json_is_refused_by_the_submitter(value: Any) -> None:
    @Spindle("http://127.0.0.1:1").task
    def show(value: Any) -> None: ...

    with pytest.raises(spindle.SerializationError) as refused:
        show.delay(value)
    assert refused.value.code == "unwritable_payload"


def test_two_tasks_cannot_have_one_queue() -> None:
    app = Spindle()
    app.task(queue="mail")(lambda: 1)
    with pytest.raises(ValueError, match="'mail' has a task already"):

        @app.task
        def mail() -> None: ...


def test_unique_keys_are_of_the_payload_or_the_arguments() -> None:
    app = Spindle()

    def key(month: str, draft: bool = False) -> str:
        return month

    @app.task(unique=key)
    def report(month: str, draft: bool = False) -> None: ...

    def key_of(message: spindle.Message[None]) -> Any:
        return message.fields["unique"]["key"]

    assert key_of(report.message("2026-01", draft=True)) == "2026-01"
    whole = report.configure(unique=True)
    assert key_of(whole.message("2026-01")) == key_of(whole.message(month="2026-01"))
    assert key_of(whole.message("2026-01")) != key_of(whole.message("2026-02"))
    with pytest.raises(ValueError, match="1 to 255"):
        report.message("x" * 256)


def test_calling_a_task_calls_its_function() -> None:
    @Spindle("http://127.0.0.1:1").task
    def add(a: int, b: int) -> int:
        """Adds."""
        return a + b

    assert add(1, b=2) == 3
    assert (getattr(add, "__name__", ""), add.__doc__) == ("add", "Adds.")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("localhost:7420", "begins with http"),
        ("http://me:secret@host", "a token says who you are"),
        ("http://host/?x", "a host, a port"),
        ("http://", "a host, a port"),
        ("http://host:seven", "is no URL"),
        ("http://h\u00f6st", "printable ASCII"),
        ("http://host\r\nX: y", "ASCII|no URL|a host"),
    ],
)
def test_a_url_that_is_none_is_refused(url: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Settings(url)


def test_settings_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text("from-file\n")
    file.chmod(0o600)
    monkeypatch.setenv("SPINDLE_URL", "https://jobs.example/spindle/")
    monkeypatch.setenv("SPINDLE_TOKEN", "from-variable")
    settings = Settings()
    place = (settings.host, settings.port, settings.prefix, settings.token.current)
    assert place == ("jobs.example", 443, "/spindle", "from-variable")
    assert settings.tls is not None
    monkeypatch.setenv("SPINDLE_TOKEN_FILE", str(file))
    assert Settings().token.current == "from-file"
    assert Settings(token="given").token.current == "given"
    monkeypatch.setenv("SPINDLE_CERT", "alone.pem")
    with pytest.raises(ConfigError, match="needs its key"):
        Settings()


def test_a_token_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret")
    file.chmod(0o644)
    with pytest.raises(ConfigError, match="others may read") as refused:
        Settings(token_file=str(file))
    assert "secret" not in str(refused.value)
    with pytest.raises(ConfigError, match="token"):
        Settings(token="two words")


def test_the_version_is_that_of_the_workspace() -> None:
    manifest = (WORKSPACE / "Cargo.toml").read_text()
    assert f'version = "{spindle.__version__}"' in manifest
    for name in ("LICENSE-MIT", "LICENSE-APACHE"):
        ours = WORKSPACE / "clients/python" / name
        assert ours.read_bytes() == (WORKSPACE / name).read_bytes()
