# Everything is relative to this folder and quoted, so that a path with spaces works.
# Tools run as `python -m tool`: that works wherever .venv lies, whatever a script's first
# line says.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PY := .venv/bin/python
FIRST := .venv/.first
READY := .venv/.ready

# tests/conftest.py says how many `auto` are, tests/sharing.py which tests share a process.
IN_PARALLEL := -n auto --maxprocesses=8 --dist loadscope --no-loadscope-reorder

# Errors only: pip has a warning for every package that a configured extra source lacks.
PIP_INSTALL := -m pip install -qq --disable-pip-version-check

# uv installs in half of pip's time and shows its progress. The lock file names it and its hashes
# like everything else. Where it cannot be had, or fails, pip does the same more slowly.
UV_OF_LOCK := awk '/^uv==/ { found = 1 } found { print } found && !/\\$$/ { exit }' requirements.lock
INSTALL = install() { UV_SYSTEM_CERTS=true $(PY) -m uv pip install $$quiet --python $(PY) "$$@" || { \
	echo "Without uv: pip takes longer ..."; $(PY) $(PIP_INSTALL) "$$@"; }; }; install

# The first interpreter that really runs and is new enough (a version manager's shim may
# exist and refuse).
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for candidate in python3.11 python3 python3.12 python3.13 python3.14; do \
	"$$candidate" -c '$(NEW_ENOUGH)' 2>/dev/null && { echo "$$candidate"; break; }; done)

# A .venv knows its own absolute path. One that was copied or moved along with the folder
# would quietly run the code of the old place, so it counts as not there.
SETTLED := $(shell test -x $(PY) && test "$$(cat $(FIRST) 2>/dev/null)" = "$$(pwd -P)" && echo yes)
ifneq ($(SETTLED),yes)
.PHONY: $(FIRST)
endif

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

.PHONY: setup
setup: $(READY) ## make .venv from the lock file (done by the others when needed)

# What shows the page and the broker comes first, so that `make demo` need not wait for Spark.
# Always from nothing: an interrupted run leaves no stamp, and what it did leave is cleared.
$(FIRST): pyproject.toml requirements.lock requirements-demo.lock tests/interop/package-lock.json
	@"$(PYTHON)" -c '$(NEW_ENOUGH)' 2>/dev/null || { echo "rove: error: needs Python 3.11 or newer; \
	put python3.11 on the PATH or name one: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "Setting up .venv (only the first time, or when the lock file changed): broker and page ..."
	@"$(PYTHON)" -m venv --clear .venv
	@$(UV_OF_LOCK) > .venv/uv.lock && $(PY) $(PIP_INSTALL) --require-hashes -r .venv/uv.lock || true
	@$(INSTALL) --require-hashes -r requirements-demo.lock
	@quiet=--quiet; $(INSTALL) --no-deps --no-build-isolation --editable .
	@pwd -P > $(FIRST)

$(READY): $(FIRST)
	@echo "Setting up .venv: Spark and the tools of developers ..."
	@$(INSTALL) --require-hashes -r requirements.lock
	@sh tests/interop/fetch-tools.sh .venv
	@pwd -P > $(READY)

# The first time, Spark is installed beside the demonstration and joins it; a file tells how that
# ended. It ends with the demonstration, and the next `make` goes on with it. Ctrl-C is a fine way to
# end a demonstration: rove then exits with 130, and make need not call that an error.
.PHONY: demo
demo: $(FIRST) ## see the best of what exists at work (Ctrl-C ends it)
	@rm -f .venv/.ended; \
	{ trap 'kill $$making' TERM; $(MAKE) --no-print-directory setup > .venv/setup.log 2>&1 & making=$$!; \
	wait $$making; echo $$? > .venv/.ended; } & installing=$$!; \
	trap : INT; .venv/bin/rove demo --monitor --spark-after .venv/.ended || test $$? -eq 130; \
	said=$$?; kill $$installing 2>/dev/null; exit $$said

# Tests start hundreds of processes: whatever keeps Python from remembering what it compiled is
# off. mypy runs beside the tests, which leave some of the time of a second core; ruff takes no time.
.PHONY: test
test: export PYTHONDONTWRITEBYTECODE :=
test: setup ## check and test everything
	@$(RUFF)
	@$(MYPY) & checking=$$!; trap "kill $$checking; exit 130" INT TERM; \
	$(PY) tests/prepare.py; $(PY) -m pytest $(IN_PARALLEL) $(PYTEST); tested=$$?; \
	wait $$checking || { echo "rove: error: mypy complains, see above or make lint" >&2; exit 1; }; \
	exit $$tested

RUFF = $(PY) -m ruff check --quiet && \
	{ $(PY) -m ruff format --check --quiet || { $(PY) -m ruff format --check; exit 1; }; }
MYPY = $(PY) -m mypy --no-error-summary

.PHONY: lint
lint: setup ## ruff and mypy
	@$(RUFF)
	@$(MYPY)

.PHONY: format
format: setup ## rewrite the code in the house format
	@$(PY) -m ruff check --fix --quiet
	@$(PY) -m ruff format

.PHONY: test-times
test-times: setup ## the slowest tests of the last run, with wall and CPU time
	@$(PY) tests/times.py

.PHONY: soak
soak: setup ## the tests for hours, in parts (PART="match policy"): many more random examples
	@$(PY) tests/soak.py --part "$(PART)" $(if $(AGAIN),--again) $(IN_PARALLEL) \
	-m "soak or not soak" --hypothesis-profile=soak --timeout=0

.PHONY: bench
bench: setup ## measure this machine (a quarter of an hour)
	@.venv/bin/rove bench all

# uv comes into a throw-away place, so that a lock file that cannot be installed can be mended.
# Local package sources are switched off: the lock holds on machines that have none.
COMPILE = env -u UV_FIND_LINKS -u UV_INDEX -u UV_EXTRA_INDEX_URL UV_SYSTEM_CERTS=true \
	"$$place/bin/python" -m uv pip compile pyproject.toml --universal --python-version 3.11 \
	--generate-hashes --no-config --quiet --custom-compile-command "make lock"
.PHONY: lock
lock: ## resolve the dependencies again (UPGRADE=1 takes the newest)
	@place=$$(mktemp -d) && trap 'rm -rf "$$place"' EXIT && \
	"$(PYTHON)" -m venv "$$place" && $(UV_OF_LOCK) > "$$place/uv.lock" && \
	"$$place/bin/python" $(PIP_INSTALL) --require-hashes -r "$$place/uv.lock" && \
	$(COMPILE) --extra dev --output-file requirements.lock $(if $(UPGRADE),--upgrade) && \
	$(COMPILE) --extra monitor --extra setup --constraint requirements.lock \
	--output-file requirements-demo.lock $(if $(UPGRADE),--upgrade)

.PHONY: clean
clean: ## remove everything that can be made again
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis dist build
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
