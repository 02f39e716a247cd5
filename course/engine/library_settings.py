"""Settings of the given libraries and of the process, kept for the caller while an answer runs.

    with kept_settings():
        answer()  # may set ImageFile.LOAD_TRUNCATED_IMAGES or torch's print options

A check runs the reference in the same process, after the answer. What an answer sets must not
decide what is expected of it.
"""

import contextlib
import functools
import multiprocessing
import os
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any, NamedTuple

import numpy
import torch

_LIBRARIES = {"PIL", "numpy", "torch"}
_PLAIN = (bool, int, float, str, tuple, type(None))


class _Value(NamedTuple):
    """A public attribute of a module, and what it was."""

    module: ModuleType
    name: str
    was: Any

    def put_back(self) -> None:
        """Give the attribute its value again, if it has another one."""
        if vars(self.module).get(self.name) is not self.was:
            setattr(self.module, self.name, self.was)


def _values() -> list[_Value]:
    """The settings of the libraries that are imported now."""
    settings = _settings_of(len(sys.modules))
    return [_Value(module, name, vars(module).get(name)) for module, name in settings]


@functools.lru_cache(maxsize=1)
def _settings_of(n_modules: int) -> list[tuple[ModuleType, str]]:
    """(module, name) of the plain values in the public modules of _LIBRARIES.

    What is private is a library's own memory, for instance that it has started CUDA. Looking at all
    modules takes milliseconds, so it is done again only where there are others, `n_modules` in all.
    """
    found = []
    for path, module in list(sys.modules.items()):
        library, *inner = path.split(".")
        is_public = not any(part.startswith("_") for part in inner)
        if library in _LIBRARIES and is_public and isinstance(module, ModuleType):
            for name, value in list(vars(module).items()):
                if not name.startswith("_") and type(value) in _PLAIN:
                    found.append((module, name))
    return found


@contextlib.contextmanager
def kept_settings() -> Iterator[None]:
    """Take pictures as a new process does inside the block; restore the caller's settings then."""
    values = _values()
    environment = dict(os.environ)
    torch_prints = torch._tensor_str.PRINT_OPTS
    print_options = dict(vars(torch_prints))
    start_method = multiprocessing.get_start_method(allow_none=True)
    cudnn = torch.backends.cudnn
    flags = (cudnn.enabled, cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32)
    _take_pictures_as_a_new_process()
    with numpy.printoptions():
        try:
            yield
        finally:
            _put_back(values)
            vars(torch_prints).update(print_options)
            cudnn.enabled, cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32 = flags
            if multiprocessing.get_start_method(allow_none=True) != start_method:
                multiprocessing.set_start_method(start_method, force=True)
            if os.environ != environment:
                _restore_environment(environment)


def _take_pictures_as_a_new_process() -> None:
    """Refuse cut-off pictures, although a notebook may have told Pillow to take them."""
    image_file: Any = sys.modules.get("PIL.ImageFile")
    if image_file:
        image_file.LOAD_TRUNCATED_IMAGES = False


def _put_back(values: list[_Value]) -> None:
    for value in values:
        value.put_back()


def _restore_environment(environment: dict[str, str]) -> None:
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    os.environ.update(environment)
