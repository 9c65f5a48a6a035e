package simulate

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
	"github.com/plimsoll-dev/plimsoll/internal/state"
)

// Times of a scenario. A request at 0 came six hours before the first step, so that no delay that
// counts from a request is still on.
const (
	scenarioBase  = int64(1_000_000) * second
	scenarioStart = scenarioBase + 6*3600*second
	// stays is how long a job waits for more tasks after its last one has ended, as in YuniKorn.
	stays = 30 * time.Second
)

// Difference is one thing that is not as a scenario expects.
type Difference struct {
	Step int    `json:"step"` // number of the step, from 1; 0: the queues
	What string `json:"what"`
	Want string `json:"want"`
	Got  string `json:"got"`
	// Unplayed says that a step could not be played. The expectations that follow then say nothing
	// about the scheduler.
	Unplayed bool `json:"unplayed,omitempty"`
}

// ParseQueues reads a queue file.
type ParseQueues func(name string, data []byte) (plimsoll.QueueConfig, error)

// player runs one scenario.
type player struct {
	*cluster
	scenario *Scenario
	parse    ParseQueues
	jobs     map[string]bool        // ids of the jobs that a step submits
	refused  map[string]error       // jobs that were refused
	groups   map[string][]taskGroup // by job: the groups of its specification
	nodes    map[string]*engine.RegisterNode
	modes    map[string]plimsoll.NodeMode // that the scenario wants
	order    []string                     // ids of nodes, as they joined
	held     bool                         // all nodes are closed until the scenario settles
	found    []Difference
	step     int
}

// taskGroup is a group of a job. One group of a scenario may be several, as its tasks may differ.
type taskGroup struct {
	name string // in the scenario
	spec plimsoll.GroupSpec
	step *TasksStep
	runs int32 // tasks that were asked for
}

// RunScenario runs a scenario through the production engine and returns the differences. A step
// that cannot be played, such as one for a node that never joined, is a difference too, and the
// last one.
func RunScenario(s *Scenario, parse ParseQueues, seed uint64) ([]Difference, error) {
	queues, err := parse(s.Name, []byte(s.Queues))
	if err != nil {
		refusal := Difference{What: "queues", Want: "taken", Got: "refused: " + err.Error()}
		return []Difference{refusal}, nil
	}
	c, err := newCluster(state.Config{}, queues, seed, scenarioBase)
	if err != nil {
		return nil, err
	}
	p := &player{
		cluster: c, scenario: s, parse: parse, jobs: map[string]bool{}, refused: map[string]error{},
		groups: map[string][]taskGroup{},
		nodes:  map[string]*engine.RegisterNode{}, modes: map[string]plimsoll.NodeMode{},
	}
	if err := p.prepare(); err != nil {
		p.unplayed("the step", "played", "refused: "+err.Error())
		return p.found, nil
	}
	for i := 0; i < len(s.Steps); {
		n := 1
		for s.Steps[i].asks() && i+n < len(s.Steps) && s.Steps[i+n].asks() {
			n++
		}
		p.step = i + 1
		if s.Steps[i].asks() {
			p.ask(s.Steps[i : i+n])
		} else {
			err = p.play(&s.Steps[i])
		}
		if err != nil {
			p.unplayed("the step", "played", "refused: "+err.Error())
			break
		}
		i += n
	}
	return p.found, nil
}

// asks reports whether the step asks for tasks.
func (s *Step) asks() bool { return s.Submit != nil || s.Add != nil }

// prepare finds the groups of each job. Those of a later step are submitted with the job, without
// tasks: a job gets no groups later.
func (p *player) prepare() error {
	for i := range p.scenario.Steps {
		for _, submit := range []*SubmitStep{p.scenario.Steps[i].Submit, p.scenario.Steps[i].Add} {
			if submit == nil {
				continue
			}
			p.jobs[submit.Job] = true
			for n := range submit.Tasks {
				if err := p.addGroup(submit.Job, &submit.Tasks[n]); err != nil {
					p.step = i + 1
					return err
				}
			}
		}
	}
	return nil
}

func (p *player) addGroup(job string, t *TasksStep) error {
	amounts, err := resources("resources", t.Resources)
	if err != nil {
		return err
	}
	g := taskGroup{name: t.Group, step: t, spec: plimsoll.GroupSpec{
		Name: t.Group, Command: []string{"true"}, Resources: amounts, Priority: t.Priority,
	}}
	if t.Node != "" {
		g.spec.Constraints.Nodes = []string{t.Node}
	}
	list := p.groups[job]
	for i := range list {
		if list[i].name == t.Group {
			g.spec.Name = t.Group + "-" + strconv.Itoa(len(list))
		}
	}
	p.groups[job] = append(list, g)
	return nil
}

