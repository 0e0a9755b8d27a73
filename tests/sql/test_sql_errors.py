"""Typical mistakes: the message has the position, and says what to write instead."""

from __future__ import annotations

import re

import pytest

import forkpoint as fp
from forkpoint.sql.errors import SqlError, Text
from forkpoint.sql.parser import parse
from forkpoint.sql.statements import Query
from forkpoint.table.session import Session
from forkpoint.table.statements import execute

DDL = """CREATE TABLE orders (k STRING, v BIGINT NOT NULL, x DOUBLE, at TIMESTAMP(3))
WITH ('connector' = 'filesystem', 'path' = '/tmp', 'format' = 'json');
CREATE TABLE totals (k STRING PRIMARY KEY NOT ENFORCED, n BIGINT)
WITH ('connector' = 'upsert-kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'b:1',
      'key.format' = 'json', 'value.format' = 'json');
CREATE TABLE files (k STRING, n BIGINT) WITH ('connector' = 'filesystem', 'path' = '/tmp', 'format' = 'json');
CREATE TABLE rates (k STRING PRIMARY KEY NOT ENFORCED, n BIGINT, at TIMESTAMP(3), WATERMARK FOR at AS at)
WITH ('connector' = 'filesystem', 'path' = '/tmp', 'format' = 'json');
CREATE TABLE customers (k STRING, n BIGINT) WITH ('connector' = 'jdbc', 'url' = 'jdbc:sqlite:/x', 'table-name' = 't');
CREATE TABLE calls (k STRING, now AS PROCTIME()) WITH ('connector' = 'filesystem', 'path' = '/tmp', 'format' = 'json');
CREATE TABLE seen (k STRING, at TIMESTAMP(3), late AS at - INTERVAL '1' DAY, WATERMARK FOR at AS at)
WITH ('connector' = 'filesystem', 'path' = '/tmp', 'format' = 'json');
"""

