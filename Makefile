# One word each; every verb prepares .venv itself (scripts/setup.sh: uv when present, else venv and pip).
.DEFAULT_GOAL := help
.PHONY: help demo test interop check shape bench conformance attack mutants soak docs wheel picture format catalog clean

QUESTION ?= Where are sessions written to disk, and what happens when a write fails?
# Nothing of the user's own configuration, keys or sessions takes part in the demo.
IN_DEMO = env -u PI_OFFLINE PI_CODING_AGENT_DIR="$(CURDIR)/.cache/demo" RETINUE_NO_LOCAL=1
SHOP = .cache/demo/shop
BIN = .venv/bin
jobs ?= 4

help:  ## this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile | expand -t 12

demo: setup-run  ## agents answer a question about this repository side by side, without a key and without a network; DEMO=landing: ten agents' branches land
	@mkdir -p .cache/demo
ifeq ($(DEMO),landing)
	@$(IN_DEMO) .venv/bin/python scripts/landing_demo.py $(SHOP)
	@$(IN_DEMO) .venv/bin/retinue -C $(SHOP) trust --yes
	@$(IN_DEMO) .venv/bin/retinue -C $(SHOP) trust --command landing.verify --yes
	@echo '$$ retinue land --all'
	@$(IN_DEMO) .venv/bin/retinue -C $(SHOP) land --all || test $$? = 1
	@git -C $(SHOP) log --oneline --first-parent
else
	@echo '$$ retinue -p --model offline/rules "$(QUESTION)"'
	@$(IN_DEMO) .venv/bin/retinue -p --model offline/rules "$(QUESTION)"
endif

# Four at once also on two cores: many of them wait for clocks and other programs. What one has compiled, the others read.
# A whole run also judges attacks and behaviours; of a part most would be missing.
test: setup-dev  ## all tests but the long ones and those against programs of others
	PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -n $(jobs) --dist worksteal -m "not slow and not interop" -rs $(or $(args),--tables=.cache)

# What belongs to one server stays together: each is started once.
interop: setup-dev  ## against programs of others: pi, pyright, llama.cpp, LiteLLM, the MCP conformance suite, the types of the providers' libraries
	scripts/interop.sh $(BIN)/pytest -n 2 --dist loadfile -m interop -rs $(args)

check: setup-dev  ## ruff, mypy --strict, import contracts, architecture tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest tests/test_architecture.py
	@if command -v uv >/dev/null 2>&1 && uv --version >/dev/null 2>&1; then uv lock --check --quiet; fi

shape: setup-dev  ## files, functions and classes that have grown large: a look, not a gate
	@$(BIN)/python scripts/shape.py

bench: setup-dev  ## speed, memory and durability against a bare client; only=NAME for one figure
	@$(BIN)/python -m bench $(only)

conformance: setup-dev  ## for each numbered behaviour of the four systems: its tests and how they went; args=--list
	@$(BIN)/python -m scripts.conformance $(args)

attack: setup-dev  ## every attack of the security plan: its tests and how they went; args=--list, --quick or --landlock
	@$(BIN)/python -m scripts.attack $(args)

mutants: setup-dev  ## change the code in one place at a time and list what no test notices; args="--only NAME"
	@$(BIN)/python -m scripts.mutants $(args)

soak: setup-dev  ## the long sweeps that make test only samples
	$(BIN)/pytest -m "slow or hypothesis" --hypothesis-profile soak --timeout 600 -rs $(args)
	for runner in durable cluster; do $(BIN)/pytest -n 2 --dist worksteal -m "not slow" --runner $$runner \
		tests/surfaces tests/flows tests/frontends $(args) || exit; done

docs: setup-dev  ## run every example of the documentation, check every link
	$(BIN)/pytest tests/docs -rs

wheel: setup-dev  ## build dist/*.whl, install it into an empty environment elsewhere, and ask it two questions
	@$(BIN)/python scripts/wheel.py "$(QUESTION)"

picture: setup-dev  ## draw docs/images again: agents at work, the viewer, the timeline; needs chromium
	$(BIN)/python scripts/screens.py

format: setup-dev  ## ruff, with its repairs
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

catalog: setup-dev  ## take the model catalogue from its packages again
	$(BIN)/python scripts/catalog.py

clean:  ## remove the environment and all caches
	rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: setup-run setup-dev
setup-run:
	@scripts/setup.sh run
setup-dev:
	@scripts/setup.sh dev
