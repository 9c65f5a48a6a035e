package engine_test

import (
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// The files in testdata are scripts of these commands. Each command makes turns until no work is
// left. It prints the replies, and the events as "TYPE CHANGE DETAIL object reference {resources}
// message". Events for resource managers end with their cause and owner.
//
//	node n1 cpu=4 memory=8Gi            # register a node, for the first time or again
//	node n1 cpu=4 key=a                 # the same with a key; copy=b: by a copy of its agent
//	silent n1                           # its gateway no longer hears it
//	leave n1 running=2                  # its agent has stopped; empty=yes: nothing runs there
//	gateway-lost gw                     # the gateway is gone
//	mode n1 draining                    # active, cordoned or draining
//	remove n1
//	submit a queue=root.batch count=3 cpu=1 memory=1Gi retry=delayed:2 delay=5s completing=30s
//	kill a
//	delete a
//	scale a count=5
//	report n1 a.work.0 running          # or: finished result=failed exit=3, attempt=2
//	report-node n1 7 ext-cpu=2 closed=hot  # report 7 of the QoS agent; lines of the body are
//	                                    # events: kind task rule before after
//	queues                              # lines: path max:cpu=4 guaranteed:cpu=2 maxjobs:1, and
//	                                    # strict:1m: the order, and how long a job is held back
//	settings requestEventsEnabled=true  # of the events
//	advance 30s                         # let time go by
//	explain a.work.0                    # a task; or a: a job; or root.batch: a queue
//	reload                              # forget everything and load the records again
//	reload maxinstances=1               # the same, with another setting of the chain
//	show jobs|tasks|nodes|queues
//
// Rewrite the expected output with -rewrite, and read the difference before you commit it.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		w := newScenario(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			w.t = t
			w.printed.Reset()
			w.run(d)
			return w.printed.String()
		})
	})
}

type scenario struct {
	t       *testing.T
	engine  *engine.Engine
	records *records
	now     int64
	nextID  uint64
	out     engine.Batch
	regs    map[string]uint64
	printed strings.Builder
	config  state.Config
}

var scenarioConfig = state.Config{MaxEnded: 3, KeepEnded: int64(time.Hour), TrustOwner: true}

func newScenario(t *testing.T) *scenario {
	w := &scenario{
		t: t, now: int64(1_000_000 * time.Second), records: newRecords(), regs: map[string]uint64{},
		config: scenarioConfig,
	}
	w.load()
	w.turn(nil)
	w.printed.Reset()
	return w
}

func (w *scenario) load() {
	s, err := w.records.load(w.config, w.now)
	if err != nil {
		w.t.Fatal(err)
	}
	w.engine = engine.New(engine.Config{Seed: 1}, s, 0, w.now)
}

func (w *scenario) turn(do engine.Operation) {
	var commands []engine.Command
	if do != nil {
		w.nextID++
		commands = []engine.Command{{ID: w.nextID, Do: do}}
	}
	for more := true; more; {
		var taken int
		taken, _, more = w.engine.Turn(w.now, commands, &w.out)
		commands = commands[taken:]
		if err := w.engine.State().Check(); err != nil {
			w.t.Fatal(err)
		}
		if err := w.records.commit(&w.out.Changes); err != nil {
			w.t.Fatal(err)
		}
		w.print()
	}
}

func (w *scenario) print() {
	for i := range w.out.Replies {
		r := &w.out.Replies[i]
		if r.Err != nil {
			fmt.Fprintf(&w.printed, "refused (%s): %v\n", plimsoll.CodeOf(r.Err), r.Err)
		}
	}
	for i := range w.out.Changes.Events {
		w.printed.WriteString(printed(&w.out.Changes.Events[i]) + "\n")
	}
	for i := range w.out.Changes.Requests {
		r := &w.out.Changes.Requests[i]
		fmt.Fprintf(&w.printed, "%s: %s, for %s\n", printed(&r.Event), r.Cause, r.Owner)
	}
}

func printed(e *plimsoll.Event) string {
	line := strings.TrimSuffix(fmt.Sprintf("%s %s %s %s", e.Type, e.Change, e.Detail, e.Object), " ")
	if e.Reference != "" {
		line += " " + e.Reference
	}
	if len(e.Resources) > 0 {
		line += " {" + e.Resources.String() + "}"
	}
	if e.Message != "" {
		line += " " + strconv.Quote(e.Message)
	}
	return line
}

