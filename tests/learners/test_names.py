"""What the package of learners offers, and that it loads torch only when it is used."""

from __future__ import annotations

import subprocess
import sys

import sfumato.learners


def test_every_name_that_is_offered_is_there_and_no_module_hides_it() -> None:
    for name in sfumato.learners.__all__:
        assert not isinstance(getattr(sfumato.learners, name), type(sys)), name


def test_the_package_is_imported_without_torch() -> None:
    code = "import sys, sfumato.learners; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
