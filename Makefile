# make tiny    trains a small model and shows what it learned; flags: make tiny ARGS='--model gpn --steps 200'
# make test    runs the tests; flags: make test ARGS='-k memory'
# make lint    checks the style of the code
# make clean   removes what the others made, but no trained model (runs/)

PYTHON ?= python3
VENV = .venv
ARGS =
VENV_PYTHON := $(VENV)/bin/python
INSTALL := $(VENV_PYTHON) -m pip install --quiet --disable-pip-version-check

.PHONY: tiny test lint clean

tiny: $(VENV)/installed
	$(VENV_PYTHON) -m gpn_ref.train_tiny $(ARGS)

test: $(VENV)/installed-test
	$(VENV_PYTHON) -m pytest $(ARGS)

lint: $(VENV)/installed-test
	$(VENV_PYTHON) -m ruff check .
	$(VENV_PYTHON) -m ruff format --check .

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -r {} +

# The stamps are written last, so that an installation that was interrupted starts again.
$(VENV)/installed: requirements.txt pyproject.toml | $(VENV)/created
	@echo "Installing into $(VENV), about a minute the first time"
	@$(INSTALL) -e .
	@touch $@

$(VENV)/installed-test: requirements-test.txt $(VENV)/installed
	@echo "Installing what the tests need into $(VENV)"
	@$(INSTALL) -e '.[test]'
	@touch $@

$(VENV)/created:
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; v < (3, 11) and sys.exit("$(PYTHON) is Python %d.%d; gpn_ref needs 3.11 or newer: make PYTHON=python3.11" % v)'
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) cannot make an environment (no ensurepip); on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@touch $@
