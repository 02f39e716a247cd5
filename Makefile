# The course's commands; `make help` lists them.  PYTHON names the interpreter that makes .venv (3.11 or later).
PYTHON ?= python3
VENV := .venv/bin
LOCKED := .venv/.installed-$(shell sha256sum requirements.txt pyproject.toml 2>/dev/null | sha256sum | cut -c1-16)
FROM ?=
INBOX ?=
MORE ?=
DATA ?= movielens lfw fashion
NAMES ?= ml-100k ml-1m

.PHONY: help install demo grade test lab data notebooks solutions lint lock

help:  ## list the commands
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 14

install: $(LOCKED)

$(LOCKED): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "error: needs Python 3.11 or later, found %s; say make PYTHON=/path/to/python3" % sys.version.split()[0])'
	@echo "installing into .venv (once; about 5 GB with torch)"
	@test -x $(VENV)/python || $(PYTHON) -m venv .venv
	@$(VENV)/python -m pip install --quiet --disable-pip-version-check uv
	@$(VENV)/uv pip install --quiet --python $(VENV)/python --require-hashes -r requirements.txt
	@$(VENV)/uv pip install --quiet --python $(VENV)/python --no-deps --no-build-isolation -e .
	@rm -f .venv/.installed-*; touch $@

demo: install  ## build everything, grade a solved and an untouched submission of every unit with nbgrader
	@$(VENV)/python -m course.authoring.demo

grade: install  ## grade a class: INBOX=folder with one folder a learner (MORE="--workers 4 --feedback ...")
	@$(VENV)/python -m course.authoring.grade $(if $(INBOX),"$(INBOX)",$(error say where the submissions lie: make grade INBOX=folder)) $(MORE)

test: install  ## run every test
	@OMP_NUM_THREADS=1 $(VENV)/python -m pytest -n 2 --dist worksteal

lab: install notebooks  ## open JupyterLab on the notebooks
	@$(VENV)/python -m course.authoring.lab $(if $(PORT),--port $(PORT)) $(if $(NO_BROWSER),--no-browser)

data: install  ## get the real data (DATA=lfw: only that): from the network, or FROM=folder with local archives
	@$(foreach set,$(DATA),$(VENV)/python data_scripts/$(set).py $(if $(FROM),--from "$(FROM)",$(if $(filter movielens,$(set)),$(NAMES)) --download) &&) true

notebooks: install  ## masters -> notebooks/ (your edits are kept)
	@$(VENV)/python -m course.authoring.build

solutions: install  ## masters -> notebooks/ and the executed solutions/*.ipynb (minutes)
	@$(VENV)/python -m course.authoring.build --execute

lint: install  ## ruff
	@$(VENV)/ruff check . && $(VENV)/ruff format --check .

lock: install  ## requirements.txt anew from pyproject.toml
	@$(VENV)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header --all-extras --upgrade pyproject.toml -o requirements.txt
