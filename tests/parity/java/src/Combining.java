import java.lang.reflect.Proxy;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.LongStream;
import org.apache.flink.api.common.eventtime.WatermarkOutput;
import org.apache.flink.api.common.eventtime.WatermarkOutputMultiplexer;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.streaming.runtime.io.PushingAsyncDataInput.DataOutput;
import org.apache.flink.streaming.runtime.watermarkstatus.StatusWatermarkValve;
import org.apache.flink.streaming.runtime.watermarkstatus.WatermarkStatus;

/**
 * How Flink makes one watermark out of several: java Combining STEPS.
 *
 * <p>A line of the file is the number of channels and steps, {@code channel:watermark} or {@code channel:idle}. For each
 * line two are printed: the watermark behind each step of a union's valve, and of what combines splits (and, the same way, connected inputs).
 */
public final class Combining {
    private static final class Valve {
        final StatusWatermarkValve valve;
        final boolean[] idle;
        long last = Long.MIN_VALUE;
        final DataOutput<?> output = (DataOutput<?>) Proxy.newProxyInstance(
            Combining.class.getClassLoader(), new Class<?>[] {DataOutput.class}, (proxy, method, args) -> {
                if (args[0] instanceof Watermark) {
                    last = ((Watermark) args[0]).getTimestamp();
                }
                return null;
            });

        Valve(int channels) {
            valve = new StatusWatermarkValve(channels);
            idle = new boolean[channels];
        }

        long step(int channel, String what) throws Exception {
            boolean rests = what.equals("idle");
            if (idle[channel] != rests) {
                valve.inputWatermarkStatus(rests ? WatermarkStatus.IDLE : WatermarkStatus.ACTIVE, channel, output);
                idle[channel] = rests;
            }
            if (!rests) {
                valve.inputWatermark(new Watermark(Long.parseLong(what)), channel, output);
            }
            return last;
        }
    }

    private static final class Combined implements WatermarkOutput {
        final WatermarkOutputMultiplexer multiplexer = new WatermarkOutputMultiplexer(this);
        long last = Long.MIN_VALUE;

        Combined(int channels) {
            for (int i = 0; i < channels; i++) {
                multiplexer.registerNewOutput("" + i);
            }
        }

        long step(int channel, String what) {
            WatermarkOutput output = multiplexer.getImmediateOutput("" + channel);
            if (what.equals("idle")) {
                output.markIdle();
            } else {
                output.emitWatermark(new org.apache.flink.api.common.eventtime.Watermark(Long.parseLong(what)));
            }
            multiplexer.onPeriodicEmit();
            return last;
        }

        @Override
        public void emitWatermark(org.apache.flink.api.common.eventtime.Watermark watermark) {
            last = watermark.getTimestamp();
        }

        @Override
        public void markIdle() {}

        @Override
        public void markActive() {}
    }

    public static void main(String[] args) throws Exception {
        for (String line : Files.readAllLines(Path.of(args[0]))) {
            String[] words = line.split(" ");
            int channels = Integer.parseInt(words[0]);
            Valve valve = new Valve(channels);
            Combined combined = new Combined(channels);
            LongStream.Builder ofValve = LongStream.builder();
            LongStream.Builder ofCombined = LongStream.builder();
            for (int i = 1; i < words.length; i++) {
                String[] step = words[i].split(":");
                ofValve.add(valve.step(Integer.parseInt(step[0]), step[1]));
                ofCombined.add(combined.step(Integer.parseInt(step[0]), step[1]));
            }
            for (LongStream.Builder each : List.of(ofValve, ofCombined)) {
                System.out.println(each.build().mapToObj(Long::toString).collect(Collectors.joining(" ")));
            }
        }
    }
}
