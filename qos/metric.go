package qos

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
)

// Dimensions of the built-in metrics. Metrics of one dimension are forms of one resource: their
// percent and absolute lines are compared, and a task's release counts for all of them.
const (
	DimensionCPU       = "cpu"        // nanocores
	DimensionMemory    = "memory"     // bytes
	DimensionExtCPU    = "ext-cpu"    // nanocores
	DimensionExtMemory = "ext-memory" // bytes
)

// Names of the built-in metrics.
const (
	CPUTotalUsage          = "cpu_total_usage"          // cores in use
	CPUTotalUtilization    = "cpu_total_utilization"    // percent of the node's cores
	MemoryTotalUsage       = "memory_total_usage"       // bytes that are not available
	MemoryTotalUtilization = "memory_total_utilization" // percent of the node's memory
	ExtCPUTotalUsage       = "ext_cpu_total_usage"      // percent of the offered extended cores that their holders use
	ExtMemoryTotalUsage    = "ext_memory_total_usage"   // percent of the offered extended memory that its holders use
	// CPUPressure is the percent of time in which a protected task waits for a processor.
	CPUPressure    = "cpu_pressure"
	MemoryPressure = "memory_pressure" // percent of time in which a protected task waits for memory
	Load           = "load"            // load average over a minute
)

// View is the input of a metric's functions.
type View struct {
	*Snapshot
	ledger *Ledger
}

// Held reports whether something was taken from the task that has not been given back.
func (v *View) Held(t *Task) bool { return v.ledger.holds(t.Key()) }

// Metric describes one metric, how to act on it and how its values are read (design, "Definition of
// metric attribute"). It is a row of a Registry.
type Metric struct {
	Name  string
	Help  string // its description, in a line
	Unit  string // unit of its lines, for people: cores, bytes, percent; may be empty
	Scale int64  // how many of its finest units make one unit, so the precision of lines; 0: plimsoll.LineScale

	ActionPriority int // 0 to 10; the highest stands in for a metric that cannot be acted on itself

	Sort *Sorter // the order in which tasks are acted on; nil: not sortable, GeneralSorter is used

	// Usage returns the node's value; ok is false if it is missing. nil: Snapshot.Values.
	Usage func(v *View) (value int64, ok bool)

	Dimension string // empty: the metric's own name
	// Amount converts a value or line of the metric to the dimension's finest unit, such as percent
	// to nanocores. nil: the value itself.
	Amount func(v *View, value int64) int64
	// Most returns the largest possible value, so that lines above it can be refused. nil: there is
	// none.
	Most func(v *View) int64

	Throttleable       bool
	ThrottleQuantified bool
	// Throttle lowers the quotas of a task by one step. release is the amount of the metric's
	// dimension that the step releases; the processor time that the quotas release counts as well.
	// No changes: nothing more can be taken. nil: ThrottleCPU.
	Throttle func(t *Task, by Throttling) (changes []QuotaChange, release int64)
	// Restore raises the quotas of a task by one step. use is the amount of the dimension that the
	// task may then use in addition. No changes: the task has everything back. nil: RestoreCPU.
	Restore func(t *Task, by Throttling) (changes []QuotaChange, use int64)

	Limit *Limit // throttling changes a number of the metric's own instead of quotas; nil: quotas

	Evictable       bool
	EvictQuantified bool
	// Release returns the amount of the dimension that the node gets back when the task is gone. ok
	// is false if the amount is not known. nil: the task's use of the dimension in the snapshot.
	Release func(t *Task) (amount int64, ok bool)

	Reclaimable bool // the kernel can be asked to take back some before tasks are stopped
}

func (m *Metric) dimension() string {
	if m.Dimension == "" {
		return m.Name
	}
	return m.Dimension
}

// LineScale returns the number of the metric's finest units in one unit of its lines: Scale, or
// plimsoll.LineScale.
func (m *Metric) LineScale() int64 {
	if m.Scale <= 0 {
		return plimsoll.LineScale
	}
	return m.Scale
}

func (m *Metric) usage(v *View) (int64, bool) {
	if m.Usage != nil {
		return m.Usage(v)
	}
	value, ok := v.Values[m.Name]
	return value, ok && value >= 0
}

func (m *Metric) amount(v *View, value int64) int64 {
	if m.Amount == nil {
		return value
	}
	return m.Amount(v, value)
}

