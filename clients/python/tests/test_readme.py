"""The README's programs do what the README says."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

from conftest import WORKSPACE, until

from spindle import Spindle

README = (WORKSPACE / "clients/python/README.md").read_text()
PROGRAMS = re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def run(folder: Path, *arguments: str) -> str:
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_first_five_minutes_work(app: Spindle, tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(PROGRAMS[0])
    worker = subprocess.Popen(
        [sys.executable, "-m", "spindle", "worker", "tasks:app"], cwd=tmp_path
    )
    try:
        shown = run(tmp_path, "-c", PROGRAMS[1])
    finally:
        worker.terminate()
        assert worker.wait(30) == 0
    expected = re.search(r"print\(.*#\s(.*)", PROGRAMS[1])
    assert expected is not None
    assert shown == f"1 {expected.group(1)}\n"


def test_the_flow_s_program_works(app: Spindle, tmp_path: Path) -> None:
    program = next(program for program in PROGRAMS if "results_before" in program)
    (tmp_path / "photos.py").write_text(program)
    worker = subprocess.Popen(
        [sys.executable, "-m", "spindle", "worker", "photos:app"], cwd=tmp_path
    )
    try:
        shown = run(tmp_path, "photos.py")
    finally:
        worker.terminate()
        assert worker.wait(30) == 0
    expected = re.search(r"print\(.*#\s(.*)", program)
    assert expected is not None
    assert shown == expected.group(1) + "\n"


def test_the_program_of_the_main_readme_works(app: Spindle, tmp_path: Path) -> None:
    page = (WORKSPACE / "README.md").read_text()
    program = re.search(r"^```python\n(from spindle.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert program is not None
    (tmp_path / "mail.py").write_text(program.group(1))
    worker = subprocess.Popen([sys.executable, "mail.py"], cwd=tmp_path)
    try:
        until(lambda: app.request("GET", "/api/v1/jobs?queue=mail")["jobs"], "the job")
        assert app.job(1).result(30) == "sent to a@example.org"
    finally:
        worker.terminate()
        assert worker.wait(30) == 0


def test_the_test_with_the_fixture_passes(app: Spindle, tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(PROGRAMS[0])
    (tmp_path / "test_tasks.py").write_text(PROGRAMS[-1])
    assert "1 passed" in run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider")


def test_all_programs_are_python() -> None:
    assert len(PROGRAMS) == 9
    for program in PROGRAMS:
        ast.parse(program)
