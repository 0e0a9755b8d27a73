import java.time.Duration;
import org.apache.flink.cep.nfa.aftermatch.AfterMatchSkipStrategy;
import org.apache.flink.cep.pattern.Pattern;
import org.apache.flink.cep.pattern.WithinType;
import org.apache.flink.cep.pattern.conditions.IterativeCondition;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;

/** A pattern of a program, which is a list of calls of the methods of {@link Pattern}. */
@SuppressWarnings({"rawtypes", "unchecked"})
final class Chains {
    private Chains() {}

    static Pattern pattern(JsonNode calls, JsonNode skip) {
        Pattern pattern = null;
        for (JsonNode call : calls) {
            pattern = call.get(0).asText().equals("begin") ? begin(call.get(1), skip) : called(pattern, call);
        }
        return pattern;
    }

    private static Pattern begin(JsonNode first, JsonNode skip) {
        if (skip == null) {
            return first.isArray() ? Pattern.begin(pattern(first, null)) : Pattern.<Item>begin(name(first));
        }
        return first.isArray() ? Pattern.begin(pattern(first, null), strategy(skip)) : Pattern.<Item>begin(name(first), strategy(skip));
    }

    private static String name(JsonNode node) {
        return node.isNull() ? null : node.asText();
    }

    private static AfterMatchSkipStrategy strategy(JsonNode skip) {
        boolean strict = skip.path(2).asText().equals("throwExceptionOnMiss");
        switch (skip.get(0).asText()) {
            case "noSkip":
                return AfterMatchSkipStrategy.noSkip();
            case "skipToNext":
                return AfterMatchSkipStrategy.skipToNext();
            case "skipPastLastEvent":
                return AfterMatchSkipStrategy.skipPastLastEvent();
            case "skipToFirst":
                var toFirst = AfterMatchSkipStrategy.skipToFirst(skip.get(1).asText());
                return strict ? toFirst.throwExceptionOnMiss() : toFirst;
            case "skipToLast":
                var toLast = AfterMatchSkipStrategy.skipToLast(skip.get(1).asText());
                return strict ? toLast.throwExceptionOnMiss() : toLast;
            default:
                throw new IllegalArgumentException("no such strategy: " + skip);
        }
    }

    private static Pattern called(Pattern p, JsonNode call) {
        JsonNode first = call.get(1);
        switch (call.get(0).asText()) {
            case "next":
                return first.isArray() ? p.next(pattern(first, null)) : p.next(first.asText());
            case "followedBy":
                return first.isArray() ? p.followedBy(pattern(first, null)) : p.followedBy(first.asText());
            case "followedByAny":
                return first.isArray() ? p.followedByAny(pattern(first, null)) : p.followedByAny(first.asText());
            case "notNext":
                return p.notNext(first.asText());
            case "notFollowedBy":
                return p.notFollowedBy(first.asText());
            case "where":
                return p.where(condition(first));
            case "or":
                return p.or(condition(first));
            case "until":
                return p.until(condition(first));
            case "subtype":
                return p.subtype(Item.Special.class);
            case "optional":
                return p.optional();
            case "greedy":
                return p.greedy();
            case "consecutive":
                return p.consecutive();
            case "allowCombinations":
                return p.allowCombinations();
            case "oneOrMore":
                return first == null ? p.oneOrMore() : p.oneOrMore(window(first));
            case "timesOrMore":
                return call.size() == 2 ? p.timesOrMore(first.asInt()) : p.timesOrMore(first.asInt(), window(call.get(2)));
            case "times":
                return times(p, call);
            case "within":
                Duration interval = Duration.ofMillis(first.asLong());
                return call.size() == 2 ? p.within(interval) : p.within(interval, WithinType.valueOf(call.get(2).asText()));
            default:
                throw new IllegalArgumentException("no such method: " + call);
        }
    }

    private static Pattern times(Pattern p, JsonNode call) {
        int n = call.get(1).asInt();
        if (call.size() == 2) {
            return p.times(n);
        }
        if (call.get(2).isObject()) {
            return p.times(n, window(call.get(2)));
        }
        int most = call.get(2).asInt();
        return call.size() == 3 ? p.times(n, most) : p.times(n, most, window(call.get(3)));
    }

    private static Duration window(JsonNode node) {
        return Duration.ofMillis(node.get("window_ms").asLong());
    }

    private static IterativeCondition<Item> condition(JsonNode node) {
        return new Conditions(node);
    }
}
