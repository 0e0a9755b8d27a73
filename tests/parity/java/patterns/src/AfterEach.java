import org.apache.flink.api.common.eventtime.Watermark;
import org.apache.flink.api.common.eventtime.WatermarkGenerator;
import org.apache.flink.api.common.eventtime.WatermarkOutput;

/**
 * A watermark behind each element: the greatest timestamp, less the bound, less 1 ms. With {@code each} also one for every
 * millisecond on the way there, and for those behind the last element.
 */
final class AfterEach<T> implements WatermarkGenerator<T> {
    private static final long BEHIND = 200;

    private final long boundMs;
    private final boolean each;
    private final int count;
    private int seen;
    private long last = Long.MIN_VALUE;

    AfterEach(long boundMs, boolean each, int count) {
        this.boundMs = boundMs;
        this.each = each;
        this.count = count;
    }

    @Override
    public void onEvent(T event, long timestamp, WatermarkOutput output) {
        seen++;
        long now = Math.max(last, timestamp - boundMs - 1) + (each && seen == count ? BEHIND : 0);
        if (now <= last) {
            return;
        }
        for (long at = each && last != Long.MIN_VALUE ? last + 1 : now; at <= now; at++) {
            output.emitWatermark(new Watermark(at));
        }
        last = now;
    }

    @Override
    public void onPeriodicEmit(WatermarkOutput output) {}
}
