package cgroup

import (
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Reading is the resources that a group has used so far. A value whose Known is false could not be
// read: its controller is missing, or the file was malformed.
type Reading struct {
	CPU            int64 // nanoseconds of processor time
	Throttled      int64 // nanoseconds that the quota kept the group waiting
	Memory         int64 // bytes charged to the group, less the page cache that can be dropped
	CPUPressure    Pressure
	MemoryPressure Pressure

	CPUKnown, ThrottledKnown, MemoryKnown, CPUPressureKnown, MemoryPressureKnown bool
}

// Reader reads a group's counters repeatedly. Its files stay open; a read is one system call per
// file and allocates nothing. It takes one caller at a time. The kernel keeps a page of memory for
// each open file: 16 KiB a group, and 8 KiB more with pressure.
type Reader struct {
	v1CPU                 int // cpuacct.usage; -1: cpu.stat of v2 has the value
	cpuStat               int
	memory                int
	memoryStat            int
	cpuPressure, memPress int
	statV2                bool // cpu.stat is the file of v2, in microseconds

	inactiveKey, activeKey string
	cache                  int64 // page cache at the last read of memory.stat
	cacheAt                int64 // memory in use at that read
	cacheKnown             bool
}

// ReaderOptions selects the files that a Reader reads besides the three of every sweep.
type ReaderOptions struct {
	Pressure bool // cpu and memory pressure of the group: two more files
}

// Reader opens the group's counters. Counters that the machine lacks stay unknown; a group that is
// gone is ErrGone.
func (g *Group) Reader(o ReaderOptions) (*Reader, error) {
	r := &Reader{v1CPU: -1, cpuStat: -1, memory: -1, memoryStat: -1, cpuPressure: -1, memPress: -1}
	if err := r.open(g, o); err != nil {
		return nil, errors.Join(fmt.Errorf("open the counters of %s: %w", g.name, err), r.Close())
	}
	return r, nil
}

func (r *Reader) open(g *Group, o ReaderOptions) error {
	unified := ""
	if i := g.s.h.unified(); i >= 0 {
		unified = g.dirs[i]
	}
	acct, _ := g.controller("cpuacct")
	cpu, v2 := g.controller(cpuController)
	if cpu == "" {
		cpu, v2 = unified, true // v2 counts processor time without a controller
	}
	r.statV2 = v2
	memory, memoryV2 := g.controller(memoryController)
	usage := "memory.usage_in_bytes"
	r.inactiveKey, r.activeKey = "total_inactive_file", "total_active_file"
	if memoryV2 {
		usage, r.inactiveKey, r.activeKey = "memory.current", "inactive_file", "active_file"
	}
	pressure := ""
	if o.Pressure {
		pressure = unified
	}
	for _, f := range []struct {
		fd        *int
		dir, file string
	}{
		{&r.v1CPU, acct, "cpuacct.usage"},
		{&r.cpuStat, cpu, "cpu.stat"},
		{&r.memory, memory, usage},
		{&r.memoryStat, memory, "memory.stat"},
		{&r.cpuPressure, pressure, "cpu.pressure"},
		{&r.memPress, pressure, "memory.pressure"},
	} {
		if f.dir == "" {
			continue
		}
		fd, err := unix.Open(filepath.Join(f.dir, f.file), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		switch {
		case err == nil:
			*f.fd = fd
		case errors.Is(err, unix.ENOENT) && exists(f.dir): // an older kernel
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV):
			return gone(err)
		default:
			return fmt.Errorf("%s/%s: %w", f.dir, f.file, err)
		}
	}
	return nil
}

// Close releases the descriptors.
func (r *Reader) Close() error {
	var errs []error
	for _, fd := range []*int{&r.v1CPU, &r.cpuStat, &r.memory, &r.memoryStat, &r.cpuPressure, &r.memPress} {
		if *fd >= 0 {
			errs = append(errs, unix.Close(*fd))
			*fd = -1
		}
	}
	return errors.Join(errs...)
}

// Read reads the counters with buf, which should hold 8 KiB. The error is ErrGone or nil.
//
// memory.stat has the page cache and costs as much as all other files together. It is read when
// refresh is true, or when the memory in use has changed by a sixteenth and at least a mebibyte. In
// between the page cache counts as unchanged.
func (r *Reader) Read(buf []byte, out *Reading, refresh bool) error {
	*out = Reading{}
	if b, err := readCounter(r.cpuStat, buf); err != nil {
		return err
	} else if r.statV2 {
		out.CPU, out.CPUKnown = micros(ParseKey(b, "usage_usec"))
		out.Throttled, out.ThrottledKnown = micros(ParseKey(b, "throttled_usec"))
	} else {
		out.Throttled, out.ThrottledKnown = ParseKey(b, "throttled_time")
	}
	if r.v1CPU >= 0 {
		b, err := readCounter(r.v1CPU, buf)
		if err != nil {
			return err
		}
		out.CPU, out.CPUKnown = ParseNumber(b)
	}
	if err := r.readMemory(buf, out, refresh); err != nil {
		return err
	}
	if r.cpuPressure >= 0 {
		b, err := readCounter(r.cpuPressure, buf)
		if err != nil {
			return err
		}
		out.CPUPressure, out.CPUPressureKnown = ParsePressure(b)
	}
	if r.memPress >= 0 {
		b, err := readCounter(r.memPress, buf)
		if err != nil {
			return err
		}
		out.MemoryPressure, out.MemoryPressureKnown = ParsePressure(b)
	}
	return nil
}

// smallMove is a normal change of memory in use: each processor charges pages in batches.
const smallMove = 1 << 20

func (r *Reader) readMemory(buf []byte, out *Reading, refresh bool) error {
	b, err := readCounter(r.memory, buf)
	if err != nil {
		return err
	}
	used, ok := ParseNumber(b)
	if !ok {
		return nil
	}
	moved := max(used-r.cacheAt, r.cacheAt-used)
	if r.memoryStat < 0 {
		r.cacheKnown = true // no file has the page cache: it counts as used
	} else if refresh || !r.cacheKnown || moved > max(r.cacheAt/16, smallMove) {
		b, err := readCounter(r.memoryStat, buf)
		if err != nil {
			return err
		}
		inactive, ok1 := ParseKey(b, r.inactiveKey)
		active, ok2 := ParseKey(b, r.activeKey)
		// Each is at most the memory of the whole group, unless the file is wrong.
		r.cacheKnown = ok1 && ok2 && inactive <= 1<<62 && active <= 1<<62
		r.cache, r.cacheAt = inactive+active, used
	}
	out.MemoryKnown = r.cacheKnown
	if out.MemoryKnown {
		out.Memory = max(used-r.cache, 0)
	}
	return nil
}

func micros(n int64, ok bool) (nanos int64, known bool) {
	if !ok || n > 1<<62/1000 {
		return 0, false
	}
	return n * 1000, true
}

// readCounter returns nothing, and no error, for a file that cannot be read; ErrGone if the group
// is gone.
func readCounter(fd int, buf []byte) ([]byte, error) {
	if fd < 0 {
		return nil, nil
	}
	n, err := pread(fd, buf)
	if err == unix.ENODEV { //nolint:errorlint // a bare errno of a system call; this runs thousands of times a second
		return nil, ErrGone
	}
	return buf[:n], nil
}
