# make demo   solve a 20-dimensional problem and draw it
# make test   style, types and the test suite
# make bench-speed   what a step costs, beside PyTorch and DeepXDE
.PHONY: setup demo lint test test-slow bench-speed clean

PYTHON ?= python3
BIN := .venv/bin
# Installed again when what it was made from has changed.
STAMP := .venv/.installed

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt src/qpde_command.py
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(STAMP)

demo: setup
	$(BIN)/qpde solve survival --dim 20 --out runs/demo --force
	$(BIN)/qpde certify runs/demo
	@echo "Figures: runs/demo/history.png, runs/demo/radial.png; page: $$($(BIN)/qpde report runs/demo)"

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

test: lint
	$(BIN)/pytest

# Installs the peers too (PyTorch, DeepXDE), times everything in one run and writes benchmarks/speed.*.
bench-speed: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,bench]'
	$(BIN)/qpde bench speed --out benchmarks

# With the compiler that users have (tests/conftest.py chooses a quicker one).
test-slow: setup
	XLA_FLAGS= $(BIN)/pytest -m slow

clean:
	rm -rf .venv runs .pytest_cache .ruff_cache
