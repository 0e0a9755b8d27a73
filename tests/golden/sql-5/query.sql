SET 'execution.engine' = 'local';
CREATE TABLE orders (k STRING, v BIGINT, x DOUBLE, ms BIGINT, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'filesystem', 'path' = 'orders', 'format' = 'json', 'source.monitor-interval' = '1 s');
CREATE TABLE rises (k STRING, low BIGINT, high BIGINT, n BIGINT, x DOUBLE) WITH ('connector' = 'print');
INSERT INTO rises
SELECT * FROM orders MATCH_RECOGNIZE (
  PARTITION BY k ORDER BY ts
  MEASURES A.v AS low, LAST(B.v) AS high, COUNT(B.v) AS n, C.x AS x
  ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW
  PATTERN (A B+ C) WITHIN INTERVAL '1' MINUTE
  DEFINE B AS B.v > A.v AND (LAST(B.v, 1) IS NULL OR B.v > LAST(B.v, 1)), C AS C.v < LAST(B.v)
);
