PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
FLOWER := build/flower/.installed

PAGES := build/pages
# Tests of whole stories, minutes long together: a target of their own.
WALKS := tests/test_walks.py tests/test_alone.py tests/test_tutorials.py lab/tests/cli/test_demo.py tests/party/test_ten_parties.py \
	tests/cli/test_peering.py tests/party/test_space_party.py tests/party/test_gathered_group.py \
	tests/party/test_join_page.py

.PHONY: help run test walks flower services pictures soak check package audit bench docs tutorials format lock hashes clean
.DEFAULT_GOAL := help

help: ## Show this
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-9s %s\n", $$1, $$2}'

run: $(INSTALLED) ## Set up, compare all methods on MNIST, show the table and where the figure is
	$(BIN)/repshare compare --name first --resume --fallback digits

test: $(INSTALLED) services ## Set up, run all tests of product and laboratory but the walks
	$(BIN)/pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder $(addprefix --ignore ,$(WALKS))

walks: $(INSTALLED) services ## Run whole stories: tutorials, examples/walks, the demo, parties that join, leave and die
	$(BIN)/pytest --numprocesses 2 --dist loadfile $(WALKS)

flower: $(INSTALLED) $(FLOWER) services ## Run the tests of repshare-flower, with Flower's own processes
	$(BIN)/pytest flower/tests

# A Redis and a browser, which tests use.
services:
	@command -v redis-server >/dev/null || { echo "installing redis-server, which tests of the relay need"; \
		apt-get update -qq && apt-get install -y -qq redis-server; } || { \
		echo "cannot: install it yourself (apt-get install redis-server, dnf install redis, brew install redis)"; exit 1; }
	@for name in chromium chromium-browser google-chrome; do command -v $$name && break; done >/dev/null || { \
		echo "installing chromium, which tests of the relay's page need"; \
		apt-get update -qq && apt-get install -y -qq chromium; } || { \
		echo "cannot: install it yourself (apt-get install chromium, dnf install chromium, brew install chromium)"; exit 1; }

pictures: $(INSTALLED) services ## Take the picture of the relay's page in the documents again
	cd tests && ../$(BIN)/python -m pictures ../docs

soak: $(INSTALLED) ## Kill, fuzz and abuse for half an hour, or resume that (SOAK=--restart: start over); lab/notebook/soak.md
	cd tests && ../$(BIN)/python -m soak $(SOAK)

check: $(INSTALLED) ## Formatting, lint, types, and whether versions fit their bounds, pins and hashes
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python deploy/audit.py

package: $(INSTALLED) $(FLOWER) ## The three wheels and the source archive, and each extra alone with them (EXTRAS="base learn"; DOWNLOAD=--download: from an index)
	$(BIN)/python deploy/package.py $(EXTRAS) $(DOWNLOAD)

audit: $(INSTALLED) ## The same versions against a service of known holes; exit code 3 from it: not available, nothing was audited
	@test -x build/audit/bin/pip-audit || { $(PYTHON) -m venv build/audit \
		&& build/audit/bin/pip install --quiet --disable-pip-version-check pip-audit; } || true
	$(BIN)/python deploy/audit.py --service build/audit/bin/pip-audit

bench: $(INSTALLED) ## Compare simulators (half an hour) and measure the relay; writes simulation.md, relay.md and common_relay.md
	$(BIN)/python benchmarks/simulation.py
	$(BIN)/python benchmarks/relay.py
	$(BIN)/python benchmarks/common_relay.py

docs: $(INSTALLED) ## Build the documents as a site in build/site; a link that leads nowhere is an error
	@rm -rf $(PAGES) && mkdir -p $(PAGES)
	@cp -R *.md LICENSE CITATION.cff docs benchmarks examples deploy $(PAGES)
	@mkdir $(PAGES)/lab $(PAGES)/flower && cp -R lab/notebook $(PAGES)/lab && cp flower/README.md $(PAGES)/flower
	$(BIN)/mkdocs build --strict
	@echo "open build/site/index.html"

tutorials: $(INSTALLED) ## Run the tutorials, and keep what they show
	$(BIN)/jupyter-nbconvert --to notebook --execute --inplace docs/tutorials/*.ipynb

format: $(INSTALLED) ## Put the formatting right
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: $(INSTALLED) $(FLOWER) ## Write the installed versions into constraints.txt, and into flower/constraints.txt; then: make hashes
	$(BIN)/pip freeze --exclude-editable | sed 's/+cpu$$//' > constraints.txt
	build/flower/bin/pip freeze --exclude-editable | sed 's/+cpu$$//' > flower/constraints.txt

hashes: ## Write what the container installs, with hashes, into deploy/requirements.txt (needs uv)
	@command -v uv >/dev/null || { echo "uv is missing: pip install uv"; exit 1; }
	sed -n 's/^requires = \["\(.*\)"\].*/\1/p' pyproject.toml | UV_CUSTOM_COMPILE_COMMAND='make hashes' uv pip compile pyproject.toml - \
		--extra relay --extra redis -c constraints.txt --generate-hashes --no-annotate --python-version 3.12 \
		--no-emit-index-url --quiet -o deploy/requirements.txt

clean: ## Remove what was installed and built; results stay
	rm -rf .venv build dist .mypy_cache .ruff_cache .hypothesis src/*.egg-info lab/*.egg-info flower/*.egg-info lab/build flower/build

# Debian keeps venv in a package of its own; root may fetch it.
$(INSTALLED): pyproject.toml lab/pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "repshare needs Python 3.11 or newer: make PYTHON=python3.11 …")'
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "installing python3-venv"; \
		apt-get update -qq && apt-get install -y -qq python3-venv; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]' -e ./lab
	@touch $@

# Flower needs other versions than constraints.txt has of what it shares with the rest: an environment of its own.
$(FLOWER): pyproject.toml lab/pyproject.toml flower/pyproject.toml flower/constraints.txt $(INSTALLED)
	test -x build/flower/bin/python || $(PYTHON) -m venv build/flower
	build/flower/bin/pip install --quiet --disable-pip-version-check -c flower/constraints.txt -e . -e lab -e flower
	@touch $@
