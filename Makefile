# Two commands do everything on a machine that has python3 >= 3.11 and make:
#   make demo    see it work          make test    all checks and tests
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
# Modules are compiled when they are first imported: most never are.
PIP = $(BIN)/python -m pip --disable-pip-version-check install --quiet --no-compile -c constraints.txt
PROJECT = pyproject.toml constraints.txt

# Without this, where a machine forbids it, each of the many interpreters of the tests compiles all that it imports anew.
export PYTHONDONTWRITEBYTECODE =

.DELETE_ON_ERROR:
.PHONY: demo test thorough suite check docs wheel bench clean help
help:
	@echo "make demo   install and see it work on a census table"
	@echo "make test   all checks and all tests"
	@echo "make thorough  the same with more examples, more killed processes and more damaged files"
	@echo "make check  only ruff, mypy and import-linter"
	@echo "make docs   the documentation, into site/"
	@echo "make wheel  the sdist and the wheel, into dist/"
	@echo "make bench  the benchmarks against other packages"
	@echo "make clean  remove the environments"

demo: $(VENV)/.installed
	@$(BIN)/sfumato demo

# mypy and the documentation each take one core, so the tests run beside them.
test: $(VENV)/.dev
	@$(MAKE) --no-print-directory -j 3 check docs suite

thorough: export SFUMATO_THOROUGH = 1
thorough: test

suite: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/.dev
	$(BIN)/zensical build --clean --strict

wheel: $(VENV)/.dev
	$(BIN)/python -m hatchling build --clean --directory dist

bench: $(VENV)-peers/.installed
	$(VENV)-peers/bin/python benchmarks/run.py

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit("Sfumato needs Python 3.11 or newer, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else 0'
	$(PYTHON) -m venv $(VENV)

# Installed again only when what it depends on has changed.
$(VENV)/.installed: $(PROJECT) | $(BIN)/python
	@echo "Installing Sfumato into $(VENV) ..."
	@$(PIP) -e .
	@touch $@

# One call, which also does what the target above does: to resolve and build twice takes seconds.
$(VENV)/.dev: $(PROJECT) | $(BIN)/python
	@echo "Installing all extras and the development tools (a few minutes the first time) ..."
	@$(PIP) --upgrade 'pip>=25.1'
	@$(PIP) -e '.[all]' --group dev
	@$(PIP) --no-deps pycanon==1.3.6 beartype tabulate  # its exact pins clash; it runs without them
	@touch $(VENV)/.installed $@

# Other packages want their own versions of everything.
$(VENV)-peers/.installed: $(PROJECT) benchmarks/requirements.txt
	@$(PYTHON) -m venv $(VENV)-peers
	@echo "Installing Sfumato beside the packages it is compared with ..."
	@$(VENV)-peers/bin/python -m pip --disable-pip-version-check install --quiet -e . -r benchmarks/requirements.txt
	@touch $@

clean:
	rm -rf $(VENV) $(VENV)-peers site dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
