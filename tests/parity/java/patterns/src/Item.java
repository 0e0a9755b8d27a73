/** An event of a program; those whose kind is a capital letter are {@link Special}. */
public class Item {
    public int index;
    public long time;
    public String key;
    public String kind;
    public int value;

    public static class Special extends Item {}

    static Item of(int index, long time, String key, String kind, int value) {
        Item item = Character.isUpperCase(kind.charAt(0)) ? new Special() : new Item();
        item.index = index;
        item.time = time;
        item.key = key;
        item.kind = kind;
        item.value = value;
        return item;
    }
}
