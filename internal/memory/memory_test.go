package memory

import (
	"math"
	"os"
	"runtime/debug"
	"testing"
	"testing/fstest"
)

const (
	gib  = 1 << 30
	ram  = "MemTotal:       16777216 kB\nMemFree:         1 kB\n"
	v2   = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
	v1   = "31 23 0:28 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
	none = "9223372036854771712\n" // a group of v1 without limit
)

// machine returns a file system of files, given as pairs of name and text.
func machine(pairs ...string) fstest.MapFS {
	files := fstest.MapFS{"proc/meminfo": {Data: []byte(ram)}}
	for i := 0; i < len(pairs); i += 2 {
		files[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1])}
	}
	return files
}

func TestLimitIsTheSmallestOfTheGroupsAbove(t *testing.T) {
	const root = "sys/fs/cgroup/"
	for name, test := range map[string]struct {
		files fstest.MapFS
		want  uint64
	}{
		"no groups: the machine's": {machine(), 16 * gib},
		"v2, its own": {machine("proc/self/mountinfo", v2, "proc/self/cgroup", "0::/a/b\n",
			root+"a/b/memory.max", "2147483648\n", root+"a/memory.max", "max\n"), 2 * gib},
		"v2, one above": {machine("proc/self/mountinfo", v2, "proc/self/cgroup", "0::/a/b/c\n",
			root+"a/b/c/memory.max", "max\n", root+"a/b/memory.max", "4294967296\n",
			root+"a/memory.max", "1073741824\n"), gib},
		"v2, not of a group beside": {machine("proc/self/mountinfo", v2, "proc/self/cgroup", "0::/a\n",
			root+"a/memory.max", "max\n", root+"b/memory.max", "1073741824\n"), 16 * gib},
		"v2, of a container": {machine("proc/self/mountinfo", v2, "proc/self/cgroup", "0::/\n",
			root+"memory.max", "3221225472\n"), 3 * gib},
		"v2, outside of the namespace": {machine("proc/self/mountinfo", v2, "proc/self/cgroup", "0::/../other\n",
			root+"memory.max", "3221225472\n"), 3 * gib},
		"v1, one above": {machine("proc/self/mountinfo", v1, "proc/self/cgroup", "4:cpu,memory:/a/b\n3:cpuset:/\n",
			root+"memory/a/b/memory.limit_in_bytes", none,
			root+"memory/a/memory.limit_in_bytes", "2147483648\n"), 2 * gib},
		"v1, above what is mounted": {machine(
			"proc/self/mountinfo", "35 31 0:32 /docker/x /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
			"proc/self/cgroup", "4:memory:/docker/x\n", root+"memory/memory.limit_in_bytes", none,
			root+"memory/memory.stat", "cache 1\nhierarchical_memory_limit 1073741824\n"), gib},
		"v1 with v2 beside it": {machine(
			"proc/self/mountinfo", v1+"41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
			"proc/self/cgroup", "4:memory:/a\n0::/a\n",
			root+"memory/a/memory.limit_in_bytes", "2147483648\n"), 2 * gib},
		"no limit of v1 is above the machine's": {machine("proc/self/mountinfo", v1, "proc/self/cgroup", "4:memory:/\n",
			root+"memory/memory.limit_in_bytes", none), 16 * gib},
		"a mount with a space": {machine("proc/self/mountinfo", `30 23 0:26 / /my\040groups rw - cgroup2 cgroup2 rw`,
			"proc/self/cgroup", "0::/a\n", "my groups/a/memory.max", "1073741824\n"), gib},
		"nonsense is left out": {machine("proc/self/mountinfo", "x\n - \n"+v2, "proc/self/cgroup", "x\n0::/a\n",
			root+"a/memory.max", "-1\n", root+"memory.max", "0\n"), 16 * gib},
	} {
		if got, known := limitIn(test.files); got != test.want || !known {
			t.Errorf("%s: %d (known: %v), want %d", name, got, known, test.want)
		}
	}
}

func TestLimitIsNotKnownWithoutProc(t *testing.T) {
	if got, known := limitIn(fstest.MapFS{}); known {
		t.Errorf("the limit is %d on a machine that says nothing", got)
	}
}

func TestGoKeepsToNineTenthsOfTheLimit(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	t.Setenv("GOMEMLIMIT", "")
	limit, known := Limit()
	if !known {
		t.Skip("this machine does not say how much memory it has")
	}
	bytes, kept := Keep()
	if now := debug.SetMemoryLimit(-1); !kept || bytes != limit/10*9 || now != int64(bytes) {
		t.Errorf("Go's limit is %d and Keep returned %d, %v; want nine tenths of %d", now, bytes, kept, limit)
	}
}

func TestTheVariableIsStronger(t *testing.T) {
	before := debug.SetMemoryLimit(math.MaxInt64)
	defer debug.SetMemoryLimit(before)
	t.Setenv("GOMEMLIMIT", "1GiB")
	if bytes, kept := Keep(); kept || debug.SetMemoryLimit(-1) != math.MaxInt64 {
		t.Errorf("Keep set %d beside GOMEMLIMIT=%s", bytes, os.Getenv("GOMEMLIMIT"))
	}
}
