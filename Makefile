# Everything is relative to this folder and quoted, so that a path with spaces works.
# Tools run as `python -m tool`: that works wherever .venv lies, whatever a script's first
# line says.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PY := .venv/bin/python
READY := .venv/.ready
UV := uv==0.13.7

# Each process takes a stretch of the tests and then some of what another has left: modules keep
# what they share.
IN_PARALLEL := -n auto --maxprocesses=4 --dist worksteal

# Errors only: pip has a warning for every package that a configured extra source lacks.
PIP_INSTALL := $(PY) -m pip install -qq --disable-pip-version-check

# The first interpreter that really runs and is new enough (a version manager's shim may
# exist and refuse).
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for candidate in python3.11 python3 python3.12 python3.13 python3.14; do \
	"$$candidate" -c '$(NEW_ENOUGH)' 2>/dev/null && { echo "$$candidate"; break; }; done)

# A .venv knows its own absolute path. One that was copied or moved along with the folder
# would quietly run the code of the old place, so it counts as not there.
SETTLED := $(shell test -x $(PY) && test "$$(cat $(READY) 2>/dev/null)" = "$$(pwd -P)" && echo yes)
ifneq ($(SETTLED),yes)
.PHONY: $(READY)
endif

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

.PHONY: setup
setup: $(READY) ## make .venv from the lock file (done by the others when needed)

# Always from nothing: an interrupted run leaves no stamp, and what it did leave is cleared.
$(READY): pyproject.toml requirements.lock tests/interop/package-lock.json
	@"$(PYTHON)" -c '$(NEW_ENOUGH)' 2>/dev/null || { echo "rove: error: needs Python 3.11 or newer; \
	put python3.11 on the PATH or name one: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "Setting up .venv (only the first time, or when the lock file changed) ..."
	@"$(PYTHON)" -m venv --clear .venv
	@$(PIP_INSTALL) --require-hashes -r requirements.lock
	@$(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	@sh tests/interop/fetch-tools.sh .venv
	@pwd -P > $(READY)

# Ctrl-C is a fine way to end a demonstration: rove then exits with 130, and make need not
# call that an error.
.PHONY: demo
demo: setup ## see the best of what exists at work (Ctrl-C ends it)
	@trap : INT; .venv/bin/rove demo --monitor || test $$? -eq 130

# Tests start hundreds of processes: whatever keeps Python from remembering what it compiled is
# off. What they need is made beside the checks, which use one core.
.PHONY: test
test: export PYTHONDONTWRITEBYTECODE :=
test: setup ## check and test everything
	@$(PY) tests/prepare.py & preparing=$$!; \
	$(MAKE) --no-print-directory lint || { kill $$preparing; exit 1; }; wait $$preparing; \
	$(PY) -m pytest $(IN_PARALLEL) $(PYTEST)

.PHONY: lint
lint: setup ## ruff and mypy
	@$(PY) -m ruff check --quiet
	@$(PY) -m ruff format --check --quiet || { $(PY) -m ruff format --check; exit 1; }
	@$(PY) -m mypy --no-error-summary

.PHONY: format
format: setup ## rewrite the code in the house format
	@$(PY) -m ruff check --fix --quiet
	@$(PY) -m ruff format

.PHONY: soak
soak: setup ## the tests for hours: new random examples, many more of them
	@$(PY) -m pytest $(IN_PARALLEL) -m "soak or not soak" --hypothesis-profile=soak --timeout=0

.PHONY: bench
bench: setup ## measure this machine (a quarter of an hour)
	@.venv/bin/rove bench all

# uv comes into a throw-away place: it is needed once in a while and by nobody else. Local
# package sources are switched off, so that the lock holds on machines that have none.
.PHONY: lock
lock: ## resolve the dependencies again (UPGRADE=1 takes the newest)
	@place=$$(mktemp -d) && trap 'rm -rf "$$place"' EXIT && \
	"$(PYTHON)" -m venv "$$place" && \
	"$$place/bin/python" -m pip install -qq --disable-pip-version-check $(UV) && \
	env -u UV_FIND_LINKS -u UV_INDEX -u UV_EXTRA_INDEX_URL "$$place/bin/python" -m uv pip compile \
	pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes --no-config \
	--quiet --custom-compile-command "make lock" --output-file requirements.lock \
	$(if $(UPGRADE),--upgrade)

.PHONY: clean
clean: ## remove everything that can be made again
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis dist build
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
