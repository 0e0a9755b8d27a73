import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;

/** Results as JSON text. The first entry of a row is the key of the result, within which results have an order. */
final class Json {
    private Json() {}

    static String row(Object... entries) {
        return text(Arrays.asList(entries));
    }

    static List<Object> list(Object... entries) {
        return new ArrayList<>(Arrays.asList(entries));
    }

    static List<Object> seqs(Iterable<Event> events) {
        List<Object> found = new ArrayList<>();
        events.forEach(e -> found.add(e.seq));
        return found;
    }

    static String text(Object value) {
        if (value == null || value instanceof Number || value instanceof Boolean) {
            return String.valueOf(value);
        }
        if (value instanceof Iterable) {
            List<String> parts = new ArrayList<>();
            ((Iterable<?>) value).forEach(v -> parts.add(text(v)));
            return "[" + String.join(", ", parts) + "]";
        }
        if (value instanceof Map) {
            List<Object> entries = new ArrayList<>();
            ((Map<?, ?>) value).forEach((k, v) -> entries.add(list(k, v)));
            return text(entries);
        }
        return '"' + value.toString() + '"';
    }
}
