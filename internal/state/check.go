package state

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/queue"
	"github.com/plimsoll-dev/plimsoll/internal/size"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// Check recomputes every sum from the rows and reports the first that is wrong. Tests call it after
// each turn; it costs O(everything).
func (s *State) Check() error {
	used := make([]placement.Amounts, len(s.slots))
	held := make([]int, len(s.slots))
	all := map[*queue.Queue]*sums{}
	s.tree.Root.Walk(func(q *queue.Queue) { all[q] = &sums{} })
	for _, id := range slices.Sorted(maps.Keys(s.jobs)) {
		if err := s.checkJob(s.jobs[id], used, held, all); err != nil {
			return err
		}
	}
	for slot, n := range s.slots {
		if n == nil {
			continue
		}
		if *s.Fleet.Used(n.Slot) != used[slot] {
			return fmt.Errorf("node %s: used %v, but its tasks add up to %v", n.ID, *s.Fleet.Used(n.Slot), used[slot])
		}
		if held[slot] != len(n.tasks) || held[slot] != s.Fleet.Count(n.Slot) {
			return fmt.Errorf(
				"node %s: holds %d tasks and its server %d, but %d are on it", n.ID, len(n.tasks),
				s.Fleet.Count(n.Slot), held[slot],
			)
		}
		if !n.shrunk && !s.Fleet.Holds(n.Slot) {
			return fmt.Errorf("node %s: %v used, over its capacity of %v", n.ID, used[slot], *s.Fleet.Capacity(n.Slot))
		}
	}
	if err := s.checkSums(); err != nil {
		return err
	}
	if err := s.checkRejected(); err != nil {
		return err
	}
	if err := s.checkQueues(all); err != nil {
		return err
	}
	if err := s.checkClasses(); err != nil {
		return err
	}
	if err := s.checkLimits(); err != nil {
		return err
	}
	return s.tree.Check() //nolint:wrapcheck // the error names the queue and the sum
}

func (s *State) checkSums() error {
	var asked placement.Amounts
	unknown := map[string]int64{}
	for _, id := range slices.Sorted(maps.Keys(s.jobs)) {
		if j := s.jobs[id]; !j.State.Ended() && !j.forgetting {
			for i := range j.Groups {
				g := &j.Groups[i]
				asked.AddTimes(g.Amounts(), int64(g.Spec.Count))
				for _, name := range g.missing {
					unknown[name] += int64(g.Spec.Count) * g.Spec.Resources[name]
				}
			}
		}
	}
	var total placement.Amounts
	eligible := 0
	for _, n := range s.slots {
		if n == nil {
			continue
		}
		total.Add(s.Fleet.Capacity(n.Slot))
		if s.Fleet.Open(n.Slot) {
			eligible++
		}
		if open := n.Ready && n.Mode == plimsoll.NodeActive && !n.Gate.Closed; open != s.Fleet.Open(n.Slot) {
			return fmt.Errorf(
				"node %s: ready %t, %s, closed %t, but its server is open %t", n.ID, n.Ready, n.Mode, n.Gate.Closed,
				s.Fleet.Open(n.Slot),
			)
		}
		if err := s.checkEvictions(n); err != nil {
			return err
		}
	}
	if err := s.checkBytes(); err != nil {
		return err
	}
	if err := s.checkOutcomes(); err != nil {
		return err
	}
	if err := s.checkUsageSums(); err != nil {
		return err
	}
	if err := s.checkArchiving(); err != nil {
		return err
	}
	if err := s.checkNames(unknown); err != nil {
		return err
	}
	if asked != s.asked || total != s.total || eligible != s.eligible {
		return fmt.Errorf(
			"asked %v, total %v, eligible %d, but there are %v, %v, %d", s.asked, s.total, s.eligible, asked, total,
			eligible,
		)
	}
	return nil
}

// checkOutcomes compares the outcomes by token with the outcomes by age.
func (s *State) checkOutcomes() error {
	bytes := 0
	for _, o := range s.allOutcomes() {
		if bytes += outcomeBytes(o); s.outcomes.byToken[o.Token] != o {
			return fmt.Errorf("the outcome of token %q is not found by it", o.Token)
		}
	}
	changes, refused := &s.outcomes.changes, &s.outcomes.refused
	n, counted := changes.order.len()+refused.order.len(), changes.bytes+refused.bytes
	if n != len(s.outcomes.byToken) || bytes != counted {
		return fmt.Errorf("%d outcomes by token of %d bytes, but there are %d of %d",
			len(s.outcomes.byToken), counted, n, bytes)
	}
	return nil
}

