SET 'execution.engine' = 'local';
CREATE TABLE orders (
  k STRING, at TIMESTAMP(3), text STRING, of ROW<d TIME(0)>, ts AS CAST(text AS TIMESTAMP(3)), WATERMARK FOR ts AS ts
) WITH ('connector' = 'filesystem', 'path' = 'orders', 'format' = 'json', 'source.monitor-interval' = '1 s');
CREATE TABLE last (k STRING, at TIMESTAMP(3), n BIGINT) WITH ('connector' = 'print', 'print-identifier' = 'last');
CREATE TABLE times (at TIMESTAMP(3), n BIGINT) WITH ('connector' = 'print', 'print-identifier' = 'times');
CREATE TABLE pairs (k STRING, a TIMESTAMP(3), b TIMESTAMP_LTZ(3)) WITH ('connector' = 'print', 'print-identifier' = 'pairs');
CREATE TABLE tens (s TIMESTAMP(3), e TIMESTAMP(3), n BIGINT) WITH ('connector' = 'print', 'print-identifier' = 'tens');
INSERT INTO last SELECT k, MAX(at), COUNT(*) FROM orders GROUP BY k;
INSERT INTO times SELECT CAST(at AS TIMESTAMP(3)), COUNT(of) FROM orders GROUP BY at;
INSERT INTO pairs SELECT a.k, a.at, b.at FROM orders AS a JOIN orders AS b ON a.k = b.k AND a.at < b.at;
INSERT INTO tens SELECT window_start, window_end, COUNT(*)
FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end;
