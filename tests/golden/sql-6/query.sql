SET 'execution.engine' = 'local';
CREATE TABLE orders (
  o ROW<k STRING, v BIGINT, note STRING, at ROW<ms BIGINT, zone STRING>>, ts AS TO_TIMESTAMP_LTZ(o.at.ms, 3),
  WATERMARK FOR ts AS ts
) WITH ('connector' = 'filesystem', 'path' = 'orders', 'format' = 'json', 'source.monitor-interval' = '1 s');
CREATE TABLE pairs (k STRING, v BIGINT, zone STRING) WITH ('connector' = 'print', 'print-identifier' = 'pairs');
CREATE TABLE near (v BIGINT, w BIGINT) WITH ('connector' = 'print', 'print-identifier' = 'near');
CREATE TABLE best (k STRING, v BIGINT) WITH ('connector' = 'print', 'print-identifier' = 'best');
CREATE TABLE firsts (zone STRING, v BIGINT) WITH ('connector' = 'print', 'print-identifier' = 'firsts');
INSERT INTO pairs SELECT a.o.k, a.o.v, b.o.at.zone FROM orders AS a LEFT JOIN orders AS b ON a.o.k = b.o.k AND a.o.v < b.o.v;
INSERT INTO near SELECT a.o.v, b.o.v FROM orders AS a JOIN orders AS b
  ON a.o.at.zone = b.o.at.zone AND b.ts BETWEEN a.ts + INTERVAL '1' SECOND AND a.ts + INTERVAL '15' SECOND;
INSERT INTO best SELECT k, v FROM (
  SELECT o.k AS k, o.v AS v, ROW_NUMBER() OVER (PARTITION BY o.k ORDER BY o.v DESC) AS place FROM orders) WHERE place = 1;
INSERT INTO firsts SELECT zone, v FROM (
  SELECT o.at.zone AS zone, o.v AS v,
    ROW_NUMBER() OVER (PARTITION BY window_start, window_end, o.at.zone ORDER BY o.v) AS place
  FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '10' SECOND))) WHERE place = 1;