// checkNames compares the names that have a slot with the nodes, queues and tasks that use them.
// Each group must be prepared for exactly these names.
func (s *State) checkNames(unknown map[string]int64) error {
	var held, had uint32
	for k := placement.IndexDisk + 1; k < s.Names.Len(); k++ {
		nodes, used := int32(0), false
		for _, n := range s.slots {
			if n == nil {
				continue
			}
			if _, ok := n.Capacity[s.Names.Name(k)]; ok {
				nodes++
			}
			used = used || s.Fleet.Used(n.Slot)[k] > 0
		}
		queues := s.templateNames()&(1<<k) != 0
		s.tree.Root.Walk(func(q *queue.Queue) { queues = queues || q.ResourcesNamed()&(1<<k) != 0 })
		if nodes != s.names.nodes[k] {
			return fmt.Errorf(
				"resource %q: %d nodes are counted, but %d have it", s.Names.Name(k), s.names.nodes[k], nodes,
			)
		}
		if nodes > 0 || used || queues {
			held |= 1 << k
			if s.total[k] > 0 {
				had |= 1 << k
			}
		} else if s.Names.Name(k) != "" {
			return fmt.Errorf("resource %q has a slot, but nobody has it", s.Names.Name(k))
		}
	}
	if held != s.names.known || had != s.names.onNodes {
		return fmt.Errorf(
			"names %b are known and %b nodes have, but that is %b, %b", s.names.known, s.names.onNodes, held, had,
		)
	}
	for _, g := range s.lanes.rows {
		if g == nil {
			continue
		}
		missing, lacks := s.missing(g.Spec.Resources), s.Lacks(g.Spec.Resources)
		if !slices.Equal(g.missing, missing) || g.class.Lacks != lacks {
			return fmt.Errorf(
				"group %s.%s: misses %v and lacks %q, but that is %v, %q", g.Job.Spec.ID, g.Spec.Name, g.missing,
				g.class.Lacks, missing, lacks,
			)
		}
	}
	if len(unknown) != len(s.names.unknown) {
		return fmt.Errorf("%d names without a slot are asked for, but there are %d", len(s.names.unknown), len(unknown))
	}
	for _, name := range slices.Sorted(maps.Keys(unknown)) {
		if u := s.names.unknown[name]; u == nil || u.asked != unknown[name] {
			return fmt.Errorf(
				"resource %q without a slot: %d is asked for, and not what is counted", name, unknown[name],
			)
		}
	}
	return nil
}

// checkUsageSums compares the counted usage of the jobs, and its sums, with the rows.
func (s *State) checkUsageSums() error {
	var all, givable usage
	made, counts := 0, Totals{Ends: s.totals.Ends, AttemptsDropped: s.totals.AttemptsDropped}
	counts.Jobs[plimsoll.JobRejected] = int64(len(s.rejected.byID))
	for _, id := range slices.Sorted(maps.Keys(s.jobs)) {
		j, texts := s.jobs[id], 0
		counts.Jobs[j.State]++
		for i := range j.Groups {
			made += len(j.Groups[i].Tasks)
			for k := range j.Groups[i].Tasks {
				counts.Tasks[j.Groups[i].Tasks[k].State]++
				ref := Ref{&j.Groups[i], int32(k)}
				if err := checkFormer(ref); err != nil {
					return err
				}
				texts += tableShare * (len(ref.Task().Message) + formerBytes(ref.former()))
			}
		}
		takes, gives := j.usageWith(j.Spec), j.givable || j.forgetting
		if takes != j.usage || texts != j.texts || j.countedGivable != gives {
			return fmt.Errorf(
				"job %s: holds %+v with %d bytes of texts, givable %t, but that is %+v, %d", id, j.usage, j.texts,
				j.countedGivable, takes, texts,
			)
		}
		all.add(j.usage, 1)
		if j.countedGivable {
			givable.add(j.usage, 1)
		}
	}
	if all != s.usage || givable != s.usageGivable || made != s.taskCount {
		return fmt.Errorf(
			"jobs hold %+v, givable ones %+v, and %d tasks are there, but that is %+v, %+v, %d", s.usage,
			s.usageGivable, s.taskCount, all, givable, made,
		)
	}
	for _, n := range s.slots {
		if n != nil {
			counts.Nodes[n.condition()]++
		}
	}
	if counts != s.totals {
		return fmt.Errorf("the totals are %+v, but that is %+v", s.totals, counts)
	}
	return nil
}

