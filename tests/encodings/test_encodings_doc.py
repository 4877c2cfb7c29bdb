"""The examples in docs/encodings.md run as they stand."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "encodings.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_example(number):
    exec(compile(EXAMPLES[number], f"{PAGE.name}, example {number}", "exec"), {})


def test_there_are_examples():
    assert len(EXAMPLES) == 4 and all("assert" in example for example in EXAMPLES)
