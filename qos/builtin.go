package qos

import "github.com/plimsoll-dev/plimsoll"

// builtin is the table of the metrics that every node has.
func builtin() []Metric {
	cpu, ext, mem := CPUUsageSorter(), ExtCPUUsageSorter(), MemUsageSorter()
	return []Metric{
		{
			Name: CPUTotalUsage, Help: "processor cores in use on the node", Unit: unitCores, Scale: Core,
			ActionPriority: 5, Sort: &cpu,
			Dimension: DimensionCPU, Most: func(v *View) int64 { return v.Cores },
			Throttleable: true, ThrottleQuantified: true, Evictable: true, EvictQuantified: true,
		},
		{
			Name: CPUTotalUtilization, Help: "percent of the node's processor cores in use", Unit: unitPercent,
			ActionPriority: 5, Sort: &cpu,
			Dimension: DimensionCPU, Amount: percentOf(func(v *View) int64 { return v.Cores }), Most: whole,
			Throttleable: true, ThrottleQuantified: true, Evictable: true, EvictQuantified: true,
		},
		{
			Name: MemoryTotalUsage, Help: "memory of the node that is not available", Unit: unitBytes, Scale: 1,
			ActionPriority: 5, Sort: &mem,
			Dimension: DimensionMemory, Most: func(v *View) int64 { return v.Memory },
			Evictable: true, EvictQuantified: true, Reclaimable: true,
		},
		{
			Name: MemoryTotalUtilization, Help: "percent of the node's memory that is not available", Unit: unitPercent,
			ActionPriority: 5, Sort: &mem,
			Dimension: DimensionMemory, Amount: percentOf(func(v *View) int64 { return v.Memory }), Most: whole,
			Evictable: true, EvictQuantified: true, Reclaimable: true,
		},
		{
			Name: ExtCPUTotalUsage, Help: "percent of the extended cores offered that their holders use",
			Unit: unitPercent, ActionPriority: 5, Sort: &ext,
			Usage: extUsage(DimensionExtCPU), Dimension: DimensionExtCPU, Amount: extAmount(DimensionExtCPU),
			Throttleable: true, ThrottleQuantified: true, Evictable: true, EvictQuantified: true,
		},
		{
			Name: ExtMemoryTotalUsage, Help: "percent of the extended memory offered that its holders use",
			Unit: unitPercent, ActionPriority: 5, Sort: &mem,
			Usage: extUsage(DimensionExtMemory), Dimension: DimensionExtMemory, Amount: extAmount(DimensionExtMemory),
			Evictable: true, EvictQuantified: true, Reclaimable: true,
		},
		{
			Name: CPUPressure, Help: "percent of time in which a protected task waits for a processor",
			Unit: unitPercent, ActionPriority: 4, Sort: &cpu,
			Usage: pressure(func(t *Task) int64 { return t.CPUPressure }), Most: whole, Throttleable: true,
			Evictable: true,
		},
		{
			Name: MemoryPressure, Help: "percent of time in which a protected task waits for memory", Unit: unitPercent,
			ActionPriority: 4, Sort: &mem,
			Usage: pressure(func(t *Task) int64 { return t.MemoryPressure }), Most: whole, Evictable: true,
			Reclaimable: true,
		},
		{
			Name: Load, Help: "load average over a minute", ActionPriority: 3, Sort: &cpu, Throttleable: true,
			Evictable: true,
		},
	}
}

func whole(*View) int64 { return 100 * plimsoll.LineScale }

// percentOf converts thousandths of a percent to an amount of a node's resource.
func percentOf(all func(v *View) int64) func(v *View, value int64) int64 {
	return func(v *View, value int64) int64 { return mulDiv(value, all(v), 100*plimsoll.LineScale) }
}

// extUsage returns the use of an extended resource by its holders, as a part of the offer, in
// thousandths of a percent. If something is used while nothing is offered, the value is above any
// possible line.
func extUsage(dimension string) func(v *View) (int64, bool) {
	return func(v *View) (int64, bool) {
		switch offered, used := v.offered(dimension), v.usedOf(dimension); {
		case used <= 0:
			return 0, true
		case offered <= 0:
			return plimsoll.MaxLine, true
		default:
			return min(mulDiv(used, 100*plimsoll.LineScale, offered), plimsoll.MaxLine), true
		}
	}
}

// extAmount converts thousandths of a percent to an amount of the offer. MaxLine stands for a use
// without an offer, and is converted to the whole use.
func extAmount(dimension string) func(v *View, value int64) int64 {
	return func(v *View, value int64) int64 {
		if value >= plimsoll.MaxLine {
			return v.usedOf(dimension)
		}
		return mulDiv(value, max(v.offered(dimension), 0), 100*plimsoll.LineScale)
	}
}

func (v *View) offered(dimension string) int64 {
	if dimension == DimensionExtMemory {
		return v.ExtMemory
	}
	return v.ExtCPU
}

// usedOf returns the use of a dimension by all tasks. Tasks whose use is not known, at their first
// sample, are left out.
func (v *View) usedOf(dimension string) (sum int64) {
	for i := range v.Tasks {
		if amount, known := v.Tasks[i].use(dimension); known {
			sum = plus(sum, max(amount, 0))
		}
	}
	return sum
}

// pressure returns the highest pressure of the protected tasks. A protected task is above
// best-effort, nothing is taken from it, and its own quota does not hold it up. A throttled group
// reports pressure whatever the node's load is, so counting it would throttle on and on.
func pressure(of func(t *Task) int64) func(v *View) (int64, bool) {
	return func(v *View) (highest int64, ok bool) {
		known, unknown := false, false
		for i := range v.Tasks {
			t := &v.Tasks[i]
			if t.Class <= plimsoll.ClassBestEffort || t.OwnQuota || t.Gone || v.Held(t) {
				continue
			}
			if !t.PressureKnown {
				unknown = true
				continue
			}
			highest, known = max(highest, of(t)), true
		}
		return highest, known || !unknown // without protected tasks the pressure is 0
	}
}