// checkBytes compares the counted bytes of nodes and policies with their records.
func (s *State) checkBytes() error {
	nodes, policies := 0, 0
	for _, n := range s.slots {
		if n != nil {
			nodes += storedNode(&n.Node)
		}
	}
	for _, p := range s.Policies() {
		policies += storedBytes(p)
	}
	if nodes != s.nodeBytes || policies != s.policies.bytes {
		return fmt.Errorf(
			"nodes take %d bytes and policies %d, but that is %d, %d", s.nodeBytes, s.policies.bytes, nodes, policies,
		)
	}
	return nil
}

// checkEvictions compares the evictions of a node's record with the exclusions of the groups. Those
// of an ended job are dropped in parts.
func (s *State) checkEvictions(n *Node) error {
	for i, e := range n.Evictions {
		j := s.jobs[e.Job]
		if j == nil || j.group(e.Group) == nil {
			return fmt.Errorf("node %s: keeps %s.%s away, but there is no such job", n.ID, e.Job, e.Group)
		}
		if j.State.Ended() && !j.forgetting && !slices.Contains(s.excluded, j) {
			return fmt.Errorf(
				"node %s: keeps %s.%s away, but the job has ended and nothing will take it away", n.ID, e.Job, e.Group,
			)
		}
		g := j.group(e.Group)
		if !slices.Contains(g.exclusions, exclusion{n, e.Index, e.Until}) {
			return fmt.Errorf("node %s: keeps %s.%s away, but the group does not know", n.ID, e.Job, e.Group)
		}
		if i > 0 && n.Evictions[i-1].Until > e.Until {
			return fmt.Errorf("node %s: its evictions are not in the order of their ends", n.ID)
		}
	}
	return nil
}

// sums are the sums of a queue over the tasks and jobs below it.
type sums struct {
	allocated, pending               placement.Amounts
	running, waiting, jobs, admitted int32
	dismissed                        int32 // completing jobs
	tasks                            int64
}

func (s *State) checkQueues(all map[*queue.Queue]*sums) error {
	var err error
	s.tree.Root.Walk(func(q *queue.Queue) {
		is := sums{q.Allocated, q.Pending, q.Running, q.Waiting, q.Accounts, q.Admitted, q.Dismissed, q.Tasks}
		if err == nil && is != *all[q] {
			err = fmt.Errorf("queue %s: its sums are %+v, but there are %+v", q.Path, is, *all[q])
		}
		if err == nil && q.Dynamic && q.Accounts == 0 {
			err = fmt.Errorf("queue %s: is dynamic and empty, but still there", q.Path)
		}
	})
	if config := s.QueueConfig(); err == nil && s.treeBytes > 0 && s.treeBytes < size.Of(&config) {
		err = fmt.Errorf("the tree of queues takes %d bytes, but %d are counted", size.Of(&config), s.treeBytes)
	}
	return err
}