// ask submits jobs and adds tasks, in the order of the times at which they were asked for.
func (p *player) ask(steps []Step) {
	p.hold()
	type asked struct {
		step *SubmitStep
		at   float64
		add  bool
		n    int
	}
	var list []asked
	for i := range steps {
		a := asked{step: steps[i].Submit, n: p.step + i}
		if a.step == nil {
			a.step, a.add = steps[i].Add, true
		}
		if a.at = a.step.At; len(a.step.Tasks) > 0 {
			a.at = slices.MinFunc(a.step.Tasks, func(x, y TasksStep) int { return compare(x.At, y.At) }).At
		}
		list = append(list, a)
	}
	slices.SortStableFunc(list, func(x, y asked) int { return compare(x.at, y.at) })
	for _, a := range list {
		p.now, p.step = max(p.now, scenarioBase+int64(a.at*float64(second))), a.n
		if a.add {
			p.add(a.step)
		} else {
			p.submit(a.step)
		}
	}
}

func compare(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func (p *player) submit(s *SubmitStep) {
	spec := &plimsoll.JobSpec{
		ID: s.Job, Owner: s.Owner, OwnerGroups: s.Groups, Queue: s.Queue, Tags: s.Tags, Completing: stays,
	}
	list := p.groups[s.Job]
	slices.SortStableFunc(list, func(a, b taskGroup) int { return compare(a.step.At, b.step.At) })
	for i := range list {
		g := &list[i]
		if g.of(s) {
			g.runs = g.step.Count
		}
		g.spec.Count = g.runs
		spec.Groups = append(spec.Groups, g.spec)
	}
	if err := firstError(p.do(&engine.SubmitJob{Spec: spec})); err != nil {
		p.refused[s.Job] = err
	}
}

// of reports whether the tasks of the group are asked for in a step.
func (g *taskGroup) of(s *SubmitStep) bool {
	for i := range s.Tasks {
		if g.step == &s.Tasks[i] {
			return true
		}
	}
	return false
}

// add asks for the tasks of a later step.
func (p *player) add(s *SubmitStep) {
	list := p.groups[s.Job]
	for i := range list {
		g := &list[i]
		if !g.of(s) {
			continue
		}
		g.runs = g.step.Count
		if err := firstError(p.do(&engine.ScaleJob{ID: s.Job, Group: g.spec.Name, Count: g.runs})); err != nil {
			p.unplayed("add to "+s.Job, "taken", "refused: "+err.Error())
		}
	}
}

func (p *player) differ(what, want, got string) {
	p.found = append(p.found, Difference{Step: p.step, What: what, Want: want, Got: got})
}

func (p *player) unplayed(what, want, got string) {
	p.found = append(p.found, Difference{Step: p.step, What: what, Want: want, Got: got, Unplayed: true})
}

// hold closes all nodes, until all that stands before the next settle is known to the engine.
func (p *player) hold() {
	if p.held {
		return
	}
	p.held = true
	for _, id := range p.order {
		p.do(&engine.SetNodeMode{ID: id, Mode: plimsoll.NodeCordoned})
	}
}

// settle opens the nodes and lets the engine run until nothing changes any more.
func (p *player) settle() {
	p.now = max(p.now, scenarioStart)
	var open []engine.Operation
	if p.held {
		for _, id := range p.order {
			if p.modes[id] == plimsoll.NodeActive {
				open = append(open, &engine.SetNodeMode{ID: id, Mode: plimsoll.NodeActive})
			}
		}
	}
	p.held = false
	p.do(open...)
}

// play runs a step that does not ask for tasks.
func (p *player) play(s *Step) error {
	switch {
	case s.Settle:
		p.settle()
		return nil
	case s.Wait != "":
		d, err := time.ParseDuration(s.Wait)
		if err != nil {
			return fmt.Errorf("wait: %w", err)
		}
		p.settle()
		p.advance(p.now + int64(d))
		return nil
	case s.Expect != nil:
		return p.compare(s.Expect)
	}
	p.hold()
	switch {
	case s.Node != nil:
		return p.join(s.Node)
	case s.Finish != nil:
		return p.finish(s.Finish)
	case s.Kill != "":
		return firstError(p.do(&engine.KillJob{ID: s.Kill, Reason: "removed"}))
	case s.Cordon != "":
		return p.setMode(s.Cordon, plimsoll.NodeCordoned)
	case s.Uncordon != "":
		return p.setMode(s.Uncordon, plimsoll.NodeActive)
	case s.Remove != "":
		p.order = slices.DeleteFunc(p.order, func(id string) bool { return id == s.Remove })
		delete(p.nodes, s.Remove)
		return firstError(p.do(
			&engine.LeaveNode{Node: s.Remove, Incarnation: 1, Empty: true}, &engine.RemoveNode{ID: s.Remove},
		))
	case s.Resize != nil:
		return p.resize(s.Resize)
	case s.External != nil:
		return p.external(s.External)
	case s.Reload != nil:
		p.reload(s.Reload)
	}
	return nil
}

// joined returns a node of the scenario.
func (p *player) joined(id string) (*engine.RegisterNode, error) {
	if p.nodes[id] == nil {
		return nil, plimsoll.Invalid("node", "there is no node %q at this step; let it join before", id)
	}
	return p.nodes[id], nil
}

func (p *player) setMode(id string, mode plimsoll.NodeMode) error {
	_, err := p.joined(id)
	p.modes[id] = mode
	return err
}

func (p *player) join(s *NodeStep) error {
	capacity, err := resources("capacity", s.Capacity)
	if err != nil {
		return err
	}
	ids := []string{s.ID}
	if s.Count > 0 {
		ids = nil
		for i := range s.Count {
			ids = append(ids, s.ID+strconv.Itoa(i+1))
		}
	}
	for _, id := range ids {
		if p.nodes[id] != nil {
			return plimsoll.Invalid("node.id", "%s has joined already; give another id, or use resize", id)
		}
		p.nodes[id], p.modes[id] = node(id, capacity, nil), plimsoll.NodeActive
		if s.Cordoned {
			p.modes[id] = plimsoll.NodeCordoned
		}
		p.order = append(p.order, id)
		err := firstError(p.do(p.nodes[id], &engine.SetNodeMode{ID: id, Mode: plimsoll.NodeCordoned}))
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *player) resize(s *NodeStep) error {
	capacity, err := resources("capacity", s.Capacity)
	if err != nil {
		return err
	}
	before, err := p.joined(s.ID)
	if err != nil {
		return err
	}
	changed := *before
	changed.Node.Capacity = capacity
	p.nodes[s.ID] = &changed
	return firstError(p.do(&changed))
}

// external keeps a part of a node back from the scheduler, as its agent would.
func (p *player) external(s *ExternalStep) error {
	used, err := resources("resources", s.Resources)
	if err != nil {
		return err
	}
	before, err := p.joined(s.Node)
	if err != nil {
		return err
	}
	changed := *before
	facts := &changed.Node.Facts
	facts.Reserve = map[string]float64{}
	for _, name := range used.Names() {
		if has := changed.Node.Capacity[name]; has > 0 {
			facts.Reserve[name] = min(float64(used[name])/float64(has), 0.999999)
		}
	}
	p.nodes[s.Node] = &changed
	return firstError(p.do(&changed))
}

func (p *player) reload(s *ReloadStep) {
	queues, err := p.parse(p.scenario.Name, []byte(s.Queues))
	if err == nil {
		err = firstError(p.do(&engine.SetQueueConfig{Config: queues}))
	}
	switch {
	case err == nil && s.Refused:
		p.differ("reload", "refused", "taken")
	case err != nil && !s.Refused:
		p.differ("reload", "taken", "refused: "+err.Error())
	}
}

func (p *player) finish(s *FinishStep) error {
	left := s.Count
	for _, g := range p.groups[s.Job] {
		if g.name != s.Group {
			continue
		}
		for index := int32(0); index < g.runs && left > 0; index++ {
			ref, ok := p.state().FindTask(s.Job, g.spec.Name, index)
			if !ok || ref.Task().State != plimsoll.TaskRunning {
				continue
			}
			t := p.state().TaskRecord(ref)
			p.report(&t, plimsoll.TaskFinished, plimsoll.ResultSucceeded)
			left--
		}
	}
	if left > 0 {
		p.unplayed("finish "+s.Job, fmt.Sprint(s.Count, " running tasks"), fmt.Sprint(s.Count-left))
	}
	return firstError(p.do())
}
