"""The demo of Kafka: a job that is killed twice, and every record once in Kafka, PostgreSQL and a Delta table.

    make demo-kafka

Starts a Kafka broker and a PostgreSQL server, both real, below .demo/kafka. A producer sends 200,000 orders; `totals.py`
keeps each customer's running total. Its processes are killed twice while it runs. At the end, what is in the three places is
compared with the orders: the exit code is 0 if every record is there, once. SPARK_MASTER (local[2] if unset) and
FORKPOINT_ENGINE choose where the job runs.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from deltalake import DeltaTable
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from servers.kafka import Kafka, Message
from servers.postgres import Postgres

HOME = Path(".demo/kafka").absolute()
PROGRAM = Path(__file__).resolve().parents[1] / "examples" / "kafka" / "totals.py"
ORDERS, CUSTOMERS, BATCH = 200_000, 500, 2_000
KILL_AT = (0.3, 0.6)
ENVIRONMENT = {"SPARK_MASTER": "local[2]", **os.environ, "FORKPOINT_STATE_ROOT": str(HOME / "state")}

console = Console(highlight=False)


def order(number: int) -> tuple[int, int, int]:
    return number, number * 7919 % CUSTOMERS, number * 31 % 997


def produce(kafka: Kafka, killed: Sequence[threading.Event]) -> None:
    """What is left after the point of a kill comes when the job has been killed: else, a job that takes long to start would read
    all of it at once."""
    for start in range(0, ORDERS, BATCH):
        for at, event in zip(KILL_AT, killed, strict=True):
            if start >= ORDERS * (at + 0.1):
                event.wait()
        orders = [order(number) for number in range(start, start + BATCH)]
        kafka.produce(
            "orders",
            [Message(b'{"number":%d,"customer":%d,"cents":%d}' % each, b"%d" % each[1]) for each in orders],
        )
        time.sleep(0.2)


def start(kafka: Kafka, postgres: Postgres) -> subprocess.Popen[bytes]:
    arguments = [kafka.bootstrap_servers, postgres.url, str(HOME / "delta")]
    with open(HOME / "log", "ab") as log:
        return subprocess.Popen(
            [sys.executable, str(PROGRAM), *arguments], env=ENVIRONMENT, stdout=log, stderr=log, start_new_session=True
        )


def kill(job: subprocess.Popen[bytes]) -> None:
    """The driver, Spark's JVM and its workers."""
    os.killpg(job.pid, signal.SIGKILL)
    job.wait()


def number_sent(kafka: Kafka) -> Callable[[], int]:
    """How many positions of the topic "totals" hold committed records, transactions' ends included."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "demo", "log_level": 0})
    return lambda: sum(
        consumer.get_watermark_offsets(TopicPartition("totals", partition), timeout=60)[1] for partition in range(4)
    )


def expected() -> tuple[Counter[tuple[int, int, int, int]], dict[int, tuple[int, int]]]:
    """Each running total, and the last ones."""
    last: dict[int, tuple[int, int]] = {}
    running: Counter[tuple[int, int, int, int]] = Counter()
    for number in range(ORDERS):
        _, customer, cents = order(number)
        before = last.get(customer, (0, 0))
        last[customer] = before[0] + 1, before[1] + cents
        running[number, customer, *last[customer]] += 1
    return running, last


def run(kafka: Kafka, postgres: Postgres) -> bool:
    kafka.create_topic("orders", partitions=4)
    kafka.create_topic("totals", partitions=4)
    postgres.execute("CREATE TABLE totals (number INT, customer INT PRIMARY KEY, orders INT, cents BIGINT)")
    killed = [threading.Event() for _ in KILL_AT]
    producer = threading.Thread(target=produce, args=[kafka, killed], daemon=True)
    job = start(kafka, postgres)
    producer.start()
    kills = [random.Random(1).uniform(0, 1.5) for _ in KILL_AT]
    sent = number_sent(kafka)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("totals in Kafka", total=ORDERS)
        while len_of_delta() < ORDERS or last_of(postgres) < ORDERS or sent() < ORDERS:
            if job.poll() is not None:
                console.print(f"the job ended with {job.returncode}: {(HOME / 'log').read_text()[-3000:]}")
                return False
            done = min(sent(), ORDERS)
            progress.update(task, completed=done)
            if kills and done >= ORDERS * KILL_AT[-len(kills)]:
                time.sleep(kills.pop(0))
                kill(job)
                killed[len(KILL_AT) - len(kills) - 1].set()
                progress.console.print(f"killed the job at {sent():,}; it starts again")
                job = start(kafka, postgres)
            time.sleep(0.2)
        progress.update(task, completed=ORDERS)
    time.sleep(2)  # for what would come twice
    kill(job)
    running, last = expected()
    in_kafka = Counter(
        (t["number"], t["customer"], t["orders"], t["cents"])
        for t in (json.loads(message.value or b"") for message in kafka.read("totals"))
    )
    in_delta = Counter(
        (row["number"], row["customer"], row["orders"], row["cents"])
        for row in DeltaTable(str(HOME / "delta")).to_pyarrow_table().to_pylist()
    )
    in_postgres = {row[0]: (row[1], row[2]) for row in postgres.execute("SELECT customer, orders, cents FROM totals")}
    right = all(event.is_set() for event in killed)
    if not right:
        console.print(f"the job was to be killed {len(killed)} times, but all was there before")
    for name, found in (("Kafka", in_kafka), ("Delta", in_delta)):
        lost, twice = (running - found).total(), (found - running).total()
        console.print(f"{name}: {found.total():,} records, {lost} lost, {twice} repeated")
        right = right and not lost and not twice
    wrong = sum(in_postgres.get(customer) != total for customer, total in last.items())
    console.print(f"PostgreSQL: {len(in_postgres):,} customers, {wrong} wrong")
    return right and not wrong and len(in_postgres) == len(last)


def len_of_delta() -> int:
    if not DeltaTable.is_deltatable(str(HOME / "delta")):
        return 0
    return int(DeltaTable(str(HOME / "delta")).count())


def last_of(postgres: Postgres) -> int:
    (row,) = postgres.execute("SELECT COALESCE(SUM(orders), 0) FROM totals")
    return int(row[0])


def main() -> int:
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir(parents=True)
    started = time.monotonic()
    console.print("starting Kafka and PostgreSQL")
    kafka = Kafka(HOME / "broker")
    try:
        postgres = Postgres(HOME / "postgres")
        try:
            right = run(kafka, postgres)
        finally:
            postgres.stop()
    finally:
        kafka.stop()
    console.print(f"{'every record once' if right else 'WRONG'}, after {time.monotonic() - started:.0f} s")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