# ^ is below the first sign of what is wrong.
MISTAKES = [
    ("SELECT kk FROM orders", "       ^", "there is no column 'kk'; did you mean 'k'?"),
    ("SELECT k FROM order", "              ^", "there is no table 'order'; did you mean 'orders'?"),
    ("SELECT o.k FROM orders AS p", "       ^", "there is no table 'o' here; FROM has p"),
    (
        "SELECT k, v FROM orders GROUP BY k",
        "          ^",
        "column 'v' must be in GROUP BY, or inside an aggregate such as MAX(v)",
    ),
    ("SELECT COUNT(*) FROM orders WHERE SUM(v) > 1", " " * 34 + "^", "an aggregate (SUM) is not allowed in WHERE"),
    ("SELECT k + 1 FROM orders", "       ^", "+ takes numbers, not STRING and INT"),
    ("SELECT v FROM orders WHERE k = 1", " " * 27 + "^", "cannot compare STRING with INT; CAST one of them"),
    ("SELECT v FROM orders WHERE v", " " * 27 + "^", "WHERE takes a condition, not BIGINT"),
    ("SELECT SUMM(v) FROM orders", "       ^", "there is no function SUMM; did you mean 'SUM'?"),
    ("SELECT v * 1.5 || k FROM orders", "       ^", "|| takes STRING, not DECIMAL"),
    (f"SELECT 1{'0' * 38}.5 FROM orders", "       ^", "has more than 38 digits; write it with an exponent, as a DOUBLE"),
    ("SELECT k.f FROM orders", "       ^", "k is STRING, which has no fields, not 'f'"),
    ("SELECT ARRAY[v, k] FROM orders", "       ^", "ARRAY needs values of one type, not BIGINT and STRING; CAST them"),
    ("SELECT MAP[ARRAY[k], v] FROM orders", "       ^", "MAP has numbers, texts and times as keys, not ARRAY<STRING>"),
    ("SELECT FROM orders", "            ^", "SELECT has no columns"),
    ("SELECT CAST(v AS DECIMAL(k)) FROM orders", "       ^", "DECIMAL takes numbers in parentheses"),
    ("SELECT DISTINCT ARRAY[k] FROM orders", "                      ^", "rows with 'EXPR$0', ARRAY, cannot be compared yet"),
    ("SELECT 1 FROM orders GROUP BY ROW(k, v)", " " * 30 + "^", "GROUP BY takes no ROW yet; group by its parts"),
    ("SELECT v = ARRAY[1] FROM orders", "       ^", "cannot compare BIGINT with ARRAY; CAST one of them"),
    ("CREATE TABLE t (a ARRAY<INT NOT NULL>) WITH ('connector' = 'print')", " " * 28 + "^", "NOT NULL inside of ARRAY is not"),
    ("CREATE TABLE t (a MAP<INT>) WITH ('connector' = 'print')", " " * 18 + "^", "MAP has 2 types"),
    ("CREATE TABLE t (a ARRAY) WITH ('connector' = 'print')", " " * 18 + "^", "ARRAY needs the types of its parts: ARRAY<INT>"),
    ("SELECT e FROM orders CROSS JOIN UNNEST(k) AS t (e)", " " * 32 + "^", "UNNEST takes an ARRAY or a MAP, not STRING"),
    ("SELECT e FROM orders JOIN UNNEST(ARRAY[k]) AS t (e) ON e = k", " " * 26 + "^", "UNNEST takes CROSS JOIN, or LEFT JOIN"),
    ("SELECT e FROM orders, UNNEST(MAP[k, v]) AS t (e)", " " * 22 + "^", "UNNEST has 2 columns; name them: AS t (key, value)"),
    ("SELECT CAST(x AS DECIMAL(39, 2)) FROM orders", "       ^", "type DECIMAL(39, 2) has 1 to 38 digits"),
    ("INSERT INTO totals SELECT k, v * 1.5 FROM orders", " " * 19 + "^", "of the query is DECIMAL(22, 1), but column 'n' of the"),
    ("CREATE TABLE t (k DEC(5, 6)) WITH ('connector' = 'print')", " " * 18 + "^", "type DEC(5, 6) has 1 to 38 digits"),
    ("SELECT CAST(at AS DOUBLE) FROM orders", "       ^", "cannot CAST TIMESTAMP to DOUBLE"),
    ("SELECT k FROM (SELECT k FROM orders ORDER BY k)", " " * 45 + "^", "ORDER BY needs LIMIT here, or event time as its first"),
    ("CREATE VIEW w AS SELECT k FROM orders ORDER BY k", " " * 17 + "^", "ORDER BY needs LIMIT here"),
    ("INSERT INTO files SELECT k, n FROM files ORDER BY k DESC", " " * 18 + "^", "ORDER BY needs LIMIT here"),
    ("SELECT k FROM orders AS a JOIN orders AS b ON a.k = b.k", "       ^", "column 'k' is in several tables; write a.k or b.k"),
    (
        "SELECT 1 FROM orders AS a JOIN orders AS b",
        " " * 31 + "^",
        "INNER JOIN needs ON or USING; for all pairs, write CROSS JOIN",
    ),
    (
        "SELECT 1 FROM orders AS a JOIN orders AS b ON a.v IN (SELECT v FROM orders)",
        " " * 46 + "^",
        "a subquery is not allowed in ON; subqueries are values and conditions in SELECT, WHERE and HAVING",
    ),
    (
        "SELECT v > 1 OR a.k IN (SELECT b.k FROM orders AS b JOIN orders AS c ON c.v = a.v) FROM orders AS a",
        " " * 72 + "^",
        "the outer query's columns can be compared in WHERE of the subquery only",
    ),
    ("SELECT DECIMAL '12.3'", "       ^", "a number has no DECIMAL before it; use CAST"),
    (
        "SELECT (SELECT RANK() OVER (ORDER BY b.v) FROM orders AS b WHERE b.k = a.k) FROM orders AS a",
        " " * 15 + "^",
        "OVER in a subquery that reads the outer query is not supported yet",
    ),
    (
        "SELECT 1 FROM orders AS a WHERE EXISTS (SELECT 1 FROM orders AS b WHERE a.v IN (SELECT v FROM orders))",
        " " * 72 + "^",
        "a subquery compares its rows with those of the next query around it only",
    ),
    ("SELECT RANK() OVER (w) FROM orders WINDOW w AS (w ORDER BY v)", " " * 42 + "^", "there is no WINDOW 'w'"),
    ("SELECT k, EXISTS (SELECT MAX(v) FROM orders) FROM orders", " " * 10 + "^", "this subquery always has one row"),
    (
        "SELECT (SELECT b.v FROM orders AS b WHERE b.v < a.v) FROM orders AS a",
        " " * 15 + "^",
        "a subquery that is a value can be compared with the outer query by = only",
    ),
    ("SELECT 1 FROM orders WHERE EXISTS (SELECT MAX(v) FROM orders)", " " * 42 + "^", "this subquery always has one row"),
    ("SELECT 1 FROM orders WHERE v IN (SELECT k, v FROM orders)", " " * 27 + "^", "IN compares 1 values with 2 columns"),
    ("VALUES (1, 'a'), (2)", " " * 18 + "^", "a row of VALUES has 1 columns, the first one 2"),
    ("VALUES (1), ('a')", " " * 13 + "^", "this is STRING, but other rows of VALUES have INT there"),
    ("SELECT /*+ BROADCAS(orders) */ k FROM orders", " " * 11 + "^", "there is no hint BROADCAS; did you mean 'BROADCAST'?"),
    ("SELECT k FROM orders /*+ UID('a') */", " " * 25 + "^", "the hint UID belongs after SELECT"),
    ("SELECT /*+ OPTIONS('a'='b') */ k FROM orders", " " * 11 + "^", "the hint OPTIONS belongs after a table's name"),
    ("SELECT k /*+ UID('a') */ FROM orders", " " * 13 + "^", "the hint UID belongs after SELECT"),
    ("SELECT /*+ UID('a') */ k FROM orders", " " * 11 + "^", "UID names an operator with state, and this SELECT has none"),
    ("SELECT /*+ UID('a'), UID('b') */ k FROM orders GROUP BY k", " " * 21 + "^", "there already is a hint UID here; write one"),
    ("SELECT k FROM files /*+ OPTIONS('a' = 'b') OPTIONS('c' = 'd') */", " " * 43 + "^", "there already is a hint OPTIONS here"),
    ("SELECT /*+ STATE_TTL('orders') */ k FROM orders", " " * 11 + "^", "write the hint as STATE_TTL('orders' = '1 d'"),
    ("SELECT /*+ STATE_TTL('o' = '1 d') */ k FROM orders", " " * 21 + "^", "FROM has no table 'o'; there are orders"),
    ("SELECT /*+ STATE_TTL('orders' = '1') */ k FROM orders GROUP BY k", " " * 21 + "^", "STATE_TTL = '1' has no unit"),
    (
        "SELECT /*+ STATE_TTL('s' = '1 d') */ s.k FROM seen AS s JOIN seen AS t ON s.k = t.k AND s.at = t.at",
        " " * 11 + "^",
        "STATE_TTL is for state that nothing else bounds; this state ends with event time",
    ),
    (
        "SELECT /*+ LOOKUP('table' = 'customers', 'retry-predicate' = 'lookup_miss') */ c.k FROM calls AS c "
        "JOIN customers FOR SYSTEM_TIME AS OF c.now ON c.k = customers.k",
        " " * 41 + "^",
        "LOOKUP takes 'async' = 'true' or",
    ),
    ("SELECT n FROM files /*+ OPTIONS('connector' = 'x') */", " " * 24 + "^", "a hint does not change the connector"),
    ("SELECT COUNT(*) FROM orders GROUP BY DISTINCT ROLLUP(k)", " " * 37 + "^", "GROUP BY DISTINCT is not supported yet"),
    ("INSERT INTO files (k, k) SELECT k, k FROM orders", " " * 12 + "^", "column 'k' is named twice"),
    ("SELECT k FROM orders@x", " " * 20 + "^", "@ is not supported here"),
    ("SELECT k FROM orders ORDER BY k FETCH FIRST 1 ROW WITH TIES", "^", "WITH TIES is not supported yet"),
    ("SELECT LAG(v) IGNORE NULLS OVER (ORDER BY k) FROM orders", "       ^", "IGNORE NULLS and RESPECT NULLS are not supported"),
    ("SELECT DISTINCT k FROM orders ORDER BY v LIMIT 1", " " * 39 + "^", "with DISTINCT, ORDER BY takes columns of SELECT"),
    ("SELECT k FROM orders NATURAL JOIN files ON v > 1", " " * 34 + "^", "a NATURAL JOIN has no ON"),
    ("SELECT COUNT(DISTINCT *) FROM orders", " " * 7 + "^", "COUNT(DISTINCT *) is not supported; name a column"),
    ("WITH x AS (SELECT k FROM orders), x AS (SELECT v FROM orders) SELECT * FROM x", " " * 34 + "^", "WITH has two tables 'x'"),
    ("SELECT 1 FROM orders, orders", " " * 22 + "^", "FROM has two tables 'orders'; give one another name: orders AS …"),
    ("SELECT 1 FROM orders AS a JOIN orders AS b USING (kk)", " " * 31 + "^", "there is no column 'kk'; did you mean 'k'?"),
    ("SELECT b.k FROM orders AS a LEFT SEMI JOIN orders AS b ON a.k = b.k", "       ^", "there is no table 'b' here; FROM has a"),
    ("SELECT a.k FROM orders AS a ASOF JOIN orders AS b ON a.k = b.k", " " * 38 + "^", "ASOF JOIN is not supported yet"),
    ("SELECT SUBSTRING(k) FROM orders", "       ^", "SUBSTRING takes 2 to 3 arguments, not 1"),
    ("SELECT UPPER(v) FROM orders", "       ^", "UPPER takes STRING, not BIGINT"),
    ("SELECT k FROM orders WHERE", " " * 21 + "^", "syntax error at 'WHERE'"),
    ("SELECT MAX(k, v) FROM orders", " " * 14 + "^", "MAX takes one argument"),
    ("SELECT LISTAGG(k, k) FROM orders", " " * 18 + "^", "LISTAGG takes a text, and a separator in single quotes"),
    (
        "SELECT JSON_VALUE(k, '$.a' RETURNING DATE) FROM orders",
        "       ^",
        "JSON_VALUE returns texts, numbers and BOOLEAN, not DATE",
    ),
    ("SELECT JSON_VALUE(k, '$.a' RETURNING NUMBER) FROM orders", "       ^", "RETURNING NUMBER is no type of SQL"),
    (
        "SELECT JSON_VALUE(k, '$.a' TRUE ON ERROR) FROM orders",
        "       ^",
        "JSON_VALUE has no TRUE ON ERROR here; it has NULL, ERROR",
    ),
    (
        "SELECT JSON_QUERY(k, '$' RETURNING ARRAY<INT>) FROM orders",
        "       ^",
        "JSON_QUERY returns STRING and ARRAY<STRING>, not ARRAY",
    ),
    ("SELECT JSON_VALUE(k, '$.a' NULL) FROM orders", " " * 27 + "^", "syntax error at 'NULL'"),
    ("SELECT JSON_EXISTS(k, '$.a' FALSE ON EMPTY) FROM orders", "       ^", "JSON_EXISTS has no FALSE ON EMPTY here"),
    ("SELECT PRINTF('%q', k) FROM orders", " " * 14 + "^", "PRINTF: '%q' is not supported; there are %s %b"),
    ("SELECT PRINTF('100%', k) FROM orders", " " * 14 + "^", "PRINTF: '100%' has a % that no conversion follows; write %%"),
    ("SELECT PRINTF('%s', at) FROM orders", "       ^", "PRINTF takes texts, numbers and BOOLEAN, not TIMESTAMP"),
    ("SELECT ARRAY_AGG(k ORDER BY v) FROM orders", " " * 17 + "^", "ORDER BY in an aggregate is not supported yet"),
    ("SELECT ARRAY_AGG(*) FROM orders", " " * 17 + "^", "ARRAY_AGG takes a column, not *"),
    ("SELECT COLLECT(ARRAY[v]) FROM orders", "       ^", "COLLECT takes numbers, text, BYTES and times, not ARRAY"),
    ("SELECT JSON_ARRAYAGG(DISTINCT k) FROM orders", "       ^", "JSON_ARRAYAGG(DISTINCT …) is not supported yet"),
    ("SELECT JSON_OBJECTAGG(v VALUE k) FROM orders", " " * 22 + "^", "a key of JSON_OBJECTAGG is a text, not BIGINT; CAST it"),
    ("SELECT JSON_OBJECT(k VALUE v) FROM orders", " " * 19 + "^", "a key of JSON_OBJECT is a text in single quotes"),
    ("SELECT JSON_OBJECT('k' VALUE v WITH UNIQUE KEYS) FROM orders", " " * 19 + "^", "UNIQUE KEYS is not supported yet"),
    (
        "SELECT JSON_STRING(MAP[v, k]) FROM orders",
        "       ^",
        "JSON_STRING takes a MAP whose keys are texts, not MAP<BIGINT, STRING>",
    ),
    ("SELECT PERCENTILE(v, 50) FROM orders", " " * 21 + "^", "the fraction of PERCENTILE is a number from 0 to 1"),
    ("SELECT CONVERT_TZ(k, 'UTC', 'Moon') FROM orders", " " * 28 + "^", "CONVERT_TZ: there is no time zone 'Moon'"),
    ("SELECT NTILE(v) OVER (ORDER BY v) FROM orders", "       ^", "NTILE takes the number of its groups"),
    ("SELECT VAR_POP(DISTINCT v) FROM orders", "       ^", "VAR_POP(DISTINCT …) is not supported yet"),
    ("SELECT GROUPING(v) FROM orders GROUP BY k", "       ^", "GROUPING takes the keys of GROUP BY"),
    ("SELECT GROUPING(k) FROM orders", "       ^", "GROUPING needs GROUP BY"),
    (
        "SELECT k FROM orders GROUP BY CUBE (k, v, x, at, k || '', v + 1, x + 1)",
        " " * 36 + "^",
        "128 grouping sets; 64 are supported",
    ),
    ("SELECT k FROM orders TABLESAMPLE BERNOULLI (10)", " " * 44 + "^", "TABLESAMPLE is not supported yet"),
    ("SELECT v BETWEEN SYMMETRIC 1 AND 2 FROM orders", "       ^", "BETWEEN SYMMETRIC is not supported yet"),
    ("SELECT o.k FROM orders AS o(k)", " " * 16 + "^", "'o' names 1 columns, the table has 4"),
    ("SELECT DISTINCT ON (k) v FROM orders", " " * 20 + "^", "DISTINCT ON is not supported yet"),
    (
        "SELEC k FROM orders",
        "^",
        "expected a statement: SELECT, INSERT INTO, CREATE, ALTER, DROP, SHOW, DESCRIBE, USE, SET, RESET or EXPLAIN, not 'SELEC'",
    ),
    ("INSERT INTO total SELECT k, v FROM orders", " " * 12 + "^", "there is no table 'total'; did you mean 'totals'?"),
    ("INSERT INTO totals SELECT k FROM orders", " " * 19 + "^", "the query has 1 columns (k), but table 'totals' takes 2 (k, n)"),
    (
        "INSERT INTO totals SELECT v, v FROM orders",
        " " * 19 + "^",
        "column 'v' of the query is BIGINT, but column 'k' of the table is",
    ),
    (
        "INSERT INTO files SELECT k, COUNT(*) FROM orders GROUP BY k",
        " " * 12 + "^",
        "table 'files' (filesystem) takes added rows only, but this query also changes rows",
    ),
    (
        "INSERT INTO totals SELECT MAX(k), COUNT(*) FROM orders GROUP BY v",
        " " * 12 + "^",
        "the primary key of table 'totals' is (k), but the query has no key that the result keeps",
    ),
    (
        "SELECT * FROM orders MATCH_RECOGNIZE (PARTITION BY k ORDER BY v PATTERN (A) DEFINE A AS A.v > 0)",
        " " * 62 + "^",
        "ORDER BY starts with",
    ),
    (
        "CREATE TABLE t (k STRING) WITH ('connector' = 'kafkaa')",
        " " * 46 + "^",
        "there is no connector 'kafkaa'; did you mean 'kafka'?",
    ),
    ("CREATE TABLE t (k STRIN) WITH ('connector' = 'print')", " " * 18 + "^", "there is no type STRIN; did you mean 'STRING'?"),
    ("CREATE TABLE t (k STRING, PRIMARY KEY (j) NOT ENFORCED) WITH ('connector' = 'print')", " " * 26 + "^", "has no column 'j'"),
    ("CREATE TABLE orders (k STRING) WITH ('connector' = 'print')", " " * 13 + "^", "there already is a table or view 'orders'"),
    ("CREATE TABLE t (k STRING WITH ('connector' = 'print')", " " * 25 + "^", "expected ), not 'WITH'"),
    ("DROP TABLE ordrs", " " * 11 + "^", "there is no table 'ordrs'; did you mean 'orders'?"),
    (
        "INSERT INTO seen (k, late) SELECT k, v FROM orders",
        " " * 12 + "^",
        "column 'late' of table 'seen' is computed: it cannot",
    ),
    ("CREATE TABLE t (a INT, b AS a + c) WITH ('connector' = 'print')", " " * 32 + "^", "there is no column 'c'; there are a"),
    (
        "CREATE TABLE t (ms BIGINT, WATERMARK FOR ms AS ms) WITH ('connector' = 'print')",
        " " * 41 + "^",
        "event time is a TIMESTAMP or TIMESTAMP_LTZ, not BIGINT; compute a column, such as ts AS TO_TIMESTAMP_LTZ(ms, 3)",
    ),
    (
        "CREATE TABLE t (a DATE, at TIMESTAMP, WATERMARK FOR at AS at - INTERVAL '1' MONTH) WITH ('connector' = 'print')",
        " " * 58 + "^",
        "a watermark is the event time itself, or less an interval of whole milliseconds: WATERMARK FOR at AS at - INTERVAL",
    ),
    (
        "SELECT * FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(at), INTERVAL '1' DAY))",
        " " * 52 + "^",
        "column 'at' is not event time: table 'orders' has no watermark; declare WATERMARK FOR at AS at - INTERVAL '5' SECOND",
    ),
    (
        "SELECT * FROM TABLE(TUMBLE(TABLE seen, DESCRIPTOR(late), INTERVAL '1' DAY))",
        " " * 50 + "^",
        "column 'late' is not event time: the event time of table 'seen' is at",
    ),
    (
        "WITH g AS (SELECT DISTINCT at FROM seen) SELECT * FROM TABLE(TUMBLE(TABLE g, DESCRIPTOR(at), INTERVAL '1' DAY))",
        " " * 88 + "^",
        "column 'at' is not event time: GROUP BY and DISTINCT lose event time, unless they group by window_start, window_end and",
    ),
    (
        "SELECT COUNT(*) FROM seen AS a JOIN seen AS b ON a.k = b.k GROUP BY TUMBLE(a.at, INTERVAL '1' DAY)",
        " " * 68 + "^",
        "column 'at' is not event time: OVER loses event time, as do joins without bounds of both times: a.ts BETWEEN",
    ),
    *(
        (f"SELECT s.k FROM seen AS s {join}", " " * (26 + join.index(part)) + "^", message)
        for join, part, message in (
            ("JOIN orders FOR SYSTEM_TIME AS OF s.at AS r ON s.k = r.k", "s.at", "table 'orders' has no primary key"),
            ("JOIN totals FOR SYSTEM_TIME AS OF s.at AS r ON s.k = r.k", "s.at", "table 'totals' has no watermark"),
            (
                "JOIN rates FOR SYSTEM_TIME AS OF s.at AS r ON s.k > r.k",
                "s.at",
                "must compare the primary key of the table by =",
            ),
            ("JOIN rates FOR SYSTEM_TIME AS OF s.at AS r ON 'EUR' = r.k", "s.at", "of the table by =; it lacks k"),
            (
                "JOIN rates FOR SYSTEM_TIME AS OF s.late AS r ON s.k = r.k",
                "s.late",
                "'late' is not event time: the event time of",
            ),
            (
                "JOIN rates FOR SYSTEM_TIME AS OF r.at AS r ON s.k = r.k",
                "r.at",
                "AS OF takes a column of the table before it: its event time, or a PROCTIME()",
            ),
            ("FULL JOIN rates FOR SYSTEM_TIME AS OF s.at AS r ON s.k = r.k", "s.at", "is a JOIN or a LEFT JOIN, not FULL"),
            (
                "JOIN (SELECT k, at FROM rates WHERE n > 0) FOR SYSTEM_TIME AS OF s.at AS r ON s.k = r.k",
                "FOR",
                "syntax error at 'FOR'",
            ),
        )
    ),
    (
        "SELECT s.k FROM calls AS s JOIN customers FOR SYSTEM_TIME AS OF s.now AS c ON s.k > c.k",
        " " * 64 + "^",
        "ON must compare a column of the table by =, by which its rows are looked up",
    ),
    (
        "SELECT s.k FROM calls AS s JOIN customers FOR SYSTEM_TIME AS OF s.now AS c ON CHAR_LENGTH(s.k) = 2 AND c.k = 'x'",
        " " * 64 + "^",
        "ON must compare a column of the table by =, by which its rows are looked up",
    ),
    (
        "WITH g AS (SELECT k, now FROM calls GROUP BY k, now) "
        "SELECT g.k FROM g JOIN customers FOR SYSTEM_TIME AS OF g.now AS c ON g.k = c.k",
        " " * 108 + "^",
        "column 'now' is not event time: GROUP BY and DISTINCT lose event time",
    ),
    (
        "SELECT s.k FROM calls AS s JOIN (SELECT DISTINCT k FROM seen) AS d ON s.k = d.k "
        "JOIN customers FOR SYSTEM_TIME AS OF s.now AS c ON s.k = c.k",
        " " * 117 + "^",
        "a lookup join takes rows that are only added: what it finds for a row that is removed may differ from what",
    ),
    (
        "SELECT k, COUNT(*), NOW() FROM orders GROUP BY k",
        " " * 20 + "^",
        "NOW is not deterministic, so it cannot be called for rows that change later",
    ),
    (
        "SELECT o.k FROM orders AS o JOIN orders AS p ON o.k = p.k AND RAND() < 1",
        " " * 62 + "^",
        "RAND is not deterministic, so a join cannot compare its results; call it in a subquery",
    ),
    (
        "SELECT (at - at) + v FROM orders",
        "        ^",
        "TIME + INTERVAL takes a time beside an interval, not BIGINT and INTERVAL DAY",
    ),
    (
        "SELECT at - at > INTERVAL '1' MONTH FROM orders",
        "       ^",
        "cannot compare INTERVAL DAY TO SECOND with INTERVAL YEAR TO",
    ),
    ("SELECT CAST(k AS INTERVAL DAY) FROM orders", "       ^", "CAST to an INTERVAL is not supported yet; multiply one"),
    ("SELECT MAX(at - at) FROM orders", "       ^", "MAX takes numbers, text and times, not INTERVAL DAY TO SECOND"),
    (
        "CREATE TABLE t (d INTERVAL MONTH TO DAY) WITH ('connector' = 'print')",
        " " * 18 + "^",
        "there is no INTERVAL MONTH TO DAY",
    ),
    ("SELECT RAND(k) FROM orders", "       ^", "RAND takes integers: a seed, and a bound"),
    ("SELECT CURRENT_TIMESTAMP(3) FROM orders", "       ^", "CURRENT_TIMESTAMP takes no arguments"),
    (
        "CREATE TABLE t (k INT, now AS PROCTIME(), WATERMARK FOR now AS now) WITH ('connector' = 'print')",
        " " * 56 + "^",
        "column 'now' is PROCTIME(), not a time of the rows; it has no watermark",
    ),
    (
        "SELECT * FROM rates FOR SYSTEM_TIME AS OF at",
        "              ^",
        "FOR SYSTEM_TIME is for a table that is joined: FROM o JOIN t FOR SYSTEM_TIME AS OF o.ts",
    ),
    (
        "WITH r AS (SELECT k, at FROM rates WHERE n > 0) SELECT 1 FROM seen AS s JOIN r FOR SYSTEM_TIME AS OF s.at ON s.k = r.k",
        " " * 101 + "^",
        "rows of other queries and filters have no versions",
    ),
    (
        "SELECT * FROM TABLE(HOP(TABLE seen, DESCRIPTOR(at), INTERVAL '7' SECOND, INTERVAL '10' SECOND))",
        " " * 82 + "^",
        "the size of HOP must be a multiple of its step",
    ),
    (
        "SELECT * FROM TABLE(TUMBLE(TABLE seen, DESCRIPTOR(at)))",
        " " * 14 + "^",
        "TUMBLE needs SIZE: TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' MINUTES)",
    ),
    (
        "SELECT k FROM TABLE(SESSION(TABLE seen PARTITION BY k, DESCRIPTOR(at), INTERVAL '1' DAY)) GROUP BY window_start, k",
        " " * 14 + "^",
        "SESSION windows need GROUP BY window_start, window_end and the columns of PARTITION BY, no others",
    ),
    (
        "SELECT COUNT(DISTINCT k) FROM seen GROUP BY SESSION(at, INTERVAL '1' DAY)",
        "^",
        "COUNT of DISTINCT values in SESSION windows is not supported yet",
    ),
    (
        "SELECT TUMBLE_START(at, INTERVAL '1' DAY) FROM seen",
        "       ^",
        "TUMBLE_START belongs to GROUP BY TUMBLE(…), with the same arguments",
    ),
    ("SHOW TABLS", "     ^", "expected TABLES, VIEWS, CATALOGS, DATABASES, USER FUNCTIONS, FUNCTIONS, COLUMNS, CREATE TABLE"),
    ("SHOW TABLES FROM sale", " " * 17 + "^", "there is no database 'sale'"),
    ("SHOW MODULES", "     ^", "SHOW MODULES is not supported: there are no modules"),
    ("DESCRIBE order", " " * 9 + "^", "there is no table 'order'; did you mean 'orders'?"),
    ("USE CATALOG other", " " * 12 + "^", "there is no catalogue 'other'"),
    ("DROP DATABASE default_database", " " * 14 + "^", "database 'default_database' is in use"),
    ("CREATE CATALOG c WITH ('type' = 'hive')", " " * 32 + "^", "a catalogue's type is 'generic_in_memory'"),
    ("CREATE TABLE other.t (k STRING) WITH ('connector' = 'print')", " " * 13 + "^", "there is no database 'other'"),
    ("CREATE TABLE t WITH ('connector' = 'print')", " " * 13 + "^", "table 't' has no columns"),
    (
        "CREATE TABLE t (n INT) WITH ('connector' = 'print') AS SELECT k FROM orders",
        " " * 13 + "^",
        "has the columns of its query",
    ),
    (
        "CREATE TABLE t (k INT) PARTITIONED BY (j) WITH ('connector' = 'print')",
        " " * 13 + "^",
        "PARTITIONED BY has no column 'j'",
    ),
    ("CREATE TABLE t (k INT) PARTITIONED BY (k) WITH ('connector' = 'print')", " " * 62 + "^", "'print' has no partitions"),
    ("CREATE TABLE t (k INT) LIKE orders", " " * 13 + "^", "column 'k' exists already"),
    ("CREATE OR REPLACE TABLE t (k INT)", " " * 7 + "^", "CREATE OR REPLACE is not supported"),
    ("CREATE FUNCTION f AS 'f'", " " * 23 + "^", "functions are written in Python: add LANGUAGE PYTHON"),
    ("ALTER TABLE orders DROP kk", " " * 12 + "^", "table 'orders' has no column 'kk'; did you mean 'k'?"),
    ("ALTER TABLE totals DROP k", " " * 12 + "^", "column 'k' is part of the primary key"),
    ("ALTER TABLE orders ADD PRIMARY KEY (j) NOT ENFORCED", " " * 12 + "^", "the primary key has no column 'j'"),
    ("ALTER TABLE orders RESET ('connector')", " " * 12 + "^", "table 'orders' has no connector"),
    ("CREATE VIEW v AS SELECT k FROM orders; ALTER VIEW v AS SELECT k FROM v", " " * 55 + "^", "view 'v' would read itself"),
    ("SET 'a.b'", "    ^", "'a.b' is not set"),
    ("EXPLAIN CHANGELOG_MODE, ESTIMATED_COST SELECT k FROM orders", " " * 24 + "^", "costs are not estimated"),
    ("ADD JAR 'x.jar'", "^", "ADD JAR: forkpoint runs Python"),
    ("SELECT k FROM orders WHERE k = 'a", " " * 32 + "^", "a quote or comment is not closed"),
]


