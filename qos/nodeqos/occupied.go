package nodeqos

import (
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/qos"
)

// occupancy is the node's use outside of its tasks: the use of the machine without that of its
// tasks. It is a mean over the samples of plimsoll.OccupiedEvery, so that a moment's work is no
// change.
type occupancy struct {
	began       time.Time // of the first sample of the mean
	samples     int64     // of which the use of the machine and of every task is known
	cpu, memory int64     // sums over the samples: milli-cores and bytes
	// reported is the last mean that differs enough from the one before to be told; nil: there was
	// none.
	reported *plimsoll.NodeUse
}

// mebibyte is the grain of the reported memory, for short numbers.
const mebibyte = 1 << 20

// observe adds a sample. Each time the samples cover plimsoll.OccupiedEvery, their mean is reported
// if it differs enough from the last one. Without control groups the use of a task is not known, so
// a node with tasks reports nothing then. A change is compared with the resources for tasks, which
// are at most the capacity. So every change that is to be told is reported.
func (o *occupancy) observe(snap *qos.Snapshot, now time.Time, allocatable plimsoll.Resources) {
	if o.began.IsZero() || now.Before(o.began) {
		*o = occupancy{began: now, reported: o.reported}
	}
	if use, known := others(snap); known {
		o.samples, o.cpu, o.memory = o.samples+1, o.cpu+use.CPU, o.memory+use.Memory
	}
	if now.Sub(o.began) < plimsoll.OccupiedEvery {
		return
	}
	if o.samples > 0 {
		mean := plimsoll.NodeUse{CPU: o.cpu / o.samples, Memory: o.memory / o.samples &^ (mebibyte - 1)}
		if o.reported == nil || mean.Differs(*o.reported, allocatable) {
			o.reported = &mean
		}
	}
	*o = occupancy{began: now, reported: o.reported}
}

// others returns the use of the machine by all but the node's tasks. It is not known if that of a
// task is not.
func others(snap *qos.Snapshot) (use plimsoll.NodeUse, known bool) {
	cpu, knowsCPU := snap.Values[qos.CPUTotalUsage]
	memory, knowsMemory := snap.Values[qos.MemoryTotalUsage]
	if !knowsCPU || !knowsMemory {
		return use, false
	}
	for i := range snap.Tasks {
		t := &snap.Tasks[i]
		if t.Gone || t.Started == 0 {
			continue
		}
		if !t.CPUKnown || !t.MemoryKnown {
			return use, false
		}
		cpu, memory = cpu-t.CPU, memory-t.Memory
	}
	// The readings are not of one instant, so a difference may be negative.
	return plimsoll.NodeUse{
		CPU:    min(max(cpu/(qos.Core/1000), 0), plimsoll.MaxNodeCPU),
		Memory: min(max(memory, 0), plimsoll.MaxNodeMemory),
	}, true
}
