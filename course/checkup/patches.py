"""Change torch for a while and put everything back."""

import contextlib
from collections.abc import Callable
from typing import Any

from torch.utils.hooks import RemovableHandle


class Patches:
    """Replaced attributes and hooks; `close` puts all of them back, the latest first."""

    def __init__(self) -> None:
        self.undo = contextlib.ExitStack()

    def replace(self, owner: object, name: str, make: Callable[[Any], Any]) -> Callable[[], None]:
        """Replace `owner.name` by `make(what it was)`.  Returns: what puts it back earlier."""
        original = getattr(owner, name)
        is_own = name in vars(owner)
        setattr(owner, name, make(original))
        is_back = False

        def put_back() -> None:
            nonlocal is_back
            if is_back:
                return
            is_back = True
            if is_own:
                setattr(owner, name, original)
            else:  # it is inherited, and is put back by deleting ours
                delattr(owner, name)

        self.undo.callback(put_back)
        return put_back

    def handle(self, handle: RemovableHandle) -> None:
        """Remove a hook of torch at the end."""
        self.undo.callback(handle.remove)

    def close(self) -> None:
        """Put everything back."""
        self.undo.close()
