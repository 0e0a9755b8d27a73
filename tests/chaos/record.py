"""What came of the trials: told to whoever counts, and what failed is kept."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos.case import Case, Violation, clear

Tell = Callable[[dict[str, Any]], None]


@dataclass
class Record:
    """``kept``: where directories of failed cases go. ``deadline``: by time.monotonic()."""

    tell: Tell
    unit: str
    kept: Path
    deadline: float
    failures: int = 0

    def over(self) -> bool:
        return time.monotonic() >= self.deadline

    @contextmanager
    def trial(self, case: Case) -> Iterator[Case]:
        """A case from its faults to its check."""
        case.directory.mkdir(parents=True, exist_ok=True)
        try:
            yield case
        except Violation as violation:
            self._failed(case, str(violation))
        except OSError as error:
            self._failed(case, f"the harness itself failed: {error!r}")
        finally:
            case.quiet()
            self.tell({"faults": dict(case.faults)})

    def _failed(self, case: Case, what: str) -> None:
        case.quiet()
        self.failures += 1
        place = self.kept / f"{self.unit.replace(' ', '-')}-{self.failures}"
        if self.failures <= 3:
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(case.directory, place, symlinks=True)
            (place / "told").write_text("\n".join([*case.told, "", what, ""]))
        self.tell(
            {
                "failure": what,
                "unit": self.unit,
                "told": case.told,
                "directory": str(place) if self.failures <= 3 else None,
            }
        )


def fresh(directory: Path) -> Path:
    clear(directory)
    return directory
