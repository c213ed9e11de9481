# Everything that a fresh machine needs beyond Python 3.11+, make and Java 17+ is fetched into .venv and .cache.
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test test-fast test-rest test-all check docs reference licences ui soak faults bench bench-gate clean java minutes

UV_VERSION := 0.13.9
UV := .cache/uv/bin/uv
UV_READY := .cache/uv/$(UV_VERSION).ready
SYNCED := .venv/.synced
PORT ?= 3000
PYTEST := .venv/bin/pytest -n 2 --dist loadfile --no-loadscope-reorder

export PYRIGHT_PYTHON_CACHE_DIR ?= $(CURDIR)/.cache/pyright
unexport PYTHONDONTWRITEBYTECODE  # images set it, and then each process compiles Dagster and PySpark anew: 2 to 4 s
ifndef HOME  # some build machines have none, and uv must cache somewhere
export UV_CACHE_DIR ?= $(CURDIR)/.cache/uv-cache
endif

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s  %s\n", $$1, $$2 }' Makefile

demo: java $(SYNCED) ## the whole way through on real data, in about three minutes after set-up
	@.venv/bin/feed-assets demo

test: minutes java $(SYNCED) ## the answer in ten minutes: all fast tests, and the promises of the README with real servers
	@.venv/bin/python -m feed_assets_tests.support.jvm_class_cache
	@$(PYTEST) -m "(fast or promise) and not soak"

test-fast: $(SYNCED) ## what needs no server and no JVM, for every change
	@$(PYTEST) -m "fast and not soak"

test-rest: java $(SYNCED) ## what `make test` leaves out
	@.venv/bin/python -m feed_assets_tests.support.jvm_class_cache
	@$(PYTEST) -n 4 -m "not (fast or promise or soak)"  # which wait for servers more than they compute

test-all: test test-rest ## every test: both of these

check: $(SYNCED) docs ## ruff, pyright, the import contracts, the documentation site, and known vulnerabilities
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/pyright
	@.venv/bin/lint-imports
	@scripts/audit.sh

docs: $(SYNCED) ## build the documentation site into .cache/site; a link that leads nowhere is an error
	@UV_PROJECT_ENVIRONMENT=.venv UV_PYTHON_DOWNLOADS=never $(UV) sync --quiet --frozen --inexact --group docs
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict
	@echo "open .cache/site/index.html"

reference: $(SYNCED) ## write the generated parts of docs/reference
	@.venv/bin/python scripts/reference.py

licences: $(SYNCED) ## write docs/licences.md from uv.lock
	@.venv/bin/python scripts/licences.py

ui: java $(SYNCED) ## web UI, daemon and one warm Spark on http://127.0.0.1:3000 (PORT=…)
	@exec .venv/bin/feed-assets ui --port $(PORT)

soak: java $(SYNCED) ## the long fault and daemon tests in full counts
	@.venv/bin/pytest -m soak -rP

faults: $(SYNCED) ## the whole system under seeded faults (SEEDS=20 SECONDS=60; FIRST= and STEPS= replay a seed)
	@.venv/bin/python -m feed_assets_tests.reliability.campaign --seeds $(or $(SEEDS),20) --seconds $(or $(SECONDS),60) \
	  --first $(or $(FIRST),0) --steps $(or $(STEPS),1000000)

bench: $(SYNCED) ## measure, each case against its floor
	@UV_PROJECT_ENVIRONMENT=.venv UV_PYTHON_DOWNLOADS=never $(UV) sync --quiet --frozen --group bench
	@.venv/bin/python -m benchmarks

bench-gate: java $(SYNCED) ## ten cases against their stored ratios; STORE=1 stores new ones
	@.venv/bin/python -m benchmarks.gate $(if $(STORE),--store)

clean: ## remove what can be made again: .venv, .cache, dist (not .feed_assets, which holds data)
	rm -rf .venv .cache dist spark-warehouse .pytest_cache .ruff_cache .hypothesis .import_linter_cache

minutes:
	@echo "On two idle cores: make test-fast about 4 minutes, make test about 9, make test-rest about 45, make test-all about 54;"
	@echo "a fresh clone is set up first, in one to three."

java:
	@scripts/check_java.sh

# uv has an environment of its own: `uv sync` removes from .venv whatever the lock file does not name.
$(UV_READY):
	@python=$$(scripts/find_python.sh) && rm -rf .cache/uv && echo "setting up uv $(UV_VERSION)..." \
	  && { "$$python" -m venv .cache/uv || { echo "make: '$$python -m venv' failed: install it, for example 'apt install python3-venv'." >&2; exit 1; }; }
	@.cache/uv/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@touch $@

$(SYNCED): uv.lock pyproject.toml $(UV_READY)
	@echo "setting up .venv from uv.lock..."
	@python=$$(scripts/find_python.sh) && UV_PROJECT_ENVIRONMENT=.venv UV_PYTHON_DOWNLOADS=never \
	  $(UV) sync --quiet --frozen --python "$$python"
	@touch $@
