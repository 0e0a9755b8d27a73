"""What the results of Nexmark's queries are: the same questions in DuckDB's SQL, over the tables person, auction and bid."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa

_RANKS = """count(*), count(*) FILTER (price < 10000), count(*) FILTER (price >= 10000 AND price < 1000000),
count(*) FILTER (price >= 1000000)"""
_DISTINCT = ", ".join(
    f"count(DISTINCT {name}){condition}"
    for name in ("bidder", "auction")
    for condition in (
        *("", " FILTER (price < 10000)", " FILTER (price >= 10000 AND price < 1000000)", " FILTER (price >= 1000000)"),
    )
)
_DAY = "strftime(\"dateTime\", '%Y-%m-%d')"
_MINUTE = "strftime(\"dateTime\", '%H:%M')"
_PAIRS = """FROM auction AS a JOIN bid AS b ON a.id = b.auction AND b."dateTime" BETWEEN a."dateTime" AND a.expires"""

ANSWERS = {
    "q0": 'SELECT auction, bidder, price, "dateTime", extra FROM bid',
    "q1": 'SELECT auction, bidder, 0.908 * price, "dateTime", extra FROM bid',
    "q2": "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    "q3": """SELECT p.name, p.city, p.state, a.id FROM auction AS a JOIN person AS p ON a.seller = p.id
        WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
    "q4": f"SELECT category, sum(final) // count(*) FROM (SELECT max(price) AS final, category {_PAIRS} GROUP BY a.id, category) "
    "GROUP BY category",
    "q5": """WITH n AS (SELECT auction, time_bucket(INTERVAL 2 SECOND, "dateTime") - to_seconds(2 * i) AS s, count(*) AS num
        FROM bid, range(5) AS t (i) GROUP BY auction, s)
        SELECT auction, num FROM n QUALIFY num = max(num) OVER (PARTITION BY s)""",
    "q7": """SELECT b.auction, b.price, b.bidder, b."dateTime", b.extra FROM bid AS b JOIN (
        SELECT max(price) AS m, time_bucket(INTERVAL 10 SECOND, "dateTime") + INTERVAL 10 SECOND AS e FROM bid GROUP BY e
        ) AS w ON b.price = w.m WHERE b."dateTime" BETWEEN w.e - INTERVAL 10 SECOND AND w.e""",
    "q8": """SELECT DISTINCT p.id, p.name, time_bucket(INTERVAL 10 SECOND, p."dateTime") AS s FROM person AS p
        JOIN auction AS a ON p.id = a.seller
        WHERE time_bucket(INTERVAL 10 SECOND, a."dateTime") = s""",
    "q9": f"""SELECT a.id, "itemName", description, "initialBid", reserve, a."dateTime", expires, seller, category, a.extra,
        auction, bidder, price, b."dateTime", b.extra {_PAIRS}
        QUALIFY row_number() OVER (PARTITION BY a.id ORDER BY price DESC, b."dateTime") = 1""",
    "q10": f'SELECT auction, bidder, price, "dateTime", extra, {_DAY}, {_MINUTE} FROM bid',
    "q11": """WITH g AS (SELECT *, "dateTime" - lag("dateTime") OVER w > INTERVAL 10 SECOND AS begins FROM bid
        WINDOW w AS (PARTITION BY bidder ORDER BY "dateTime")), s AS (SELECT *, count(*) FILTER (begins) OVER (
        PARTITION BY bidder ORDER BY "dateTime") AS nth FROM g) SELECT bidder, count(*), min("dateTime"),
        max("dateTime") + INTERVAL 10 SECOND FROM s GROUP BY bidder, nth""",
    "q12": "SELECT bidder, count(*) FROM bid GROUP BY bidder",
    "q13": """SELECT auction, bidder, price, "dateTime", 'value ' || auction % 10000 FROM bid WHERE auction % 10 <> 7""",
    "q14": """SELECT auction, bidder, 0.908 * price AS p, CASE WHEN hour("dateTime") BETWEEN 8 AND 18 THEN 'dayTime'
        WHEN hour("dateTime") <= 6 OR hour("dateTime") >= 20 THEN 'nightTime' ELSE 'otherTime' END, "dateTime", extra,
        length(extra) - length(replace(extra, 'c', '')) FROM bid WHERE p > 1000000 AND p < 50000000""",
    "q15": f"SELECT {_DAY} AS d, {_RANKS}, {_DISTINCT} FROM bid GROUP BY d",
    "q16": f"SELECT channel, {_DAY} AS d, max({_MINUTE}), {_RANKS}, {_DISTINCT} FROM bid GROUP BY channel, d",
    "q17": f"""SELECT auction, {_DAY} AS d, {_RANKS}, min(price), max(price), sum(price) // count(*), sum(price) FROM bid
        GROUP BY auction, d""",
    "q18": """SELECT auction, bidder, price, channel, url, "dateTime", extra FROM bid
        QUALIFY row_number() OVER (PARTITION BY bidder, auction ORDER BY "dateTime" DESC) = 1""",
    "q19": """SELECT auction, bidder, price, channel, url, "dateTime", extra,
        row_number() OVER (PARTITION BY auction ORDER BY price DESC) AS n FROM bid QUALIFY n <= 10""",
    "q20": """SELECT auction, bidder, price, channel, url, b."dateTime", b.extra, "itemName", description, "initialBid", reserve,
        a."dateTime", expires, seller, category, a.extra FROM bid AS b JOIN auction AS a ON auction = a.id WHERE category = 10""",
    "q21": r"""SELECT auction, bidder, price, channel, CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1'
        WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3' ELSE nullif(regexp_extract(url, '[&]channel_id=([^&]*)', 1), '') END AS c
        FROM bid WHERE c IS NOT NULL OR url LIKE '%&channel_id=%'""",
    "q22": """SELECT auction, bidder, price, channel, split_part(url, '/', 4), split_part(url, '/', 5), split_part(url, '/', 6)
        FROM bid""",
    "q23": """SELECT bidder, price, channel, url, b.extra, p.id, name, "emailAddress", "creditCard", city, state, p.extra,
        "itemName", description, "initialBid", reserve, a."dateTime", expires, seller, category, a.extra
        FROM bid AS b JOIN person AS p ON p.id = b.bidder JOIN auction AS a ON a.seller = b.bidder""",
}


def answered(query: str, tables: dict[str, pa.Table]) -> list[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        for name, rows in tables.items():
            connection.register(name, rows)
        return connection.sql(ANSWERS[query]).fetchall()