// checkClasses compares the classes with the requests of their groups.
func (s *State) checkClasses() error {
	groups := map[*Class]int{}
	for _, id := range slices.Sorted(maps.Keys(s.jobs)) {
		j := s.jobs[id]
		for i := range j.Groups {
			g := &j.Groups[i]
			if g.class == nil {
				continue
			}
			groups[g.class]++
			key := string(s.appendKey(nil, g))
			if g.class.key != key || s.classes[key] != g.class || g.lane.Class() != g.class.Class {
				return fmt.Errorf("group %s.%s: is of another class than it asks for", id, g.Spec.Name)
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(s.classes)) {
		if c := s.classes[key]; groups[c] != c.groups || c.Gone() {
			return fmt.Errorf("a class has %d groups, but there are %d", c.groups, groups[c])
		}
	}
	return nil
}

func (s *State) checkJob(j *Job, used []placement.Amounts, held []int, all map[*queue.Queue]*sums) error {
	live := !j.State.Ended() && !j.forgetting
	for q := j.Queue; q != nil && live; q = q.Parent {
		all[q].jobs++
		all[q].tasks += int64(j.usage.tasks)
		if j.account.Admitted() {
			all[q].admitted++
		}
		if j.State == plimsoll.JobCompleting {
			all[q].dismissed++
		}
	}
	if completing := j.State == plimsoll.JobCompleting; completing != (j.completes != 0) && live {
		return fmt.Errorf("job %s is %v, but completes at %d", j.Spec.ID, j.State, j.completes)
	}
	unfinished, failed := j.unfinished, j.failed
	for i := range j.Groups {
		g := &j.Groups[i]
		counts, ready := g.Counts, int32(0)
		for index := range g.Tasks {
			ref := Ref{g, int32(index)}
			t := ref.Task()
			if t.queued {
				ready++
			}
			if !live {
				continue
			}
			if err := checkTask(s, ref, used, held, all); err != nil {
				return err
			}
		}
		if ready != g.lane.Ready() {
			return fmt.Errorf(
				"job %s group %s: %d tasks ready, but there are %d", j.Spec.ID, g.Spec.Name, g.lane.Ready(), ready,
			)
		}
		if !j.forgetting {
			s.recount(j)
			if counts != g.Counts || unfinished != j.unfinished || failed != j.failed {
				return fmt.Errorf(
					"job %s group %s: counts %+v, but there are %+v", j.Spec.ID, g.Spec.Name, counts, g.Counts,
				)
			}
		}
	}
	return nil
}

func checkTask(s *State, ref Ref, used []placement.Amounts, held []int, all map[*queue.Queue]*sums) error {
	t, amounts := ref.Task(), ref.Group.Amounts()
	switch {
	case t.State.OnNode():
		n := s.nodes[t.Node]
		if n == nil || n.Slot != t.slot || n.tasks[t.place] != ref {
			return fmt.Errorf("task %s: is on node %q, but the node does not hold it", t.ID, t.Node)
		}
		used[t.slot].Add(amounts)
		held[t.slot]++
		for q := ref.Group.Job.Queue; q != nil; q = q.Parent {
			all[q].allocated.Add(amounts)
			all[q].running++
		}
	case t.slot >= 0:
		return fmt.Errorf("task %s: is %s, but still has node slot %d", t.ID, t.State, t.slot)
	case t.State == plimsoll.TaskPending:
		for q := ref.Group.Job.Queue; q != nil; q = q.Parent {
			all[q].pending.Add(amounts)
			all[q].waiting++
		}
	}
	return nil
}

// Dump writes everything that a reload must bring back, in a fixed order. It leaves out the
// registrations of nodes, sickness, the causes of waiting, and work that a turn has not yet done.
func (s *State) Dump(w io.Writer) error {
	for _, id := range slices.Sorted(maps.Keys(s.jobs)) {
		j := s.jobs[id]
		st := s.JobStatus(j)
		for i := range st.Groups {
			st.Groups[i].Wait = plimsoll.WaitCause{}
		}
		st.Revision = 0 // replicated changes of counts raise it without being stored
		if _, err := fmt.Fprintf(w, "job %+v\n", st); err != nil {
			return err
		}
		for i := range j.Groups {
			for index := range j.Groups[i].Tasks {
				if _, err := fmt.Fprintf(w, "task %+v\n", s.TaskRecord(Ref{&j.Groups[i], int32(index)})); err != nil {
					return err
				}
			}
		}
	}
	for _, r := range s.allRejected() {
		if _, err := fmt.Fprintf(w, "rejected %+v\n", r.status); err != nil {
			return err
		}
	}
	for _, id := range slices.Sorted(maps.Keys(s.nodes)) {
		n := s.nodes[id]
		st := s.NodeStatus(n)
		st.SickUntil = 0
		if _, err := fmt.Fprintf(w, "node %+v status %+v\n", n.Node, st); err != nil {
			return err
		}
	}
	for _, p := range s.Policies() {
		if _, err := fmt.Fprintf(w, "policy %d %+v %+v %+v\n", p.Revision, p.Action, p.TaskQOS, p.NodeQOS); err != nil {
			return err
		}
	}
	if a := s.archiving.status; a != (plimsoll.ArchiveStatus{}) {
		if _, err := fmt.Fprintf(w, "archive %+v\n", a); err != nil {
			return err
		}
	}
	if usual := plimsoll.DefaultEventSettings(); !s.eventSettings.Equal(&usual) {
		if _, err := fmt.Fprintf(w, "events %+v\n", s.eventSettings); err != nil {
			return err
		}
	}
	for _, h := range s.Historians() {
		if _, err := fmt.Fprintf(w, "historian %+v\n", h); err != nil {
			return err
		}
	}
	for _, o := range s.allOutcomes() {
		if _, err := fmt.Fprintf(w, "outcome %+v\n", *o); err != nil {
			return err
		}
	}
	var err error
	s.tree.Root.Walk(func(q *queue.Queue) {
		st := s.QueueStatus(q)
		st.JobsWaiting = 0 // a load admits the jobs anew that have not begun
		st.Past = nil      // a load begins with the one that was stored last
		if err == nil {
			_, err = fmt.Fprintf(w, "queue %+v\n", st)
		}
	})
	return err
}
