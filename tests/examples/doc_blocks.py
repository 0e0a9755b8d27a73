"""Fenced blocks of the documentation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@dataclass(frozen=True)
class Block:
    """``info``: what stands behind the fence. ``output``: of the text block that follows at once, if one does."""

    file: Path
    line: int
    info: str
    text: str
    output: str | None = None

    @property
    def name(self) -> str:
        return f"{self.file.name}:{self.line}"


def blocks(file: Path) -> list[Block]:
    found: list[Block] = []
    lines = file.read_text(encoding="utf-8").splitlines()
    number, after = 0, -1
    while number < len(lines):
        if not lines[number].startswith("```"):
            number += 1
            continue
        info, start = lines[number][3:].strip(), number + 1
        end = next(i for i in range(start, len(lines)) if lines[i] == "```")
        text = "".join(line + "\n" for line in lines[start:end])
        blank = not "".join(lines[after:number]).strip()
        if info == "text" and found and blank and found[-1].output is None and found[-1].info == "python run":
            last = found.pop()
            found.append(Block(last.file, last.line, last.info, last.text, text))
        else:
            found.append(Block(file, start, info, text))
        number = after = end + 1
    return found


def apply_diff(text: str, diff: str) -> str:
    """The text with the diff's hunks applied; each must fit in one place."""
    for hunk in diff.split("@@\n"):
        old = "".join(line[1:] + "\n" for line in hunk.splitlines() if line[:1] in " -")
        new = "".join(line[1:] + "\n" for line in hunk.splitlines() if line[:1] in " +")
        assert text.count(old) == 1, f"this is there {text.count(old)} times:\n{old}"
        text = text.replace(old, new)
    return text
