import java.math.BigDecimal;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.LocalDateTime;
import java.time.format.DateTimeFormatter;
import java.util.HashMap;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.Table;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.functions.ScalarFunction;
import org.apache.flink.types.Row;
import org.apache.flink.types.RowKind;
import org.apache.flink.util.CloseableIterator;

/** Prints the rows that remain of the result of a file's last statement, a SELECT, as lines of a count and the row's texts. */
public class FlinkResult {
    private static final DateTimeFormatter TIME = DateTimeFormatter.ofPattern("yyyy-MM-dd'T'HH:mm:ss.SSS");

    /** How often a text has another, of one character. */
    public static class CountChar extends ScalarFunction {
        public long eval(String text, String of) {
            return text.chars().filter(each -> each == of.charAt(0)).count();
        }
    }

    public static void main(String[] arguments) throws Exception {
        Configuration configuration = new Configuration();
        configuration.setString("parallelism.default", "1"); // files are read in their order
        configuration.setString("restart-strategy.type", "none");
        TableEnvironment env =
                TableEnvironment.create(
                        EnvironmentSettings.newInstance().inStreamingMode().withConfiguration(configuration).build());
        Map<String, Object> rows = new HashMap<>();
        for (String statement : Files.readString(Path.of(arguments[0])).split("\u0000")) {
            if (!statement.startsWith("SELECT")) {
                env.executeSql(statement);
                continue;
            }
            Table table = env.sqlQuery(statement);
            String columns =
                    table.getResolvedSchema().getColumnNames().stream()
                            .map(name -> "`" + name + "`")
                            .collect(Collectors.joining(", "));
            env.createTemporaryView("found", table);
            // Counted, because the changes of a query may lack the rows before an update, without telling by which key.
            Table counted = env.sqlQuery("SELECT COUNT(*), " + columns + " FROM found GROUP BY " + columns);
            try (CloseableIterator<Row> found = counted.execute().collect()) {
                while (found.hasNext()) {
                    Row row = found.next();
                    if (row.getKind() == RowKind.INSERT || row.getKind() == RowKind.UPDATE_AFTER) {
                        rows.put(text(row), row.getField(0));
                    } else {
                        rows.remove(text(row));
                    }
                }
            }
        }
        rows.forEach((row, count) -> System.out.println(count + "\u001f" + row));
    }

    /** Without the first field, the count. */
    private static String text(Row row) {
        return IntStream.range(1, row.getArity()).mapToObj(i -> text(row.getField(i))).collect(Collectors.joining("\u001f"));
    }

    private static String text(Object value) {
        if (value instanceof LocalDateTime) {
            return TIME.format((LocalDateTime) value);
        }
        return value instanceof BigDecimal ? ((BigDecimal) value).stripTrailingZeros().toPlainString() : String.valueOf(value);
    }
}
