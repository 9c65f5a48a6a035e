package coordinator

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// Bounds of the events that are kept for resource managers.
const (
	maxManagers      = 128      // registered managers; a further one is refused
	maxOwnerManagers = 16       // those of one owner, and those of the jobs of all owners
	managerBytes     = 1 << 20  // bytes of events that are kept for one manager; the oldest give way
	polledBytes      = 64 << 10 // bytes of events in one answer; the next poll gets the others
	// keptRequestBytes is the memory of a kept event in bytes, beside its texts and resources.
	keptRequestBytes  = 192
	keptResourceBytes = 64

	requestsTick  = time.Second
	pollWait      = 5 * time.Second  // time after which a poll without events is answered
	managerAbsent = 10 * time.Minute // time without a sign of a manager after which it is forgotten
)

// requestAnswer takes the answer to a command. It must not block.
type requestAnswer func(reply *pb.Reply, err error)

// requestStore keeps the events for resource managers until they have been acknowledged (event
// design, "SHIM events"; DESIGN.md). It holds them in memory, for the managers that have
// registered, and lasts as long as the term.
type requestStore struct {
	metrics *metrics
	due     chan struct{} // signals that a poll can be answered

	mu struct {
		sync.Mutex
		capacity int // most events for each manager; 0: the events are off, and there are no managers
		managers map[managerName]*manager
		byOwner  map[string][]*manager // the same, by the owner of their jobs; empty: of all owners
	}
}

// managerName names a registration.
type managerName struct{ owner, manager string }

// manager is a registered resource manager with the events that are kept for it.
type manager struct {
	name   managerName
	store  string // names this registration
	stream string // names the stream under way, or the last one
	// kept holds the events up to number last, without a gap, oldest first. Invariants: at most
	// capacity of them and managerBytes; all have a number above acknowledged.
	kept         []keptRequest
	bytes        int // of kept
	last         uint64
	acknowledged uint64
	seen         time.Time    // last sign of the manager
	polled       *requestPoll // nil: no poll waits
}

type keptRequest struct {
	revision uint64
	bytes    int
	plimsoll.RequestEvent
}

// requestPoll is a poll that waits for events.
type requestPoll struct {
	after    uint64
	deadline time.Time
	answer   requestAnswer
}

func newRequestStore(settings *plimsoll.EventSettings, notes *metrics) *requestStore {
	s := &requestStore{metrics: notes, due: make(chan struct{}, 1)}
	s.mu.managers, s.mu.byOwner = map[managerName]*manager{}, map[string][]*manager{}
	s.mu.capacity = requestCapacity(settings)
	return s
}

// requestCapacity returns how many events are kept for each manager.
func requestCapacity(settings *plimsoll.EventSettings) int {
	if !settings.TellingRequests() {
		return 0
	}
	return int(settings.RequestStoreCapacity)
}

// take keeps the events of a turn that is published.
func (s *requestStore) take(b *engine.Batch) {
	if len(b.Changes.Requests) == 0 && b.Changes.EventSettings == nil {
		return
	}
	s.mu.Lock()
	var ended []*requestPoll
	for i := range b.Changes.Requests {
		e := &b.Changes.Requests[i]
		for _, m := range s.mu.byOwner[e.Owner] {
			s.keep(m, e, b.Revision)
		}
		if e.Owner == "" {
			continue
		}
		for _, m := range s.mu.byOwner[""] {
			s.keep(m, e, b.Revision)
		}
	}
	if b.Changes.EventSettings != nil {
		ended = s.resize(requestCapacity(b.Changes.EventSettings))
	}
	s.mu.Unlock()
	for _, p := range ended {
		p.answer(nil, requestsOff())
	}
}

// keep keeps an event for a manager. The caller holds mu.
func (s *requestStore) keep(m *manager, e *plimsoll.RequestEvent, revision uint64) {
	bytes := keptRequestBytes + len(e.Owner) + len(e.Event.Object) + len(e.Event.Reference) + len(e.Event.Message)
	for name := range e.Event.Resources {
		bytes += keptResourceBytes + len(name)
	}
	m.kept = append(m.kept, keptRequest{revision, bytes, *e})
	m.bytes += bytes
	m.last++
	s.metrics.requests.kept.Inc()
	s.bound(m)
	if m.polled != nil {
		s.wake()
	}
}

func (s *requestStore) wake() {
	select {
	case s.due <- struct{}{}:
	default: // it is signaled already
	}
}