// sorter returns the metric's sorter (design: if it is sortable, its SortFunc, else GeneralSorter).
func (m *Metric) sorter() Sorter {
	if m.Sort == nil {
		return GeneralSorter()
	}
	return *m.Sort
}

// release returns the amount of the metric's dimension that the end of a task gives back.
func (m *Metric) release(t *Task) (int64, bool) {
	if m.Release != nil {
		return m.Release(t)
	}
	return t.use(m.dimension())
}

// use returns how much of a dimension a task uses.
func (t *Task) use(dimension string) (amount int64, known bool) {
	switch dimension {
	case DimensionCPU:
		return t.CPU, t.CPUKnown
	case DimensionMemory:
		return t.Memory, t.MemoryKnown
	case DimensionExtCPU:
		if t.ExtCPU <= 0 {
			return 0, true
		}
		return t.CPU, t.CPUKnown
	case DimensionExtMemory:
		if t.ExtMemory <= 0 {
			return 0, true
		}
		return t.Memory, t.MemoryKnown
	}
	amount, known = t.Values[dimension]
	return amount, known
}

// Format prints a value in the metric's unit, such as 3.5 cores or 64.2 %.
func (m *Metric) Format(value int64) string {
	switch m.Unit {
	case unitBytes:
		return formatBytes(value)
	case unitPercent:
		if value > plimsoll.MaxLine/2 { // a use without an offer, or the distance of one from its line
			return "∞ %"
		}
		return decimal(value, m.LineScale(), 1) + " %"
	case unitCores:
		return counted(decimal(value, m.LineScale(), 3), "core")
	}
	return strings.TrimSpace(decimal(value, m.LineScale(), 3) + " " + m.Unit)
}

const (
	unitCores   = "cores"
	unitBytes   = "bytes"
	unitPercent = "percent"
)

