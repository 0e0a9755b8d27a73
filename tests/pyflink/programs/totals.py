"""Running totals by a function of a module beside the program, which imports pyflink as well; in workers, too."""

from house_rules import Total
from pyflink.common import Configuration, Row, Types
from pyflink.datastream import StreamExecutionEnvironment


def as_row(pair):
    from pyflink.common.types import RowKind

    assert RowKind.INSERT is Row(1).get_row_kind()
    return Row(room=pair[0], total=pair[1])


if __name__ == "__main__":
    configuration = Configuration()
    configuration.set_string("pipeline.name", "totals").set_integer("python.fn-execution.bundle.size", 1)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.add_jars("file:///flink-connector.jar")
    env.disable_operator_chaining()
    pairs = env.from_collection([("a", 1), ("b", 10), ("a", 2), ("b", 20)], Types.TUPLE([Types.STRING(), Types.INT()]))
    totals = pairs.key_by(lambda pair: pair[0]).process(Total(), Types.TUPLE([Types.STRING(), Types.INT()]))
    with totals.map(as_row).execute_and_collect(job_execution_name="totals") as rows:
        for row in sorted(rows, key=lambda row: (row.room, row.total)):
            print(row.as_dict(True))
