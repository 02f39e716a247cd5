"""The command `course`: quick to start, an example for each verb, one sentence for each mistake."""

import fnmatch
import importlib.metadata
import runpy
import subprocess
import sys

import click
import pytest
from conftest import ROOT

from course import cli


def course(*args, code=0, **options):
    """What `course ARGS` prints; it must end with exit code `code`."""
    call = [sys.executable, "-m", "course.cli", *args]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, timeout=100, **options)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stderr if code else done.stdout


def commands(group, path=()):
    """(path, command) of every verb, and of the verbs of a verb."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


VERBS = {" ".join(path): command for path, command in commands(cli.verbs)}


@pytest.mark.parametrize("verb", VERBS)
def test_every_help_says_what_the_command_does_and_shows_an_example(verb):
    command = VERBS[verb]
    text = command.get_help(click.Context(command, info_name=verb))
    examples = [line for line in text.splitlines() if f"course {verb}" in line and "Usage" not in line]
    assert examples, text
    assert command.help and all(option.help for option in command.params if isinstance(option, click.Option))


def test_every_verb_is_listed_with_a_sentence():
    listed = course("--help")
    for verb in cli.verbs.list_commands(None):
        assert f"\n  {verb} " in listed
    assert "..." not in listed.split("Commands:")[1]


def test_help_and_units_load_neither_torch_nor_nbgrader():
    code = (
        "import sys, contextlib, io\nfrom course.cli import main\nfrom course.notebook.registry import all_units\n"
        "all_units()\n"
        "with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()): main(['--help'])\n"
        "print(*{'torch', 'numpy', 'nbgrader', 'nbformat', 'jupytext', 'IPython'} & set(sys.modules))"
    )
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert out == "\n"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["progess"], "no command is called 'progess'; did you mean progress?"),
        (["lab", "--prt", "1"], "No such option*--prt*id you mean *--port*? See course lab --help."),
        (["lab", "--port", "99999"], "Invalid value for '--port': 99999 is not in the range 1<=x<=65535."),
        (["data", "lfww", "--download"], "no data set is called 'lfww'; did you mean lfw?"),
        (["data", "lfw"], "say either --download or --from FOLDER."),
        (["data", "lfw", "--from", "nowhere"], "Path 'nowhere' does not exist."),
        (["check", "nowhere.ipynb"], "there is no notebook nowhere.ipynb."),
        (["check", "README.md"], "README.md is not a notebook"),
        (["check"], "Missing argument 'NOTEBOOK'."),
        (["progress", "fast_laoding"], "did you mean"),
        (["bench", "lfww"], "No such command 'lfww'.* See course bench --help."),
        (["bench", "loading", "epoch"], "'epoch' is not one of"),
    ],
)
def test_a_mistake_is_one_sentence(args, words, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    with pytest.raises(SystemExit) as stopped:
        cli.main(args)
    said = stopped.value.code if isinstance(stopped.value.code, str) else capsys.readouterr().err.rstrip("\n")
    assert fnmatch.fnmatchcase(said, f"error: *{words}*") and "\n" not in said  # versions of click put it differently
    assert stopped.value.code not in (0, None)


def test_a_class_has_no_commands_of_its_instructor(monkeypatch, capsys):
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: ())
    learners = ["lab", "doctor", "data", "check", "notebooks", "update", "progress", "checkup", "loader-report"]
    assert cli.verbs.list_commands(None) == learners
    for words in (["grade", "submitted"], ["progress", "--class", "submitted"]):
        with pytest.raises(
            SystemExit, match="is an instructor's command.* not installed here; clone .* `make install`"
        ):
            cli.main(words)
    with pytest.raises(SystemExit) as stopped:
        cli.main(["--help"])
    assert not stopped.value.code and "grade" not in capsys.readouterr().out.split("Commands:")[1]


def test_the_instructors_package_has_its_commands_where_it_is_not_installed(monkeypatch, capsys):
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: ())
    monkeypatch.setattr(cli, "more_points", [])
    for words, said in ((["grade"], "name an inbox"), (["progress", "--class", "nowhere"], "nowhere")):
        monkeypatch.setattr(sys, "argv", ["instructor", *words])
        with pytest.raises(SystemExit, match=f"error: .*{said}"):
            runpy.run_module("instructor", run_name="__main__")
    assert {*cli.INSTRUCTORS} <= {*cli.verbs.list_commands(None)}


def test_data_runs_the_scripts_with_their_flags(monkeypatch, tmp_path):
    calls = []
    monkeypatch.setattr(cli, "_run_script", lambda script, args: calls.append((script.name, *args)))
    for args in (["data", "--download"], ["data", "movielens", "lfw", "--from", str(tmp_path)],
                 ["data", "movielens", "--download", "--movielens", "ml-20m"],
                 ["data", "regression", "--rows", "20", "--columns", "3"]):  # fmt: skip
        with pytest.raises(SystemExit):
            cli.main(args)
    assert calls == [
        ("movielens.py", "ml-100k", "ml-1m", "--download"),
        ("lfw.py", "--download"),
        ("fashion.py", "--download"),
        ("movielens.py", "--from", str(tmp_path)),
        ("lfw.py", "--from", str(tmp_path)),
        ("movielens.py", "ml-20m", "--download"),
        ("regression.py", "--rows=20", "--columns=3"),
    ]


def test_data_ends_with_the_exit_code_of_a_script(tmp_path):
    said = course("data", "lfw", "--from", str(tmp_path), code=1)
    assert said.startswith("error: found nothing of LFW in ")


@pytest.mark.parametrize(
    ("words", "call"),
    [
        (["grade", "INBOX=a folder"], 'course grade "a folder"'),
        (["grade", "INBOX=in", "MORE=--workers 4 --feedback"], 'course grade "in" --workers 4 --feedback'),
        (["lab", "PORT=8899"], "course lab --port 8899"),
        (["data", "DATA=lfw", "FROM=my folder"], 'course data lfw --from "my folder"'),
        (["data"], "course data movielens lfw fashion --download"),
        (["class-release", "DEST=a class"], 'course release "a class"'),
    ],
)
def test_old_spellings_of_make_work(words, call):
    done = subprocess.run(["make", "-n", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    assert call in " ".join(done.stdout.split())


def test_make_grade_without_an_inbox_is_told():
    done = subprocess.run(["make", "-n", "grade"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode and "make grade INBOX=folder" in done.stderr