def run(text: str) -> None:
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    session, source = Session(env), Text(text, "app.sql")
    for statement in parse(Text(DDL)):
        execute(session, statement, Text(DDL))
    for statement in parse(source):
        if isinstance(statement, Query):
            session.stream(session.plan(statement))
        else:
            execute(session, statement, source)


@pytest.mark.parametrize(("text", "mark", "message"), MISTAKES)
def test_a_mistake_is_shown_where_it_is(text: str, mark: str, message: str) -> None:
    with pytest.raises(SqlError) as error:
        run(text)
    first, line, below = str(error.value).split("\n")
    assert message in first
    assert (line, below) == (f"  {text}", f"  {mark}")
    assert re.match(rf"app\.sql, line 1, column {len(mark)}: ", first)


def test_the_line_of_a_long_file_is_named() -> None:
    with pytest.raises(SqlError, match=r"app\.sql, line 4, column 3: there is no column 'w'"):
        run("-- totals\nSELECT\n  k,\n  w\nFROM orders")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("'connector' = 'filesystem', 'format' = 'json'", "needs the option 'path'"),
        (
            "'connector' = 'filesystem', 'path' = '/tmp', 'format' = 'xml'",
            "option 'format' is 'xml'; use 'json' or 'csv' or 'parquet' or 'orc'",
        ),
        (
            "'connector' = 'filesystem', 'path' = '/tmp', 'format' = 'json', 'pth' = 'x'",
            "has no option 'pth'; did you mean 'path'?",
        ),
        (
            "'connector' = 'datagen', 'fields.k.kind' = 'sequence', 'fields.k.start' = '2', 'fields.k.end' = '1'",
            "a sequence needs 'fields.k.start', and 'fields.k.end' of at least that",
        ),
        ("'connector' = 'datagen', 'fields.j.length' = '1'", "connector 'datagen' has no option 'fields.j.length'"),
        ("'connector' = 'datagen', 'fields.k.null-rate' = 'x'", "option 'fields.k.null-rate' is no number"),
        ("'connector' = 'kafka', 'sink.delivery-guarantee' = 'x'", "needs the option 'properties.bootstrap.servers'"),
        ("'connector' = 'print'", "connector 'print' writes tables; it cannot read"),
        ("'connector' = 'jdbc', 'url' = 'x://y', 'table-name' = 't'", "line 1, column 14: table 't': "),
        (
            "'connector' = 'jdbc', 'url' = 'jdbc:sqlite:/x', 'table-name' = 't', 'scan.partition.num' = '2'",
            "a scan in parts needs all of scan.partition.column, scan.partition.num",
        ),
    ],
)
def test_options_are_checked(options: str, message: str) -> None:
    with pytest.raises(SqlError, match=re.escape(message)):
        run(f"CREATE TABLE t (k STRING) WITH ({options}); SELECT k FROM t")


