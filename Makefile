# make demo  installs sheafed into .venv and runs the main job on embedded data
# make test  installs the development tools as well, lints, runs the tests and a soak of two minutes
# make docs  builds the documentation into out/site
# make soak  runs agents under faults for two minutes; make fuzz  feeds readers a million damaged inputs
# make lock  writes requirements.lock, versions and hashes for a deployment
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --disable-pip-version-check --no-compile --constraint constraints.txt
# One line per download with its size; what fails is shown in full.
SHOWN  := awk '/^ *(Downloading|Processing|Installing|Successfully)/ && !/build|metadata/ {print; fflush()}'
SHELL  := bash
# Only what is imported is compiled, and what is compiled is kept.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test lint pytest format docs lock soak fuzz install clean

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "sheafed needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version). Try: make $(MAKECMDGOALS) PYTHON=python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing PyTorch and 14 other packages into $(VENV): downloads about 0.3 GB with a CPU build of"
	@echo "PyTorch, 1.4 GB with the CUDA build that pip takes on Linux; a minute or more"
	@set -o pipefail; $(PIP) --editable '.[report]' | $(SHOWN)
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing sheafed with its development tools into $(VENV)"
	@set -o pipefail; $(PIP) --editable '.[dev]' | $(SHOWN)
	@touch $@ $(VENV)/.runtime

install: $(VENV)/.dev

demo: $(VENV)/.runtime
	$(BIN)/python examples/five_agents.py --out out/demo

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# One worker per core, one thread per worker. Each takes whole files: their fixtures are made once.
pytest: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder

# All at once: mypy keeps one core busy for a minute, and a soak mostly waits.
test: $(VENV)/.dev
	@$(MAKE) --no-print-directory -j3 lint pytest soak

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Versions and SHA-256 of all that a deployment of agents installs, for this Python and system.
EXTRAS ?= network
lock:
	@$(PYTHON) tools/lock.py $(addprefix --extra ,$(EXTRAS)) > requirements.lock.new && \
	  mv requirements.lock.new requirements.lock && wc -l requirements.lock

docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Agents on machines of their own under faults, on Linux. So early, accuracies still jump.
SOAK ?= --minutes 2 --agents 4 --every 5 --longest 15 --sample-every 10 --pause 0.5 --difference 0.1
soak: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/soak.py $(SOAK) --if-possible --out out/soak-$$(date +%Y%m%d-%H%M%S)

fuzz: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/fuzz.py --cases 1000000

clean:
	rm -rf $(VENV) out