// bound drops the oldest events of a manager that are beyond a bound. The caller holds mu.
func (s *requestStore) bound(m *manager) {
	n := 0
	for bytes := m.bytes; len(m.kept)-n > s.mu.capacity || bytes > managerBytes; n++ {
		bytes -= m.kept[n].bytes
	}
	s.metrics.requestsDropped(m.shift(n))
}

// shift forgets the oldest n events.
func (m *manager) shift(n int) int {
	for i := range m.kept[:n] {
		m.bytes -= m.kept[i].bytes
	}
	clear(m.kept[:n])
	m.kept = m.kept[n:]
	return n
}

// resize changes the bound on the events of each manager. 0 forgets all managers, and returns the
// polls that wait. The caller holds mu.
func (s *requestStore) resize(capacity int) (ended []*requestPoll) {
	s.mu.capacity = capacity
	for _, m := range s.mu.managers {
		s.bound(m)
		if capacity > 0 {
			continue
		}
		if m.polled != nil {
			ended = append(ended, m.polled)
		}
		s.forget(m)
	}
	return ended
}

// forget forgets a manager and its events. The caller holds mu.
func (s *requestStore) forget(m *manager) {
	s.metrics.requestsDropped(m.shift(len(m.kept)))
	delete(s.mu.managers, m.name)
	var others []*manager
	for _, o := range s.mu.byOwner[m.name.owner] {
		if o != m {
			others = append(others, o)
		}
	}
	if s.mu.byOwner[m.name.owner] = others; len(others) == 0 {
		delete(s.mu.byOwner, m.name.owner)
	}
	s.metrics.requests.managers.Set(float64(len(s.mu.managers)))
}

// poll answers a gateway's question for the events of a manager: at once if it begins a stream or
// if there are some, and otherwise as soon as there are.
func (s *requestStore) poll(m *pb.PollRequestEvents, answer requestAnswer) {
	found, earlier, err := s.enter(m, answer)
	if earlier != nil {
		earlier.answer(nil, anotherStream(m.GetManager()))
	}
	switch {
	case err != nil:
		answer(nil, err)
	case found != nil:
		answer(found.reply(), nil)
	}
}

// enter notes a poll, and its stream as the one under way. It returns what there is to answer at
// once; nil if the poll waits. earlier is a poll that waited for the same manager.
func (s *requestStore) enter(
	m *pb.PollRequestEvents, answer requestAnswer,
) (found *keptRequests, earlier *requestPoll, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	by, err := s.find(m)
	if err != nil {
		return nil, nil, err
	}
	earlier, by.polled = by.polled, nil
	by.stream, by.seen = m.GetStream(), time.Now()
	if m.GetBegin() {
		return by.behind(0), earlier, nil
	}
	after := min(m.GetAfter(), by.last)
	if by.lacks(after) {
		by.polled = &requestPoll{after, by.seen.Add(pollWait), answer}
		return nil, earlier, nil
	}
	return by.behind(after), earlier, nil
}

// find returns the manager of a poll. A poll that begins a stream registers an unknown manager. The
// caller holds mu.
func (s *requestStore) find(m *pb.PollRequestEvents) (*manager, error) {
	name := managerName{m.GetOwner(), m.GetManager()}
	found := s.mu.managers[name]
	switch {
	case s.mu.capacity == 0:
		return nil, requestsOff()
	case found == nil && !m.GetBegin():
		return nil, plimsoll.Errorf(plimsoll.CodeStale,
			"the leader does not know the resource manager %q any more; follow the events anew", name.manager)
	case found == nil:
		return s.register(name)
	case !m.GetBegin() && found.stream != m.GetStream():
		return nil, anotherStream(name.manager)
	}
	return found, nil
}

// register adds a manager. The caller holds mu.
func (s *requestStore) register(name managerName) (*manager, error) {
	if len(s.mu.managers) >= maxManagers {
		return nil, plimsoll.Errorf(plimsoll.CodeExhausted,
			"%d resource managers are registered, as many as are possible; one that is away for ten minutes gives way",
			maxManagers)
	}
	if len(s.mu.byOwner[name.owner]) >= maxOwnerManagers {
		return nil, plimsoll.Errorf(plimsoll.CodeExhausted, "%d resource managers of the same owner are registered, "+
			"as many as are possible; use one of their names, or wait until one has been away for ten minutes",
			maxOwnerManagers)
	}
	m := &manager{name: name, store: uuid.NewString()}
	s.mu.managers[name] = m
	s.mu.byOwner[name.owner] = append(s.mu.byOwner[name.owner], m)
	s.metrics.requests.managers.Set(float64(len(s.mu.managers)))
	return m, nil
}

