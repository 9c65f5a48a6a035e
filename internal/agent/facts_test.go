package agent

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/disk"
)

const (
	gib      = int64(1) << 30
	meminfo  = "MemTotal:       16777216 kB\nMemFree:         1000 kB\n"
	v2Mount  = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
	v1Mounts = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n" +
		"32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n" +
		"35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n" +
		"41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
	v1Own = "4:memory:/slice/agent\n1:cpu,cpuacct:/slice\n0::/\n"
)

func fakeMachine(t *testing.T, files map[string]string) machine {
	t.Helper()
	root := t.TempDir()
	for path, content := range files {
		write(t, filepath.Join(root, path), []byte(content))
	}
	return machine{
		root: root,
		cpus: func() (int, error) { return 8, nil },
		disk: func(string) (int64, error) { return 100 * gib, nil },
		room: func(dir string) (disk.Space, error) {
			return disk.Space{Path: dir, Free: 100 * gib, Size: 100 * gib}, nil
		},
		uts: func() (string, string, error) { return "6.1.0", "host1.example", nil },
	}
}

// TestCapacity reads machines with 8 processors and 16 GiB of memory.
func TestCapacity(t *testing.T) {
	tests := []struct {
		name        string
		files       map[string]string
		cpu, memory int64
	}{
		{"no cgroups at all", nil, 8000, 16 * gib},
		{"v2 without limits", map[string]string{
			"proc/self/cgroup": "0::/agent\n", "proc/self/mountinfo": v2Mount,
			"sys/fs/cgroup/agent/cpu.max": "max 100000\n", "sys/fs/cgroup/agent/memory.max": "max\n",
		}, 8000, 16 * gib},
		{"v2 with a quota of one and a half processors", map[string]string{
			"proc/self/cgroup": "0::/agent\n", "proc/self/mountinfo": v2Mount,
			"sys/fs/cgroup/agent/cpu.max": "150000 100000\n", "sys/fs/cgroup/agent/memory.max": "1073741824\n",
		}, 1500, gib},
		{"v2 with the limit on a group above", map[string]string{
			"proc/self/cgroup": "0::/slice/agent\n", "proc/self/mountinfo": v2Mount,
			"sys/fs/cgroup/slice/cpu.max": "400000 100000\n", "sys/fs/cgroup/slice/memory.max": "2147483648\n",
			"sys/fs/cgroup/slice/agent/memory.max": "4294967296\n",
		}, 4000, 2 * gib},
		{"v2 in a container that sees its own group as the root", map[string]string{
			"proc/self/cgroup":      "0::/\n",
			"proc/self/mountinfo":   "30 23 0:26 /docker/ab /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
			"sys/fs/cgroup/cpu.max": "200000 100000\n",
		}, 2000, 16 * gib},
		{"v2 in a container that sees the path on the host", map[string]string{
			"proc/self/cgroup":            "0::/docker/ab/agent\n",
			"proc/self/mountinfo":         "30 23 0:26 /docker/ab /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
			"sys/fs/cgroup/agent/cpu.max": "100000 100000\n",
		}, 1000, 16 * gib},
		{"v1 and a v2 hierarchy without controllers", map[string]string{
			"proc/self/cgroup": v1Own, "proc/self/mountinfo": v1Mounts,
			"sys/fs/cgroup/cpu,cpuacct/slice/cpu.cfs_quota_us":        "250000\n",
			"sys/fs/cgroup/cpu,cpuacct/slice/cpu.cfs_period_us":       "100000\n",
			"sys/fs/cgroup/memory/slice/agent/memory.limit_in_bytes":  "3221225472\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":              "9223372036854771712\n",
			"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us":              "-1\n",
			"sys/fs/cgroup/memory/slice/agent/memory.usage_in_bytes":  "1\n",
			"sys/fs/cgroup/memory/elsewhere/memory.limit_in_bytes":    "1\n",
			"sys/fs/cgroup/cpu,cpuacct/slice/elsewhere/cpu.cfs_quota": "1\n",
		}, 2500, 3 * gib},
		{"v1 without a quota", map[string]string{
			"proc/self/cgroup": v1Own, "proc/self/mountinfo": v1Mounts,
			"sys/fs/cgroup/cpu,cpuacct/slice/cpu.cfs_quota_us":  "-1\n",
			"sys/fs/cgroup/cpu,cpuacct/slice/cpu.cfs_period_us": "100000\n",
		}, 8000, 16 * gib},
		{"junk in the limits is no limit", map[string]string{
			"proc/self/cgroup": "junk\n0::/a\n", "proc/self/mountinfo": "junk\n\n" + v2Mount,
			"sys/fs/cgroup/a/cpu.max": "abc def\n", "sys/fs/cgroup/a/memory.max": "-7\n",
		}, 8000, 16 * gib},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			files := map[string]string{"proc/meminfo": meminfo}
			for path, content := range test.files {
				files[path] = content
			}
			got, err := fakeMachine(t, files).capacity("/")
			if err != nil {
				t.Fatal(err)
			}
			want := plimsoll.Resources{plimsoll.CPU: test.cpu, plimsoll.Memory: test.memory, plimsoll.Disk: 100 * gib}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("capacity (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCapacityNeedsToKnowTheMemory(t *testing.T) {
	for _, content := range []string{"", "MemTotal: many kB\n", "MemFree: 5 kB\n"} {
		if got, err := fakeMachine(t, map[string]string{"proc/meminfo": content}).capacity("/"); err == nil {
			t.Errorf("meminfo %q: capacity %v, want an error", content, got)
		}
	}
}

func TestAttributes(t *testing.T) {
	m := fakeMachine(t, map[string]string{"proc/sys/kernel/random/boot_id": "11-22\n"})
	got, err := m.attributes()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"os": "linux", "kernel": "6.1.0", "hostname": "host1.example", "boot-id": "11-22",
	} {
		if got[name] != want {
			t.Errorf("attribute %s is %q, want %q", name, got[name], want)
		}
	}
	if got["arch"] == "" {
		t.Error("attribute arch is missing")
	}
}

func TestThisMachineHasSomething(t *testing.T) {
	got, err := thisMachine().capacity(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{plimsoll.CPU, plimsoll.Memory, plimsoll.Disk} {
		if got[name] <= 0 {
			t.Errorf("%s is %d", name, got[name])
		}
	}
	t.Logf("this machine: %s", got)
}
