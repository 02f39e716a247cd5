"""The folders next to the packages that benchmarks take scripts and tests from."""

from course.system.folders import ROOT

TESTS = ROOT / "tests"
PLANTED = TESTS / "planted"  # training scripts with one fault each, for `course bench checkup`
PRETENDED = TESTS / "pretended"  # on the path of a process, it makes torch see a CUDA device
