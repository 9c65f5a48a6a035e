package sample

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/internal/cgroup"
)

// tickNanos is the unit of /proc/stat. USER_HZ is 100 on every architecture on which Go supports
// Linux.
const tickNanos = int64(time.Second / 100)

// node holds the open counters of the machine; -1 is a file that does not exist.
type node struct {
	stat, meminfo, loadavg, cpuPressure, memoryPressure int

	cpu   counter
	cores int64  // last known number
	big   []byte // buffer for the processor lines of /proc/stat
}

func (n *node) open(proc string) error {
	n.big = make([]byte, 16<<10)
	files := []struct {
		fd     *int
		name   string
		needed bool
	}{
		{&n.stat, "stat", true},
		{&n.meminfo, "meminfo", true},
		{&n.loadavg, "loadavg", true},
		{&n.cpuPressure, "pressure/cpu", false},
		{&n.memoryPressure, "pressure/memory", false},
	}
	for _, f := range files {
		*f.fd = -1
	}
	for _, f := range files {
		path := filepath.Join(proc, f.name)
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			*f.fd = fd
		} else if f.needed {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

func (n *node) close() error {
	var errs []error
	for _, fd := range []*int{&n.stat, &n.meminfo, &n.loadavg, &n.cpuPressure, &n.memoryPressure} {
		if *fd >= 0 {
			errs = append(errs, unix.Close(*fd))
			*fd = -1
		}
	}
	return errors.Join(errs...)
}

func (n *node) read(now time.Time, buf []byte, out *Node) {
	*out = Node{}
	busy, cores, ok := n.readStat()
	out.Cores = cores
	if cores > 0 {
		n.cores = cores
	}
	if grown, elapsed, ok := n.cpu.advance(now, busy, ok); ok {
		out.CPU, out.CPUKnown = perSecond(grown, elapsed, n.cores)
	}
	out.MemoryTotal, out.MemoryAvailable, out.MemoryKnown = parseMeminfo(readFile(n.meminfo, buf))
	out.Load1, out.LoadKnown = parseLoad(readFile(n.loadavg, buf))
	out.CPUPressure = pressureOf(readFile(n.cpuPressure, buf))
	out.MemoryPressure = pressureOf(readFile(n.memoryPressure, buf))
}

// readStat reads the processor lines, which come first. Its buffer grows until it holds all of
// them.
func (n *node) readStat() (busy, cores int64, ok bool) {
	for {
		b := readFile(n.stat, n.big)
		busy, cores, whole, ok := parseStat(b)
		if whole || len(b) < len(n.big) || len(n.big) >= 1<<20 {
			return busy, cores, ok && whole
		}
		n.big = make([]byte, 2*len(n.big))
	}
}

func readFile(fd int, buf []byte) []byte {
	for fd >= 0 {
		n, err := unix.Pread(fd, buf, 0)
		if err == nil {
			return buf[:n]
		}
		if err != unix.EINTR {
			break
		}
	}
	return nil
}

// parseStat reads /proc/stat: the busy nanoseconds of all processors, and the number of processors.
// whole is false if the text ends before the processor lines do.
func parseStat(b []byte) (busy, cores int64, whole, ok bool) {
	for {
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			return 0, 0, false, false
		}
		line := b[:i]
		b = b[i+1:]
		if len(line) < 4 || string(line[:3]) != "cpu" {
			return busy, cores, true, ok
		}
		if line[3] == ' ' {
			busy, ok = parseBusy(line[4:])
			continue
		}
		cores++
	}
}

// parseBusy reads "user nice system idle iowait irq softirq steal guest guest_nice". Guest time is
// already included in user and nice.
func parseBusy(b []byte) (nanos int64, ok bool) {
	const user, nice, system, irq, softirq, fields = 0, 1, 2, 5, 6, 7
	var ticks int64
	for field := range fields {
		b = bytes.TrimLeft(b, " ")
		var n int64
		if n, b, ok = cgroup.ParseFirst(b); !ok || n > 1<<50 || (len(b) > 0 && b[0] != ' ') {
			return 0, false
		}
		switch field {
		case user, nice, system, irq, softirq:
			ticks += n
		}
	}
	return ticks * tickNanos, ticks < 1<<62/tickNanos
}

// parseMeminfo reads bytes from /proc/meminfo.
func parseMeminfo(b []byte) (total, available int64, ok bool) {
	total, ok1 := cgroup.ParseKey(b, "MemTotal:")
	available, ok2 := cgroup.ParseKey(b, "MemAvailable:")
	if !ok1 || !ok2 || total > 1<<50 || available > total {
		return 0, 0, false
	}
	return total << 10, available << 10, true
}

// parseLoad reads the first number of /proc/loadavg in thousandths.
func parseLoad(b []byte) (thousandths int64, ok bool) {
	n, rest, ok := cgroup.ParseFixed(b, 3)
	if !ok || len(rest) == 0 || rest[0] != ' ' {
		return 0, false
	}
	return n, true
}

func pressureOf(b []byte) Pressure {
	p, ok := cgroup.ParsePressure(b)
	if !ok {
		return Pressure{}
	}
	return Pressure{Avg10: p.Some.Avg10, Full: p.Full.Avg10, Known: true}
}
