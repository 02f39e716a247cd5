"""Compile a function where a compiler is available, or say why not.

torch.compile needs a C++ compiler on a CPU, Triton on a GPU, and a Python that it supports; a
notebook works without.
"""

import logging
import math
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from course.device import scale

if TYPE_CHECKING:  # importing torch takes a second
    import torch

REASON_CHARACTERS_MAX = 100
_cache = []  # the folder of this process; removed when Python ends


@dataclass(frozen=True)
class Compiled:
    """A function as torch.compile makes it, or the reason why there is none."""

    call: Callable | None = None
    seconds: float = math.nan  # of the first call, which compiles
    reason: str = ""  # "" if `call` can be called


def compiled(
    function: Callable,
    *example: object,
    mode: str | None = None,
    parts: "Sequence[torch.nn.Module]" = (),
) -> Compiled:
    """The Compiled of `function`, which is called once with `example`.

    Without a compiler, or at smoke scale, it holds the reason. What torch compiled in an earlier
    process is not used: `seconds` are those of a first run. Within a process torch keeps what it
    compiled, in memory and on disk.

    Args:
        mode: of torch.compile, such as "reduce-overhead".
        parts: modules of `function` to compile in its place, such as the equal blocks of a
            transformer: what is compiled for one of them serves all.
    """
    import torch

    from course.measure.timing import now

    if scale() == "smoke":
        return Compiled(reason="nothing is compiled at smoke scale")
    if not _cache:
        _cache.append(tempfile.TemporaryDirectory(prefix="compiled-", ignore_cleanup_errors=True))
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = _cache[0].name
    device = "cuda" if torch.cuda.is_available() else "cpu"
    begin = now(device)
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)  # what torch looked for and did not find, and what it ignores
    try:
        for part in parts:
            part.compile(mode=mode)
        call = function if parts else torch.compile(function, mode=mode)
        call(*example)
    # of many kinds: no compiler, no Triton, a Python or a system without support
    except Exception as error:
        text = " ".join(str(error).split("\n\n")[0].split())
        if len(text) > REASON_CHARACTERS_MAX:
            text = f"{text[: REASON_CHARACTERS_MAX - 3]}..."
        return Compiled(reason=text)
    finally:
        logging.disable(disabled)
    return Compiled(call, now(device) - begin)