// decimal prints value/scale with up to places digits after the point.
func decimal(value, scale int64, places int) string {
	s := strconv.FormatFloat(float64(value)/float64(scale), 'f', places, 64)
	if strings.ContainsRune(s, '.') {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

func counted(number, unit string) string {
	if number == "1" {
		return "1 " + unit
	}
	return number + " " + unit + "s"
}

func formatBytes(value int64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB", "TiB"}
	v, i := float64(value), 0
	for v >= 1024 && i < len(units)-1 {
		v, i = v/1024, i+1
	}
	if i == 0 {
		return counted(strconv.FormatInt(value, 10), "byte")
	}
	return strconv.FormatFloat(v, 'f', 1, 64) + " " + units[i]
}

// FormatAmount prints an amount of a dimension.
func FormatAmount(dimension string, amount int64) string {
	switch dimension {
	case DimensionCPU, DimensionExtCPU:
		return counted(decimal(amount, Core, 3), "core")
	case DimensionMemory, DimensionExtMemory:
		return formatBytes(amount)
	}
	return decimal(amount, plimsoll.LineScale, 3)
}

// FormatAmount prints an amount of the metric's dimension.
func (m *Metric) FormatAmount(amount int64) string {
	if dimension := m.dimension(); dimension != m.Name {
		return FormatAmount(dimension, amount)
	}
	return m.Format(amount)
}

// Registry is the table of metrics. NewRegistry makes one; it is immutable.
type Registry struct {
	metrics []Metric // Invariant: sorted by name
}

// MaxMetrics bounds a registry.
const MaxMetrics = 128

// NewRegistry returns a registry of the built-in metrics and the given ones.
func NewRegistry(more ...Metric) (*Registry, error) { return NewRegistrySorted(nil, more...) }

// NewRegistrySorted is like NewRegistry, with other sorters for built-in metrics.
func NewRegistrySorted(sorters map[string]*Sorter, more ...Metric) (*Registry, error) {
	r := &Registry{metrics: builtin()}
	if err := r.resort(sorters); err != nil {
		return nil, err
	}
	for i := range more {
		if err := r.add(&more[i]); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(r.metrics, func(a, b Metric) int { return strings.Compare(a.Name, b.Name) })
	return r, nil
}

func (r *Registry) add(m *Metric) error {
	switch {
	case !isMetricName(m.Name):
		return plimsoll.Invalid(
			"metric", "%q is not a possible name; use 1 to 128 small letters, digits and _ starting with a letter",
			m.Name,
		)
	case slices.ContainsFunc(r.metrics, func(o Metric) bool { return o.Name == m.Name }):
		return plimsoll.Invalid("metric", "%q is registered already; choose another name", m.Name)
	case len(r.metrics) >= MaxMetrics:
		return plimsoll.Invalid("metric", "%q is one too many; %d metrics are possible", m.Name, MaxMetrics)
	case m.ActionPriority < 0 || m.ActionPriority > 10:
		return plimsoll.Invalid(
			"metric", "%s: its action priority is %d; give 0, the lowest, to 10", m.Name, m.ActionPriority,
		)
	case m.ThrottleQuantified && !m.Throttleable, m.EvictQuantified && !m.Evictable:
		return plimsoll.Invalid(
			"metric", "%s: the releases of an impossible action cannot be quantified; say that it is throttleable or evictable too",
			m.Name,
		)
	case m.ThrottleQuantified && m.Throttle == nil && m.Limit == nil &&
		m.dimension() != DimensionCPU && m.dimension() != DimensionExtCPU:
		return plimsoll.Invalid(
			"metric",
			"%s: the release of a quota of processors is not known; give Throttle, or say that it is not quantified",
			m.Name,
		)
	}
	if err := m.checkLimit(); err != nil {
		return err
	}
	r.metrics = append(r.metrics, *m)
	return nil
}

func isMetricName(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' {
			return false
		}
	}
	return s != "" && len(s) <= 128 && s[0] >= 'a'
}

// Find returns a metric; nil if it is not registered.
func (r *Registry) Find(name string) *Metric {
	i, found := slices.BinarySearchFunc(
		r.metrics, name, func(m Metric, name string) int { return strings.Compare(m.Name, name) },
	)
	if !found {
		return nil
	}
	return &r.metrics[i]
}

// Names returns all names in order.
func (r *Registry) Names() []string {
	names := make([]string, len(r.metrics))
	for i := range r.metrics {
		names[i] = r.metrics[i].Name
	}
	return names
}

// CheckRule returns an error if a rule's metric is not registered or its lines are not possible.
func (r *Registry) CheckRule(rule *plimsoll.Rule) error {
	m := r.Find(rule.Metric)
	if m == nil {
		return plimsoll.Invalid(
			"metric", "nobody has registered %q; there are %s", rule.Metric, strings.Join(r.Names(), ", "),
		)
	}
	line, err := plimsoll.ParseLine(rule.Waterline, m.LineScale())
	if err != nil {
		return plimsoll.Invalid("waterline", "%v", err)
	}
	if line == 0 {
		return plimsoll.Invalid("waterline", "%s is less than can be measured of %s", rule.Waterline, m.Name)
	}
	for _, text := range []string{rule.Waterline, rule.Release} {
		if strings.HasSuffix(strings.TrimSpace(text), "%") && m.Unit != unitPercent {
			return plimsoll.Invalid(
				"waterline",
				"%s is a percentage, and %s is measured in %s; use the metric's own unit, or the utilization metric",
				text, m.Name, m.unitOr("plain numbers"),
			)
		}
	}
	if err := m.checkBytes("waterline", rule.Waterline, line); err != nil {
		return err
	}
	if m.Unit == unitPercent && m.Most != nil && line > 100*m.LineScale() {
		return plimsoll.Invalid(
			"waterline", "%s is above 100 percent, which %s never is; give a line from 1 to 100", rule.Waterline,
			m.Name,
		)
	}
	if rule.Release == "" {
		return nil
	}
	release, err := plimsoll.ParseLine(rule.Release, m.LineScale())
	if err != nil {
		return plimsoll.Invalid("release", "%v", err)
	}
	return m.checkBytes("release", rule.Release, release)
}

// checkBytes refuses a line below a mebibyte for the node's memory. A plain 80 lacks its unit, or
// was meant as a percentage.
func (m *Metric) checkBytes(field, text string, line int64) error {
	const least = 1 << 20
	if m.Unit != unitBytes || m.Most == nil || line >= least*m.LineScale() {
		return nil
	}
	return plimsoll.Invalid(field, "%s is less than a mebibyte, and no node has so little; write the unit, such as 80Gi, or use %s for a percentage",
		text, MemoryTotalUtilization)
}

func (m *Metric) unitOr(other string) string {
	if m.Unit == "" {
		return other
	}
	return m.Unit
}

// Describe prints the table for people, a line a metric.
func (r *Registry) Describe() string {
	var b strings.Builder
	for i := range r.metrics {
		m := &r.metrics[i]
		fmt.Fprintf(&b, "%-26s %-8s %s\n", m.Name, m.Unit, m.Help)
	}
	return b.String()
}