func (w *scenario) explain(job, group string, index int32) {
	subject, err := w.engine.Subject(job, group, index)
	if err != nil {
		fmt.Fprintf(&w.printed, "refused (%s): %v\n", plimsoll.CodeOf(err), err)
		return
	}
	x, err := w.engine.View().Explain(&subject, "")
	if err != nil {
		w.t.Fatal(err)
	}
	fmt.Fprintf(&w.printed, "%s: %s: %s\n", x.Task.ID, x.Code, x.Summary)
	for _, step := range x.Steps {
		if step.Dropped > 0 {
			fmt.Fprintf(
				&w.printed, "  %s: %d remain, %d dropped %v\n", step.Stage, step.Remaining, step.Dropped, step.Reasons,
			)
		}
	}
}

// liveRecords are the records of a scenario with the statuses of the state, which are not all
// stored.
type liveRecords struct {
	*records
	s *state.State
}

func (r liveRecords) JobStatus(id string) (plimsoll.JobStatus, bool) {
	if j := r.s.Job(id); j != nil {
		return r.s.JobStatus(j), true
	}
	return plimsoll.JobStatus{}, false
}

func (r liveRecords) JobStatuses(queue string) iter.Seq[plimsoll.JobStatus] {
	return func(yield func(plimsoll.JobStatus) bool) {
		for _, id := range slices.Sorted(maps.Keys(r.statuses)) {
			status, ok := r.JobStatus(id)
			if !ok || status.State.Ended() || status.Queue != queue && !strings.HasPrefix(status.Queue, queue+".") {
				continue
			}
			if !yield(status) {
				return
			}
		}
	}
}

// explainWaiting prints what the tasks of a job or a queue wait for.
func (w *scenario) explainWaiting(job, queue string) {
	c, _ := w.engine.Copy()
	for !c.Continue(1) {
	}
	x, err := c.View(liveRecords{w.records, w.engine.State()}).ExplainWaiting(job, queue)
	if err != nil {
		fmt.Fprintf(&w.printed, "refused (%s): %v\n", plimsoll.CodeOf(err), err)
		return
	}
	fmt.Fprintf(&w.printed, "%d tasks of %d jobs wait in %s\n", x.Tasks, x.Jobs, x.Queue)
	for i := range x.Causes {
		c := &x.Causes[i]
		fmt.Fprintf(&w.printed, "%s: %d tasks of %d jobs %v, each %v, for %ds: %s\n", c.Cause.Code, c.Tasks, c.Jobs,
			c.Groups, c.Each, (w.now-c.Since)/int64(time.Second), c.Why)
		for _, way := range c.Unblock {
			fmt.Fprintf(&w.printed, "  %s\n", way)
		}
	}
	for _, q := range x.Queues {
		fmt.Fprintf(&w.printed, "%s: share %.2f, next %d: %s\n", q.Path, q.Share, q.Next, q.Why)
	}
}

func (w *scenario) run(d *datadriven.TestData) {
	var args []string
	options := map[string]string{}
	for _, a := range d.CmdArgs {
		if len(a.Vals) == 0 {
			args = append(args, a.Key)
		} else {
			options[a.Key] = strings.Join(a.Vals, ",")
		}
	}
	switch d.Cmd {
	case "node":
		w.node(args[0], options)
	case "silent":
		w.turn(&engine.NodeSilent{ID: args[0], Registration: w.engine.State().Node(args[0]).Registration})
	case "leave":
		n := w.engine.State().Node(args[0])
		running, _ := strconv.Atoi(options["running"]) // none without it
		empty := options["empty"] != ""
		w.turn(&engine.LeaveNode{Node: n.ID, Incarnation: n.Incarnation, Running: int32(running), Empty: empty})
	case "gateway-lost":
		w.turn(&engine.GatewayLost{Gateway: args[0]})
	case "mode":
		w.turn(&engine.SetNodeMode{ID: args[0], Mode: plimsoll.ParseNodeMode(args[1])})
	case "remove":
		w.turn(&engine.RemoveNode{ID: args[0]})
	case "submit":
		w.submit(args[0], options)
	case "kill":
		w.turn(&engine.KillJob{ID: args[0], Reason: options["reason"]})
	case "delete":
		w.turn(&engine.DeleteJob{ID: args[0]})
	case "scale":
		w.turn(&engine.ScaleJob{ID: args[0], Group: options["group"], Count: int32(w.number(options["count"]))})
	case "report":
		w.report(args, options)
	case "report-node":
		w.reportNode(args, options, d.Input)
	case "queues":
		w.turn(&engine.SetQueueConfig{Config: w.tree(d.Input)})
	case "settings":
		w.turn(&engine.SetEventSettings{Settings: options})
	case "advance":
		by, err := time.ParseDuration(args[0])
		if err != nil {
			w.t.Fatal(err)
		}
		w.now += int64(by)
		w.turn(nil)
	case "explain":
		w.turn(nil)
		switch {
		case strings.HasPrefix(args[0], plimsoll.RootQueue):
			w.explainWaiting("", args[0])
		case !strings.Contains(args[0], "."):
			w.explainWaiting(args[0], "")
		default:
			w.explain(w.taskName(args[0]))
		}
	case "reload":
		w.choose(options)
		w.load()
		w.turn(nil)
	case "show":
		w.show(args[0])
	default:
		w.t.Fatalf("unknown command %q", d.Cmd)
	}
}

