SET 'execution.engine' = 'local';
CREATE TABLE orders (k STRING, v BIGINT, ms BIGINT, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'filesystem', 'path' = 'orders', 'format' = 'json', 'source.monitor-interval' = '1 s');
CREATE TABLE hot (k STRING, n BIGINT) WITH ('connector' = 'print', 'print-identifier' = 'hot');
CREATE TABLE best (k STRING, n BIGINT, d BIGINT) WITH ('connector' = 'print', 'print-identifier' = 'best');
INSERT INTO hot WITH counts AS (
  SELECT k, COUNT(*) AS n, window_start AS s, window_end AS e
  FROM TABLE(HOP(TABLE orders, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND)) GROUP BY k, window_start, window_end)
SELECT a.k, a.n FROM counts AS a JOIN (SELECT s, e, MAX(n) AS most FROM counts GROUP BY s, e) AS b
ON a.s = b.s AND a.e = b.e AND a.n = b.most;
INSERT INTO best WITH totals AS (SELECT k, COUNT(*) AS n, COUNT(DISTINCT v) AS d FROM orders GROUP BY k HAVING COUNT(*) > 1)
SELECT a.k, a.n, a.d FROM totals AS a JOIN (SELECT MAX(n) AS most FROM totals) AS b ON a.n = b.most;
