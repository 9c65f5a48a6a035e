// Package memory finds the memory limit of this process, and makes Go's collector respect it.
//
// Limit is the smallest limit of the control groups above the process, or the machine's memory if
// they have none. Keep sets Go's memory limit to nine tenths of it, so that the collector works
// harder before the kernel ends the process. The variable GOMEMLIMIT takes precedence.
//
//	bytes, kept := memory.Keep() // once, when the process starts
//
// The package reads a few small files of the kernel at each call, knows cgroup v1 and v2, and owns
// nothing. With v2 it sees only the groups below the mount. Inside a container whose runtime hides
// the groups above, their limits do not count. It writes no group and measures no use:
// internal/cgroup and internal/sample do that.
//
// Callers derive their bounds from Limit: internal/transport that of requests under way, and the
// state that of its tasks. The kernel's documents cgroup-v1 and cgroup-v2 are the design.
package memory

import (
	"bufio"
	"bytes"
	"io/fs"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// Limit returns the smallest memory limit of the control groups above this process, or the
// machine's memory if that is smaller. It is not known on a system without /proc.
func Limit() (bytes uint64, known bool) { return limitIn(os.DirFS("/")) }

// Keep sets Go's memory limit to nine tenths of Limit and returns it. kept is false if GOMEMLIMIT
// has set a limit, which stays, or if Limit is not known.
func Keep() (bytes uint64, kept bool) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return 0, false
	}
	limit, known := Limit()
	if !known {
		return 0, false
	}
	bytes = limit / 10 * 9
	debug.SetMemoryLimit(int64(min(bytes, math.MaxInt64)))
	return bytes, true
}

// limitIn is Limit for the file system of a machine.
func limitIn(machine fs.FS) (least uint64, known bool) {
	least = math.MaxUint64
	take := func(limit uint64, ok bool) {
		if ok && limit > 0 {
			least, known = min(least, limit), true
		}
	}
	take(total(machine))
	groups := groupsOf(machine)
	for _, m := range mountsOf(machine) {
		group, ok := groups[m.controller]
		if !ok {
			continue
		}
		for dir := m.dirOf(group); ; dir = path.Dir(dir) {
			if m.controller == memoryV1 {
				take(number(machine, path.Join(dir, "memory.limit_in_bytes")))
				take(line(machine, path.Join(dir, "memory.stat"), "hierarchical_memory_limit"))
			} else {
				take(number(machine, path.Join(dir, "memory.max")))
			}
			if dir == m.at || !strings.HasPrefix(dir, m.at+"/") {
				break
			}
		}
	}
	return least, known
}

// The kinds of hierarchy that limit memory, by the names of their controllers in
// /proc/self/cgroup.
const (
	memoryV1 = "memory"
	unified  = "" // cgroup v2
)

// mount is a mounted hierarchy.
type mount struct {
	controller string // memoryV1 or unified
	at         string // mount point, without the first slash
	root       string // group that is visible at the mount point
}

// dirOf returns the directory of a group. A group outside the root of the mount, whose place a
// runtime hides, is treated as the root.
func (m mount) dirOf(group string) string {
	below, ok := strings.CutPrefix(group+"/", strings.TrimSuffix(m.root, "/")+"/")
	if !ok || strings.Contains("/"+below, "/../") {
		return m.at
	}
	return path.Join(m.at, below)
}

// groupsOf reads the groups of this process, keyed by controller.
func groupsOf(machine fs.FS) map[string]string {
	groups := map[string]string{}
	for text := range lines(machine, "proc/self/cgroup") {
		fields := strings.SplitN(text, ":", 3) // 4:memory:/a/b; with v2 0::/a/b
		if len(fields) != 3 {
			continue
		}
		for controller := range strings.SplitSeq(fields[1], ",") {
			groups[controller] = fields[2]
		}
	}
	return groups
}

// mountsOf reads the mounted hierarchies that limit memory.
func mountsOf(machine fs.FS) []mount {
	var mounts []mount
	for text := range lines(machine, "proc/self/mountinfo") {
		before, after, ok := strings.Cut(text, " - ")
		fields, kind := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 5 || len(kind) < 3 {
			continue
		}
		m := mount{root: unescape(fields[3]), at: strings.TrimPrefix(unescape(fields[4]), "/")}
		switch kind[0] {
		case "cgroup2":
			m.controller = unified
		case "cgroup":
			if !hasOption(kind[2], memoryV1) {
				continue
			}
			m.controller = memoryV1
		default:
			continue
		}
		mounts = append(mounts, m)
	}
	return mounts
}

func hasOption(options, wanted string) bool {
	for option := range strings.SplitSeq(options, ",") {
		if option == wanted {
			return true
		}
	}
	return false
}

// unescape decodes the escapes of mountinfo.
func unescape(name string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(name)
}

// total reads the memory of the machine.
func total(machine fs.FS) (bytes uint64, ok bool) {
	kib, ok := line(machine, "proc/meminfo", "MemTotal:")
	return kib << 10, ok && kib < math.MaxUint64>>10
}

// number reads a file with one number. ok is false for the word max, which a group without limit
// has.
func number(machine fs.FS, name string) (n uint64, ok bool) {
	data, err := fs.ReadFile(machine, name)
	if err != nil {
		return 0, false
	}
	n, err = strconv.ParseUint(string(bytes.TrimSpace(data)), 10, 64)
	return n, err == nil
}

// line reads the number after the key at the beginning of a line.
func line(machine fs.FS, name, key string) (n uint64, ok bool) {
	for text := range lines(machine, name) {
		fields := strings.Fields(text)
		if len(fields) >= 2 && fields[0] == key {
			n, err := strconv.ParseUint(fields[1], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// lines returns the lines of a file; none if it cannot be read.
func lines(machine fs.FS, name string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		data, err := fs.ReadFile(machine, name)
		if err != nil {
			return
		}
		for scan := bufio.NewScanner(bytes.NewReader(data)); scan.Scan(); {
			if !yield(scan.Text()) {
				return
			}
		}
	}
}
