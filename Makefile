# Two commands for a newcomer: `make demo` and `make test`. Everything is installed into .venv from pinned versions; only
# Python >= 3.11 and make are needed.

PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do command -v $$p >/dev/null 2>&1 && $$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# More than the two cores of a small machine: many tests wait, for a lease to run out or for a process to die.
WORKERS ?= 3
# The tests start hundreds of processes; each would compile everything anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test fast oldest lint types bench proofs crash clean

demo: $(READY)
	$(BIN)/graph-agent demo

test: $(READY)
	$(BIN)/python -m pytest -n $(WORKERS) $(PYTEST)

fast: $(READY)
	@echo "without Postgres, and without what starts many processes, waits or takes long: make test has it all"
	$(BIN)/python -m pytest -n $(WORKERS) -m 'not slow' --hypothesis-profile=fast $(PYTEST)

# With the oldest versions that pyproject.toml says are enough, in an environment of their own.
oldest: $(READY)
	$(BIN)/python -m venv --clear $(VENV)/oldest
	$(VENV)/oldest/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r constraints.txt
	$(VENV)/oldest/bin/python -m pip install --quiet --disable-pip-version-check `$(BIN)/python -m tests.floors`
	$(VENV)/oldest/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	$(VENV)/oldest/bin/python -m pytest -n $(WORKERS) $(PYTEST)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(READY)
	$(BIN)/mypy

bench: $(READY)
	$(BIN)/python -m benchmarks

# What the savers promise, tried many times, a count each; `make test` has bounded forms of it. About half an hour.
PROOFS ?= crash races faults corrupt retyped forged canary gadgets fuzz tenants mutants effects
proofs: $(READY)
	@for proof in $(PROOFS); do $(BIN)/python -m tests.proofs.$$proof || exit 1; done

# An agent is killed before and after everything it says to its database and everything it does to the world.
crash: $(READY)
	$(BIN)/python -W ignore -m tests.proofs.effects

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# An environment that another Python made begins anew.
$(READY): constraints.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer with venv is needed; set PYTHON=/path/to/python3"; exit 1; }
	@echo "making $(VENV) from the versions in constraints.txt: some minutes at most, once"
	$(PYTHON) -m venv $(VENV) || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(READY)
