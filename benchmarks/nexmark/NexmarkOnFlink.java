import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.math.BigDecimal;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.LocalDateTime;
import java.time.format.DateTimeFormatter;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.function.IntFunction;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.flink.api.connector.source.util.ratelimit.RateLimiterStrategy;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.configuration.ConfigOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.ReadableConfig;
import org.apache.flink.connector.datagen.source.DataGeneratorSource;
import org.apache.flink.connector.datagen.source.GeneratorFunction;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.Table;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.connector.ChangelogMode;
import org.apache.flink.table.connector.source.DynamicTableSource;
import org.apache.flink.table.connector.source.ScanTableSource;
import org.apache.flink.table.connector.source.SourceProvider;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.data.TimestampData;
import org.apache.flink.table.factories.DynamicTableSourceFactory;
import org.apache.flink.table.factories.FactoryUtil;
import org.apache.flink.table.functions.ScalarFunction;
import org.apache.flink.table.runtime.typeutils.InternalTypeInfo;
import org.apache.flink.table.types.DataType;
import org.apache.flink.types.Row;
import org.apache.flink.types.RowKind;
import org.apache.flink.util.CloseableIterator;

/**
 * Nexmark on Flink: NexmarkOnFlink BACKEND PARALLELISM MINI_BATCH DIRECTORY. Reads names of files with statements (between NULs),
 * runs each, and answers with the seconds that its INSERT took, or, if it ends with a SELECT, with the number of rows and each row
 * that remains of its result.
 */
public class NexmarkOnFlink {
    private static final DateTimeFormatter TIME = DateTimeFormatter.ofPattern("yyyy-MM-dd'T'HH:mm:ss.SSS");

    public static void main(String[] arguments) throws Exception {
        BufferedReader files = new BufferedReader(new InputStreamReader(System.in));
        for (String file = files.readLine(); file != null; file = files.readLine()) {
            TableEnvironment env = environment(arguments);
            for (String statement : Files.readString(Path.of(file)).split("\u0000")) {
                if (statement.startsWith("SELECT")) {
                    print(env, statement);
                } else if (statement.startsWith("INSERT")) {
                    long began = System.nanoTime();
                    env.executeSql(statement).await();
                    System.out.println((System.nanoTime() - began) / 1e9);
                } else {
                    env.executeSql(statement);
                }
            }
            System.out.flush();
        }
    }

    private static TableEnvironment environment(String[] arguments) {
        Configuration configuration = new Configuration();
        configuration.setString("state.backend.type", arguments[0]);
        configuration.setString("parallelism.default", arguments[1]);
        configuration.setString("execution.checkpointing.interval", "1 s");
        configuration.setString("execution.checkpointing.incremental", "true");
        configuration.setString("execution.checkpointing.dir", Path.of(arguments[3]).toUri().toString());
        configuration.setString("restart-strategy.type", "none");
        configuration.setString("taskmanager.memory.managed.size", "1g");
        configuration.setString("table.exec.mini-batch.enabled", arguments[2]);
        configuration.setString("table.exec.mini-batch.allow-latency", "2 s");
        configuration.setString("table.exec.mini-batch.size", "50000");
        TableEnvironment env =
                TableEnvironment.create(
                        EnvironmentSettings.newInstance().inStreamingMode().withConfiguration(configuration).build());
        env.createTemporarySystemFunction("count_char", CountChar.class);
        return env;
    }

    // -- results

