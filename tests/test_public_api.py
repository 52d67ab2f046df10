"""The public surface is exactly what `__all__` says, documented, and cheap to import."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

import sfumato as sf

HEAVY = [
    "torch",
    "sklearn",
    "numba",
    "scipy",
    "pandas",
    "polars",
    "numpy",
    "pyspark",
    "duckdb",
    "flwr",
    "jinja2",
    "cryptography",
    "dp_accounting",
    "opendp",
]


def test_every_public_name_resolves() -> None:
    assert sorted(sf.__all__) == sf.__all__ == dir(sf)
    for name in sf.__all__:
        assert getattr(sf, name) is not None


def test_the_lazy_names_are_those_of_the_type_checker() -> None:
    declared = {
        part.strip()
        for block in inspect.getsource(sf).split("if TYPE_CHECKING:")[1].split("__version__")[0].split("import ")[1:]
        for part in block.split("from")[0].replace("(", "").replace(")", "").replace("\n", ",").split(",")
        if part.strip()
    }
    assert declared == set(sf.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'anonymise'"):
        sf.anonymise  # noqa: B018


@pytest.mark.parametrize("name", [name for name in sf.__all__ if not name.endswith("Error") and name != "datasets"])
def test_every_public_name_has_an_example(name: str) -> None:
    thing = getattr(sf, name)
    if name in ("Assessment", "MissingExtra"):  # made by assess, whose example shows it; raised, never called
        return
    assert ">>> " in (thing.__doc__ or ""), name


def test_importing_loads_nothing_heavy(run_python: Callable[[str], str]) -> None:
    loaded = run_python(f"import sys, sfumato; print([m for m in {HEAVY!r} if m in sys.modules])")
    assert loaded.strip() == "[]"


def test_help_loads_nothing_heavy(run_python: Callable[[str], str]) -> None:
    program = (
        "import sys\nfrom sfumato.cli.main import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    assert run_python(program).strip().endswith("[]")


def test_assessing_loads_no_learning_library(run_python: Callable[[str], str]) -> None:
    program = (
        "import sys, sfumato as sf\nsf.assess(sf.datasets.nursery(), qi=['parents'], sensitive=['health'])\n"
        "print([m for m in ['torch', 'sklearn', 'numba', 'pandas'] if m in sys.modules])"
    )
    assert run_python(program).strip() == "[]"
