package sample

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/internal/cgroup"
)

// RefreshSweeps is the number of sweeps after which the page cache of a group is read again, even
// if its memory in use is constant.
const RefreshSweeps = 8

// Config says where to measure, and how many files may stay open.
type Config struct {
	Proc string // mount point of proc; default /proc
	// MaxFiles is the number of descriptors that the groups may keep. The files of further groups
	// are opened for each sweep. Default: an eighth of the process's limit.
	MaxFiles int
}

// Sweep is the result of one sweep. A later sweep with the same value reuses its slices.
type Sweep struct {
	At       time.Time
	Sequence uint64 // number of the sweep of a Sampler, from 1
	Node     Node
	Groups   []Group // ordered by key
}

// Node is the measurement of the machine.
type Node struct {
	Cores int64 // online processors; zero if not known
	// CPU is the busy nanocores since the last sweep: not idle, not waiting for a disk, not
	// stolen.
	CPU             int64
	MemoryTotal     int64 // bytes
	MemoryAvailable int64 // bytes available without swapping
	Load1           int64 // load of the last minute, in thousandths
	CPUPressure     Pressure
	MemoryPressure  Pressure

	CPUKnown, MemoryKnown, LoadKnown bool
}

// Pressure is the share of the last ten seconds in which tasks waited, in hundredths of a percent.
type Pressure struct {
	Avg10 int64 // at least one task waited
	Full  int64 // all runnable tasks waited
	Known bool
}

// Group is the measurement of one task's control group.
type Group struct {
	Key       string
	CPU       int64 // nanocores since the last sweep
	Memory    int64 // bytes in use, without page cache
	Throttled int64 // nanoseconds spent waiting for quota since the last sweep
	// CPUPressure and MemoryPressure are the share of the time since the last sweep in which at
	// least one thread waited, in hundredths of a percent. The kernel's own averages take ten
	// seconds to follow. A caller that acts on a sample must see the effect in the next one.
	CPUPressure    int64
	MemoryPressure int64

	CPUKnown, MemoryKnown, ThrottledKnown, CPUPressureKnown, MemoryPressureKnown bool

	Gone bool // it was removed, and is not in later sweeps
}

// TrackOptions selects readings of a group besides processor time, memory and throttling.
type TrackOptions struct {
	Pressure bool // the group's own pressure; it needs two more files, so it is for protected tasks only
}

// Sampler measures a machine and its groups. It has one caller at a time.
type Sampler struct {
	node     node
	groups   []*tracked // Invariant: ordered by key, each key once
	sequence uint64
	buf      []byte
	reading  cgroup.Reading
	closing  error // errors of closing the files of dropped groups, returned by Close
	room     int   // number of further groups that may keep their files open
}

type tracked struct {
	key                string
	group              *cgroup.Group
	options            cgroup.ReaderOptions
	reader             *cgroup.Reader // nil if there is no room to keep it open
	cpu, throttled     counter
	cpuStall, memStall counter // microseconds
	phase              uint64  // spreads the groups over RefreshSweeps
}

// counter is the last reading of a growing number.
type counter struct {
	value int64
	at    time.Time
	known bool
}

// New opens the machine's counters. It measures nothing yet.
func New(c Config) (*Sampler, error) {
	if c.MaxFiles == 0 {
		c.MaxFiles = defaultFiles()
	}
	s := &Sampler{buf: make([]byte, 16<<10), room: c.MaxFiles / groupFiles}
	proc := c.Proc
	if proc == "" {
		proc = "/proc"
	}
	if err := s.node.open(proc); err != nil {
		return nil, errors.Join(fmt.Errorf("open the counters of the machine: %w", err), s.Close())
	}
	return s, nil
}

// Close closes all files.
func (s *Sampler) Close() error {
	errs := []error{s.closing, s.node.close()}
	for _, t := range s.groups {
		errs = append(errs, s.close(t))
	}
	s.groups = nil
	return errors.Join(errs...)
}

// Track adds a group to the sweeps under a key. If the key is tracked already, it denotes the new
// group from now on. The error for a removed group is cgroup.ErrGone.
func (s *Sampler) Track(key string, g *cgroup.Group) error {
	return s.TrackWith(key, g, TrackOptions{})
}

// TrackWith is Track with options.
func (s *Sampler) TrackWith(key string, g *cgroup.Group, o TrackOptions) error {
	t := &tracked{key: key, group: g, options: cgroup.ReaderOptions{Pressure: o.Pressure}, phase: s.phase()}
	if err := s.open(t); err != nil {
		return fmt.Errorf("track %s: %w", key, err)
	}
	i, found := s.find(key)
	if !found {
		s.groups = slices.Insert(s.groups, i, t)
		return nil
	}
	old := s.groups[i]
	s.groups[i] = t
	s.closing = errors.Join(s.closing, s.close(old))
	return nil
}

