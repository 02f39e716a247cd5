# What authors and instructors run, beside what learners do; `make help` lists all of it.
include learners/Makefile
INBOX ?=
MORE ?=
DEST ?=
JOBS ?= 4# processes: tests wait for half of their time, so that two cores have work for four
PYTEST := OMP_NUM_THREADS=1 $(VENV)/python -m pytest -n $(JOBS) --dist worksteal

.PHONY: demo grade check check-oldest test test-all hub-tools mutants notebooks solutions class-release lint lock

lab: notebooks

demo: install  ## build everything, grade a solved and an untouched submission of every unit with nbgrader
	@$(VENV)/course demo

grade: install  ## grade a class: INBOX=folder with one folder per learner (MORE="--workers 4 --feedback ...")
	@$(VENV)/course grade $(if $(INBOX),"$(INBOX)",$(error say where the submissions lie: make grade INBOX=folder)) $(MORE)

check: install  ## the tests for every save (90 seconds)
	@$(PYTEST) --tier check

test: install  ## the tests that CI runs; mutants only of what changed since they were recorded
	@$(PYTEST) --tier test

test-all: install  ## every test
	@$(PYTEST) --tier all

check-oldest: install  ## the first tier with the lowest versions that pyproject.toml allows
	@$(VENV)/uv pip compile --quiet --resolution lowest-direct --all-extras --no-annotate --no-header pyproject.toml -o build/oldest.txt
	@test -x build/oldest/bin/python || $(VENV)/uv venv --quiet --seed --python $(VENV)/python build/oldest
	@$(VENV)/uv pip install --quiet --compile-bytecode --python build/oldest/bin/python -r build/oldest.txt
	@$(VENV)/uv pip install --quiet --python build/oldest/bin/python --no-deps -e . -e ./instructor
	@OMP_NUM_THREADS=1 build/oldest/bin/python -m pytest -n $(JOBS) --dist worksteal --tier check

hub-tools: install  ## JupyterHub and its proxy in build/hub, for tests/test_hub.py (needs npm)
	@tests/install_hub.sh

mutants: install  ## run and record the mutants of what changed (NAMES="fit data_parallel/gather": of those)
	@OMP_NUM_THREADS=1 $(VENV)/python tests/mutant_records.py --workers 2 $(NAMES)

notebooks: install  ## masters -> notebooks/ (your edits are kept)
	@$(VENV)/course build

solutions: install  ## masters -> notebooks/ and the executed solutions/*.ipynb (minutes)
	@$(VENV)/course build --execute

class-release: install  ## the learners' side alone, without solutions, in the folder DEST
	@$(VENV)/course release $(if $(DEST),"$(DEST)",$(error say where the class's folder is to be: make class-release DEST=folder)) $(MORE)

lint: install  ## ruff, and mypy of the engine, grading and the jail
	@$(VENV)/ruff check . && $(VENV)/ruff format --check . && $(VENV)/mypy

lock: install  ## requirements.txt anew from pyproject.toml
	@$(VENV)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header --all-extras --upgrade pyproject.toml -o requirements.txt
