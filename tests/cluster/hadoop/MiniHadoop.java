import java.nio.file.Path;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;

/**
 * HDFS and, with the argument "yarn", YARN with one node manager, in one JVM below a directory. Prints the settings that clients
 * need, one "name=value" a line, then "ready". Ends when its input does.
 */
public class MiniHadoop {
    public static void main(String[] arguments) throws Exception {
        Path home = Path.of(arguments[0]);
        boolean yarn = arguments.length > 1 && arguments[1].equals("yarn");
        System.setProperty("test.build.data", home.resolve("data").toString());
        System.setProperty("hadoop.log.dir", home.resolve("logs").toString());
        YarnConfiguration conf = new YarnConfiguration();
        conf.set(MiniDFSCluster.HDFS_MINIDFS_BASEDIR, home.resolve("dfs").toString());
        conf.set("hadoop.tmp.dir", home.resolve("tmp").toString());
        MiniDFSCluster dfs = new MiniDFSCluster.Builder(conf).numDataNodes(1).build();
        dfs.waitActive();
        show(dfs.getConfiguration(0), "fs.defaultFS");
        if (yarn) {
            conf.set("yarn.scheduler.capacity.root.queues", "default");
            conf.set("yarn.scheduler.capacity.root.default.capacity", "100");
            conf.set("yarn.scheduler.capacity.maximum-am-resource-percent", "0.8");
            conf.set("yarn.scheduler.minimum-allocation-mb", "128");
            conf.set("yarn.nodemanager.resource.memory-mb", "6144");
            conf.set("yarn.nodemanager.resource.cpu-vcores", "8");
            conf.set("yarn.nodemanager.vmem-check-enabled", "false");
            conf.set("yarn.nodemanager.pmem-check-enabled", "false");
            conf.set("yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage", "99.9");
            MiniYARNCluster cluster = new MiniYARNCluster("yarn", 1, 1, 1);
            cluster.init(conf);
            cluster.start();
            for (String name : new String[] {"", "scheduler.", "resource-tracker.", "admin.", "webapp."}) {
                show(cluster.getConfig(), "yarn.resourcemanager." + name + "address");
            }
        }
        System.out.println("ready");
        while (System.in.read() >= 0) {
        }
        Runtime.getRuntime().halt(0);
    }

    private static void show(Configuration conf, String name) {
        System.out.println(name + "=" + conf.get(name));
    }
}
