package wire

import (
	"time"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

// Count says how many jobs ran, and how many tasks held resources of a node, when a minute began.
type Count struct {
	Minute int64 // since the epoch of Unix
	Jobs   int32
	Tasks  int32
}

// Counts are samples in ascending order of their minutes. One holds until the next: equal ones
// that follow each other are left out.
type Counts []Count

// CountedMinutes is the number of minutes that Counts look back. They have at most one sample more.
const CountedMinutes = 24 * 60

// CountsBytes is the most that a record of Counts takes: for each sample a minute of the day and
// two numbers, two minutes that may be further off, and the heads of three lists.
const CountsBytes = (CountedMinutes+1)*(2+5+5) + 2*10 + 3*4

// MinuteOf returns the minute of a time in Unix nanoseconds.
func MinuteOf(at int64) int64 { return at / int64(time.Minute) }

// Add adds a sample, which is later than the others, unless it is equal to the last one. It drops
// those that ended more than CountedMinutes before now, a minute. It reports whether it added one.
func (c *Counts) Add(sample Count, now int64) bool {
	list := *c
	if n := len(list); n > 0 {
		last := list[n-1]
		if last.Jobs == sample.Jobs && last.Tasks == sample.Tasks {
			return false
		}
	}
	list = append(list, sample)
	old := 0
	for old+1 < len(list) && list[old+1].Minute <= now-CountedMinutes {
		old++
	}
	*c = append(list[:0], list[old:]...)
	return true
}

// AppendCounts encodes samples.
func AppendCounts(dst []byte, c Counts) []byte {
	m := &pb.Counts{}
	before := int64(0)
	for _, s := range c {
		m.Minutes = append(m.Minutes, s.Minute-before)
		m.Jobs, m.Tasks = append(m.Jobs, s.Jobs), append(m.Tasks, s.Tasks)
		before = s.Minute
	}
	return appendMessage(dst, m)
}

// DecodeCounts decodes samples.
func DecodeCounts(data []byte) (Counts, error) {
	var m pb.Counts
	if err := decodeMessage("counts", data, &m); err != nil {
		return nil, err
	}
	minutes, jobs, tasks := m.GetMinutes(), m.GetJobs(), m.GetTasks()
	if len(jobs) != len(minutes) || len(tasks) != len(minutes) {
		return nil, plimsoll.Errorf(plimsoll.CodeCorrupt, "decode counts: there are %d minutes, %d jobs and %d tasks",
			len(minutes), len(jobs), len(tasks))
	}
	c := make(Counts, len(minutes))
	at := int64(0)
	for i, after := range minutes {
		if at += after; i > 0 && after <= 0 {
			return nil, plimsoll.Errorf(plimsoll.CodeCorrupt, "decode counts: sample %d is not after the one before", i)
		}
		c[i] = Count{Minute: at, Jobs: jobs[i], Tasks: tasks[i]}
	}
	return c, nil
}
