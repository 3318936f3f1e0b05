# Each target sets up its own .venv on a fresh machine: only Python 3.11 or later is needed.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
PIP = $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
export OPENBLAS_NUM_THREADS = 1

.PHONY: demo test slow check core bench torch sumo clean

demo: $(VENV)/.core
	$(BIN)/superarm demo

test: $(VENV)/.dev
	$(BIN)/python -m pytest -q -n auto -m "not slow" --doctest-modules

slow: $(VENV)/.dev
	$(BIN)/python -m pytest -q -n auto -m slow

# The wheel by itself, without any extra: it must answer, run and draw.
core:
	$(PYTHON) -m venv --clear $(VENV)-core
	$(VENV)-core/bin/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt .
	cd $(VENV)-core && bin/superarm doctor && bin/superarm demo --quiet --out demo
	cd $(VENV)-core && bin/superarm run kernelized/rkhs-se --rounds 50 --seeds 2 --quiet --out run

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The peers of the benchmarks. torch comes first and by version: a bare "torch" pulls in CUDA.
torch: $(VENV)/.dev
	$(PIP) torch==2.13.0
	$(PIP) --editable '.[torch]'

# The traffic simulator, about 770 MB.
sumo: $(VENV)/.dev
	$(PIP) --editable '.[sumo]'

bench: $(VENV)/.dev
	$(BIN)/python -m bench streaming
	$(BIN)/python -m bench finite
	$(BIN)/python -m bench network
	$(BIN)/python -m bench threads
	$(BIN)/python -m bench startup

clean:
	rm -rf $(VENV) $(VENV)-core demo runs

$(VENV)/.venv:
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.core: $(VENV)/.venv pyproject.toml constraints.txt
	$(PIP) --editable .
	touch $@

$(VENV)/.dev: $(VENV)/.core
	$(PIP) --editable '.[dev]'
	touch $@
