"""Jobs that are killed, put to sleep, starved of disk space and robbed of their output, and whose results are checked all the
same: ``make chaos``, and a short form of it among the tests."""
