import java.util.ArrayList;
import java.util.List;
import org.apache.flink.cep.pattern.conditions.IterativeCondition;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;

/** A condition of a program, which is data: see pattern_programs.py. */
final class Conditions extends IterativeCondition<Item> {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final String text;
    private transient JsonNode parsed;

    Conditions(JsonNode condition) {
        this.text = condition.toString();
    }

    @Override
    public boolean filter(Item item, Context<Item> ctx) throws Exception {
        if (parsed == null) {
            parsed = JSON.readTree(text);
        }
        return holds(parsed, item, ctx);
    }

    private static boolean holds(JsonNode c, Item item, Context<Item> ctx) throws Exception {
        String op = c.get(0).asText();
        switch (op) {
            case "true":
                return true;
            case "kind":
                return c.get(1).asText().equals("in") ? c.get(2).asText().contains(item.kind) : c.get(2).asText().equals(item.kind);
            case "value":
                return compare(item.value, c.get(1).asText(), c.get(2).asLong());
            case "and":
                return holds(c.get(1), item, ctx) && holds(c.get(2), item, ctx);
            case "or":
                return holds(c.get(1), item, ctx) || holds(c.get(2), item, ctx);
            case "not":
                return !holds(c.get(1), item, ctx);
            default:
        }
        List<Item> before = new ArrayList<>();
        ctx.getEventsForPattern(c.get(1).asText()).forEach(before::add);
        Item last = before.isEmpty() ? null : before.get(before.size() - 1);
        switch (op) {
            case "sum":
                return compare(before.stream().mapToInt(e -> e.value).sum() + item.value, c.get(2).asText(), c.get(3).asLong());
            case "count":
                return compare(before.size(), c.get(2).asText(), c.get(3).asLong());
            case "above_last":
                return last != null && item.value > last.value;
            case "same_as_first":
                return !before.isEmpty() && item.value == before.get(0).value;
            case "since_last":
                return last != null && compare(ctx.timestamp() - last.time, c.get(2).asText(), c.get(3).asLong());
            default:
                throw new IllegalArgumentException("no such condition: " + c);
        }
    }

    private static boolean compare(long left, String op, long right) {
        switch (op) {
            case "=":
                return left == right;
            case "<":
                return left < right;
            case "<=":
                return left <= right;
            case ">":
                return left > right;
            case ">=":
                return left >= right;
            default:
                throw new IllegalArgumentException("no such comparison: " + op);
        }
    }
}
