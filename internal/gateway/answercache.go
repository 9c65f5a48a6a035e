package gateway

import (
	"container/list"
	"context"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/plimsoll-dev/plimsoll/internal/memory"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

const (
	// askedOverhead is the approximate cost of an entry of answerCache beside its bytes.
	askedOverhead = 320
	// answerCacheShare is the part of the memory that the cache takes by default, within bounds.
	answerCacheShare   = 64
	leastAnswerCache   = 16 << 20
	mostAnswerCache    = 64 << 20
	answerCacheOfLarge = 4 // an answer of more than this part of the cache is not kept
)

// defaultAnswerBytes is the default of Config.MaxSharedBytes.
func defaultAnswerBytes() int {
	limit, known := memory.Limit()
	if !known {
		return mostAnswerCache
	}
	return int(min(max(limit/answerCacheShare, leastAnswerCache), mostAnswerCache))
}

// answerCache holds whole answers, so that readers who ask the same question share one. An answer
// is shared only if it is a function of the bytes of its request, its encoding and one state of the
// copy. A reader that gets it has obtained that state by the consistency of its own request, behind
// the checks of its own access. The age in an answer is its reader's own.
//
// An answer is kept when the same question comes a second time at the same state. At a new state it
// is kept at once if the last one was shared. Otherwise a state that changes faster than anybody
// asks would cost a copy of each answer. There is one answer for each question: that of the newest
// state for which it was asked. When all entries exceed the bound, those that were not read lately
// go, in the order in which they came. A lookup is O(1).
type answerCache struct {
	most int64 // bound on size

	mu struct {
		sync.Mutex
		size    int64
		entries map[question]*sharedAnswer
		queue   list.List // the entries as *sharedAnswer, the one that goes next at the back

		hits, misses, evicted uint64
	}
}

// question identifies what is asked.
type question struct {
	procedure string
	json      bool
	body      string
}

// sharedAnswer is a question that was answered before, and perhaps its answer. It is guarded by
// answerCache.mu. A question that was answered once is valid: its request passes all checks of its
// form again.
type sharedAnswer struct {
	question
	at     *list.Element // nil: it is in the cache no more
	of     replica.Identity
	body   wire.Body // of the state of; empty: not kept
	shared bool      // the body was given to a reader
	making bool      // a reader makes the body
	read   bool      // since it came, or came anew
}

func (e *sharedAnswer) bytes() int64 {
	return int64(len(e.question.body)) + int64(e.body.Size()) + askedOverhead
}

// off reports whether no answer can be kept.
func (c *answerCache) off() bool { return c.most < 2*askedOverhead }

// known returns the entry of a question that was answered before; nil: it was not.
func (c *answerCache) known(procedure string, json bool, body []byte) *sharedAnswer {
	if c.off() || len(body) > maxKnownRequest {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	found := c.mu.entries[question{procedure, json, string(body)}]
	if found == nil {
		c.mu.misses++
		return nil
	}
	found.read = true
	return found
}

// find returns the answer to a question from a state. Without one, mine reports whether the caller
// is to give its own answer to keep, or to abandon.
func (c *answerCache) find(e *sharedAnswer, of replica.Identity) (body wire.Body, has, mine bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.of == of && e.body.Size() > 0 {
		c.mu.hits++
		e.shared = true
		return e.body, true, false
	}
	c.mu.misses++
	switch {
	case e.at == nil || e.making || of.Before(e.of):
		return wire.Body{}, false, false
	case e.of == of: // it is asked again
		e.making = true
	default:
		e.making = e.shared
		c.drop(e)
		e.of = of
	}
	return wire.Body{}, false, e.making
}

// drop drops the answer of an entry. The caller holds mu.
func (c *answerCache) drop(e *sharedAnswer) {
	c.mu.size -= int64(e.body.Size())
	e.body, e.shared = wire.Body{}, false
}

// abandon ends the making of an answer that is not kept.
func (c *answerCache) abandon(e *sharedAnswer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.making = false
}

// fits reports whether an answer of so many bytes is small enough to be kept.
func (c *answerCache) fits(size int) bool {
	return int64(size) <= c.most/answerCacheOfLarge-askedOverhead
}

// keep keeps the answer that its caller was to make, from a state.
func (c *answerCache) keep(e *sharedAnswer, of replica.Identity, body wire.Body) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.making = false
	if e.at == nil || e.of != of {
		return
	}
	c.drop(e)
	e.body = body
	c.mu.size += int64(body.Size())
	c.shrink()
}

// note adds a question that was answered for the first time, from a state.
func (c *answerCache) note(procedure string, json bool, body []byte, of replica.Identity) {
	if c.off() || len(body) > maxKnownRequest {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	q := question{procedure, json, string(body)}
	if c.mu.entries[q] != nil { // another reader was here meanwhile
		return
	}
	if c.mu.entries == nil {
		c.mu.entries = map[question]*sharedAnswer{}
	}
	e := &sharedAnswer{question: q, of: of}
	e.at = c.mu.queue.PushFront(e)
	c.mu.entries[q] = e
	c.mu.size += e.bytes()
	c.shrink()
}

// shrink drops entries until the rest is within the bound. It spares those that were read, as far
// as their number is bounded. The caller holds mu.
func (c *answerCache) shrink() {
	for spare := spared; c.mu.size > c.most; {
		at := c.mu.queue.Back()
		e, _ := at.Value.(*sharedAnswer) // the list holds nothing else
		if e.read && spare > 0 {
			spare--
			e.read = false
			c.mu.queue.MoveToFront(at)
			continue
		}
		c.mu.queue.Remove(at)
		delete(c.mu.entries, e.question)
		c.mu.size -= e.bytes()
		e.at, e.body = nil, wire.Body{}
		c.mu.evicted++
	}
}

// answerCacheStats are the numbers of an answerCache for the metrics.
type answerCacheStats struct {
	size                  int64
	hits, misses, evicted uint64
}

func (c *answerCache) stats() answerCacheStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return answerCacheStats{c.mu.size, c.mu.hits, c.mu.misses, c.mu.evicted}
}

// view returns the state for the request of the answer, as Gateway.view does.
func (a *answer) view(ctx context.Context, req reading) (view, error) {
	if a.seen != nil {
		return *a.seen, nil
	}
	return a.g.view(ctx, req)
}

// share says that the answer depends on its request and a snapshot alone. It must not be called for
// one that depends on anything else, as the archive, a pin or the time.
func (a *answer) share(s *replica.Snapshot) { a.of = s.Identity() }

// shared reports whether others may get the answer.
func (a *answer) shared() bool { return a.of != replica.Identity{} }

// fillShared fills an answer as read does, perhaps with the answer that another reader got.
func (p *plainRead) fillShared(ctx context.Context, a *answer, req proto.Message, body []byte) error {
	cache := &p.g.answers
	fill := func() error { return a.fill(func() error { return p.read(ctx, req, a) }) }
	known := cache.known(p.procedure, a.JSON(), body)
	if known == nil {
		err := fill()
		if err == nil && a.shared() {
			cache.note(p.procedure, a.JSON(), body, a.of)
		}
		return err
	}
	asking, ok := req.(reading)
	if !ok {
		return fill()
	}
	v, err := p.g.view(ctx, asking)
	if err != nil {
		return err
	}
	of := v.Identity()
	found, has, mine := cache.find(known, of)
	if has {
		a.Reuse(found, v.age)
		return a.charge.holdAnswer(found.Size()) // the cache may drop it before it is written
	}
	a.seen = &v
	if !mine {
		return fill()
	}
	kept := false
	defer func() {
		if !kept {
			cache.abandon(known)
		}
	}()
	if err := fill(); err != nil {
		return err
	}
	if kept = a.of == of && cache.fits(a.Size()); kept {
		cache.keep(known, of, a.Body())
	}
	return nil
}
