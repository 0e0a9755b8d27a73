"""Files that were damaged or cut short: those that a job can do without hinder nothing; without the others it refuses to go on,
and nothing is lost once they are back."""

from __future__ import annotations

from pathlib import Path

from chaos import child
from chaos.case import KILLED, Case, Violation


def damage(case: Case) -> None:
    case.rng.choice((empty_records, leftovers, damaged_checkpoint))(case)


def empty_records(case: Case) -> None:
    """Of runs and of the job: conveniences, which no start depends on."""
    place = case.directory / "state" / "jobs" / case.job
    found = sorted([*place.glob("runs/*/run.json"), *place.glob("job.json")])
    if not found:
        return
    for path in case.rng.sample(found, min(len(found), 3)):
        data = path.read_bytes()
        path.write_bytes(data[: case.rng.choice((0, 0, len(data) // 2))])
        case.fault("record of a run cut short", str(path.relative_to(case.directory)))
    case.must_run(case.plan("stop"))


def leftovers(case: Case) -> None:
    """Of writers that died: temporary files, staged output, half a savepoint."""
    state = case.directory / "state"
    for area in ("checkpoints", "snapshots/000000000001", "changelog/000000000002"):
        place = state / "jobs" / case.job / area
        if place.is_dir():
            (place / f".fp-tmp-{case.rng.getrandbits(64):032x}").write_bytes(b"{" * case.rng.randrange(100))
    unfinished = state / "savepoints" / case.job / "20200101-000000-abcdef" / "operators" / "totals" / "total"
    unfinished.mkdir(parents=True, exist_ok=True)
    (unfinished / "part-0.parquet").write_bytes(b"PAR1")
    output = case.directory / case.outputs[-1] / "elements"
    if output.is_dir():
        (output / ".part-000000000001-0-0123456789abcdef.00000000.inprogress").write_bytes(b"element 0 k0")
    case.fault("leftovers of writers that died")
    case.must_run(case.plan("stop"))


def damaged_checkpoint(case: Case) -> None:
    """The newest manifest, or a file that it needs. A start refuses, or gives what it should; then the file is back."""
    place = case.directory / "state" / "jobs" / case.job
    manifests = sorted((place / "checkpoints").glob("*.json"))
    files = sorted([*place.glob("snapshots/*/*"), *place.glob("changelog/*/*")])
    if not manifests:
        return
    path: Path = case.rng.choice([manifests[-1], *files[-3:]])
    data = path.read_bytes()
    at = case.rng.randrange(len(data))
    broken = data[:at] if case.rng.random() < 0.5 else data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]
    path.write_bytes(broken)
    case.fault("checkpoint damaged", f"{path.relative_to(case.directory)} at byte {at} of {len(data)}")
    process = case.start(case.plan("stop"))
    code = process.wait(10)
    if code is None:
        process.kill()
        raise Violation(f"with {path} damaged, a start goes on trying for more than 10 s")
    case.told.append(f"exit {code}")
    if code not in (child.DONE, child.FAILED, KILLED):
        raise Violation(f"with {path} damaged, a start ended with code {code}: {case.last_error()}")
    case.check_so_far(f"with {path} damaged")
    if path.exists() and path.read_bytes() == broken:
        path.write_bytes(data)
