package engine_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/state"
)

// constrain adds constraints to some jobs.
func (w *world) constrain(spec *plimsoll.JobSpec) {
	if w.rng.IntN(3) == 0 {
		spec.Labels = map[string]string{"app": w.pick([]string{"db", "web"})}
	}
	for i := range spec.Groups {
		if w.rng.IntN(3) == 0 {
			w.constrainGroup(&spec.Groups[i])
		}
	}
}

func (w *world) constrainGroup(g *plimsoll.GroupSpec) {
	c, p := &g.Constraints, &g.Preferences
	for range 1 + w.rng.IntN(2) {
		switch w.rng.IntN(12) {
		case 0:
			c.Traits = w.traits()
		case 1:
			c.Near = append(c.Near, w.selector())
		case 2, 3:
			c.Far = append(c.Far, w.selector())
		case 4, 5:
			c.Spread = []plimsoll.Spread{{By: w.pick([]string{"rack", "node", "row"}), MaxSkew: 1 + w.rng.Int32N(2)}}
		case 6:
			c.Nodes = [][]string{{"n1*"}, {"n[0]", "n2", "n3"}, {"n?"}}[w.rng.IntN(3)]
		case 7:
			c.VolumesFrom = []string{w.pick(w.jobs) + ".g.0"}
		case 8:
			c.Class = map[string]float64{"cpu": 2}
		case 9:
			c.Where = w.pick([]string{`node.labels.rack == "r1"`, `node.capacity.cpu > 2000`, `node.id != "n2"`})
		case 10:
			c.Reservoir = plimsoll.ReservoirUse(w.rng.IntN(3))
		case 11:
			c.Networks = [][]string{{"admin"}}
			c.Platform.Min = map[string]string{"": "20260101T000000Z"}
		}
	}
	if w.rng.IntN(2) == 0 {
		p.Near, p.Far = []plimsoll.Selector{w.selector()}, []plimsoll.Selector{w.selector()}
		p.Spread = []plimsoll.Spread{{By: w.pick([]string{"rack", "node"})}}
		p.Strategy = plimsoll.Strategy(w.rng.IntN(5))
	}
}

func (w *world) selector() plimsoll.Selector {
	switch w.rng.IntN(3) {
	case 0:
		return plimsoll.Selector{Task: w.pick(w.jobs) + ".g." + strconv.Itoa(w.rng.IntN(2))}
	case 1:
		return plimsoll.Selector{Job: w.pick(w.jobs)}
	}
	return plimsoll.Selector{Label: w.pick([]string{"app=db", "app=web"})}
}

func (w *world) traits() map[string]plimsoll.Trait {
	return []map[string]plimsoll.Trait{
		{"ssd": {Flag: true}},
		{"arch": {Words: []string{"arm"}}},
		{"arch": {Words: []string{"x86", "arm"}}, "ssd": {Flag: true}},
	}[w.rng.IntN(3)]
}

// describe gives a node facts and labels, which change now and then.
func (w *world) describe(n *plimsoll.Node) {
	n.Attributes = map[string]string{"rack": w.pick([]string{"r1", "r2", "r3"})}
	if w.rng.IntN(2) == 0 {
		n.Attributes["row"] = w.pick([]string{"a", "b"})
	}
	if w.rng.IntN(5) == 0 {
		n.Facts.Traits = w.traits()
	}
	if w.rng.IntN(2) == 0 {
		n.Facts.Networks = map[string]bool{"admin": w.rng.IntN(4) > 0}
		n.Facts.Platform = w.pick([]string{"20250101T000000Z", "20260101T000000Z"})
	}
	if w.rng.IntN(6) == 0 {
		n.Facts.Overprovision = map[string]float64{"cpu": 2}
	}
	if w.rng.IntN(6) == 0 {
		n.Facts.Reserve = map[string]float64{"memory": 0.5}
	}
	n.Facts.Reservoir, n.Facts.Headnode = w.rng.IntN(6) == 0, w.rng.IntN(12) == 0
}

// checkPlaced checks the tasks that the turn has bound. Their nodes are open and satisfy the
// constraints, and no group is spread more unevenly than it allows.
func (w *world) checkPlaced() {
	s := w.engine.State()
	for _, id := range w.jobs {
		j := s.Job(id)
		if j == nil {
			continue
		}
		for i := range j.Groups {
			g := &j.Groups[i]
			var fresh []*state.Task
			for index := range g.Tasks {
				t := &g.Tasks[index]
				key := fmt.Sprint(t.ID, " ", j.Submitted)
				if t.State == plimsoll.TaskBound && w.seen[key] != t.Attempt {
					fresh = append(fresh, t)
				}
				w.seen[key] = t.Attempt
			}
			for _, t := range fresh {
				w.placed++
				why := unsuited(g.Spec, s.Node(t.Node))
				if slices.ContainsFunc(
					s.Node(t.Node).Evictions,
					func(e plimsoll.Eviction) bool { return e.Job == id && e.Group == g.Spec.Name },
				) {
					why = "the group was evicted from it"
				}
				if why != "" {
					w.t.Fatalf("task %s was bound to node %s: %s", t.ID, t.Node, why)
				}
			}
			for k := range g.Spec.Constraints.Spread {
				w.checkSpread(s, g, &g.Spec.Constraints.Spread[k], fresh)
			}
		}
	}
}

