# What authors and instructors run, beside what learners do; `make help` lists all of it.
include learners/Makefile
INBOX ?=
MORE ?=
DEST ?=

.PHONY: demo grade test notebooks solutions class-release lint lock

lab: notebooks

demo: install  ## build everything, grade a solved and an untouched submission of every unit with nbgrader
	@$(VENV)/course demo

grade: install  ## grade a class: INBOX=folder with one folder per learner (MORE="--workers 4 --feedback ...")
	@$(VENV)/course grade $(if $(INBOX),"$(INBOX)",$(error say where the submissions lie: make grade INBOX=folder)) $(MORE)

test: install  ## run every test
	@OMP_NUM_THREADS=1 $(VENV)/python -m pytest -n 2 --dist worksteal

notebooks: install  ## masters -> notebooks/ (your edits are kept)
	@$(VENV)/course build

solutions: install  ## masters -> notebooks/ and the executed solutions/*.ipynb (minutes)
	@$(VENV)/course build --execute

class-release: install  ## the learners' side alone, without solutions, in the folder DEST
	@$(VENV)/course release $(if $(DEST),"$(DEST)",$(error say where the class's folder is to be: make class-release DEST=folder)) $(MORE)

lint: install  ## ruff
	@$(VENV)/ruff check . && $(VENV)/ruff format --check .

lock: install  ## requirements.txt anew from pyproject.toml
	@$(VENV)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header --all-extras --upgrade pyproject.toml -o requirements.txt
