package config

import (
	"maps"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/qos"
)

// QOSSnapshot is an imagined node, for trying policies.
type QOSSnapshot struct {
	Attributes map[string]string // attributes of the node, by which NodeQOS select
	qos.Snapshot
}

// ParseQOSSnapshot reads a snapshot file: a node with its measured values, and its tasks with
// their usage. name is for the messages; now is the time of the snapshot. Values are in the unit
// of their metric.
//
// The processor and memory metrics are optional: usage and utilization follow from each other, or
// from the usage of the tasks. The value "missing" marks a metric that could not be measured. The
// error is a *Error.
func ParseQOSSnapshot(name string, data []byte, registry *qos.Registry, now time.Time) (QOSSnapshot, error) {
	top, err := parseValue(name, data)
	if err != nil {
		return QOSSnapshot{}, err
	}
	d := newDecoder(name, top)
	s := QOSSnapshot{Snapshot: qos.Snapshot{Sequence: 1, At: now.UnixNano()}}
	r := snapshotReader{d, registry, map[string]int64{}, map[string]bool{}}
	given := map[string]int{}
	d.fields(top, "",
		field{"node", func(v *value, path string) { r.node(v, path, &s) }},
		field{"tasks", func(v *value, path string) {
			d.list(v, path, func(v *value, path string) {
				t := r.task(v, path, now)
				if first, twice := given[t.ID]; twice {
					d.problem(
						v.line, path+".id", "%q is already the id of the task on line %d; give each task its own", t.ID,
						first,
					)
				}
				given[t.ID] = v.line
				s.Tasks = append(s.Tasks, t)
			})
		}},
	)
	clean := len(d.problems) == 0
	for _, amount := range []struct {
		name string
		is   int64
	}{{"cpu", s.Cores}, {"memory", s.Memory}} {
		if amount.is <= 0 && clean {
			d.problem(d.lineOf("node"), "node."+amount.name, "is missing; say how much the machine has")
		}
	}
	if err := d.err(); err != nil {
		return QOSSnapshot{}, err
	}
	r.derive(&s.Snapshot)
	return s, nil
}

// snapshotReader reads a snapshot. Invariant: a metric in missing is not in values.
type snapshotReader struct {
	*decoder
	registry *qos.Registry
	values   map[string]int64
	missing  map[string]bool
}

func (r *snapshotReader) node(v *value, path string, s *QOSSnapshot) {
	r.fields(v, path,
		field{"cpu", r.cores(&s.Cores)},
		field{"memory", r.quantity(plimsoll.Memory, &s.Memory)},
		field{"attributes", r.textMap(&s.Attributes)},
		field{"extCpu", r.cores(&s.ExtCPU)},
		field{"extMemory", r.quantity(plimsoll.ExtMemory, &s.ExtMemory)},
		field{"values", r.measured(r.values, r.missing)},
	)
}

func (r *snapshotReader) task(v *value, path string, now time.Time) qos.Task {
	t := qos.Task{Attempt: 1}
	g := qos.Group{Name: "task", Shares: 1024}
	var running time.Duration
	r.fields(v, path,
		field{"id", r.text(&t.ID)},
		field{"class", word(r.decoder, &t.Class, plimsoll.ParseClass, wordsFrom(plimsoll.ClassBestEffort))},
		field{"priority", r.number(&t.Priority)},
		field{"owner", r.text(&t.Owner)},
		field{"queue", r.text(&t.Queue)},
		field{"labels", r.textMap(&t.Labels)},
		field{"cpu", func(v *value, path string) { t.CPUKnown = true; r.cores(&t.CPU)(v, path) }},
		field{"memory", func(
			v *value, path string,
		) {
			t.MemoryKnown = true
			r.quantity(plimsoll.Memory, &t.Memory)(v, path)
		}},
		field{"limit", r.cores(&g.Limit)},
		field{"request", r.cores(&g.Request)},
		field{"quota", r.cores(&g.Quota)},
		field{"shares", r.shares(&g.Shares)},
		field{"idle", r.boolean(&g.Idle)},
		field{"extCpu", r.cores(&t.ExtCPU)},
		field{"extMemory", r.quantity(plimsoll.ExtMemory, &t.ExtMemory)},
		field{"running", r.duration(&running)},
		field{"pressure", func(v *value, path string) {
			t.PressureKnown = true
			r.fields(v, path, field{"cpu", r.percent(&t.CPUPressure)}, field{"memory", r.percent(&t.MemoryPressure)})
		}},
		field{"values", func(v *value, path string) {
			t.Values = map[string]int64{}
			r.measured(t.Values, nil)(v, path)
		}},
		field{"stopping", r.boolean(&t.Stopping)},
	)
	if t.ID == "" && v.kind == mapKind {
		r.problem(v.line, path+".id", "is missing; name the task, such as batch.main.0")
	}
	if t.Class == plimsoll.ClassUnset {
		t.Class = plimsoll.ClassBurstable
		if t.ExtCPU > 0 || t.ExtMemory > 0 {
			t.Class = plimsoll.ClassBestEffort
		}
	}
	if running > 0 {
		t.Started = now.Add(-running).UnixNano()
	}
	if g.Quota == 0 {
		g.Quota = max(g.Limit, 0)
	}
	if t.Class == plimsoll.ClassGuaranteed {
		g.Request = max(g.Request, g.Limit)
	}
	g.CPU, g.Ext = t.CPU, t.ExtCPU
	t.Groups = []qos.Group{g}
	return t
}