// unsuited says why a node's record does not satisfy a group's constraints; empty if it does.
func unsuited(spec *plimsoll.GroupSpec, n *state.Node) string {
	c := &spec.Constraints
	asked, has := slices.Sorted(maps.Keys(c.Traits)), slices.Sorted(maps.Keys(n.Facts.Traits))
	switch {
	case !n.Ready || n.Mode != plimsoll.NodeActive || n.Gate.Closed:
		return "it takes no tasks"
	case n.Facts.Headnode:
		return "it is a head node"
	case !slices.Equal(asked, has):
		return fmt.Sprintf("it has traits %v", has)
	case !maps.Equal(c.Class, n.Facts.Overprovision):
		return fmt.Sprintf("it over-provisions %v", n.Facts.Overprovision)
	case len(c.Networks) > 0 && !n.Facts.Networks["admin"]:
		return "its network is not up"
	case n.Facts.Platform < c.Platform.Min[""]:
		return "its platform is too old"
	case c.Reservoir == plimsoll.ReservoirNever && n.Facts.Reservoir, c.Reservoir == plimsoll.ReservoirOnly &&
		!n.Facts.Reservoir:
		return fmt.Sprintf("it is a reservoir node: %t", n.Facts.Reservoir)
	case c.Where == `node.labels.rack == "r1"` && n.Attributes["rack"] != "r1",
		c.Where == `node.capacity.cpu > 2000` && n.Capacity["cpu"] <= 2000,
		c.Where == `node.id != "n2"` && n.ID == "n2":
		return "it is not where it is asked for"
	case len(c.Nodes) > 0 && !slices.ContainsFunc(
		c.Nodes, func(p string) bool { return p == n.ID || p == "n?" || p == "n1*" && strings.HasPrefix(n.ID, "n1") },
	):
		return "it is not one of the nodes that are asked for"
	}
	for _, name := range asked {
		if !c.Traits[name].Matches(n.Facts.Traits[name]) {
			return "it has another value of trait " + name
		}
	}
	return ""
}

// checkSpread counts the tasks of a group by value of a label. The turn binds tasks one after the
// other, after all other changes. So the last task that came to a value left it at most as full as
// the constraint allows. Only values count that have a node which the group's other constraints
// allow. If those depend on tasks that come during the turn, the check does not apply: the allowed
// values at each binding are not known.
func (w *world) checkSpread(s *state.State, g *state.Group, spread *plimsoll.Spread, fresh []*state.Task) {
	if len(g.Spec.Constraints.Near)+len(g.Spec.Constraints.VolumesFrom) > 0 {
		return
	}
	if slices.ContainsFunc(fresh, func(t *state.Task) bool { return t.Attempt > 1 }) {
		return // it may avoid a node on which it failed, which then counts no value for it
	}
	value := func(n *state.Node) (string, bool) {
		if spread.By == "node" {
			return n.ID, true
		}
		v, ok := n.Attributes[spread.By]
		return v, ok
	}
	counts, compared := map[string]int32{}, map[string]bool{}
	for i := range 6 {
		n := s.Node("n" + strconv.Itoa(i))
		if n == nil {
			continue
		}
		if v, ok := value(n); ok && w.allows(s, g, n) {
			compared[v] = true
		}
	}
	for index := range g.Tasks {
		if t := &g.Tasks[index]; t.State.OnNode() {
			if v, ok := value(s.Node(t.Node)); ok {
				counts[v]++
			}
		}
	}
	lowest := int32(-1)
	for v := range compared {
		if lowest < 0 || counts[v] < lowest {
			lowest = counts[v]
		}
	}
	for _, t := range fresh {
		if v, ok := value(s.Node(t.Node)); !ok || lowest >= 0 && counts[v] > lowest+spread.MaxSkew {
			w.t.Fatalf(
				"task %s was bound to node %s, %s %q: %v of the group, and the fewest are %d", t.ID, t.Node, spread.By,
				v, counts, lowest,
			)
		}
	}
}

// allows reports whether the other constraints of a group surely allow a node. It looks at the
// node's record and size, the owner rules of the tests, and the far constraints.
func (w *world) allows(s *state.State, g *state.Group, n *state.Node) bool {
	job := g.Job.Spec
	away := func(e plimsoll.Eviction) bool { return e.Job == job.ID }
	if unsuited(g.Spec, n) != "" || slices.ContainsFunc(n.Evictions, away) {
		return false
	}
	for name, amount := range g.Spec.Resources {
		if float64(n.Capacity[name])*(1-n.Facts.Reserve[name]) < float64(amount) {
			return false
		}
	}
	rule, onRack := s.Chain().Settings.OwnerRules["bob"], n.Attributes["rack"] == "r2"
	if rule != "" && (job.Owner == "bob") != onRack {
		return false
	}
	return !slices.ContainsFunc(
		g.Spec.Constraints.Far, func(far plimsoll.Selector) bool { return w.holds(s, n.ID, far) },
	)
}

// holds reports whether a node has a task that matches a selector.
func (w *world) holds(s *state.State, node string, far plimsoll.Selector) bool {
	for _, id := range w.jobs {
		j := s.Job(id)
		if j == nil {
			continue
		}
		key, value, _ := strings.Cut(far.Label, "=")
		meant := id == far.Job || far.Label != "" && j.Spec.Labels[key] == value
		for i := range j.Groups {
			for k := range j.Groups[i].Tasks {
				t := &j.Groups[i].Tasks[k]
				if t.Node == node && t.State.OnNode() && (meant || t.ID == far.Task) {
					return true
				}
			}
		}
	}
	return false
}
