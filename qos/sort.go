package qos

import (
	"cmp"
	"slices"
	"strings"
)

// Compare orders two tasks: a negative result means that a is acted on before b. It looks at the
// tasks alone.
type Compare func(a, b *Task) int

// Sorter puts tasks in the order in which they are acted on, the least valuable first. The order is
// total: tasks that no key tells apart are ordered by id, so that the same tasks always come in the
// same order.
type Sorter struct{ keys []Compare }

// OrderedBy makes a sorter that compares by the first key that tells two tasks apart (design,
// "Enrich the sorting strategy").
func OrderedBy(keys ...Compare) Sorter { return Sorter{keys} }

func (s Sorter) compare(a, b *Task) int {
	for _, key := range s.keys {
		if c := key(a, b); c != 0 {
			return c
		}
	}
	if c := strings.Compare(a.ID, b.ID); c != 0 {
		return c
	}
	return cmp.Compare(a.Attempt, b.Attempt)
}

// Sort returns the order of the tasks as indices.
func (s Sorter) Sort(tasks []Task) []int32 {
	order := make([]int32, len(tasks))
	for i := range order {
		order[i] = int32(i)
	}
	s.sort(tasks, order)
	return order
}

func (s Sorter) sort(tasks []Task, order []int32) {
	slices.SortFunc(order, func(a, b int32) int { return s.compare(&tasks[a], &tasks[b]) })
}

// The keys of the design, and of its memory counterpart.

// ClassAndPriority puts the lower class first, in a class the lower priority, and then those that
// policies prefer.
func ClassAndPriority(a, b *Task) int {
	if c := cmp.Compare(a.Class, b.Class); c != 0 {
		return c
	}
	if c := cmp.Compare(a.Priority, b.Priority); c != 0 {
		return c
	}
	return cmp.Compare(a.Bias, b.Bias)
}

// CPUUsage puts the heavier user first: acting on it brings the node below its line soonest. A task
// whose use is not known comes last.
func CPUUsage(a, b *Task) int { return heavier(a.CPU, a.CPUKnown, b.CPU, b.CPUKnown) }

// MemUsage puts the heavier user of memory first.
func MemUsage(a, b *Task) int { return heavier(a.Memory, a.MemoryKnown, b.Memory, b.MemoryKnown) }

func heavier(a int64, aKnown bool, b int64, bKnown bool) int {
	if aKnown != bKnown {
		return sign(aKnown)
	}
	if !aKnown {
		return 0
	}
	return cmp.Compare(b, a)
}

// ExtCPUUsage puts holders of extended processors (ext-cpu) first. Among them the task that uses
// the smaller part of the amount that it holds comes first, since it has the least need of it.
func ExtCPUUsage(a, b *Task) int { return extended(a.CPU, a.ExtCPU, b.CPU, b.ExtCPU) }

// ExtMemUsage orders users of extended memory as ExtCPUUsage orders those of extended processors.
func ExtMemUsage(a, b *Task) int { return extended(a.Memory, a.ExtMemory, b.Memory, b.ExtMemory) }

func extended(aUse, aHolds, bUse, bHolds int64) int {
	switch {
	case (aHolds > 0) != (bHolds > 0):
		return sign(aHolds > 0)
	case aHolds <= 0:
		return 0
	}
	return compareRatios(max(aUse, 0), aHolds, max(bUse, 0), bHolds)
}

// ExtMemFirst puts users of extended memory first, without regard to their use.
func ExtMemFirst(a, b *Task) int {
	if (a.ExtMemory > 0) != (b.ExtMemory > 0) {
		return sign(a.ExtMemory > 0)
	}
	return 0
}

// RunningTime puts the younger task first, so that the least work is lost. A task that has not
// started is the youngest.
func RunningTime(a, b *Task) int {
	if a.Started == 0 || b.Started == 0 {
		return cmp.Compare(a.Started, b.Started)
	}
	return cmp.Compare(b.Started, a.Started)
}

// The sorters of the design, and one for memory. They are functions, so that they cannot be
// changed.

// GeneralSorter is for metrics without a sorter of their own.
func GeneralSorter() Sorter { return OrderedBy(ClassAndPriority, RunningTime) }

// CPUUsageSorter is the sorter of the processor metrics.
func CPUUsageSorter() Sorter {
	return OrderedBy(ClassAndPriority, CPUUsage, ExtCPUUsage, RunningTime)
}

// ExtCPUUsageSorter is the sorter of the metric of extended processors.
func ExtCPUUsageSorter() Sorter {
	return OrderedBy(ClassAndPriority, ExtCPUUsage, CPUUsage, RunningTime)
}

// MemUsageSorter is the sorter of the memory metrics.
func MemUsageSorter() Sorter {
	return OrderedBy(ClassAndPriority, ExtMemFirst, MemUsage, ExtMemUsage, RunningTime)
}

// ByValue compares the tasks' own values of a user-defined metric: the larger first.
func ByValue(metric string) Compare {
	return func(a, b *Task) int {
		x, xKnown := a.Values[metric]
		y, yKnown := b.Values[metric]
		return heavier(x, xKnown, y, yKnown)
	}
}

// restoreOrder is the order in which tasks get their resources back: the highest class and priority
// first, then the heavier user, which suffers most, then the older task.
func restoreOrder(a, b *Task) int {
	if c := ClassAndPriority(b, a); c != 0 {
		return c
	}
	if c := CPUUsage(a, b); c != 0 {
		return c
	}
	return RunningTime(b, a)
}
