package qos

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
)

// sortKey is a key of a sorter, with its name in files.
type sortKey struct {
	name string
	key  Compare
}

var sortKeys = [...]sortKey{
	{"class", func(a, b *Task) int { return cmp.Compare(a.Class, b.Class) }},
	{"priority", priorityAndBias},
	{"cpu", CPUUsage},
	{"memory", MemUsage},
	{"ext-cpu", ExtCPUUsage},
	{"ext-memory", ExtMemUsage},
	{"running-time", RunningTime},
}

// priorityAndBias puts the lower priority first and, within a priority, the tasks that policies
// prefer.
func priorityAndBias(a, b *Task) int {
	if c := cmp.Compare(a.Priority, b.Priority); c != 0 {
		return c
	}
	return cmp.Compare(a.Bias, b.Bias)
}

// SortKeys returns the names of the keys that ParseSorter knows, without those of the tasks' own
// values.
func SortKeys() []string {
	names := make([]string, len(sortKeys))
	for i := range sortKeys {
		names[i] = sortKeys[i].name
	}
	return names
}

// ParseSorter makes the sorter of a metric from the names of its keys. The first key that tells two
// tasks apart decides. Two more kinds of key are possible: "value" is the tasks' own value of the
// metric, and "value:NAME" their value of another metric.
func ParseSorter(metric string, names []string) (Sorter, error) {
	if len(names) == 0 {
		return Sorter{}, plimsoll.Invalid("sort", "is empty; give keys such as [class, priority, value, running-time]")
	}
	keys := make([]Compare, len(names))
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			return Sorter{}, plimsoll.Invalid("sort", "%q stands twice; remove one", name)
		}
		j := slices.IndexFunc(sortKeys[:], func(k sortKey) bool { return k.name == name })
		other, ofOther := strings.CutPrefix(name, "value:")
		switch {
		case j >= 0:
			keys[i] = sortKeys[j].key
		case name == "value":
			keys[i] = ByValue(metric)
		case ofOther && isMetricName(other):
			keys[i] = ByValue(other)
		default:
			return Sorter{}, plimsoll.Invalid("sort",
				"%q is no key; use %s, value, or value:NAME for the value of another metric", name, strings.Join(SortKeys(), ", "))
		}
	}
	return OrderedBy(keys...), nil
}

// resort replaces the sorters of built-in metrics.
func (r *Registry) resort(sorters map[string]*Sorter) error {
	for _, name := range slices.Sorted(maps.Keys(sorters)) {
		i := slices.IndexFunc(r.metrics, func(m Metric) bool { return m.Name == name })
		if i < 0 {
			return plimsoll.Invalid("metric", "%q is not built in, so it has no order to change", name)
		}
		r.metrics[i].Sort = sorters[name]
	}
	return nil
}