// choose changes settings of the chain.
func (w *scenario) choose(options map[string]string) {
	if text := options["maxinstances"]; text != "" {
		settings := placement.ClusterDefault().Settings
		settings.MaxInstances = int(w.number(text))
		chain, err := placement.NewChain(placement.DefaultExpression(), placement.Stages(), nil, settings)
		if err != nil {
			w.t.Fatal(err)
		}
		w.config.Chain = chain
	}
}

func (w *scenario) number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

func (w *scenario) resources(options map[string]string) plimsoll.Resources {
	r := plimsoll.Resources{}
	for _, pair := range plimsoll.SortedPairs(options) {
		name := strings.ReplaceAll(pair[0], "gpu", "nvidia.com/gpu")
		if name != "cpu" && name != "memory" && name != "disk" && name != "nvidia.com/gpu" && !plimsoll.Extended(name) {
			continue
		}
		v, err := plimsoll.ParseQuantity(name, pair[1])
		if err != nil {
			w.t.Fatal(err)
		}
		r[name] = v
	}
	return r
}

func (w *scenario) node(id string, options map[string]string) {
	incarnation := uint64(1)
	if n := w.engine.State().Node(id); n != nil {
		incarnation = n.Incarnation
	}
	if text := options["incarnation"]; text == "most" {
		incarnation = math.MaxUint64
	} else if text != "" {
		incarnation = uint64(w.number(text))
	}
	node := plimsoll.Node{
		ID: id, Incarnation: incarnation, Capacity: w.resources(options), Key: options["key"], Peer: options["peer"],
	}
	if node.Key != "" {
		node.Session = fmt.Sprint(node.Key, incarnation, options["copy"])
	}
	w.turn(&engine.RegisterNode{Gateway: "gw", Node: node})
}

func (w *scenario) submit(id string, options map[string]string) {
	spec := &plimsoll.JobSpec{ID: id, Owner: "alice", Queue: "root.default", Token: options["token"]}
	if text := options["owner"]; text != "" {
		spec.Owner = text
	}
	if text := options["groups"]; text != "" {
		spec.OwnerGroups = strings.Split(text, "/")
	}
	if q := options["queue"]; q != "" {
		spec.Queue = q
	}
	g := plimsoll.GroupSpec{Name: "work", Count: 1, Command: []string{"true"}, Resources: w.resources(options)}
	if text := options["count"]; text != "" {
		g.Count = int32(w.number(text))
	}
	if kind, limit, ok := strings.Cut(options["retry"], ":"); ok {
		g.Retry.Kind, _ = plimsoll.ParseRetryKind(kind)
		g.Retry.Limit = int32(w.number(limit))
	}
	if text := options["delay"]; text != "" {
		delay, err := time.ParseDuration(text)
		if err != nil {
			w.t.Fatal(err)
		}
		g.Retry.InitialDelay = delay
	}
	if text := options["completing"]; text != "" {
		var err error
		if spec.Completing, err = time.ParseDuration(text); err != nil {
			w.t.Fatal(err)
		}
	}
	spec.Groups = []plimsoll.GroupSpec{g}
	w.turn(&engine.SubmitJob{Spec: spec})
}

