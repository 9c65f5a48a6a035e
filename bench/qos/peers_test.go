package qos

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/containerd/cgroups/v3/cgroup2"
	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/fs"
	"github.com/opencontainers/cgroups/fs2"

	"github.com/plimsoll-dev/plimsoll/internal/cgroup"
	"github.com/plimsoll-dev/plimsoll/internal/sample"
)

// use is the use of a group so far: nanoseconds of processor time, nanoseconds in which its quota
// held it up, and bytes without page cache.
type use struct{ cpu, throttled, memory int64 }

// method is a way to read all groups.
type method struct {
	name   string
	parses bool // it fills in the values, and does not only read the files
	opened func(testing.TB, *groups) (sweep func([]use) error)
}

var methods = []method{
	{"plimsoll", true, ours},
	{"os.ReadFile", false, readFile},
	{"containerd", true, containerd},
	{"opencontainers", true, opencontainers},
}

// ours is a Sampler. A Sampler reports the use between two sweeps. The sweeps are a second apart by
// its clock, so the use is in nanoseconds too.
func ours(tb testing.TB, gs *groups) func([]use) error {
	s, err := sample.New(sample.Config{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	for _, g := range gs.all {
		if err := s.Track(g.Name(), g); err != nil {
			tb.Fatal(err)
		}
	}
	var swept sample.Sweep
	now := time.Unix(1000, 0)
	return func(out []use) error {
		now = now.Add(time.Second)
		if err := s.Sweep(now, &swept); err != nil {
			return err
		}
		for i := range swept.Groups {
			g := &swept.Groups[i]
			if g.Gone {
				return fmt.Errorf("%s is gone", g.Key)
			}
			out[i].cpu += g.CPU
			out[i].throttled += g.Throttled
			out[i].memory = g.Memory
		}
		return nil
	}
}

// readFile reads the same files as ours, as often (memory.stat every eighth time), and does not
// parse them.
func readFile(_ testing.TB, gs *groups) func([]use) error {
	var often, seldom []string
	for _, g := range gs.all {
		memory := gs.dir(g, "memory")
		seldom = append(seldom, filepath.Join(memory, "memory.stat"))
		often = append(often, filepath.Join(gs.dir(g, "cpu"), "cpu.stat"))
		if gs.v2 {
			often = append(often, filepath.Join(memory, "memory.current"))
		} else {
			often = append(
				often, filepath.Join(gs.dir(g, "cpuacct"), "cpuacct.usage"),
				filepath.Join(memory, "memory.usage_in_bytes"),
			)
		}
	}
	turn := 0
	return func([]use) error {
		turn++
		for _, file := range often {
			if _, err := os.ReadFile(file); err != nil {
				return err
			}
		}
		for i := turn % sample.RefreshSweeps; i < len(seldom); i += sample.RefreshSweeps {
			if _, err := os.ReadFile(seldom[i]); err != nil {
				return err
			}
		}
		return nil
	}
}

func containerd(tb testing.TB, gs *groups) func([]use) error {
	if gs.v2 {
		return containerd2(tb, gs)
	}
	var loaded []cgroup1.Cgroup
	for _, g := range gs.all {
		loaded = append(loaded, loadV1(tb, gs, g, cgroup1.Cpu, cgroup1.Cpuacct, cgroup1.Memory))
	}
	return func(out []use) error {
		for i, g := range loaded {
			s, err := g.Stat()
			if err != nil {
				return err
			}
			out[i] = use{
				cpu: int64(s.CPU.Usage.Total), throttled: int64(s.CPU.Throttling.ThrottledTime),
				memory: int64(s.Memory.Usage.Usage - s.Memory.TotalInactiveFile - s.Memory.TotalActiveFile),
			}
		}
		return nil
	}
}

// loadV1 loads a group for some controllers.
func loadV1(tb testing.TB, gs *groups, g *cgroup.Group, names ...cgroup1.Name) cgroup1.Cgroup {
	hierarchy := func() ([]cgroup1.Subsystem, error) {
		var all []cgroup1.Subsystem
		for _, name := range names {
			one, err := cgroup1.SingleSubsystem(cgroup1.Default, name)()
			if err != nil {
				return nil, err
			}
			all = append(all, one...)
		}
		return all, nil
	}
	loaded, err := cgroup1.Load(cgroup1.StaticPath(gs.path(g)), cgroup1.WithHierarchy(hierarchy))
	if err != nil {
		tb.Fatal(err)
	}
	return loaded
}

func containerd2(tb testing.TB, gs *groups) func([]use) error {
	var loaded []*cgroup2.Manager
	for _, g := range gs.all {
		loaded = append(loaded, loadV2(tb, gs, g))
	}
	return func(out []use) error {
		for i, g := range loaded {
			s, err := g.StatFiltered(cgroup2.StatCPU | cgroup2.StatMemory)
			if err != nil {
				return err
			}
			out[i] = use{
				cpu: int64(s.CPU.UsageUsec) * 1000, throttled: int64(s.CPU.ThrottledUsec) * 1000,
				memory: int64(s.Memory.Usage - s.Memory.InactiveFile - s.Memory.ActiveFile),
			}
		}
		return nil
	}
}

func loadV2(tb testing.TB, gs *groups, g *cgroup.Group) *cgroup2.Manager {
	loaded, err := cgroup2.Load(gs.path(g))
	if err != nil {
		tb.Fatal(err)
	}
	return loaded
}

func opencontainers(tb testing.TB, gs *groups) func([]use) error {
	type manager interface {
		Stats(*cgroups.StatsOptions) (*cgroups.Stats, error)
	}
	prefix := "total_"
	if gs.v2 {
		prefix = ""
	}
	var managers []manager
	for _, g := range gs.all {
		var m manager
		var err error
		if config := (&cgroups.Cgroup{Resources: &cgroups.Resources{}}); gs.v2 {
			m, err = fs2.NewManager(config, gs.dir(g, ""))
		} else {
			m, err = fs.NewManager(
				config,
				map[string]string{
					"cpu": gs.dir(g, "cpu"), "cpuacct": gs.dir(g, "cpuacct"), "memory": gs.dir(g, "memory"),
				},
			)
		}
		if err != nil {
			tb.Fatal(err)
		}
		managers = append(managers, m)
	}
	return func(out []use) error {
		for i, m := range managers {
			s, err := m.Stats(&cgroups.StatsOptions{Controllers: cgroups.CPU | cgroups.Memory})
			if err != nil {
				return err
			}
			if s.MemoryStats.Stats == nil {
				return errors.New("nothing was read of memory")
			}
			out[i] = use{
				cpu: int64(s.CpuStats.CpuUsage.TotalUsage), throttled: int64(s.CpuStats.ThrottlingData.ThrottledTime),
				memory: int64(
					s.MemoryStats.Usage.Usage -
						s.MemoryStats.Stats[prefix+"inactive_file"] - s.MemoryStats.Stats[prefix+"active_file"],
				),
			}
		}
		return nil
	}
}
