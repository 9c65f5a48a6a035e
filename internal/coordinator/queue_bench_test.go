package coordinator

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
)

// broadTree returns a configuration with a number of parents and a number of leaves below each, and
// the paths of the leaves. One parent is the root.
func broadTree(parents, leaves int) (c plimsoll.QueueConfig, paths []string) {
	c = plimsoll.QueueConfig{Name: plimsoll.RootQueue, Parent: true}
	for i := range parents {
		at, path := &c, plimsoll.RootQueue
		if parents > 1 {
			name := fmt.Sprintf("team%02d", i)
			c.Queues = append(c.Queues, plimsoll.QueueConfig{Name: name, Parent: true})
			at, path = &c.Queues[i], path+"."+name
		}
		for j := range leaves {
			name := fmt.Sprintf("leaf%03d", j)
			at.Queues = append(at.Queues, plimsoll.QueueConfig{Name: name})
			paths = append(paths, path+"."+name)
		}
	}
	return c, paths
}

func (f *fleet) configure(b *testing.B, c plimsoll.QueueConfig) {
	b.Helper()
	c.Queues = append(c.Queues, plimsoll.QueueConfig{Name: "default"}) // where the filler runs
	f.turn(b, &engine.SetQueueConfig{Config: c})
}

// BenchmarkTrees places some 100,000 tasks on 10,000 nodes that are 80 % full, in trees of
// different breadth and depth. It counts whole turns with encoding, as BenchmarkCycle does. With
// limits the jobs of each leaf are in fair order, and each of 100 users has a limit there and at
// the root. All of them stay below it.
func BenchmarkTrees(b *testing.B) {
	for _, shape := range []struct{ parents, leaves int }{{1, 1}, {1, 100}, {1, 992}, {31, 32}} {
		name := fmt.Sprintf("leaves=%dx%d", shape.parents, shape.leaves)
		config, leaves := broadTree(shape.parents, shape.leaves)
		b.Run(name, func(b *testing.B) { placeInTree(b, config, leaves) })
		limit(&config)
		b.Run(name+"/limits", func(b *testing.B) { placeInTree(b, config, leaves) })
	}
}

// limit gives the root and all leaves limits of users, and the leaves fair order.
func limit(c *plimsoll.QueueConfig) {
	if c.Name == plimsoll.RootQueue || len(c.Queues) == 0 {
		c.Limits = []plimsoll.QueueLimit{{
			Users: []string{"*"}, Max: plimsoll.Resources{"cpu": 1e9, "memory": 1 << 52}, MaxJobs: 1000,
		}}
	}
	if len(c.Queues) == 0 {
		c.Properties = map[string]string{plimsoll.PropertySort: "fair"}
	}
	for i := range c.Queues {
		limit(&c.Queues[i])
	}
}

func placeInTree(b *testing.B, config plimsoll.QueueConfig, leaves []string) {
	const nodes, users = 10_000, 100
	request := plimsoll.Resources{"cpu": 1000, "memory": 4 * gib}
	for range b.N {
		b.StopTimer()
		f := newFleet(b, nodes, 80)
		f.configure(b, config)
		f.setModes(b, nodes, plimsoll.NodeCordoned)
		tasks := 0
		for j := 0; tasks < 99_200 || j%len(leaves) != 0; j++ { // equally many in each leaf
			job := spec(fmt.Sprintf("job-%04d", j), leaves[j%len(leaves)], 100, request)
			job.Spec.Owner = fmt.Sprintf("user-%02d", j%users)
			f.turn(b, job)
			tasks += 100
		}
		commands := f.modes(nodes, plimsoll.NodeActive)
		b.StartTimer()
		if bound := f.turn(b, commands...); bound != tasks {
			b.Fatalf("%d of %d tasks were bound", bound, tasks)
		}
		b.ReportMetric(float64(tasks)*float64(b.N)/b.Elapsed().Seconds(), "placements/s")
	}
}

// crowd is a fleet of 5,000 nodes that are almost full, with 10,000 different waiting requests in
// 992 leaves. None of the requests fits on a node.
type crowd struct {
	*fleet
	rng    *rand.Rand
	leaves []string
	sets   int // of constraints
	n      int
}

