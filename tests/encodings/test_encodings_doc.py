"""The examples in docs/encodings.md and docs/counting.md run as written."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
NUM_EXAMPLES = {"encodings.md": 1, "counting.md": 3}
EXAMPLES = {
    page: re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    for page in NUM_EXAMPLES
}


@pytest.mark.parametrize(("page", "number"), [(page, i) for page, count in NUM_EXAMPLES.items() for i in range(count)])
def test_example(page, number):
    exec(compile(EXAMPLES[page][number], f"{page}, example {number}", "exec"), {})


def test_number_of_examples():
    assert {page: len(examples) for page, examples in EXAMPLES.items()} == NUM_EXAMPLES
    assert all("assert" in example for examples in EXAMPLES.values() for example in examples)
