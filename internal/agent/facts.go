package agent

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/disk"
)

// machine measures a machine. root stands before /proc and the mount points of cgroups.
type machine struct {
	root string
	cpus func() (int, error)                   // processors that this process may run on
	disk func(dir string) (int64, error)       // bytes of the file system that dir is on
	room func(dir string) (disk.Space, error)  // free space of it
	uts  func() (kernel, host string, _ error) // kernel release and host name
}

func thisMachine() machine {
	return machine{root: "/", cpus: affinity, disk: fileSystemBytes, room: disk.Measure, uts: uname}
}

// capacity measures the machine's resources for tasks.
//
// Cpu is the number of processors that the agent may use, or the least quota of its cgroups. Memory
// is the machine's, or the least limit of its cgroups. Disk is the size of the file system of dir.
// Its free space would shrink with the files of tasks at each start of the agent. Config.Capacity
// can name less.
func (m machine) capacity(dir string) (plimsoll.Resources, error) {
	cpus, err := m.cpus()
	if err != nil {
		return nil, fmt.Errorf("count the processors: %w", err)
	}
	memory, err := m.memTotal()
	if err != nil {
		return nil, fmt.Errorf("measure the memory: %w", err)
	}
	disk, err := m.disk(dir)
	if err != nil {
		return nil, fmt.Errorf("measure the disk of %s: %w", dir, err)
	}
	milli := int64(cpus) * 1000
	for _, g := range m.ownGroups() {
		if quota, ok := g.cpuQuota(); ok {
			milli = min(milli, quota)
		}
		if limit, ok := g.memoryLimit(); ok {
			memory = min(memory, limit)
		}
	}
	return plimsoll.Resources{
		plimsoll.CPU: max(milli, 1), plimsoll.Memory: min(memory, plimsoll.MaxAmount),
		plimsoll.Disk: min(disk, plimsoll.MaxAmount),
	}, nil
}

// attributes returns facts about the machine for placement and people.
func (m machine) attributes() (map[string]string, error) {
	kernel, host, err := m.uts()
	if err != nil {
		return nil, fmt.Errorf("ask the kernel for its name: %w", err)
	}
	boot, err := os.ReadFile(filepath.Join(m.root, "proc/sys/kernel/random/boot_id"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the boot id: %w", err)
	}
	all := map[string]string{
		"os": runtime.GOOS, "arch": runtime.GOARCH, "kernel": kernel, "hostname": host,
		"boot-id": strings.TrimSpace(string(boot)),
	}
	maps.DeleteFunc(all, func(_, value string) bool { return value == "" })
	return all, nil
}

func (m machine) memTotal() (int64, error) {
	data, err := os.ReadFile(filepath.Join(m.root, "proc/meminfo"))
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(data) {
		if rest, ok := bytes.CutPrefix(line, []byte("MemTotal:")); ok {
			fields := strings.Fields(string(rest))
			if len(fields) == 2 && fields[1] == "kB" {
				kib, err := strconv.ParseInt(fields[0], 10, 53)
				if err == nil {
					return kib << 10, nil
				}
			}
			return 0, fmt.Errorf("/proc/meminfo: %q is not understood", strings.TrimSpace(string(line)))
		}
	}
	return 0, errors.New("/proc/meminfo has no line MemTotal")
}

// group is one directory of a cgroup hierarchy, with this process in it or below it.
type group struct {
	dir string
	v2  bool
}

// ownGroups returns the cgroups of this process and their parents, as far as they are visible.
func (m machine) ownGroups() []group {
	membership, err := os.ReadFile(filepath.Join(m.root, "proc/self/cgroup"))
	if err != nil {
		return nil // no cgroups, so no limits
	}
	mounts, err := os.ReadFile(filepath.Join(m.root, "proc/self/mountinfo"))
	if err != nil {
		return nil
	}
	var groups []group
	for line := range strings.Lines(string(membership)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		point, below, ok := findMount(string(mounts), parts[1], parts[2])
		if !ok {
			continue
		}
		for at := below; ; at = path.Dir(at) {
			groups = append(groups, group{dir: filepath.Join(m.root, point, at), v2: parts[1] == ""})
			if at == "/" {
				break
			}
		}
	}
	return groups
}

// findMount finds the mount point of a hierarchy, and the cgroup's path below it. controllers is
// empty for version 2.
func findMount(mounts, controllers, cgroup string) (point, below string, ok bool) {
	for line := range strings.Lines(mounts) {
		before, after, found := strings.Cut(strings.TrimSpace(line), " - ")
		fields, system := strings.Fields(before), strings.Fields(after)
		if !found || len(fields) < 5 || len(system) < 3 {
			continue
		}
		if controllers == "" && system[0] != "cgroup2" ||
			controllers != "" && (system[0] != "cgroup" || !hasAll(system[2], controllers)) {
			continue
		}
		root := fields[3]
		switch {
		case root == "/":
			return fields[4], path.Clean("/" + cgroup), true
		case cgroup == root || strings.HasPrefix(cgroup, root+"/"):
			return fields[4], path.Clean("/" + strings.TrimPrefix(cgroup, root)), true
		}
		// Mounted from another namespace: only the mount point is visible.
		return fields[4], "/", true
	}
	return "", "", false
}

func hasAll(options, controllers string) bool {
	have := "," + options + ","
	for _, c := range strings.Split(controllers, ",") {
		if !strings.Contains(have, ","+c+",") {
			return false
		}
	}
	return true
}

// cpuQuota returns the group's bound on cpu in milli-cores.
func (g group) cpuQuota() (milli int64, ok bool) {
	var quota, period int64
	if g.v2 {
		fields := strings.Fields(g.read("cpu.max"))
		if len(fields) != 2 || fields[0] == "max" {
			return 0, false
		}
		quota, period = number(fields[0]), number(fields[1])
	} else {
		quota, period = number(g.read("cpu.cfs_quota_us")), number(g.read("cpu.cfs_period_us"))
	}
	if quota <= 0 || period <= 0 || quota > plimsoll.MaxAmount/1000 {
		return 0, false
	}
	return max(quota*1000/period, 1), true
}

func (g group) memoryLimit() (limit int64, ok bool) {
	name := "memory.limit_in_bytes"
	if g.v2 {
		name = "memory.max"
	}
	limit = number(g.read(name))
	return limit, limit > 0
}

func (g group) read(name string) string {
	data, err := os.ReadFile(filepath.Join(g.dir, name))
	if err != nil {
		return "" // the controller is not in this hierarchy, or this is its root
	}
	return strings.TrimSpace(string(data))
}

// number reads an amount. The result is 0, no bound, for "max", an empty string and other text.
func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func affinity() (int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		// More than 1024 processors do not fit the set; the runtime has counted them.
		return runtime.NumCPU(), nil //nolint:nilerr // see above
	}
	return set.Count(), nil
}

func fileSystemBytes(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return int64(min(st.Blocks*uint64(st.Bsize), uint64(plimsoll.MaxAmount))), nil
}

func uname() (kernel, host string, err error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "", "", err
	}
	return unix.ByteSliceToString(u.Release[:]), unix.ByteSliceToString(u.Nodename[:]), nil
}
