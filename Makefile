# Each target sets up its own .venv on a fresh machine: only Python 3.11 or later is needed.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
PIP = $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
export OPENBLAS_NUM_THREADS = 1
# Tests write thousands of small files durably, which is fast in memory. Faults at full size use the disk.
MEMORY := $(shell test -w /dev/shm && test $$(df --output=avail /dev/shm | tail -n 1) -gt 2000000 && echo /dev/shm)
IN_MEMORY = $(if $(MEMORY),TMPDIR=$(MEMORY))
# Neighbouring tests share fixtures, so each worker begins with a stretch of its own.
# Some tests wait for a disk or another process, so there is one worker more than cores.
WORKERS = -n $$($(BIN)/python -c "import os; print(os.cpu_count() + 1)") --dist worksteal
# Tests start hundreds of processes: without bytecode each would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

# What another processor or other versions could change: numbers, and promises about bytes.
SHORT = tests/kernels tests/posteriors tests/states tests/policies/test_tabled.py tests/oracles \
	tests/lab/simulation tests/core/test_linalg.py tests/lab/experiments/test_plans.py \
	tests/cli/test_resume.py tests/roads/posterior

.PHONY: help demo test slow full all check core kernels oldest bench torch sumo postgres clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.core ## watch a car learn its way through a city
	$(BIN)/superarm demo

# Tests of torch are thorough: collecting them would import it in every worker.
test: $(VENV)/.compiled ## the default tests, within three minutes on two idle cores
	$(IN_MEMORY) $(BIN)/python -m pytest -q $(WORKERS) -m "not slow and not thorough" --doctest-modules \
		--ignore-glob="*/test_torch_*.py"

slow: $(VENV)/.compiled ## the longer proofs, the guide and the notebooks
	$(IN_MEMORY) $(BIN)/python -m pytest -q $(WORKERS) -m "(slow or thorough) and not full"

# A skip is a failure, unless you set SUPERARM_REQUIRE=0. Its tests count faults; the last line prints them as a table.
full: export SUPERARM_REQUIRE ?= 1
full: export SUPERARM_FAULTS = bench/results/faults.jsonl
full: $(VENV)/.compiled ## kills and faults of live bandits at full size, and all compositions: many minutes
	rm -f $(SUPERARM_FAULTS)
	$(BIN)/python -m pytest -q -rP -m full
	$(BIN)/python -m bench.faults $(SUPERARM_FAULTS)

# A short form of the tests under the BLAS of other processors: two that this one can run.
kernels: $(VENV)/.compiled ## a short form of the tests with other processors' BLAS
	set -e; kernels=$$($(BIN)/python .ci/kernels.py); for kernel in $$kernels; do echo "BLAS of $$kernel"; \
		OPENBLAS_CORETYPE=$$kernel $(IN_MEMORY) $(BIN)/python -m pytest -q $(WORKERS) -m "not slow" $(SHORT); done

# The same, and figures, with the oldest versions that pyproject.toml allows; Python 3.11 to 3.13.
# What old packages use of others may be deprecated by now.
oldest: $(VENV)-oldest/.installed ## the same with the oldest versions that pyproject.toml allows
	$(VENV)-oldest/bin/python .ci/compile.py
	$(IN_MEMORY) $(VENV)-oldest/bin/python -m pytest -q $(WORKERS) -m "not slow" -W ignore::DeprecationWarning \
		$(SHORT) tests/lab/test_figures.py tests/live/test_service.py tests/live/test_client.py

# A target of its own: .ci/run installs while it runs the longer tests, which use the loops that are compiled.
$(VENV)-oldest/.installed: pyproject.toml .ci/oldest.py
	$(PYTHON) -m venv --clear $(VENV)-oldest
	$(PYTHON) .ci/oldest.py > $(VENV)-oldest/constraints.txt
	$(VENV)-oldest/bin/python -m pip --disable-pip-version-check install --quiet \
		--constraint $(VENV)-oldest/constraints.txt --editable '.[test,cluster]'
	touch $@

# The wheel by itself, without any extra: it must answer, run and draw.
core: ## the wheel without any extra: doctor, demo and a run
	$(PYTHON) -m venv --clear $(VENV)-core
	$(VENV)-core/bin/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt .
	cd $(VENV)-core && bin/superarm doctor && bin/superarm demo --quiet --out demo
	cd $(VENV)-core && bin/superarm run kernelized/rkhs-se --rounds 50 --seeds 2 --quiet --out run

check: $(VENV)/.dev ## ruff, mypy (strict) and the import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

all: test slow kernels oldest core check ## everything that CI runs, without torch, SUMO and PostgreSQL

# The peers of the benchmarks. torch comes first and by version: a bare "torch" pulls in CUDA.
torch: $(VENV)/.dev ## add torch, GPyTorch, BoTorch and Optuna to .venv
	$(PIP) torch==2.13.0
	$(PIP) --editable '.[torch,bench]'

# The traffic simulator, about 770 MB.
sumo: $(VENV)/.dev ## add the traffic simulator to .venv, about 770 MB
	$(PIP) --editable '.[sumo]'

# The tests start a server of their own; Debian's package has the programs.
postgres: $(VENV)/.dev ## add PostgreSQL: its driver to .venv, and Debian's package
	command -v initdb || ls /usr/lib/postgresql/*/bin/initdb || { apt-get update --quiet && \
		DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet --no-install-recommends postgresql; }
	$(PIP) --editable '.[postgres]'

# Small sizes, to see that all of them run: make bench BENCH=--quick
bench: $(VENV)/.dev ## compare speed and accuracy with other libraries, suite by suite
	$(BIN)/python -m bench all $(BENCH)

clean: ## remove virtual environments and results
	rm -rf $(VENV) $(VENV)-core $(VENV)-oldest demo runs

$(VENV)/.venv:
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.core: $(VENV)/.venv pyproject.toml constraints.txt
	$(PIP) --editable .
	touch $@

$(VENV)/.dev: $(VENV)/.core
	$(PIP) --editable '.[dev]'
	touch $@

# Before the tests: otherwise each of their workers compiles the same loops.
LOOPS := $(shell find src -name '_compiled*.py')
$(VENV)/.compiled: $(VENV)/.dev $(LOOPS)
	$(BIN)/python .ci/compile.py
	touch $@
