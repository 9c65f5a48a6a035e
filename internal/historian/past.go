package historian

import (
	"container/list"
	"context"
	"sync"
	"time"
	"unsafe"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/history"
	"github.com/plimsoll-dev/plimsoll/internal/history/fold"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

const (
	// maxPastBytes bounds the clusters of the past that are kept for further pages. The one that
	// was not asked for longest goes first; a larger one is kept alone.
	maxPastBytes = 256 << 20
	// pastLife is how long a cluster of the past is kept. Events that are older than settled are
	// all there. A younger cluster is kept for its further pages only.
	pastLife = time.Minute
	settled  = time.Minute
	// maxAhead is how much the clocks of callers may be ahead.
	maxAhead = 10 * time.Second
)

// past makes clusters of the past, one at a time, and keeps some for further questions.
type past struct {
	reader history.Reader
	mu     struct {
		sync.Mutex
		kept  list.List // of *moment; the one that was asked for last is in front
		bytes int
	}
	making chan struct{} // holds a place for the one that is being made
}

// moment is the cluster at an instant.
type moment struct {
	at    int64 // Unix nanoseconds
	made  time.Time
	bytes int
	view  *fold.View
	tasks []fold.Task // that are wanted
}

// get returns the cluster at an instant. again says that a page of it was given before.
func (p *past) get(ctx context.Context, at int64, now time.Time, again bool) (*moment, error) {
	if m := p.find(at, now, again); m != nil {
		return m, nil
	}
	select {
	case p.making <- struct{}{}:
		defer func() { <-p.making }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if m := p.find(at, now, again); m != nil {
		return m, nil // somebody else has made it meanwhile
	}
	state, replay, err := p.reader.At(ctx, at)
	if err != nil {
		return nil, err
	}
	f, err := replayed(ctx, state, replay, at, nil)
	if err != nil {
		return nil, err
	}
	m := &moment{at: at, made: now, view: f.View()}
	for t := range f.Tasks("") {
		m.tasks = append(m.tasks, t)
	}
	m.bytes = m.memory(f.Memory())
	p.keep(m)
	return m, nil
}

// memory returns about how many bytes the lists take. Their texts, labels and amounts of groups are
// those of the fold, and at most as large as that.
func (m *moment) memory(ofFold int) int {
	bytes := ofFold + cap(m.tasks)*int(unsafe.Sizeof(fold.Task{})) +
		cap(m.view.Jobs)*int(unsafe.Sizeof(fold.Job{})) + cap(m.view.Nodes)*int(unsafe.Sizeof(fold.Node{})) +
		cap(m.view.Queues)*int(unsafe.Sizeof(fold.Queue{}))
	for i := range m.view.Jobs {
		bytes += amountsBytes(m.view.Jobs[i].Used)
	}
	for i := range m.view.Nodes {
		n := &m.view.Nodes[i]
		bytes += amountsBytes(n.Capacity) + amountsBytes(n.Occupied) + amountsBytes(n.Allocated)
	}
	for i := range m.view.Queues {
		q := &m.view.Queues[i]
		bytes += amountsBytes(q.Max) + amountsBytes(q.Guaranteed) + amountsBytes(q.Allocated)
	}
	return bytes
}

// amountsBytes returns about how many bytes a map of amounts takes: one for up to eight names, and
// at least half empty places beyond that.
func amountsBytes(r plimsoll.Resources) int {
	const small, each = 272, 64
	switch {
	case r == nil:
		return 0
	case len(r) <= 8:
		return small
	}
	return small + each*len(r)
}

func (p *past) find(at int64, now time.Time, again bool) *moment {
	p.mu.Lock()
	defer p.mu.Unlock()
	for e := p.mu.kept.Front(); e != nil; e = e.Next() {
		m, _ := e.Value.(*moment) // the list holds nothing else
		if m.at != at {
			continue
		}
		if now.Sub(m.made) > pastLife || !again && m.made.UnixNano()-at < int64(settled) {
			p.drop(e)
			return nil
		}
		p.mu.kept.MoveToFront(e)
		return m
	}
	return nil
}

// drop forgets a cluster. The caller holds mu.
func (p *past) drop(e *list.Element) {
	m, _ := p.mu.kept.Remove(e).(*moment)
	p.mu.bytes -= m.bytes
}

func (p *past) keep(m *moment) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.kept.PushFront(m)
	for p.mu.bytes += m.bytes; p.mu.bytes > maxPastBytes && p.mu.kept.Len() > 1; {
		p.drop(p.mu.kept.Back())
	}
}

// clusterAt answers GetClusterAt.
func (h *Historian) clusterAt(ctx context.Context, m *pb.GetClusterAtRequest) (*pb.GetClusterAtResponse, error) {
	limit, err := limitOf(m.GetLimit())
	if err != nil {
		return nil, err
	}
	if limit == 0 {
		limit = history.MaxPage
	}
	now := h.cfg.Now()
	at := m.GetAt()
	switch {
	case at < 0:
		return nil, plimsoll.Invalid("at", "is before 1970; give nanoseconds since then")
	case at == 0:
		at = now.UnixNano()
	case at > now.Add(maxAhead).UnixNano():
		return nil, plimsoll.Invalid("at", "%s is in the future", time.Unix(0, at).UTC().Format(time.RFC3339))
	}
	was, err := h.past.get(ctx, at, now, m.GetAfter() != "")
	if err != nil {
		return nil, err
	}
	res := was.summary()
	page := page{left: limit, bytes: history.MaxPageBytes, after: m.GetAfter()}
	switch m.GetPart() {
	case pb.ClusterPart_CLUSTER_PART_JOBS:
		was.listJobs(&page, res)
	case pb.ClusterPart_CLUSTER_PART_NODES:
		for i := range was.view.Nodes {
			n := &was.view.Nodes[i]
			if page.wants(n.ID, len(n.Capacity)+len(n.Occupied)+len(n.Allocated)) {
				res.Nodes = append(res.Nodes, nodeAt(n))
			}
		}
	case pb.ClusterPart_CLUSTER_PART_QUEUES:
		for i := range was.view.Queues {
			q := &was.view.Queues[i]
			if page.wants(q.Path, len(q.Max)+len(q.Guaranteed)+len(q.Allocated)) {
				res.Queues = append(res.Queues, queueAt(q))
			}
		}
	case pb.ClusterPart_CLUSTER_PART_TASKS:
		for i := range was.tasks {
			t := &was.tasks[i]
			if page.wants(t.ID(), len(t.Resources)+1) {
				res.Tasks = append(res.Tasks, &pb.TaskAt{
					Id: t.ID(), Node: t.Node, Resources: wire.ResourcesToProto(t.Resources),
				})
			}
		}
	}
	if page.after != "" && !page.passed {
		return nil, plimsoll.Errorf(plimsoll.CodeStale, "the page before is not known any more; begin anew")
	}
	res.Next = page.next
	return res, nil
}

// page chooses the objects of one answer from a list in its order.
type page struct {
	left, bytes int
	after       string // the last object of the page before
	passed      bool   // that one was met
	last, next  string // the last object of this page; next is set once it is full
}

// wants reports whether an object belongs to the page. amounts is the number of its amounts.
func (p *page) wants(id string, amounts int) bool {
	if p.after != "" && !p.passed {
		p.passed = id == p.after
		return false
	}
	if p.next != "" {
		return false
	}
	if p.left == 0 || p.bytes <= 0 {
		p.next = p.last
		return false
	}
	p.left--
	p.bytes -= 64 + 2*len(id) + 48*amounts
	p.last = id
	return true
}

// summary returns an answer without a page.
func (m *moment) summary() *pb.GetClusterAtResponse {
	res := &pb.GetClusterAtResponse{At: m.at, Newest: m.view.Time, NodesTotal: int64(len(m.view.Nodes))}
	capacity, allocated, byState := plimsoll.Resources{}, plimsoll.Resources{}, map[pb.JobState]int64{}
	for i := range m.view.Nodes {
		n := &m.view.Nodes[i]
		if n.Ready && !n.Cordoned && !n.Closed {
			res.NodesReady++
		}
		add(capacity, n.Capacity)
		add(allocated, n.Allocated)
	}
	for i := range m.view.Jobs {
		j := &m.view.Jobs[i]
		byState[jobState(j.State)]++
		res.Running += int64(j.Allocated)
		res.Waiting += int64(j.Tasks - j.Allocated)
	}
	for state := pb.JobState(0); int(state) < plimsoll.NumJobStates; state++ {
		if byState[state] > 0 {
			res.JobsByState = append(res.JobsByState, &pb.JobsAt{State: state, Jobs: byState[state]})
		}
	}
	res.Capacity, res.Allocated = wire.ResourcesToProto(capacity), wire.ResourcesToProto(allocated)
	return res
}

func add(sum, r plimsoll.Resources) {
	for name, amount := range r {
		sum[name] += amount
	}
}

func (m *moment) listJobs(p *page, res *pb.GetClusterAtResponse) {
	for i := range m.view.Jobs {
		j := &m.view.Jobs[i]
		if p.wants(j.ID, len(j.Used)+2) {
			res.Jobs = append(res.Jobs, &pb.JobAt{
				Id: j.ID, Owner: j.Owner, Queue: j.Queue, State: jobState(j.State), Submitted: j.Submitted,
				Waiting: int64(j.Tasks - j.Allocated), Running: int64(j.Allocated),
				Allocated: wire.ResourcesToProto(j.Used),
			})
		}
	}
}

func nodeAt(n *fold.Node) *pb.NodeAt {
	return &pb.NodeAt{
		Id: n.ID, Ready: n.Ready, Schedulable: !n.Cordoned && !n.Closed, Tasks: int64(n.Tasks),
		Capacity: wire.ResourcesToProto(n.Capacity), Allocated: wire.ResourcesToProto(n.Allocated),
		Occupied: wire.ResourcesToProto(n.Occupied),
	}
}

func queueAt(q *fold.Queue) *pb.QueueAt {
	return &pb.QueueAt{
		Path: q.Path, Leaf: q.Leaf, Draining: q.Draining, Max: wire.ResourcesToProto(q.Max),
		Guaranteed: wire.ResourcesToProto(q.Guaranteed), Allocated: wire.ResourcesToProto(q.Allocated),
		Jobs: int64(q.Jobs),
	}
}
