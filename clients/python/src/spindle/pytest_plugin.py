"""Fixtures for ``pytest``, there wherever this package is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .testing import SpindleServer


@pytest.fixture
def spindle_server(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SpindleServer]:
    """A server of this test alone; ``SPINDLE_URL`` is where it is."""
    from .testing import SpindleServer

    folder: Path = tmp_path_factory.mktemp("spindle")
    for name in ("TOKEN", "TOKEN_FILE", "CA_FILE", "CERT", "KEY"):
        monkeypatch.delenv(f"SPINDLE_{name}", raising=False)
    # A killed server keeps its data with `os` too; only a power cut would lose some.
    server = SpindleServer(folder, options=["--sync", "os", "--segment-size", "4MiB"])
    with server:
        monkeypatch.setenv("SPINDLE_URL", server.url)
        yield server
