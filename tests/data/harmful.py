"""Files that run code when they are unpickled in full: they leave a file behind."""

import io
import pickle
from pathlib import Path
from typing import Any

import torch


class Harmful:
    """Calls a function of the standard library when it is unpickled."""

    def __init__(self, mark: Path, how: str) -> None:
        self.mark, self.how = mark, how

    def __reduce__(self) -> tuple[Any, ...]:
        import builtins
        import os

        if self.how == "os.system":
            return os.system, (f"touch {self.mark}",)
        if self.how == "builtins.eval":
            return builtins.eval, (f"open({str(self.mark)!r}, 'w').close()",)
        if self.how == "builtins.getattr":
            return self.mark.touch, ()  # pickled as a call of getattr
        tensor, arguments = torch.zeros(3).__reduce_ex__(2)
        return tensor, (HarmfulStorage(self.mark), *arguments[1:])


class HarmfulStorage:
    """A storage whose bytes are another pickle."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return torch.storage._load_from_bytes, (as_pt(Harmful(self.mark, "os.system"), zipped=False),)


HOW = ("os.system", "builtins.eval", "builtins.getattr", "storage")


def as_pickle(content: Any) -> bytes:
    return pickle.dumps(content)


def as_pt(content: Any, *, zipped: bool = True) -> bytes:
    """What torch.save writes; `zipped=False` is its format of before 1.6."""
    file = io.BytesIO()
    torch.save(content, file, _use_new_zipfile_serialization=zipped)
    return file.getvalue()