func (s *Sampler) phase() uint64 { return uint64(len(s.groups)) % RefreshSweeps }

func (s *Sampler) find(key string) (int, bool) {
	return slices.BinarySearchFunc(
		s.groups, key, func(t *tracked, key string) int { return strings.Compare(t.key, key) },
	)
}

// Drop removes a group from the sweeps. An unknown key is ignored.
func (s *Sampler) Drop(key string) {
	i, found := s.find(key)
	if !found {
		return
	}
	s.closing = errors.Join(s.closing, s.close(s.groups[i]))
	s.groups = slices.Delete(s.groups, i, i+1)
}

// Len returns the number of tracked groups.
func (s *Sampler) Len() int { return len(s.groups) }

// Sweep reads all counters. Values that cannot be read are not known in out. Sweeps are best 100
// ms or more apart. It fails only on a closed Sampler.
func (s *Sampler) Sweep(now time.Time, out *Sweep) error {
	if s.node.stat < 0 {
		return fmt.Errorf("measure the machine: %w", fs.ErrClosed)
	}
	s.sequence++
	out.At, out.Sequence = now, s.sequence
	s.node.read(now, s.buf, &out.Node)
	out.Groups = out.Groups[:0]
	anyGone := false
	for _, t := range s.groups {
		out.Groups = append(out.Groups, Group{Key: t.key})
		g := &out.Groups[len(out.Groups)-1]
		if known, gone := s.read(t); !known {
			g.Gone, anyGone = gone, anyGone || gone
			continue
		}
		t.fill(now, &s.reading, s.node.cores, g)
	}
	if anyGone {
		s.dropGone(out)
	}
	return nil
}

// dropGone drops the groups that this sweep found removed.
func (s *Sampler) dropGone(out *Sweep) {
	kept := s.groups[:0]
	for i, t := range s.groups {
		if out.Groups[i].Gone {
			s.closing = errors.Join(s.closing, s.close(t))
			continue
		}
		kept = append(kept, t)
	}
	clear(s.groups[len(kept):])
	s.groups = kept
}

func (t *tracked) fill(now time.Time, r *cgroup.Reading, cores int64, g *Group) {
	g.Memory, g.MemoryKnown = r.Memory, r.MemoryKnown
	if d, elapsed, ok := t.cpu.advance(now, r.CPU, r.CPUKnown); ok {
		g.CPU, g.CPUKnown = perSecond(d, elapsed, cores)
	}
	g.Throttled, _, g.ThrottledKnown = t.throttled.advance(now, r.Throttled, r.ThrottledKnown)
	g.CPUPressure, g.CPUPressureKnown = t.cpuStall.share(now, r.CPUPressure.Some.TotalMicros, r.CPUPressureKnown)
	g.MemoryPressure, g.MemoryPressureKnown = t.memStall.share(
		now, r.MemoryPressure.Some.TotalMicros, r.MemoryPressureKnown,
	)
}

// share returns the share of the time since the last value by which a counter of microseconds has
// grown. It is in hundredths of a percent.
func (c *counter) share(now time.Time, micros int64, known bool) (part int64, ok bool) {
	grown, elapsed, ok := c.advance(now, micros, known)
	if !ok || elapsed < time.Microsecond {
		return 0, false
	}
	return min(grown, elapsed.Microseconds()) * 100_00 / elapsed.Microseconds(), true
}

// advance returns the growth of the counter since it was last known. A counter that went backwards
// starts again from there.
func (c *counter) advance(now time.Time, value int64, known bool) (grown int64, elapsed time.Duration, ok bool) {
	if !known {
		return 0, 0, false
	}
	last := *c
	*c = counter{value: value, at: now, known: true}
	grown, elapsed = value-last.value, now.Sub(last.at)
	if !last.known || grown < 0 || elapsed <= 0 {
		return 0, 0, false
	}
	return grown, elapsed, true
}

// perSecond converts nanoseconds of processor time over elapsed to nanocores. A value above the
// number of cores is due to the grain of the kernel's counters, and is cut. More than twice as
// much is not known: the counter has jumped, or elapsed is too short for that grain.
func perSecond(nanos int64, elapsed time.Duration, cores int64) (nanocores int64, known bool) {
	hi, lo := bits.Mul64(uint64(nanos), uint64(time.Second))
	if hi >= uint64(elapsed) {
		return 0, false
	}
	n, _ := bits.Div64(hi, lo, uint64(elapsed))
	if n > math.MaxInt64 || cores > 0 && n > uint64(2*cores)*uint64(time.Second) {
		return 0, false
	}
	if cores > 0 {
		n = min(n, uint64(cores)*uint64(time.Second))
	}
	return int64(n), true
}