func (w *scenario) taskName(id string) (job, group string, index int32) {
	parts := strings.Split(id, ".")
	return parts[0], parts[1], int32(w.number(parts[2]))
}

func (w *scenario) report(args []string, options map[string]string) {
	job, group, index := w.taskName(args[1])
	r := engine.Report{Job: job, Group: group, Index: index}
	r.State = plimsoll.ParseTaskState(strings.ToUpper(args[2][:1]) + args[2][1:])
	r.Attempt, r.Result, r.At = 1, plimsoll.ResultSucceeded, w.now
	if ref, ok := w.engine.State().FindTask(job, group, index); ok {
		r.Attempt = ref.Task().Attempt
	}
	if text := options["attempt"]; text != "" {
		r.Attempt = int32(w.number(text))
	}
	if text := options["exit"]; text != "" {
		r.ExitCode = int32(w.number(text))
	}
	for result := plimsoll.ResultSucceeded; result <= plimsoll.ResultOutOfDisk; result++ {
		if strings.ReplaceAll(result.String(), " ", "-") == options["result"] {
			r.Result = result
		}
	}
	incarnation := uint64(1)
	if n := w.engine.State().Node(args[0]); n != nil {
		incarnation = n.Incarnation
	}
	if text := options["incarnation"]; text != "" {
		incarnation = uint64(w.number(text))
	}
	w.turn(&engine.ReportTasks{Node: args[0], Incarnation: incarnation, Reports: []engine.Report{r}})
}

func (w *scenario) reportNode(args []string, options map[string]string, input string) {
	incarnation := uint64(1)
	if n := w.engine.State().Node(args[0]); n != nil {
		incarnation = n.Incarnation
	}
	if text := options["incarnation"]; text != "" {
		incarnation = uint64(w.number(text))
	}
	r := plimsoll.NodeReport{SchedulingReason: options["closed"], Extended: w.resources(options)}
	r.SchedulingDisabled = r.SchedulingReason != ""
	if text := options["others"]; text != "" { // milli-cores,MiB
		cpu, memory, _ := strings.Cut(text, ",")
		r.Occupied = &plimsoll.NodeUse{CPU: w.number(cpu), Memory: w.number(memory) << 20}
	}
	for line := range strings.Lines(input) {
		f := append(strings.Fields(line), "", "", "", "", "")
		e := plimsoll.QOSEvent{
			At: w.now, Task: strings.Trim(f[1], "-"), Rule: f[2], Metric: "cpu_total_usage", Before: f[3], After: f[4],
		}
		for kind := plimsoll.QOSRuleTriggered; kind <= plimsoll.QOSSchedulingEnabled; kind++ {
			if strings.ReplaceAll(kind.String(), " ", "-") == f[0] {
				e.Kind = kind
			}
		}
		if text := options["age"]; text != "" {
			e.At -= w.number(text) * int64(time.Second)
		}
		r.Events = append(r.Events, e)
	}
	w.turn(&engine.ReportNode{Node: args[0], Incarnation: incarnation, Sequence: uint64(w.number(args[1])), Report: r})
}

// tree reads lines of "path max:cpu=4,memory=1Gi guaranteed:cpu=2 maxjobs:1". Parents of named
// queues need no line. "users:alice/bob:cpu=2:3" is a limit of each of these users: resources, and
// perhaps jobs. "groups:" is the same of groups. "create" in a line of its own lets jobs make
// queues.
func (w *scenario) tree(input string) plimsoll.QueueConfig {
	root := plimsoll.QueueConfig{Name: plimsoll.RootQueue, Parent: true}
	for line := range strings.Lines(input) {
		fields := strings.Fields(line)
		if fields[0] == "create" {
			rules := []plimsoll.PlacementRule{{Name: "provided", Create: true}}
			root.Partition = &plimsoll.PartitionConfig{Rules: rules}
			continue
		}
		at := &root
		for _, name := range strings.Split(fields[0], ".")[1:] {
			at = childQueue(at, name)
		}
		for _, field := range fields[1:] {
			key, value, _ := strings.Cut(field, ":")
			if key == "users" || key == "groups" {
				at.Limits = append(at.Limits, w.limit(key, value))
				continue
			}
			if key == "parent" {
				at.Parent = true
				continue
			}
			options := map[string]string{}
			for pair := range strings.SplitSeq(value, ",") {
				name, amount, _ := strings.Cut(pair, "=")
				options[name] = amount
			}
			switch key {
			case "max":
				at.Max = w.resources(options)
			case "guaranteed":
				at.Guaranteed = w.resources(options)
			case "maxjobs":
				at.MaxJobs = int32(w.number(value))
			case "strict":
				at.Properties = map[string]string{
					plimsoll.PropertyOrder: "strict", plimsoll.PropertyOrderHold: value,
				}
			}
		}
	}
	return root
}

