package sqlite

import (
	"cmp"
	"database/sql/driver"
	"maps"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll/internal/history"
)

// sumKey is the key of a row in one of the tables of sums. Fields that a table does not have are
// zero in its keys.
type sumKey struct {
	hour                 int64
	life                 int64
	owner, queue, labels string
}

func (k sumKey) compare(o sumKey) int {
	return cmp.Or(cmp.Compare(k.hour, o.hour), cmp.Compare(k.life, o.life), strings.Compare(k.owner, o.owner),
		strings.Compare(k.queue, o.queue), strings.Compare(k.labels, o.labels))
}

// sumTable is a table of sums.
type sumTable struct {
	key    func(r *history.Rollup) sumKey
	values func(k sumKey) []driver.Value
	read   string // statement for the sums with a key
	write  string // statement that writes a key with its sums
	trim   string // statement that removes some sums before an hour
}

// sumTables has the tables of sums.
var sumTables = []sumTable{
	{
		key: func(r *history.Rollup) sumKey {
			return sumKey{hour: r.Hour, owner: r.Group.Owner, queue: r.Group.Queue}
		},
		values: func(k sumKey) []driver.Value { return []driver.Value{k.hour, k.owner, k.queue} },
		read:   "SELECT sums FROM usage_owner WHERE hour = ? AND owner = ? AND queue = ?",
		write:  "INSERT OR REPLACE INTO usage_owner VALUES (?, ?, ?, ?)",
		trim: "DELETE FROM usage_owner WHERE (hour, owner, queue) IN " +
			"(SELECT hour, owner, queue FROM usage_owner WHERE hour < ? ORDER BY hour, owner, queue LIMIT ?)",
	},
	{
		key: func(r *history.Rollup) sumKey {
			return sumKey{hour: r.Hour, owner: r.Group.Owner, queue: r.Group.Queue, labels: r.Group.Labels}
		},
		values: func(k sumKey) []driver.Value { return []driver.Value{k.hour, k.owner, k.queue, k.labels} },
		read:   "SELECT sums FROM usage_labels WHERE hour = ? AND owner = ? AND queue = ? AND labels = ?",
		write:  "INSERT OR REPLACE INTO usage_labels VALUES (?, ?, ?, ?, ?)",
		trim: "DELETE FROM usage_labels WHERE (hour, owner, queue, labels) IN (SELECT hour, owner, queue, labels " +
			"FROM usage_labels WHERE hour < ? ORDER BY hour, owner, queue, labels LIMIT ?)",
	},
	{
		key:    func(r *history.Rollup) sumKey { return sumKey{hour: r.Hour, life: r.Group.Life} },
		values: func(k sumKey) []driver.Value { return []driver.Value{k.hour, k.life} },
		read:   "SELECT sums FROM usage_job WHERE hour = ? AND life = ?",
		write:  "INSERT OR REPLACE INTO usage_job VALUES (?, ?, ?)",
		trim: "DELETE FROM usage_job WHERE (hour, life) IN " +
			"(SELECT hour, life FROM usage_job WHERE hour < ? ORDER BY hour, life LIMIT ?)",
	},
}

// writeRollups adds the sums of a batch to each table. Sums of one row are added in memory first.
func (w *Writer) writeRollups(rollups []history.Rollup) error {
	names := map[string]string{}
	for _, table := range sumTables {
		added := make(map[sumKey]*history.Sums, len(rollups))
		for i := range rollups {
			key := table.key(&rollups[i])
			if added[key] == nil {
				added[key] = &history.Sums{}
			}
			added[key].Add(&rollups[i].Sums)
		}
		for _, key := range slices.SortedFunc(maps.Keys(added), sumKey.compare) {
			if err := w.addSums(&table, key, added[key], names); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *Writer) addSums(table *sumTable, key sumKey, added *history.Sums, names map[string]string) error {
	values := table.values(key)
	row, err := w.c.First(table.read, values...)
	if err != nil {
		return err //nolint:wrapcheck // it says what was done
	}
	if row != nil {
		was, ok := decodeSums(row[0], names)
		if !ok {
			return w.c.Damaged("the sums of hour %d", key.hour)
		}
		added.Add(&was)
	}
	_, err = w.c.Exec(table.write, append(values, encodeSums(added))...)
	return err //nolint:wrapcheck // it says what was done
}
