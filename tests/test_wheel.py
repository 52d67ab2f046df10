"""The wheel holds all that a user needs, and runs in an empty environment outside the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import sfumato as sf
from tests.effort import THOROUGH

ROOT = Path(__file__).parents[1]
pytest.importorskip("hatchling", reason="hatchling, which builds the wheel, is not installed")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the sdist and the wheel."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "--directory", folder], cwd=ROOT, check=True)
    return folder


def test_both_have_the_version_of_the_package(built: Path) -> None:
    names = sorted(path.name for path in built.iterdir())
    assert names == [f"sfumato-{sf.__version__}-py3-none-any.whl", f"sfumato-{sf.__version__}.tar.gz"]
    assert f"version: {sf.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"## [{sf.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_the_wheel_has_every_file_of_the_package_and_no_other(built: Path) -> None:
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
        info = {Path(name).name for name in wheel.namelist() if ".dist-info/" in name}
    source = ROOT / "src"
    tracked = {
        str(path.relative_to(source))
        for path in (source / "sfumato").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix not in (".pyc", ".nbi", ".nbc")
    }
    assert packed == tracked
    assert "sfumato/py.typed" in packed
    assert {"LICENSE", "NOTICE", "METADATA", "entry_points.txt"} <= info


def test_the_sdist_can_be_built_from(built: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    for wanted in (
        "pyproject.toml",
        "README.md",
        "CHANGELOG.md",
        "SECURITY.md",
        "CITATION.cff",
        "src/sfumato/py.typed",
    ):
        assert wanted in names
    assert not any(name.startswith(("tests/", "docs/", "benchmarks/")) for name in names)


def test_the_wheel_runs_in_an_empty_environment(built: Path, tmp_path: Path) -> None:
    """In thorough runs the dependencies are installed too; else they are lent, and nothing of the checkout."""
    place = tmp_path / "empty"
    venv.create(place, with_pip=THOROUGH)
    python, wheel = place / "bin" / "python", next(built.glob("*.whl"))
    pip = [python if THOROUGH else sys.executable, "-m", "pip", "--disable-pip-version-check"]
    lent = [] if THOROUGH else ["--python", python]
    subprocess.run(
        [*pip, *lent, "install", "--quiet", *([] if THOROUGH else ["--no-deps", "--no-index"]), wheel], check=True
    )
    site = next((place / "lib").glob("python*/site-packages"))
    if not THOROUGH:  # a path file in a path that a path file names is not read, so the checkout stays out of reach
        (site / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SFUMATO", "COVERAGE"))
    }
    clean |= {"SFUMATO_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}

    def run(*arguments: str | Path) -> str:
        ran = subprocess.run(arguments, cwd=tmp_path, env=clean, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    where = run(python, "-c", "import sfumato; print(sfumato.__file__, sfumato.__version__)")
    assert where.split() == [str(site / "sfumato" / "__init__.py"), sf.__version__]
    command = place / "bin" / "sfumato"
    assert run(command, "--version") == f"sfumato {sf.__version__}\n"
    quick = ["--quick"] * ("--quick" in run(command, "demo", "--help"))
    run(command, "demo", *quick, "-o", "there")
    assert list((tmp_path / "there").rglob("*.html"))
    assert not list(ROOT.glob("there*"))


def test_the_shell_completes_commands_and_options() -> None:
    def completed(words: str, at: int) -> list[str]:
        asked = {"_SFUMATO_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(at)}
        program = "from sfumato.cli.main import main; main()"
        ran = subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, **asked}, capture_output=True, text=True, check=False
        )
        return [line.partition(",")[2] for line in ran.stdout.splitlines()]

    assert "reproduce" in completed("sfumato rep", 1)
    assert "--quick" in completed("sfumato reproduce --q", 2)


def test_the_project_says_what_the_wheel_says() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == "Apache-2.0"
    assert project["scripts"] == {"sfumato": "sfumato.cli.main:main"}
    assert "Typing :: Typed" in project["classifiers"]
