import java.math.BigDecimal;
import java.nio.file.Path;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.ArrayList;
import java.util.List;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.typeutils.RowTypeInfo;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.Schema;
import org.apache.flink.table.api.TableResult;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.table.catalog.Column;
import org.apache.flink.types.Row;
import org.apache.flink.types.RowKind;
import org.apache.flink.util.CloseableIterator;

/**
 * Runs queries over the tables of a JSON file on Flink and prints what came out: java Queries FILE, with a line for each query:
 * name, tab, results as JSON; see record_patterns.py. A watermark comes behind each row.
 */
public final class Queries {
    static final ObjectMapper JSON = new ObjectMapper();
    static final DateTimeFormatter TIME = DateTimeFormatter.ofPattern("yyyy-MM-dd HH:mm:ss");

    private Queries() {}

    static StreamTableEnvironment environment(JsonNode tables) {
        Configuration conf = new Configuration();
        conf.setString("pipeline.auto-watermark-interval", "0 ms");
        conf.setString("restart-strategy.type", "none");
        conf.setString("rest.bind-port", "0");
        StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(1, conf);
        StreamTableEnvironment t = StreamTableEnvironment.create(env);
        t.getConfig().setLocalTimeZone(ZoneOffset.UTC);
        tables.fields().forEachRemaining(entry -> {
            JsonNode table = entry.getValue();
            List<String> names = new ArrayList<>();
            List<TypeInformation<?>> types = new ArrayList<>();
            Schema.Builder schema = Schema.newBuilder();
            table.get("columns").fields().forEachRemaining(column -> {
                String type = column.getValue().asText();
                names.add(column.getKey());
                types.add(information(type));
                schema.column(column.getKey(), type);
            });
            String time = table.get("watermark").get(0).asText();
            long boundMs = table.get("watermark").get(1).asLong();
            int at = names.indexOf(time);
            schema.watermark(time, "SOURCE_WATERMARK()");
            List<Row> rows = new ArrayList<>();
            table.get("rows").forEach(values -> {
                Object[] fields = new Object[types.size()];
                for (int i = 0; i < fields.length; i++) {
                    fields[i] = value(values.get(i), table.get("columns").get(names.get(i)).asText());
                }
                rows.add(Row.of(fields));
            });
            int count = rows.size();
            DataStream<Row> stream = env
                .fromData(new RowTypeInfo(types.toArray(new TypeInformation[0]), names.toArray(new String[0])), rows.toArray(new Row[0]))
                .assignTimestampsAndWatermarks(
                    WatermarkStrategy.<Row>forGenerator(ctx -> new AfterEach<Row>(boundMs, false, count))
                        .withTimestampAssigner((row, before) ->
                            ((LocalDateTime) row.getField(at)).toInstant(ZoneOffset.UTC).toEpochMilli()));
            t.createTemporaryView(entry.getKey(), stream, schema.build());
        });
        return t;
    }

    static TypeInformation<?> information(String type) {
        switch (type.replaceAll("\\(.*", "")) {
            case "STRING":
                return Types.STRING;
            case "INT":
                return Types.INT;
            case "BIGINT":
                return Types.LONG;
            case "DOUBLE":
                return Types.DOUBLE;
            case "DECIMAL":
                return Types.BIG_DEC;
            case "TIMESTAMP":
                return Types.LOCAL_DATE_TIME;
            default:
                throw new IllegalArgumentException("no such type: " + type);
        }
    }

    static Object value(JsonNode node, String type) {
        if (node.isNull()) {
            return null;
        }
        switch (type.replaceAll("\\(.*", "")) {
            case "INT":
                return node.asInt();
            case "BIGINT":
                return node.asLong();
            case "DOUBLE":
                return node.asDouble();
            case "DECIMAL":
                return new BigDecimal(node.asText());
            case "TIMESTAMP":
                return LocalDateTime.parse(node.asText(), TIME);
            default:
                return node.asText();
        }
    }

    static ObjectNode run(JsonNode tables, String sql) {
        ObjectNode found = JSON.createObjectNode();
        TableResult result;
        try {
            result = environment(tables).executeSql(sql);
        } catch (Throwable e) {
            return said(found, "refused", e);
        }
        ObjectNode columns = found.putObject("columns");
        for (Column column : result.getResolvedSchema().getColumns()) {
            columns.put(column.getName(), column.getDataType().toString());
        }
        ArrayNode rows = found.putArray("rows");
        try (CloseableIterator<Row> all = result.collect()) {
            while (all.hasNext()) {
                Row row = all.next();
                ArrayNode values = rows.addArray();
                if (row.getKind() != RowKind.INSERT) {
                    throw new IllegalStateException("the row changes: " + row);
                }
                for (int i = 0; i < row.getArity(); i++) {
                    Object field = row.getField(i);
                    if (field instanceof LocalDateTime) {
                        field = TIME.format((LocalDateTime) field);
                    }
                    if (field instanceof BigDecimal) {
                        field = ((BigDecimal) field).toPlainString();
                    }
                    values.add(field == null || field instanceof Number ? JSON.valueToTree(field) : JSON.valueToTree(field.toString()));
                }
            }
        } catch (Throwable e) {
            said(found, "failed", e);
        }
        return found;
    }

    /** The innermost cause, without the parser's list of what it had expected. */
    static ObjectNode said(ObjectNode found, String how, Throwable e) {
        while (e.getCause() != null) {
            e = e.getCause();
        }
        String message = String.valueOf(e.getMessage()).split("\\n?Was expecting")[0].trim();
        found.putArray(how).add(e.getClass().getSimpleName()).add(message);
        return found;
    }

    public static void main(String[] args) throws Exception {
        JsonNode given = JSON.readTree(Path.of(args[0]).toFile());
        for (JsonNode query : given.get("entries")) {
            System.out.println(query.get("name").asText() + "\t" + run(given.get("tables"), query.get("sql").asText()));
        }
    }
}
