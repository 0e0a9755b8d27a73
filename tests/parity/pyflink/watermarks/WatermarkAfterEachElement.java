import org.apache.flink.api.common.eventtime.Watermark;
import org.apache.flink.api.common.eventtime.WatermarkGenerator;
import org.apache.flink.api.common.eventtime.WatermarkGeneratorSupplier;
import org.apache.flink.api.common.eventtime.WatermarkOutput;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;

/** Bounded out-of-orderness as Flink has it, but with a watermark after each element: nothing depends on when a clock ticks. */
public final class WatermarkAfterEachElement<T> implements WatermarkStrategy<T> {
    private final long boundMillis;

    public WatermarkAfterEachElement(long boundMillis) {
        this.boundMillis = boundMillis;
    }

    @Override
    public WatermarkGenerator<T> createWatermarkGenerator(WatermarkGeneratorSupplier.Context context) {
        return new WatermarkGenerator<T>() {
            private long maxTimestamp = Long.MIN_VALUE + boundMillis + 1;

            @Override
            public void onEvent(T event, long eventTimestamp, WatermarkOutput output) {
                maxTimestamp = Math.max(maxTimestamp, eventTimestamp);
                output.emitWatermark(new Watermark(maxTimestamp - boundMillis - 1));
            }

            @Override
            public void onPeriodicEmit(WatermarkOutput output) {}
        };
    }
}
