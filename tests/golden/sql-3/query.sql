SET 'execution.engine' = 'local';
SET 'table.exec.source.cdc-events-duplicate' = 'true';
CREATE TABLE users (name STRING, id INT, city STRING, age INT, PRIMARY KEY (id) NOT ENFORCED)
WITH ('connector' = 'filesystem', 'path' = 'orders', 'format' = 'debezium-json', 'source.monitor-interval' = '1 s');
CREATE TABLE cities (city STRING, n BIGINT, oldest INT) WITH ('connector' = 'print');
INSERT INTO cities SELECT city, COUNT(*), MAX(age) FROM users GROUP BY city;
