SET 'execution.engine' = 'local';
CREATE TABLE orders (
  k STRING, v DECIMAL(10, 2), tags ARRAY<STRING>, ms BIGINT, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts
) WITH ('connector' = 'filesystem', 'path' = 'orders', 'format' = 'json', 'source.monitor-interval' = '1 s');
CREATE TABLE pairs (k STRING, v DECIMAL(10, 2), w DECIMAL(10, 2)) WITH ('connector' = 'print', 'print-identifier' = 'pairs');
CREATE TABLE best (k STRING, v DECIMAL(10, 2), tags ARRAY<STRING>) WITH ('connector' = 'print', 'print-identifier' = 'best');
CREATE TABLE tens (k STRING, n BIGINT, total DECIMAL(38, 2)) WITH ('connector' = 'print', 'print-identifier' = 'tens');
INSERT INTO pairs SELECT a.k, a.v, b.v FROM orders AS a LEFT JOIN orders AS b ON a.k = b.k AND a.v < b.v;
INSERT INTO best SELECT k, v, tags FROM (
  SELECT k, v, tags, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) AS place FROM orders) WHERE place = 1;
INSERT INTO tens SELECT k, COUNT(*), SUM(v)
FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end, k;