const crowdNodes, crowdSize = 5000, 10_000

func newCrowd(b *testing.B, sets, size int) *crowd {
	b.Helper()
	c := &crowd{fleet: newFleet(b, 0, 0), rng: rand.New(rand.NewPCG(1, 1)), sets: sets}
	var config plimsoll.QueueConfig
	config, c.leaves = broadTree(31, 32)
	c.configure(b, config)
	for i := range crowdNodes {
		c.turn(b, &engine.RegisterNode{Gateway: "gw", Node: plimsoll.Node{
			ID: fmt.Sprintf("node-%05d", i), Incarnation: 1, Attributes: map[string]string{"rack": fmt.Sprint(i % 100)},
			Capacity: plimsoll.Resources{"cpu": 65_000, "memory": 256 * gib, "disk": 4096 * gib},
		}})
	}
	c.submit(b, "crowd", "root.default", crowdNodes*50, plimsoll.Resources{"cpu": 1280, "memory": 5 * gib})
	for range size {
		c.wait(b)
	}
	return c
}

// wait submits one more request that fits on no node.
func (c *crowd) wait(b *testing.B) {
	b.Helper()
	c.n++
	do := spec(fmt.Sprintf("wait-%d", c.n), c.leaves[c.n%len(c.leaves)], 1, plimsoll.Resources{
		"cpu": 4000 + c.rng.Int64N(60_000), "memory": 20*gib + c.rng.Int64N(230*gib),
	})
	if c.sets > 1 {
		do.Spec.Groups[0].Constraints.Where = fmt.Sprintf("node.labels.rack == %q", fmt.Sprint(c.n%c.sets))
	}
	if bound := c.turn(b, do); bound != 0 {
		b.Fatalf("%d tasks were bound", bound)
	}
}

// BenchmarkCrowd measures the cost of 10,000 different requests that fit on no node. It measures
// one more of them, an empty turn, a turn in which 100 tasks end and start, and one task that fits.
// The time of an end without them is the "ends=100" of no constraints.
func BenchmarkCrowd(b *testing.B) {
	alone := newCrowd(b, 1, 0)
	alone.ends(b, "constraints=0/")
	for _, sets := range []int{1, 100} {
		c := newCrowd(b, sets, crowdSize)
		name := fmt.Sprintf("constraints=%d/", sets)
		b.Run(name+"one-more", func(b *testing.B) {
			for range b.N {
				c.wait(b)
			}
		})
		b.Run(name+"turn", func(b *testing.B) {
			for range b.N {
				c.turn(b, &engine.NodeSilent{ID: "nobody"})
			}
		})
		c.ends(b, name)
		placed := 0
		b.Run(name+"placeable", func(b *testing.B) {
			for range b.N {
				placed++
				c.submit(
					b, fmt.Sprint("small-", c.n, "-", placed), c.leaves[placed%len(c.leaves)], 1,
					plimsoll.Resources{"cpu": 10, "memory": 1 << 20},
				)
			}
		})
	}
}

// ends measures a turn in which 100 tasks end and start again.
func (c *crowd) ends(b *testing.B, name string) {
	b.Helper()
	ended := 0
	b.Run(name+"ends=100", func(b *testing.B) {
		for range b.N {
			c.end(b, &ended, 100)
		}
		b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*100), "µs/end")
	})
}

