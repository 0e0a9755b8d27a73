import org.apache.flink.api.common.JobID;
import org.apache.flink.client.deployment.StandaloneClusterId;
import org.apache.flink.client.program.rest.RestClusterClient;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.JobManagerOptions;
import org.apache.flink.configuration.RestOptions;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.runtime.jobgraph.JobVertexID;
import org.apache.flink.runtime.rest.messages.EmptyRequestBody;
import org.apache.flink.runtime.rest.messages.JobVertexDetailsHeaders;
import org.apache.flink.runtime.rest.messages.JobVertexMessageParameters;
import org.apache.flink.runtime.rest.messages.MessageHeaders;
import org.apache.flink.runtime.rest.messages.MessageParameters;
import org.apache.flink.runtime.rest.messages.MessagePathParameter;
import org.apache.flink.runtime.rest.messages.MessageQueryParameter;
import org.apache.flink.runtime.rest.messages.ResponseBody;
import org.apache.flink.runtime.rest.messages.job.metrics.AggregatedJobMetricsHeaders;
import org.apache.flink.runtime.rest.messages.job.metrics.AggregatedSubtaskMetricsHeaders;
import org.apache.flink.runtime.rest.messages.job.metrics.JobMetricsHeaders;
import org.apache.flink.runtime.rest.messages.job.metrics.JobVertexMetricsHeaders;
import org.apache.flink.runtime.rest.messages.job.metrics.JobVertexWatermarksHeaders;

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
            for (var vertex : details.getJobVertexInfos()) {
                metrics(new Calls(client, id, vertex.getJobVertexID()));
            }
            String taken = client.triggerSavepoint(id, null, SavepointFormatType.CANONICAL).get();
            System.out.println("savepoint " + taken);
            System.out.println("disposed " + client.disposeSavepoint(taken).get());
            String stopped = client.stopWithSavepoint(id, false, null, SavepointFormatType.CANONICAL).get();
            System.out.println("stopped " + stopped);
            System.out.println("status " + client.getJobStatus(id).get());
        }
    }

    private static void metrics(Calls calls) throws Exception {
        calls.ask(JobVertexDetailsHeaders.getInstance(), null, null);
        calls.ask(JobVertexWatermarksHeaders.INSTANCE, null, null).getMetrics();
        var listed = calls.ask(JobVertexMetricsHeaders.getInstance(), null, null).getMetrics();
        System.out.println("metrics " + listed.stream().anyMatch(each -> each.getId().equals("numRecordsOut")));
        var found = calls.ask(JobVertexMetricsHeaders.getInstance(), "numRecordsIn,none", null).getMetrics();
        System.out.println("found " + found.size() + " " + (Long.parseLong(found.iterator().next().getValue()) > 0));
        var tasks = calls.ask(AggregatedSubtaskMetricsHeaders.getInstance(), "numRecordsIn", "sum,avg").getMetrics();
        var sum = tasks.iterator().next();
        System.out.println("subtasks " + (sum.getSum() >= sum.getAvg() && sum.getAvg() > 0) + " " + sum.getMax());
        var ofJob = calls.ask(JobMetricsHeaders.getInstance(), "numRestarts", null).getMetrics();
        System.out.println("restarts " + ofJob.iterator().next().getValue());
        var jobs = calls.ask(AggregatedJobMetricsHeaders.getInstance(), "numberOfCompletedCheckpoints", "max").getMetrics();
        System.out.println("completed " + (jobs.iterator().next().getMax() > 0));
    }

    /** Calls about one operator. */
    private record Calls(RestClusterClient<StandaloneClusterId> client, JobID job, JobVertexID vertex) {
        <P extends ResponseBody, U extends MessageParameters> P ask(
                MessageHeaders<EmptyRequestBody, P, U> headers, String get, String agg) throws Exception {
            U parameters = headers.getUnresolvedMessageParameters();
            for (MessagePathParameter<?> each : parameters.getPathParameters()) {
                each.resolveFromString(each.getKey().equals("jobid") ? job.toString() : vertex.toString());
            }
            for (MessageQueryParameter<?> each : parameters.getQueryParameters()) {
                String given = each.getKey().equals("get") ? get : each.getKey().equals("agg") ? agg : null;
                if (given != null) {
                    each.resolveFromString(given);
                }
            }
            return client.sendRequest(headers, parameters, EmptyRequestBody.getInstance()).get();
        }
    }
}
