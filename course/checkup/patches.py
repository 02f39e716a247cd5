"""Change torch for a while and put everything back."""

import contextlib


class Patches:
    """Replaced attributes and hooks; `close` puts all of them back, the latest first."""

    def __init__(self):
        self.undo = contextlib.ExitStack()

    def replace(self, owner: object, name: str, make) -> None:
        """Replace `owner.name` by `make(what it was)`."""
        original = getattr(owner, name)
        own = name in vars(owner)  # else it is inherited, and is put back by deleting ours
        setattr(owner, name, make(original))
        self.undo.callback(setattr, owner, name, original) if own else self.undo.callback(
            delattr, owner, name
        )

    def handle(self, handle) -> None:
        """Remove a hook of torch at the end."""
        self.undo.callback(handle.remove)

    def close(self) -> None:
        self.undo.close()


class Hook:
    """A hook of a module that copies of the module share, and that files of the module do not
    hold.
    """

    def __init__(self, call):
        self.call = call

    def __call__(self, *args):
        return self.call(*args)

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        return Hook, (nothing,)


def nothing(*args):
    """The hook in a module that was loaded from a file."""
