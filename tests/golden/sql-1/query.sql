SET 'execution.checkpointing.interval' = '50 ms';
CREATE TABLE orders (k STRING, g INT, v BIGINT, x DOUBLE)
WITH ('connector' = 'filesystem', 'path' = 'orders', 'format' = 'json', 'source.monitor-interval' = '1 s');
CREATE TABLE totals (k STRING, g INT, a BIGINT, b BIGINT, c BIGINT, d DOUBLE)
WITH ('connector' = 'print');
INSERT INTO totals
SELECT UPPER(k), g, SUM(v), COUNT(v), COUNT(x) FILTER (WHERE v > 1), SUM(x)
FROM orders WHERE g > 0 AND g IS NOT NULL GROUP BY UPPER(k), g HAVING SUM(v) > 0;
