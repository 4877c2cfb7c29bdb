"""key=value words for a command line, with the quotes that YAML and the shell need."""

import json
import shlex
from collections.abc import Sequence

from graphgps_spse.config.yaml_reader import parse_word
from graphgps_spse.errors import ConfigError


def shell_word(key: str, value: str | Sequence[str]) -> str:
    """Return the word that sets `key` to a text or to a list of texts, to be pasted into a shell."""
    text = override_text(value) if isinstance(value, str) else f"[{', '.join(map(_list_item, value))}]"
    return shlex.quote(f"{key}={text}")


def override_text(text: str) -> str:
    """Return a text for use as an override, quoted if YAML would read another value."""
    return text if _reads_as(text, text) else json.dumps(text, ensure_ascii=False)


def _list_item(text: str) -> str:
    return text if _reads_as(f"[{text}]", [text]) else json.dumps(text, ensure_ascii=False)


def _reads_as(text: str, value: str | list[str]) -> bool:
    try:
        return bool(parse_word(text, "override") == value)
    except ConfigError:
        return False
