"""Makes the synchronous client and its tests from the asynchronous ones, so that the two cannot differ.

The build of the package runs it (`hatch_build.py`). The files that it writes are not kept in the repository: run it
once in a clone, to read them or to use the sources without a build.
"""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parent.parent
SOURCES = ("src/postrider/_async_*.py", "tests/test_async_*.py")
RULES = [
    (r"Awaitable\[(.*)\]\]\)", r"\1])"),
    (r", Awaitable\b", ""),
    (r"\bawait ", ""),
    (r"\basync (def|for|with) ", r"\1 "),
    (r"\basynccontextmanager\b", "contextmanager"),
    (r"\bimport asyncio\b", "import time as _time"),
    (r"\basyncio\.sleep\b", "_time.sleep"),
    (r"\b_async_(?=[a-z])", "_sync_"),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\b(__)a(iter|enter|exit)(__)\b", r"\1\2\3"),
    (r"\ba(close|read|iter_bytes)\b", r"\1"),
    (r"\bThe asynchronous client", "The synchronous client"),
    (r"`\S+` is made from this file by `(\S+)`: change this one\.", r"Made by `\1`: change the asynchronous file."),
    (r"\basync_client\(", "client("),
]


def synchronous(text: str) -> str:
    """The synchronous form of a source text."""
    for pattern, replacement in RULES:
        text = re.sub(pattern, replacement, text)
    return text


def write_all() -> list[Path]:
    """Writes the synchronous form of every source, and says where."""
    made = []
    for source in sorted(path for pattern in SOURCES for path in FOLDER.glob(pattern)):
        target = source.with_name(source.name.replace("_async_", "_sync_"))
        target.write_text(synchronous(source.read_text()))
        made.append(target)
    return made


if __name__ == "__main__":
    for path in write_all():
        print(path.relative_to(FOLDER))
