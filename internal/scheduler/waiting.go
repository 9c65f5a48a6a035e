package scheduler

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/queue"
	"github.com/plimsoll-dev/plimsoll/placement"
)

const (
	// maxWaitCauses bounds the causes in one answer; those of the most tasks come first.
	maxWaitCauses = 50
	// maxPlacedCauses bounds the causes of one answer for which all nodes are asked.
	maxPlacedCauses = 20
	// maxWaitGroups bounds the groups that one cause names.
	maxWaitGroups = 10
	// maxWaitTasks bounds the tasks that one answer looks at one by one.
	maxWaitTasks = 100_000
)

// Waiting says what the tasks of a job, or of a queue and all below it, wait for.
type Waiting struct {
	Job    string // empty: it is about a queue
	Queue  string
	Tasks  int64          // waiting tasks
	Jobs   int64          // jobs that have some
	Causes []WaitingCause // those of the most tasks first; at most maxWaitCauses
	More   int            // causes that are left out
	Queues []QueueTurn    // of a queue: it and all below it, in the order of their paths

	left int32 // tasks that may still be looked at
}

// WaitingCause is a cause that waiting tasks have in common. Tasks that wait for nodes have one
// only if they also ask for the same.
type WaitingCause struct {
	Cause  plimsoll.WaitCause
	Each   plimsoll.Resources // what one task asks for, if all ask for the same; otherwise nil
	Tasks  int64
	Jobs   int64
	Groups []string // job.group, the one that has waited longest first; at most maxWaitGroups
	// Since is the time, in Unix nanoseconds, from which the first of them waits: the end of its
	// last attempt, or its creation. Beyond maxWaitTasks it is the submit of the job.
	Since int64
	// Why says with numbers what holds them back.
	Why string
	// Unblock says what would let them be placed: each entry by itself is a way.
	Unblock []string

	oldest  waitingGroup
	asked   placement.Amounts // of all tasks together
	uniform bool              // all groups ask for the same
}

type waitingGroup struct {
	job, group string
}

// causeKey tells causes apart.
type causeKey struct {
	code            plimsoll.WaitCode
	queue, resource string
	userOrGroup     string
	each            string // of a cause that lies in the nodes
}

func (k causeKey) compare(o causeKey) int {
	return cmp.Or(cmp.Compare(k.code, o.code), strings.Compare(k.queue, o.queue),
		strings.Compare(k.resource, o.resource), strings.Compare(k.userOrGroup, o.userOrGroup),
		strings.Compare(k.each, o.each))
}