// BenchmarkBacklog ends 100 tasks of a full fleet, for which jobs of 100 tasks wait in 992 leaves
// in fair order. A turn costs what it changes: it is to take as long beside 1,000,000 waiting tasks
// as beside 100,000.
func BenchmarkBacklog(b *testing.B) {
	for _, jobs := range []int{1000, 10_000} {
		b.Run(fmt.Sprintf("waiting=%d", jobs*100), func(b *testing.B) {
			c := &crowd{fleet: newFleet(b, 0, 0)}
			var config plimsoll.QueueConfig
			config, c.leaves = broadTree(1, 992)
			limit(&config)
			c.configure(b, config)
			for i := range crowdNodes {
				c.turn(b, &engine.RegisterNode{Gateway: "gw", Node: plimsoll.Node{
					ID: fmt.Sprintf("node-%05d", i), Incarnation: 1,
					Capacity: plimsoll.Resources{"cpu": 64_000, "memory": 256 * gib, "disk": 4096 * gib},
				}})
			}
			request := plimsoll.Resources{"cpu": 1280, "memory": 5 * gib}
			c.submit(b, "crowd", "root.default", crowdNodes*50, request)
			for i := range jobs {
				job := spec(fmt.Sprintf("waits-%05d", i), c.leaves[i%len(c.leaves)], 100, request)
				job.Spec.Owner = fmt.Sprintf("user-%02d", i%100)
				if bound := c.turn(b, job); bound != 0 {
					b.Fatalf("%d tasks were bound", bound)
				}
			}
			ended := 0
			for b.Loop() {
				c.end(b, &ended, 100)
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*100), "µs/end")
		})
	}
}

// end ends some of the tasks that fill the nodes, which are placed again.
func (c *crowd) end(b *testing.B, from *int, n int) {
	b.Helper()
	job := c.engine.State().Job("crowd")
	commands := make([]engine.Operation, n)
	for i := range commands {
		index := (*from*7919 + 13) % len(job.Groups[0].Tasks)
		*from++
		t := &job.Groups[0].Tasks[index]
		r := engine.Report{Job: "crowd", Group: "work", Index: int32(index)}
		r.Attempt, r.State, r.Result = t.Attempt, plimsoll.TaskFinished, plimsoll.ResultPreempted
		commands[i] = &engine.ReportTasks{Node: t.Node, Incarnation: 1, Reports: []engine.Report{r}}
	}
	c.turn(b, commands...)
}

// BenchmarkFullQueue ends tasks below one queue at its maximum, for which equal lanes wait in one
// leaf or in 992. Most of the time is that of a turn that ends and binds a task, with its events
// and encoding. The difference between few and many lanes is their cost.
func BenchmarkFullQueue(b *testing.B) {
	for _, n := range []struct {
		leaves, lanes int
		beside        bool // a small request waits in a leaf that is full by itself
	}{{1, 200, false}, {1, 10_000, false}, {992, 10_000, false}, {992, 10_000, true}} {
		leaves := n.leaves
		b.Run(fmt.Sprintf("leaves=%d/lanes=%d/beside=%t", leaves, n.lanes, n.beside), func(b *testing.B) {
			f := newFleet(b, 1000, 0)
			f.placed = []plimsoll.Task{}
			config, paths := broadTree(1, leaves)
			for i := range paths {
				paths[i] = "root.full." + paths[i][len("root."):]
			}
			config.Name, config.Max = "full", plimsoll.Resources{"cpu": 100_000}
			if n.beside {
				config.Queues = append(
					config.Queues, plimsoll.QueueConfig{Name: "tight", Max: plimsoll.Resources{"cpu": 5}},
				)
			}
			f.configure(
				b, plimsoll.QueueConfig{Name: plimsoll.RootQueue, Parent: true, Queues: []plimsoll.QueueConfig{config}},
			)
			if n.beside {
				f.turn(b, spec("beside", "root.full.tight", 1, plimsoll.Resources{"cpu": 10}))
			}
			for i := range n.lanes {
				f.turn(
					b,
					spec(
						fmt.Sprintf("job-%05d", i), paths[i%len(paths)], 10,
						plimsoll.Resources{"cpu": 1000, "memory": gib},
					),
				)
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				t := &f.placed[i]
				r := engine.Report{Job: t.Job, Group: t.Group, Index: t.Index}
				r.Attempt, r.State, r.Result = t.Attempt, plimsoll.TaskFinished, plimsoll.ResultPreempted
				if bound := f.turn(
					b, &engine.ReportTasks{Node: t.Node, Incarnation: 1, Reports: []engine.Report{r}},
				); bound != 1 {
					b.Fatalf("%d tasks were bound", bound)
				}
			}
		})
	}
}
