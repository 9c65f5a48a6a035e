package metricfile

import (
	"strconv"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/qos"
	"github.com/plimsoll-dev/plimsoll/qos/nodeqos"
)

// actions reads the order in which tasks are acted on, and the effect of throttling them.
func (e *metricEntry) actions(m *nodeqos.Metric) error {
	switch {
	case e.Sort != nil:
		sorter, err := qos.ParseSorter(m.Name, *e.Sort)
		if err != nil {
			return err
		}
		m.Sort = &sorter
	case m.PerTask:
		byUse := qos.OrderedBy(qos.ClassAndPriority, qos.ByValue(m.Name), qos.RunningTime)
		m.Sort = &byUse
	}
	if e.ThrottleQuantified {
		if !m.PerTask || !m.Sum {
			return plimsoll.Invalid("throttleQuantified",
				"needs perTask: true and aggregate: sum, or nobody can say what a task that is throttled releases")
		}
		m.Throttle, m.Restore = qos.InProportion(m.Name)
	}
	return nil
}

// builtin reports whether every node has a metric of that name.
func builtin(name string) bool {
	registry, err := qos.NewRegistry()
	return err == nil && registry.Find(name) != nil
}

// resorted reads an entry that only gives a built-in metric another order.
func (e *metricEntry) resorted() (m nodeqos.Metric, err error) {
	rest := *e
	rest.Name, rest.Sort = "", nil
	if !rest.empty() {
		return m, plimsoll.Invalid("name",
			"%q is a built-in metric, of which only sort can be given; choose another name for a metric of your own", e.Name)
	}
	sorter, err := qos.ParseSorter(e.Name, *e.Sort)
	if err != nil {
		return m, err
	}
	m.Metric = qos.Metric{Name: e.Name, Sort: &sorter}
	m.OnlySort = true
	return m, nil
}

func (e *metricEntry) empty() bool {
	return e.Unit == "" && e.Help == "" && e.ActionPriority == 0 && e.Sort == nil &&
		len(e.Command) == 0 && e.Prometheus == nil && e.Aggregate == "" && e.Every == "" && e.Timeout == "" &&
		!e.Throttleable && !e.ThrottleQuantified && !e.Evictable && !e.EvictQuantified
}

// place returns the file with the line of an entry, if the line is known.
func place(name string, data []byte, entry int) string {
	file, err := parser.ParseBytes(data, 0)
	if err != nil || len(file.Docs) == 0 {
		return name
	}
	list, ok := file.Docs[0].Body.(*ast.SequenceNode)
	if !ok || entry >= len(list.Values) {
		return name
	}
	t := list.Values[entry].GetToken()
	if t == nil || t.Position == nil {
		return name
	}
	return name + ":" + strconv.Itoa(t.Position.Line)
}
