/** An element of the inputs. */
public class Event {
    public int seq;
    public String key;
    public long ts;
    public int value;
    public String kind;

    public Event() {}

    public Event(int seq, String key, long ts, int value, String kind) {
        this.seq = seq;
        this.key = key;
        this.ts = ts;
        this.value = value;
        this.kind = kind;
    }

    public static Event parse(String line) {
        String[] f = line.split(",");
        return new Event(Integer.parseInt(f[0]), f[1], Long.parseLong(f[2]), Integer.parseInt(f[3]), f[4]);
    }

    public Object json() {
        return Json.list(seq, value);
    }
}
