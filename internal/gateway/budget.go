package gateway

import (
	"context"
	"net/http"
	"sync/atomic"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/memory"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// budget bounds the bytes that requests under way take: what was read of them, what that inflates
// and decodes to, and what is held for their answers.
type budget struct {
	whose string // of requests, in errors
	bound string // in the metric
	most  int64
	used  atomic.Int64
}

// Bounds of a budget that follows from the memory there is.
const (
	budgetShare  = 16 // a sixteenth of the memory is for the requests of users, half as much for those of agents
	leastBudget  = 96 << 20
	mostBudget   = 1 << 30
	unknownShare = 256 << 20
)

// defaultBudget is what the requests of users may take.
func defaultBudget() int {
	limit, known := memory.Limit()
	if !known {
		return unknownShare
	}
	return int(min(max(limit/budgetShare, leastBudget), mostBudget))
}

// smallRequest is what a small request holds at most. An eighth of a budget is for small ones, so
// that some large ones do not keep everybody out.
const smallRequest = 64 << 10

// room is what may be used when a request holds so many bytes.
func (b *budget) room(held int64) int64 {
	if held > smallRequest {
		return b.most - b.most/8
	}
	return b.most
}

// take acquires n bytes for a request that then holds so many.
func (b *budget) take(n, held int64) bool {
	if b.used.Add(n) > b.room(held) {
		b.used.Add(-n)
		return false
	}
	return true
}

// full is the refusal of a request for which there is no room.
func (b *budget) full() error {
	return plimsoll.Errorf(plimsoll.CodeExhausted,
		"the requests of %s that this gateway has under way take as many bytes as they may, %d; try again later", b.whose, b.most)
}

// budgets are those of a gateway. What users send takes no room of agents.
type budgets struct{ users, agents budget }

func (b *budgets) of(ctx context.Context) *budget {
	if transport.CallerOf(ctx) == transport.CallerUser {
		return &b.users
	}
	return &b.agents
}

// charge is what one request has of a budget. It belongs to the goroutine of the request.
type charge struct {
	gateway *Gateway
	answer  http.ResponseWriter
	budget  *budget
	held    int64
}

// hold acquires n bytes until the request ends.
func (c *charge) hold(n int) error {
	if !c.budget.take(int64(n), c.held+int64(n)) {
		return c.full()
	}
	c.held += int64(n)
	return nil
}

// room reports whether there would be room for n bytes now.
func (c *charge) room(n int64) error {
	if c.budget.used.Load()+n > c.budget.room(n) {
		return c.full()
	}
	return nil
}

// full refuses the request: there is no room.
func (c *charge) full() error {
	c.answer.Header().Set("Retry-After", retryAfter)
	c.gateway.metrics.refused(c.budget.bound)
	return c.budget.full()
}

// end gives back all.
func (c *charge) end() { c.release(int(c.held)) }

// release gives back n of the bytes.
func (c *charge) release(n int) {
	c.budget.used.Add(-int64(n))
	c.held -= int64(n)
}

type chargeKey struct{}

// holding acquires room for n bytes of records for the answer to the request of a context.
func holding(ctx context.Context, n int) error {
	if c, ok := ctx.Value(chargeKey{}).(*charge); ok {
		return c.hold(answerBytes + 4*n)
	}
	return nil // it came by another way than the routes, as in a test
}

// holdRecord is holding for a record, if it is there.
func holdRecord(ctx context.Context, s *replica.Snapshot, kind wire.Kind, key string) error {
	data, _ := s.Get(kind, key)
	return holding(ctx, len(data))
}

// answerBytes is what an object of an answer takes beside four times its record: decoded, encoded,
// and a list that grows.
const answerBytes = 256

// pageBytes ends a page of a list early: the records of one page take about as much.
const pageBytes = 4 << 20

// charge begins what a request takes of its budget. The request that it returns has it in its
// context.
func (g *Gateway) charge(u *ongoing, w http.ResponseWriter, r *http.Request) *http.Request {
	ctx := r.Context()
	u.charge = charge{gateway: g, answer: w, budget: g.budgets.of(ctx)}
	return r.WithContext(context.WithValue(ctx, chargeKey{}, &u.charge))
}
