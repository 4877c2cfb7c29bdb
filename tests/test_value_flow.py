"""The functions that a value passes: a key from its file to a kernel, and a path count to a logit (docs/design.md)."""

import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import yaml

import graphgps_spse
from graphgps_spse.config import load_config
from graphgps_spse.data.opening import load_splits
from graphgps_spse.encode import encode
from graphgps_spse.parts import build_parts

CLAMP = 4.712389  # a value that nothing else has
CONFIG = {
    "name": "flow",
    "model": {"type": "GritTransformer"},
    "dataset": {
        "format": "cycles",
        "edge_encoder_name": "DummyEdge",
        "cycles": {"num_graphs": [4, 2, 2], "max_count": 1, "max_length": 4},
    },
    "posenc_SPSE": {"enable": True, "max_length": 3, "method": "exact"},
    "gnn": {"dim_inner": 12},
    "gt": {"layers": 1, "n_heads": 3, "dim_hidden": 12, "attn": {"clamp": CLAMP}},
    "accelerator": "cpu",
    "num_threads": 1,
}

PASSED_OVER = {
    "config.load.load_config": "only calls the next functions",
    "models.grit.model.GritTransformer.from_cfg": "only calls the next functions",
    "config.yaml_reader.read_mapping": "returns the content of a file to read_chain",
    "config.tree.Config": "the tree in which from_cfg looks up its keys",
    "options.Key.check": "returns the checked value",
    "options.Options.__post_init__": "checks the options that it belongs to",
    "options.convert": "returns the value in its type",
    "options.as_plain": "returns a value of numpy as one of Python",
    "config.files.find_publisher": "looks for expected results",
    "config.files.refuse_secrets": "looks for secrets",
    "config.tree.to_dict": "copies the tree, for the comparison with the published configuration",
    "config.publication": "compares the configuration with the published one",
    "config.identity": "compares the configuration with the published one",
    "config.yaml_reader.Node": "a value and its position",
    "jit.Kernel.__call__": "starts the kernel",
}
"""Functions, classes and files that see the clamp and do not hand it on to a later step, with the reason."""


def listed(column: int) -> list[str]:
    text = (Path(__file__).parents[1] / "docs" / "design.md").read_text()
    rows = re.findall(r"^\| \d+ \|(.*)\|(.*)\|$", text, flags=re.MULTILINE)
    return [cell.strip().strip("`") for row in rows if (cell := row[column].strip())]


def holds_clamp(value: Any, depth: int = 0) -> bool:
    if isinstance(value, float):
        return value == CLAMP
    if depth > 6 or isinstance(value, type) or (isinstance(value, dict | tuple | list) and len(value) > 100):
        return False
    if isinstance(value, dict):
        return any(holds_clamp(item, depth + 1) for item in value.values())
    if isinstance(value, tuple | list):
        return any(holds_clamp(item, depth + 1) for item in value)
    return any(
        holds_clamp(getattr(value, name), depth + 1) for name in getattr(type(value), "__dataclass_fields__", ())
    )


def trace(work: Callable[[], None], sees: Callable[[FrameType, str, Any], bool]) -> list[str]:
    """Return the functions of the package for which `sees(frame, event, result)` holds, in order of their first call.

    A nested function counts as the one that it stands in, a kernel as itself.
    """
    root, calls, found = Path(graphgps_spse.__file__).parent, [], set()

    def profile(frame: FrameType, event: str, result: Any) -> None:
        if event not in ("call", "return") or not (file := frame.f_code.co_filename).startswith(str(root)):
            return
        module = ".".join(Path(file).relative_to(root).with_suffix("").parts)
        names = [f"{module}.{frame.f_code.co_qualname.partition('.<locals>')[0]}"]
        if names[0] == "jit.Kernel.__call__":
            kernel = frame.f_locals["self"]
            names.append(f"{kernel.__module__.removeprefix('graphgps_spse.')}.{kernel.__name__}")
        calls.extend(name for name in names if name not in calls)
        if sees(frame, event, result):
            found.update(names)

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return [name for name in calls if name in found]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("flow") / "flow.yaml"
    path.write_text(yaml.safe_dump(CONFIG))
    return path


@pytest.fixture(scope="module")
def encoded(file):
    """Encoded graphs; with them, the kernels are compiled before the traces."""
    parts = build_parts(load_config(file))
    train = encode(load_splits(parts.dataset), parts.encodings, 1, parts.storage)[0]["train"]
    parts.model(train.batch([0, 1]))
    return train


def test_a_key_passes_few_functions_on_its_way_to_the_kernel(file, encoded):
    batch = encoded.batch([0, 1])

    def sees(frame: FrameType, event: str, result: Any) -> bool:
        code = frame.f_code
        if event == "return":
            return holds_clamp(result)
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + 1]
        given = [frame.f_locals.get(name) for name in names]
        owner = vars(given[0]).get("clamp") if names[:1] == ("self",) and hasattr(given[0], "__dict__") else None
        return holds_clamp(given) or holds_clamp(owner)

    ours, seen = listed(0), trace(lambda: build_parts(load_config(file)).model(batch), sees)
    assert [name for name in seen if name in ours] == ours and len(ours) <= 8
    private = re.compile(r"(^|\.)_[a-z]")  # functions of one file that help a public one
    others = [
        name
        for name in seen
        if name not in ours and not private.search(name) and not name.startswith(tuple(PASSED_OVER))
    ]
    assert others == [], "name these in docs/design.md, or say here why they do not hand the value on"


def test_a_count_passes_few_functions_on_its_way_to_the_logit(file, encoded):
    parts = build_parts(load_config(file))

    def run() -> None:
        splits, _ = encode(load_splits(parts.dataset), parts.encodings, 1, parts.storage)
        parts.model(splits["train"].batch([0, 1]))

    ours, called = listed(1), trace(run, lambda *_: True)
    assert [name for name in ours if name not in called] == [] and len(ours) <= 14