// ExplainWaiting finds what the tasks of a job wait for or, without a job, those of a queue and all
// below it. It costs O(jobs in the queue), O(nodes) for each of the first causes that lie in the
// nodes, and looks at maxWaitTasks tasks at most.
func (v *View) ExplainWaiting(job, path string) (*Waiting, error) {
	w := &Waiting{Job: job, Queue: path, left: maxWaitTasks}
	causes := map[causeKey]*WaitingCause{}
	if job != "" {
		status, ok := v.records.JobStatus(job)
		if !ok {
			return nil, plimsoll.Errorf(plimsoll.CodeNotFound, "there is no job %q", job)
		}
		w.Queue = status.Queue
		v.addWaiting(w, causes, &status, true)
	} else {
		turns, err := v.Turns(path)
		if err != nil {
			return nil, err
		}
		w.Queues = turns
		for status := range v.records.JobStatuses(path) {
			v.addWaiting(w, causes, &status, false)
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(causes), causeKey.compare) {
		w.Causes = append(w.Causes, *causes[key])
	}
	slices.SortStableFunc(w.Causes, func(a, b WaitingCause) int {
		return cmp.Or(cmp.Compare(b.Tasks, a.Tasks), cmp.Compare(a.Since, b.Since),
			strings.Compare(a.oldest.job, b.oldest.job), strings.Compare(a.oldest.group, b.oldest.group),
			cmp.Compare(a.Cause.Code, b.Cause.Code))
	})
	w.More = max(0, len(w.Causes)-maxWaitCauses)
	w.Causes = w.Causes[:len(w.Causes)-w.More]
	asked := 0
	for i := range w.Causes {
		c := &w.Causes[i]
		if c.oldest.group != "" && liesInNodes(c.Cause.Code) {
			asked++
		}
		if err := v.unblock(c, asked <= maxPlacedCauses); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func liesInNodes(code plimsoll.WaitCode) bool {
	switch code {
	case plimsoll.WaitNoNode, plimsoll.WaitTooLarge, plimsoll.WaitNotEligible, plimsoll.WaitNoNodes, plimsoll.WaitTurn:
		return true
	}
	return false
}

// addWaiting adds the waiting groups of a job. With each, those of its tasks that wait for their
// next attempt have a cause of their own.
func (v *View) addWaiting(
	w *Waiting, causes map[causeKey]*WaitingCause, status *plimsoll.JobStatus, each bool,
) {
	var spec *plimsoll.JobSpec
	jobs := map[*WaitingCause]bool{}
	for i := range status.Groups {
		g := &status.Groups[i]
		waiting := int64(g.Counts.Pending)
		if waiting == 0 || status.Killed {
			continue
		}
		if spec == nil {
			if spec = v.records.Job(status.ID); spec == nil {
				return
			}
		}
		k := slices.IndexFunc(spec.Groups, func(s plimsoll.GroupSpec) bool { return s.Name == g.Name })
		if k < 0 {
			continue
		}
		w.Tasks += waiting
		cause := g.Wait
		if status.State == plimsoll.JobNew {
			cause = plimsoll.WaitCause{Code: plimsoll.WaitTurn, Queue: status.Queue}
		}
		rest, again := v.waitingTasks(w, status, g, each && cause.Code != plimsoll.WaitRetry)
		rest.tasks = waiting - again.tasks
		v.addCause(causes, jobs, status, &spec.Groups[k], cause, rest)
		v.addCause(causes, jobs, status, &spec.Groups[k], plimsoll.WaitCause{Code: plimsoll.WaitRetry}, again)
	}
	if len(jobs) > 0 {
		w.Jobs++
	}
}

// waitingTasks are tasks of a group that wait, and the time from which the first of them does.
type waitingTasks struct {
	tasks int64
	since int64 // 0 if no task was looked at
}

// add adds a task of a job that was submitted then. The times of submits are all different, so that
// they have an order; tasks that are created with their job are as old as it is.
func (w *waitingTasks) add(t *plimsoll.Task, submitted int64) {
	w.tasks++
	if since := max(t.Created, t.Finished, submitted); w.since == 0 || since < w.since {
		w.since = since
	}
}

// waitingTasks returns the waiting tasks of a group. With apart, those that wait for the time of
// their next attempt are again, and not among the rest. Without it, it ends at the first task that
// waits since the submit, because none waits longer.
func (v *View) waitingTasks(
	w *Waiting, status *plimsoll.JobStatus, g *plimsoll.GroupStatus, apart bool,
) (rest, again waitingTasks) {
	for index := int32(0); index < g.Count && w.left > 0; index++ {
		w.left--
		t, ok := v.records.Task(status.ID, g.Name, index)
		switch {
		case !ok || t.State != plimsoll.TaskPending:
		case apart && t.NotBefore/second > v.now:
			again.add(&t, status.Submitted)
		default:
			rest.add(&t, status.Submitted)
		}
		if !apart && rest.tasks > 0 && rest.since == status.Submitted {
			break
		}
	}
	return rest, again
}

func (v *View) addCause(
	causes map[causeKey]*WaitingCause, jobs map[*WaitingCause]bool, status *plimsoll.JobStatus,
	g *plimsoll.GroupSpec, cause plimsoll.WaitCause, waiting waitingTasks,
) {
	if waiting.tasks <= 0 {
		return
	}
	key := causeKey{cause.Code, cause.Queue, cause.Resource, cause.UserOrGroup, ""}
	if liesInNodes(cause.Code) {
		key.each = g.Resources.String()
	}
	c := causes[key]
	if c == nil {
		c = &WaitingCause{Cause: cause, Each: g.Resources, uniform: true}
		causes[key] = c
	}
	c.Tasks += waiting.tasks
	if !jobs[c] {
		jobs[c] = true
		c.Jobs++
	}
	if c.uniform = c.uniform && c.Each.String() == g.Resources.String(); !c.uniform {
		c.Each = nil
	}
	amounts, _ := v.fleet.Names.Amounts(v.names.Placeable(g.Resources))
	c.asked.AddTimes(&amounts, waiting.tasks)
	name := status.ID + "." + g.Name
	since := cmp.Or(waiting.since, status.Submitted)
	if first := c.Since == 0 || since < c.Since; first {
		c.Since, c.oldest = since, waitingGroup{status.ID, g.Name}
		c.Groups = slices.Insert(c.Groups, 0, name)
	} else {
		c.Groups = append(c.Groups, name)
	}
	c.Groups = c.Groups[:min(len(c.Groups), maxWaitGroups)]
}

// unblock says why the tasks of a cause wait, and which changes would let them be placed.
func (v *View) unblock(c *WaitingCause, nodes bool) error {
	c.Why = c.Cause.String()
	spec := v.records.Job(c.oldest.job)
	if spec == nil {
		return nil
	}
	k := slices.IndexFunc(spec.Groups, func(g plimsoll.GroupSpec) bool { return g.Name == c.oldest.group })
	if k < 0 {
		return nil
	}
	g := &spec.Groups[k]
	switch c.Cause.Code {
	case plimsoll.WaitQueueMax, plimsoll.WaitUserMax, plimsoll.WaitGroupMax:
		v.unblockQuota(c, spec, g)
	case plimsoll.WaitNoResource:
		c.Why = cmp.Or(whyNone(v.names, g.Resources), c.Why)
		c.Unblock = append(c.Unblock, fmt.Sprintf(
			"add a node that has %s, or submit the job with a name that nodes have", c.Cause.Resource,
		))
	case plimsoll.WaitNotUnderstood:
		c.Unblock = append(c.Unblock, "submit the job anew with constraints of this version")
	case plimsoll.WaitOrder:
		return v.unblockOrder(c, spec, g)
	case plimsoll.WaitRetry:
		c.Unblock = append(c.Unblock, fmt.Sprintf(
			"wait for the time of the next attempt; plimsoll job logs %s shows why the last one failed", c.oldest.job,
		))
	default:
		if !liesInNodes(c.Cause.Code) {
			c.Unblock = append(c.Unblock, "wait, or raise the limit that the cause names")
			return nil
		}
		if nodes {
			return v.unblockNodes(c, spec, g)
		}
	}
	return nil
}

// quotaOf returns the quota that a cause names; nil if there is none any more.
func (v *View) quotaOf(c *plimsoll.WaitCause) *queue.Quota {
	q := v.tree.Find(c.Queue)
	switch {
	case q == nil:
		return nil
	case c.Code == plimsoll.WaitQueueMax:
		return &q.Quota
	}
	for _, k := range q.Trackers() {
		if k.Code() == c.Code && k.UserOrGroup() == c.UserOrGroup {
			return k
		}
	}
	return nil
}

// unblockQuota says how much more the queue, or the limit of a user or group, of a cause would have
// to have.
func (v *View) unblockQuota(c *WaitingCause, spec *plimsoll.JobSpec, g *plimsoll.GroupSpec) {
	q := v.quotaOf(&c.Cause)
	if q == nil {
		return
	}
	if c.Cause.Resource == "" {
		if c.Cause.Code == plimsoll.WaitQueueMax {
			owner := queue.Owner{User: spec.Owner, Groups: spec.OwnerGroups}
			if full := v.tree.Full(q.At(), owner); full != nil {
				q = full
			}
		}
		c.Why = whyParked(q)
		c.Unblock = append(c.Unblock,
			fmt.Sprintf("a running job of %s ends", nameOf(q)),
			fmt.Sprintf("raise maxapplications of %s above %d", nameOf(q), q.MaxAccounts))
		return
	}
	one, _ := v.fleet.Names.Amounts(v.names.Placeable(g.Resources))
	var more, raise []string
	for i := range v.fleet.Names.Len() {
		if q.MaxSet&(1<<i) == 0 || one[i] == 0 {
			continue
		}
		name := v.fleet.Names.Name(i)
		if one[i] > q.Max[i] {
			raise = append(raise, fmt.Sprintf("%s %s", name, plimsoll.FormatQuantity(name, one[i])))
		}
		if lack := c.asked[i] - max(q.Max[i]-q.Allocated[i], 0); lack > 0 {
			more = append(more, fmt.Sprintf("%s %s", name, plimsoll.FormatQuantity(name, lack)))
		}
	}
	if why := whyFull(v.fleet.Names, q, &one); !strings.HasSuffix(why, ": ") { // its use may have changed since
		c.Why = why
	}
	if len(raise) > 0 {
		c.Unblock = append(c.Unblock,
			fmt.Sprintf("raise the max of %s to %s at least", nameOf(q), strings.Join(raise, ", ")),
			"ask for less")
		return
	}
	if len(more) > 0 {
		in := "in"
		if c.Cause.Code != plimsoll.WaitQueueMax {
			in = "for"
		}
		c.Unblock = append(c.Unblock,
			fmt.Sprintf("%s more %s %s, by tasks of it that end or by a higher max",
				strings.Join(more, ", "), in, nameOf(q)))
	}
}

// unblockNodes says what the nodes lack for the tasks of a cause.
func (v *View) unblockNodes(c *WaitingCause, spec *plimsoll.JobSpec, g *plimsoll.GroupSpec) error {
	ask := v.names.Ask(spec, g, 1)
	p, err := v.chain.Prepare(v.fleet, &ask.Request)
	if err != nil {
		return fmt.Errorf("prepare the request of %s.%s: %w", spec.ID, g.Name, err)
	}
	defer p.Release()
	placer := v.placer()
	x := placer.Explain(p, v.now)
	if x.Fit > 0 {
		if c.Cause.Code == plimsoll.WaitTurn {
			c.Why = fmt.Sprintf("waits for its turn in %s; %d of %d nodes have room", c.Cause.Queue, x.Fit, x.Servers)
		}
		c.Unblock = append(c.Unblock, "wait: the next turn of the scheduler places some of them")
		return nil
	}
	code, why := x.Refusal(g.Resources)
	c.Why = why
	near := v.nearest(placer, p)
	each := g.Resources.String()
	switch code {
	case plimsoll.WaitNoNodes:
		c.Unblock = append(c.Unblock, "open a node: plimsoll node uncordon NODE, or start its agent; see plimsoll node list")
	case plimsoll.WaitNotEligible:
		c.Unblock = append(c.Unblock, "loosen the constraints: "+hardest(&x), "add a node that meets them")
	case plimsoll.WaitTooLarge:
		if near.empty != "" {
			c.Unblock = append(c.Unblock, "ask for less: the largest node for it is "+near.empty)
		}
		c.Unblock = append(c.Unblock, "add a node with at least "+each)
	default:
		need := fmt.Sprintf("room for %s with %s each", count(c.Tasks, "task"), each)
		if c.Tasks == 1 {
			need = "a node with free " + each
		}
		if near.now != "" {
			need += "; nearest: " + near.now
		}
		c.Unblock = append(c.Unblock, need)
		if near.now == "" {
			c.Unblock = append(c.Unblock, "loosen the constraints: "+hardest(&x))
		}
	}
	return nil
}

func count(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// hardest names the stage of the chain that refuses most nodes.
func hardest(x *placement.Explanation) string {
	best, most := "", 0
	for i := range x.Steps {
		s := &x.Steps[i]
		if n := max(s.Refused, s.Dropped); n > most && len(s.Reasons) > 0 {
			best, most = fmt.Sprintf("%s refuses %s, as one %s", s.Stage, count(int64(n), "node"), s.Reasons[0].Text), n
		}
	}
	return cmp.Or(best, "no single filter refuses all nodes")
}

// nearestNodes are the nodes that lack least for a request.
type nearestNodes struct {
	now   string // it has too little free: "n17 has nvidia.com/gpu 3 free"
	empty string // it is too small even when it is empty: "n3 with cpu 8"
}

// nearest finds, among the open nodes that are eligible, the one that lacks least now, and the one
// that lacks least when it is empty.
func (v *View) nearest(placer *placement.Placer, p *placement.Prepared) (near nearestNodes) {
	needs := p.Amounts()
	var leastNow, leastEmpty float64
	names := v.fleet.Names
	for slot := range int32(v.fleet.Len()) {
		if v.fleet.ID(slot) == "" || !v.fleet.Open(slot) {
			continue
		}
		if eligible, _ := placer.Suits(p, slot, v.now); !eligible {
			continue
		}
		now, empty := v.fleet.Room(slot)
		if lack, what := lacking(names, needs, &now, "free"); what != "" && (near.now == "" || lack < leastNow) {
			leastNow, near.now = lack, v.fleet.ID(slot)+" has "+what
		}
		lack, what := lacking(names, needs, &empty, "in all")
		if what != "" && (near.empty == "" || lack < leastEmpty) {
			leastEmpty, near.empty = lack, v.fleet.ID(slot)+", which has "+what
		}
	}
	return near
}

// lacking adds up the shares of the needed amounts that some room lacks, and lists what there is of
// them: "cpu 3, nvidia.com/gpu 1 free". It is empty if nothing is lacking.
func lacking(names *placement.Names, needs, room *placement.Amounts, word string) (lack float64, what string) {
	var has []string
	for i := range names.Len() {
		if needs[i] <= 0 || room[i] >= needs[i] {
			continue
		}
		have := max(room[i], 0)
		lack += float64(needs[i]-have) / float64(needs[i])
		name := names.Name(i)
		has = append(has, fmt.Sprintf("%s %s", name, plimsoll.FormatQuantity(name, have)))
	}
	if len(has) == 0 {
		return 0, ""
	}
	return lack, strings.Join(has, ", ") + " " + word
}