    private static void print(TableEnvironment env, String query) throws Exception {
        Table table = env.sqlQuery(query);
        String columns =
                table.getResolvedSchema().getColumnNames().stream()
                        .map(name -> "`" + name + "`")
                        .collect(Collectors.joining(", "));
        env.createTemporaryView("found", table);
        // Counted, because the changes of a query may lack the rows before an update, without telling by which key.
        Table counted = env.sqlQuery("SELECT COUNT(*), " + columns + " FROM found GROUP BY " + columns);
        Map<String, Object> rows = new HashMap<>();
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
        System.out.println(rows.size());
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

    /** How often a text has another, of one character. */
    public static class CountChar extends ScalarFunction {
        public long eval(String text, String of) {
            return text.chars().filter(each -> each == of.charAt(0)).count();
        }
    }

    // -- events: as in nexmark_events.py

    private static final long START_MS = 1_709_184_600_000L;
    private static final long FIRST_ID = 1000;
    private static final int FIRST_CATEGORY = 10;
    private static final int IN_FLIGHT = 100;
    private static final int ACTIVE = 1000;
    private static final int LEAD = 10;
    private static final int HOT = 100;

    static long mixed(long word) {
        word += 0x9E3779B97F4A7C15L;
        word = (word ^ (word >>> 30)) * 0xBF58476D1CE4E5B9L;
        word = (word ^ (word >>> 27)) * 0x94D049BB133111EBL;
        return word ^ (word >>> 31);
    }

    /** The texts that events have. */
    static class Pools {
        static final StringData[] NAMES =
                product(
                        "Peter,Paul,Luke,John,Saul,Vicky,Kate,Julie,Sarah,Deiter,Walter".split(","),
                        "Shultz,Abrams,Spencer,White,Bartels,Walton,Smith,Jones,Noris".split(","));
        static final StringData[] CITIES =
                texts("Phoenix,Los Angeles,San Francisco,Boise,Portland,Bend,Redmond,Seattle,Kent,Cheyenne".split(","));
        static final StringData[] STATES = texts("AZ,CA,ID,OR,WA,WY".split(","));
        static final StringData[] MAILS = texts(1000, i -> letters(700_000 + i, 6) + "@" + letters(800_000 + i, 4) + ".com");
        static final StringData[] CARDS =
                texts(1000, i -> String.format("%04d %04d %04d %04d", i, i * 7 % 10_000, i * 13 % 10_000, i * 31 % 10_000));
        static final StringData[] ITEMS = pool(1, 1000, 11);
        static final StringData[] DESCRIPTIONS = pool(2, 1000, 50);
        static final StringData[] PERSON_EXTRAS = pool(3, 1000, 130);
        static final StringData[] AUCTION_EXTRAS = pool(4, 1000, 400);
        static final StringData[] BID_EXTRAS = pool(5, 1000, 68);
        static final String[] HOT_CHANNELS = {"Google", "Facebook", "Baidu", "Apple"};
        static final StringData[] CHANNELS = texts(10_004, i -> i < 4 ? HOT_CHANNELS[i] : "channel-" + (i - 4));
        static final StringData[] URLS = texts(10_004, i -> i < 4 ? url(i) : url(i) + channel(i - 4));

        static StringData[] texts(int size, IntFunction<String> text) {
            return IntStream.range(0, size).mapToObj(text).map(StringData::fromString).toArray(StringData[]::new);
        }

        static StringData[] texts(String[] all) {
            return texts(all.length, i -> all[i]);
        }

        static StringData[] product(String[] firsts, String[] lasts) {
            return texts(firsts.length * lasts.length, i -> firsts[i / lasts.length] + " " + lasts[i % lasts.length]);
        }

        static StringData[] pool(int nth, int size, int length) {
            return texts(size, i -> letters(nth * 100_000 + i, length * (80 + i % 41) / 100));
        }

        static String letters(long word, int length) {
            StringBuilder found = new StringBuilder();
            for (int i = 0; i < length; i++) {
                found.append((char) ('a' + Long.remainderUnsigned(mixed(i + (word << 10)), 26)));
            }
            return found.toString();
        }

        static String url(int word) {
            String parts = IntStream.range(0, 3).mapToObj(i -> letters(word * 3L + i, 4)).collect(Collectors.joining("/"));
            return "https://www.nexmark.com/" + parts + "/item.htm?query=1";
        }

        static String channel(long i) {
            return i % 10 == 0 ? "" : "&channel_id=" + i * 7919 % 1_000_003;
        }
    }

    /** Makes the event with a number. */
    public static class Events implements GeneratorFunction<Long, RowData> {
        private final long count;
        private final long perSecond;
        private final long group;
        private final int parallelism;

        public Events(long count, long perSecond, long group, int parallelism) {
            this.count = count;
            this.perSecond = perSecond;
            this.group = group;
            this.parallelism = parallelism;
        }

        /** The source gives each subtask a range of numbers, which become every second, third, and so on, event. */
        @Override
        public RowData map(Long index) {
            long each = count / parallelism;
            return event(index % each * parallelism + index / each);
        }

        private RowData event(long number) {
            long n = number / group * group + number % group * 953 % group;
            long first = mixed(n * 2);
            long second = mixed(n * 2 + 1);
            long ms = START_MS + n * 1000 / perSecond;
            int place = (int) (n % 50);
            return place == 0
                    ? GenericRowData.of(0, person(n, first, second, ms), null, null)
                    : place <= 3
                            ? GenericRowData.of(1, null, auction(n, first, second, ms), null)
                            : GenericRowData.of(2, null, null, bid(n, first, second, ms));
        }

        private static RowData person(long n, long first, long second, long ms) {
            return GenericRowData.of(
                    FIRST_ID + n / 50,
                    of(Pools.NAMES, bits(first, 0, 16)),
                    of(Pools.MAILS, bits(first, 16, 16)),
                    of(Pools.CARDS, bits(first, 32, 16)),
                    of(Pools.CITIES, bits(first, 48, 8)),
                    of(Pools.STATES, bits(first, 56, 8)),
                    TimestampData.fromEpochMillis(ms),
                    of(Pools.PERSON_EXTRAS, bits(second, 0, 16)));
        }

        private RowData auction(long n, long first, long second, long ms) {
            long seller = bits(first, 0, 2) > 0 ? n / 50 / HOT * HOT : somePerson(n, second & 0xFFFFFFFFL);
            long initial = price(first, 2, n);
            long aheadMs = START_MS + (n + IN_FLIGHT * 50 / 3) * 1000 / perSecond - ms;
            long lastsMs = 1 + below(second >>> 32, Math.max(aheadMs * 2, 1));
            return GenericRowData.of(
                    FIRST_ID + lastAuction(n),
                    of(Pools.ITEMS, bits(first, 44, 10)),
                    of(Pools.DESCRIPTIONS, bits(first, 48, 10)),
                    initial,
                    initial + price(first, 23, n),
                    TimestampData.fromEpochMillis(ms),
                    TimestampData.fromEpochMillis(ms + lastsMs),
                    FIRST_ID + seller,
                    FIRST_CATEGORY + bits(first, 56, 8) % 5,
                    of(Pools.AUCTION_EXTRAS, bits(first, 50, 14)));
        }

        private static RowData bid(long n, long first, long second, long ms) {
            long last = lastAuction(n);
            long oldest = Math.max(last - IN_FLIGHT, 0);
            long some = oldest + below(second & 0xFFFFFFFFL, last - oldest + 1 + LEAD);
            long auction = bits(first, 0, 1) > 0 ? last / HOT * HOT : some;
            long bidder = bits(first, 1, 2) > 0 ? n / 50 / HOT * HOT + 1 : somePerson(n, second >>> 32);
            int channel = (int) (bits(first, 3, 1) > 0 ? bits(first, 4, 2) : 4 + bits(first, 6, 14) % 10_000);
            return GenericRowData.of(
                    FIRST_ID + auction,
                    FIRST_ID + bidder,
                    price(first, 20, n),
                    Pools.CHANNELS[channel],
                    Pools.URLS[channel],
                    TimestampData.fromEpochMillis(ms),
                    of(Pools.BID_EXTRAS, bits(first, 41, 16)));
        }

        private static long lastAuction(long n) {
            return n / 50 * 3 + Math.min(n % 50, 3) - 1;
        }

        private static long somePerson(long n, long word32) {
            long people = n / 50 + 1;
            long active = Math.min(people, ACTIVE);
            return people - active + below(word32, active + LEAD);
        }

        private static long below(long word32, long limit) {
            return (word32 * limit) >>> 32;
        }

        private static long bits(long word, int start, int count) {
            return (word >>> start) & ((1L << count) - 1);
        }

        private static long price(long word, int start, long n) {
            long exponent = bits(word, start, 5) % 20;
            long wide = ((100 * (65536 + bits(word, start + 5, 16))) << exponent) >> 16;
            return (wide & ~4095L) | (n & 4095L);
        }

        private static StringData of(StringData[] pool, long index) {
            return pool[(int) (index % pool.length)];
        }
    }

    /** The table connector 'nexmark'. */
    public static class Factory implements DynamicTableSourceFactory {
        private static final ConfigOption<Long> COUNT = ConfigOptions.key("events.num").longType().noDefaultValue();
        private static final ConfigOption<Long> RATE = ConfigOptions.key("first-event.rate").longType().defaultValue(10_000L);
        private static final ConfigOption<Long> EPOCH = ConfigOptions.key("events.per-epoch").longType().noDefaultValue(); // not ours
        private static final ConfigOption<Long> GROUP = ConfigOptions.key("out-of-order.group-size").longType().defaultValue(1L);

        @Override
        public DynamicTableSource createDynamicTableSource(Context context) {
            FactoryUtil.TableFactoryHelper helper = FactoryUtil.createTableFactoryHelper(this, context);
            ReadableConfig options = helper.getOptions();
            int parallelism = context.getConfiguration().get(org.apache.flink.configuration.CoreOptions.DEFAULT_PARALLELISM);
            Events events = new Events(options.get(COUNT), options.get(RATE), options.get(GROUP), parallelism);
            return new Scan(events, context.getPhysicalRowDataType());
        }

        @Override
        public String factoryIdentifier() {
            return "nexmark";
        }

        @Override
        public Set<ConfigOption<?>> requiredOptions() {
            return Set.of(COUNT);
        }

        @Override
        public Set<ConfigOption<?>> optionalOptions() {
            return Set.of(RATE, GROUP, EPOCH);
        }
    }

    private static class Scan implements ScanTableSource {
        private final Events events;
        private final DataType type;

        Scan(Events events, DataType type) {
            this.events = events;
            this.type = type;
        }

        @Override
        public ChangelogMode getChangelogMode() {
            return ChangelogMode.insertOnly();
        }

        @Override
        public ScanRuntimeProvider getScanRuntimeProvider(ScanContext context) {
            return SourceProvider.of(
                    new DataGeneratorSource<>(
                            events, events.count, RateLimiterStrategy.noOp(), InternalTypeInfo.of(type.getLogicalType())));
        }

        @Override
        public DynamicTableSource copy() {
            return new Scan(events, type);
        }

        @Override
        public String asSummaryString() {
            return "Nexmark";
        }
    }
}