def test_a_connector_that_is_not_installed_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forkpoint.table.connectors.registry.entry_points", lambda **_: ())
    for connector, extra in {"postgres-cdc": "postgres", "kinesis": "kinesis", "redis": "redis"}.items():
        with pytest.raises(SqlError, match=re.escape(f'pip install "forkpoint[{extra}]"')):
            run(f"CREATE TABLE t (k STRING) WITH ('connector' = '{connector}'); SELECT k FROM t")


def test_orc_has_no_times_of_day() -> None:
    with pytest.raises(SqlError, match=re.escape("table 't': ORC has no type for 'at' (time64[us]); write it as text")):
        run("CREATE TABLE t (at TIME) WITH ('connector' = 'filesystem', 'path' = '/tmp', 'format' = 'orc'); SELECT * FROM t")


@pytest.mark.parametrize(
    ("column", "connector", "message"),
    [
        (
            "m STRING METADATA",
            "kafka",
            "connector 'kafka' has no metadata 'm'; there are topic, partition, offset, timestamp, headers",
        ),
        ("m INT METADATA FROM 'topic'", "kafka", "metadata 'topic' is STRING, but column 'm' is INT"),
        ("m STRING METADATA FROM 'path'", "filesystem", "connector 'filesystem' has no metadata 'path'; there are none"),
    ],
)
def test_columns_of_metadata_are_checked(column: str, connector: str, message: str) -> None:
    options = "'path' = '/tmp', 'topic' = 't', 'properties.bootstrap.servers' = 'b:1', 'format' = 'json'"
    with pytest.raises(SqlError, match=re.escape(message)):
        run(f"CREATE TABLE t (k STRING, {column}) WITH ('connector' = '{connector}', {options}); SELECT k FROM t")


def test_values_of_options_are_not_shown() -> None:
    secret = "'properties.sasl.password' = 'hunter2'"
    with pytest.raises(SqlError) as error:
        run(f"CREATE TABLE t (k STRING) WITH ('connector' = 'kafka',\n{secret}); SELECT k FROM t")
    assert "hunter2" not in str(error.value)
    with pytest.raises(SqlError) as error:  # on the line that is shown
        run(f"CREATE TABLE t (k STRIN) WITH ('connector' = 'kafka', {secret}, 'topic' = 'shown')")
    assert "'properties.sasl.password' = '*******', 'topic' = 'shown'" in str(error.value)
    with pytest.raises(SqlError) as error:
        run("CREATE TABLE t (k STRIN) WITH ('connector' = 'jdbc', 'url' = 'jdbc:postgresql://ann:hunter2@host/db')")
    assert "'jdbc:postgresql://ann:*******@host/db'" in str(error.value)
    assert "hunter2" not in repr(list(parse(Text(f"CREATE TABLE t (k STRING) WITH ('connector' = 'kafka', {secret})"))))
