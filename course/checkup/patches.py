"""Change torch for a while and put everything back."""

import contextlib
from collections.abc import Callable
from typing import Any

from torch.utils.hooks import RemovableHandle


class Patches:
    """Replaced attributes and hooks; `close` puts all of them back, the latest first."""

    def __init__(self) -> None:
        self.undo = contextlib.ExitStack()

    def replace(self, owner: object, name: str, make: Callable[[Any], Any]) -> None:
        """Replace `owner.name` by `make(what it was)`."""
        original = getattr(owner, name)
        is_own = name in vars(owner)
        setattr(owner, name, make(original))
        if is_own:
            self.undo.callback(setattr, owner, name, original)
        else:  # it is inherited, and is put back by deleting ours
            self.undo.callback(delattr, owner, name)

    def handle(self, handle: RemovableHandle) -> None:
        """Remove a hook of torch at the end."""
        self.undo.callback(handle.remove)

    def close(self) -> None:
        """Put everything back."""
        self.undo.close()


class Hook:
    """A hook that copies of a module share, and that files of a module do not hold."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call

    def __call__(self, *args: Any) -> Any:
        return self.call(*args)

    def __deepcopy__(self, memo: dict) -> "Hook":
        return self

    def __reduce__(self) -> tuple:
        return Hook, (nothing,)


def nothing(*args: Any) -> None:
    """Do nothing: the hook in a module that was loaded from a file."""