func requestsOff() error {
	return plimsoll.Errorf(plimsoll.CodeConflict, "the events for resource managers are off; "+
		"set service.event.requestEventsEnabled to true, and service.event.requestStoreCapacity above 0")
}

func anotherStream(name string) error {
	return plimsoll.Errorf(plimsoll.CodeConflict,
		"another stream of the resource manager %q has begun; give each program a name of its own", name)
}

// lacks reports whether nothing is to be said behind an event: none is kept, and none was dropped.
func (m *manager) lacks(after uint64) bool { return max(after, m.acknowledged) >= m.last }

// keptRequests is the content of an answer to a poll.
type keptRequests struct {
	store  string
	lost   uint64 // events in front of these that were dropped
	first  uint64 // number of the first of events
	events []keptRequest
	more   bool // further ones are kept behind these
}

// behind returns a copy of the kept events behind one, as many as fit in an answer.
func (m *manager) behind(after uint64) *keptRequests {
	oldest := m.last - uint64(len(m.kept)) + 1
	after = max(after, m.acknowledged)
	k := &keptRequests{store: m.store, first: max(oldest, after+1)}
	k.lost = k.first - 1 - after
	n, bytes := 0, 0
	rest := m.kept[k.first-oldest:]
	for ; n < len(rest) && (n == 0 || bytes+rest[n].bytes <= polledBytes); n++ {
		bytes += rest[n].bytes
	}
	k.events, k.more = append(k.events, rest[:n]...), n < len(rest)
	return k
}

func (k *keptRequests) reply() *pb.Reply {
	m := &pb.PolledRequestEvents{
		Store: k.store, Lost: k.lost, More: k.more, Events: make([]*pb.RequestEvent, len(k.events)),
	}
	for i := range k.events {
		e := &k.events[i]
		m.Events[i] = wire.RequestEventToProto(&e.RequestEvent)
		m.Events[i].Sequence, m.Events[i].Revision = k.first+uint64(i), e.revision
	}
	return &pb.Reply{PollRequestEvents: m}
}

// acknowledge forgets the events up to one.
func (s *requestStore) acknowledge(m *pb.AcknowledgeRequestEventsRequest, answer requestAnswer) {
	kept, err := s.acknowledged(m)
	answer(&pb.Reply{
		AcknowledgeRequestEvents: &pb.AcknowledgeRequestEventsResponse{Kept: uint64(kept)},
	}, err)
}

func (s *requestStore) acknowledged(m *pb.AcknowledgeRequestEventsRequest) (kept int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.mu.managers[managerName{m.GetOwner(), m.GetManager()}]
	switch {
	case s.mu.capacity == 0:
		return 0, requestsOff()
	case found == nil || found.store != m.GetStore():
		return 0, plimsoll.Errorf(plimsoll.CodeStale,
			"the leader does not have the store %.80q of the resource manager %q any more; follow the events anew",
			m.GetStore(), m.GetManager())
	case m.GetSequence() > found.last:
		return 0, plimsoll.Invalid("sequence", "is %d, and the last event has the number %d; give that of an event "+
			"that came", m.GetSequence(), found.last)
	}
	found.seen = time.Now()
	first := found.last - uint64(len(found.kept)) + 1
	if m.GetSequence() >= first {
		s.metrics.requests.acknowledged.Add(float64(found.shift(int(m.GetSequence() - first + 1))))
	}
	found.acknowledged = max(found.acknowledged, m.GetSequence())
	return len(found.kept), nil
}

// run answers polls, and forgets managers that are away, until ctx ends.
func (s *requestStore) run(ctx context.Context) {
	defer s.metrics.requests.managers.Set(0) // they end with the term
	ticker := time.NewTicker(requestsTick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.due:
			s.answerPolls(time.Now())
		case <-ticker.C:
			s.answerPolls(time.Now())
		}
	}
}

// answerPolls answers the polls for which there are events or whose time is over.
func (s *requestStore) answerPolls(now time.Time) {
	type answered struct {
		poll  *requestPoll
		found *keptRequests
	}
	var list []answered
	s.mu.Lock()
	for _, m := range s.mu.managers {
		switch p := m.polled; {
		case p == nil && now.Sub(m.seen) >= managerAbsent:
			s.forget(m)
		case p != nil && (!m.lacks(p.after) || !now.Before(p.deadline)):
			list = append(list, answered{p, m.behind(p.after)})
			m.polled, m.seen = nil, now
		}
	}
	s.mu.Unlock()
	for _, a := range list {
		a.poll.answer(a.found.reply(), nil)
	}
}
