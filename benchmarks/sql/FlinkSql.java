import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;

/** Runs a file of SQL whose last statement is an INSERT: FlinkSql FILE BACKEND PARALLELISM. */
public class FlinkSql {
    public static void main(String[] arguments) throws Exception {
        Configuration configuration = new Configuration();
        configuration.setString("parallelism.default", arguments[2]);
        configuration.setString("state.backend.type", arguments[1]);
        configuration.setString("execution.checkpointing.interval", "10 s");
        configuration.setString("execution.checkpointing.dir", Path.of(arguments[0]).resolveSibling("checkpoints").toUri().toString());
        configuration.setString("restart-strategy.type", "none");
        configuration.setString("table.exec.mini-batch.enabled", "true");
        configuration.setString("table.exec.mini-batch.allow-latency", "2 s");
        configuration.setString("table.exec.mini-batch.size", "20000");
        TableEnvironment env =
                TableEnvironment.create(
                        EnvironmentSettings.newInstance().inStreamingMode().withConfiguration(configuration).build());
        for (String statement : Files.readString(Path.of(arguments[0])).split(";\\s*\\n")) {
            if (statement.startsWith("INSERT")) {
                env.executeSql(statement).await();
            } else if (!statement.isBlank()) {
                env.executeSql(statement);
            }
        }
    }
}
