"""The execution of tasks: operators, keyed state, timers, watermarks, exchange. Independent of Spark."""
