import org.apache.flink.api.common.JobID;
import org.apache.flink.client.deployment.StandaloneClusterId;
import org.apache.flink.client.program.rest.RestClusterClient;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.JobManagerOptions;
import org.apache.flink.configuration.RestOptions;
import org.apache.flink.core.execution.SavepointFormatType;

/** Flink's own client, which commands a job of forkpoint's. Prints a line for each step. */
public class FlinkClient {
    public static void main(String[] arguments) throws Exception {
        Configuration configuration = new Configuration();
        configuration.set(JobManagerOptions.ADDRESS, arguments[0]);
        configuration.set(RestOptions.ADDRESS, arguments[0]);
        configuration.set(RestOptions.PORT, Integer.parseInt(arguments[1]));
        StandaloneClusterId cluster = StandaloneClusterId.getInstance();
        try (RestClusterClient<StandaloneClusterId> client = new RestClusterClient<>(configuration, cluster)) {
            var job = client.listJobs().get().iterator().next();
            JobID id = job.getJobId();
            System.out.println("listed " + job.getJobName() + " " + job.getJobState());
            System.out.println("status " + client.getJobStatus(id).get());
            var details = client.getJobDetails(id).get();
            System.out.println("vertices " + details.getJobVertexInfos().size());
            String taken = client.triggerSavepoint(id, null, SavepointFormatType.CANONICAL).get();
            System.out.println("savepoint " + taken);
            System.out.println("disposed " + client.disposeSavepoint(taken).get());
            String stopped = client.stopWithSavepoint(id, false, null, SavepointFormatType.CANONICAL).get();
            System.out.println("stopped " + stopped);
            System.out.println("status " + client.getJobStatus(id).get());
        }
    }
}