func (w *scenario) limit(key, text string) (l plimsoll.QueueLimit) {
	parts := append(strings.Split(text, ":"), "")
	names := strings.Split(parts[0], "/")
	if key == "users" {
		l.Users = names
	} else {
		l.Groups = names
	}
	if name, amount, some := strings.Cut(parts[1], "="); some {
		l.Max = w.resources(map[string]string{name: amount})
	}
	if parts[2] != "" {
		l.MaxJobs = int32(w.number(parts[2]))
	}
	return l
}

func childQueue(q *plimsoll.QueueConfig, name string) *plimsoll.QueueConfig {
	for i := range q.Queues {
		if q.Queues[i].Name == name {
			return &q.Queues[i]
		}
	}
	q.Queues = append(q.Queues, plimsoll.QueueConfig{Name: name})
	return &q.Queues[len(q.Queues)-1]
}

func (w *scenario) show(what string) {
	var c state.Changes
	s := w.engine.State()
	if err := s.All(&c, nil); err != nil {
		w.t.Fatal(err)
	}
	switch what {
	case "jobs":
		for i := range c.JobStatuses {
			st := &c.JobStatuses[i]
			fmt.Fprintf(&w.printed, "%s %s in %s", st.ID, st.State, st.Queue)
			if st.Reason != "" {
				fmt.Fprintf(&w.printed, " (%s)", st.Reason)
			}
			for _, g := range st.Groups {
				fmt.Fprintf(
					&w.printed, " %s of %d: %s", g.Name, g.Count, strings.Trim(fmt.Sprintf("%+v", g.Counts), "{}"),
				)
				if g.Wait.Code != plimsoll.WaitNone {
					fmt.Fprintf(&w.printed, " waits (%s): %s", g.Wait.Code, g.Wait)
				}
			}
			w.printed.WriteString("\n")
		}
	case "tasks":
		for i := range c.Tasks {
			t := &c.Tasks[i]
			fmt.Fprintf(&w.printed, "%s %s attempt=%d failures=%d node=%s result=%q exit=%d\n", plimsoll.TaskID(
				t.Job, t.Group, t.Index,
			), t.State,
				t.Attempt, t.Failures, t.Node, t.Result, t.ExitCode)
		}
	case "nodes":
		for i := range c.Nodes {
			n := &c.Nodes[i]
			st := &c.NodeStatuses[i]
			fmt.Fprintf(
				&w.printed, "%s %s ready=%t %s of %s in %d tasks", n.ID, n.Mode, n.Ready, st.Allocated, n.Capacity,
				st.Tasks,
			)
			if st.SickUntil != 0 {
				fmt.Fprintf(&w.printed, ", sick for another %s", time.Duration(st.SickUntil-w.now))
			}
			if n.Gate.Closed {
				fmt.Fprintf(&w.printed, ", closed: %s", n.Gate.Reason)
			}
			if n.OccupiedAt != 0 {
				fmt.Fprintf(&w.printed, ", others use %s", n.Occupied.Resources())
			}
			for _, e := range n.Evictions {
				fmt.Fprintf(
					&w.printed, ", keeps %s.%s away for another %s", e.Job, e.Group, time.Duration(e.Until-w.now),
				)
			}
			w.printed.WriteString("\n")
		}
	case "queues":
		for _, q := range c.QueueStatuses {
			fmt.Fprintf(&w.printed, "%s leaf=%t draining=%t jobs=%d running=%d waiting=%d allocated %s, pending %s\n", q.Path, q.Leaf, q.Draining, q.Jobs,
				q.Running, q.Waiting, q.Allocated, q.Pending)
		}
	default:
		w.t.Fatalf("show what? %q", what)
	}
}
