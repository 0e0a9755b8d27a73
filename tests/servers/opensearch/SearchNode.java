import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import org.opensearch.common.settings.Settings;
import org.opensearch.env.Environment;
import org.opensearch.node.Node;
import org.opensearch.transport.Netty4Plugin;

/** A node of OpenSearch with the HTTP port of its distribution, and none of its other plugins. */
public class SearchNode extends Node {
    SearchNode(Environment environment) {
        super(environment, List.of(Netty4Plugin.class), false);
    }

    /** Arguments: name=value, its settings. */
    public static void main(String[] arguments) throws Exception {
        Settings.Builder settings = Settings.builder();
        for (String argument : arguments) {
            settings.put(argument.split("=", 2)[0], argument.split("=", 2)[1]);
        }
        Settings built = settings.build();
        new SearchNode(new Environment(built, Path.of(built.get("path.home"), "config"))).start();
        new CountDownLatch(1).await();
    }
}
