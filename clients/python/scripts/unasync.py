"""Makes the synchronous client and its tests from the asynchronous ones, so that the two cannot differ.

    python3 scripts/unasync.py           # write the synchronous files
    python3 scripts/unasync.py --check   # exit 1 where one is not up to date
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

FOLDER = Path(__file__).parent.parent
FILES = {
    "src/postrider/_async_client.py": "src/postrider/_sync_client.py",
    "tests/test_async_client.py": "tests/test_sync_client.py",
    "tests/test_async_retry.py": "tests/test_sync_retry.py",
}
RULES = [
    (r"Awaitable\[(.*)\]\]\)", r"\1])"),
    (r", Awaitable\b", ""),
    (r"\bawait ", ""),
    (r"\basync (def|for|with) ", r"\1 "),
    (r"\basynccontextmanager\b", "contextmanager"),
    (r"\bimport asyncio\b", "import time as _time"),
    (r"\basyncio\.sleep\b", "_time.sleep"),
    (r"\b_Async(?=[A-Z])", "_"),
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


def main() -> int:
    code = 0
    for source, target in FILES.items():
        made = synchronous((FOLDER / source).read_text())
        if "--check" not in sys.argv[1:]:
            (FOLDER / target).write_text(made)
        elif (FOLDER / target).read_text() != made:
            print(f"{target} is not up to date: run python3 scripts/unasync.py")
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