// cores reads an amount of processors, in nanocores.
func (r *snapshotReader) cores(into *int64) func(v *value, path string) {
	return func(v *value, path string) {
		var milli int64
		r.quantity(plimsoll.CPU, &milli)(v, path)
		if milli > qos.Core {
			r.problem(v.line, path, "is %s; no machine has so many processors", plimsoll.Shorten(v.text))
			return
		}
		*into = milli * (qos.Core / 1000)
	}
}

func (r *snapshotReader) percent(into *int64) func(v *value, path string) {
	return func(v *value, path string) { r.line(v, path, plimsoll.LineScale, into) }
}

func (r *snapshotReader) line(v *value, path string, scale int64, into *int64) {
	if v.kind != scalarKind {
		r.problem(v.line, path, "is %s; a number is expected, such as 65", v.kindName())
		return
	}
	n, err := plimsoll.ParseLine(v.text, scale)
	if err != nil {
		r.problem(v.line, path, "%s", err)
		return
	}
	*into = n
}

// measured reads values of metrics, each in its own unit.
func (r *snapshotReader) measured(into map[string]int64, missing map[string]bool) func(v *value, path string) {
	return func(v *value, path string) {
		r.pairs(v, path, func(e entry, at string) {
			switch {
			case !plimsoll.IsMetricName(e.name):
				r.problem(
					e.line, at, "is not the name of a metric; there are %s", strings.Join(r.registry.Names(), ", "),
				)
			case missing != nil && e.value.text == "missing":
				missing[e.name] = true // a name cannot occur twice, so it has no value
			default:
				var n int64
				r.line(e.value, at, r.scaleOf(e.name), &n)
				into[e.name] = n
			}
		})
	}
}

func (r *snapshotReader) scaleOf(metric string) int64 {
	if m := r.registry.Find(metric); m != nil {
		return m.LineScale()
	}
	return plimsoll.LineScale
}

// derive fills in the usual values that were not given.
func (r *snapshotReader) derive(s *qos.Snapshot) {
	var cpu, memory int64
	for i := range s.Tasks { // bounded, because the sums could overflow
		cpu, memory = min(cpu, s.Cores)+min(s.Tasks[i].CPU, s.Cores), min(memory, s.Memory)+min(
			s.Tasks[i].Memory, s.Memory,
		)
	}
	r.pair(qos.CPUTotalUsage, qos.CPUTotalUtilization, cpu, s.Cores)
	r.pair(qos.MemoryTotalUsage, qos.MemoryTotalUtilization, memory, s.Memory)
	s.Values = maps.Clone(r.values)
}

// pair computes one of two forms of a resource from the other, or both from the usage of the
// tasks.
func (r *snapshotReader) pair(usage, utilization string, used, all int64) {
	const whole = 100 * plimsoll.LineScale
	value, hasValue := r.values[usage]
	percent, hasPercent := r.values[utilization]
	if r.missing[usage] || r.missing[utilization] {
		return // only the given values are known
	}
	switch {
	case hasValue:
		used = value
	case hasPercent:
		used = int64(float64(percent) / whole * float64(all))
	default:
		used = min(used, all)
	}
	if !hasValue {
		r.values[usage] = used
	}
	if !hasPercent {
		r.values[utilization] = min(int64(float64(used)/float64(all)*whole+0.5), whole)
	}
}
