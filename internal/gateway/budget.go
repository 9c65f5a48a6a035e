package gateway

import (
	"context"
	"net/http"
	"sync/atomic"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/memory"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

// budget bounds the bytes of requests under way: their bodies as read, inflated and decoded, and
// the records held for their answers.
type budget struct {
	whose string // whose requests they are, for errors
	bound string // label of the bound in the metric of refusals
	most  int64
	used  atomic.Int64
}

// Bounds of a budget that is derived from the size of the memory.
const (
	budgetShare  = 16 // users' requests take up to this part of the memory, agents' requests half as much
	leastBudget  = 96 << 20
	mostBudget   = 1 << 30
	unknownShare = 256 << 20
)

// defaultBudget is the default of Config.MaxUserBytes: a part of the memory, within bounds.
func defaultBudget() int {
	limit, known := memory.Limit()
	if !known {
		return unknownShare
	}
	return int(min(max(limit/budgetShare, leastBudget), mostBudget))
}

// smallRequest is the bound on the bytes of a small request. An eighth of a budget is for small
// requests, so that a few large ones do not keep all others out.
const smallRequest = 64 << 10

// room returns the bytes of the budget that are open to a request that holds so many bytes.
func (b *budget) room(held int64) int64 {
	if held > smallRequest {
		return b.most - b.most/8
	}
	return b.most
}

// take acquires n bytes for a request that holds held bytes with them, and reports whether there
// was room.
func (b *budget) take(n, held int64) bool {
	if b.used.Add(n) > b.room(held) {
		b.used.Add(-n)
		return false
	}
	return true
}

// full returns the error of a request for which there is no room.
func (b *budget) full() error {
	return plimsoll.Errorf(plimsoll.CodeExhausted,
		"the requests of %s that this gateway has under way take as many bytes as they may, %d; try again later", b.whose, b.most)
}

// budgets are the budgets of a gateway. Users' requests take nothing from the agents' budget.
type budgets struct{ users, agents budget }

func (b *budgets) of(ctx context.Context) *budget {
	if transport.CallerOf(ctx) == transport.CallerUser {
		return &b.users
	}
	return &b.agents
}

// charge is the share that one request holds of a budget. It belongs to the goroutine of the
// request.
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

// full counts the refusal of the request and returns its error.
func (c *charge) full() error {
	c.answer.Header().Set("Retry-After", retryAfter)
	c.gateway.metrics.refused(c.budget.bound)
	return c.budget.full()
}

// end gives back all bytes of the request.
func (c *charge) end() { c.release(int(c.held)) }

// release gives back n of the bytes.
func (c *charge) release(n int) {
	c.budget.used.Add(-int64(n))
	c.held -= int64(n)
}

type chargeKey struct{}

// chargeOf returns the charge of the request of a context; nil if it did not come over the routes.
func chargeOf(ctx context.Context) *charge {
	c, _ := ctx.Value(chargeKey{}).(*charge) // nothing else is kept under the key
	return c
}

// holding acquires n bytes of records for the answer to the request of a context.
func holding(ctx context.Context, n int) error {
	if c := chargeOf(ctx); c != nil {
		return c.hold(answerBytes + 4*n)
	}
	return nil // the request did not come over the routes, as in a test
}

// holdAnswer acquires n bytes for an answer. It does nothing for a nil charge.
func (c *charge) holdAnswer(n int) error {
	if c == nil {
		return nil // as in holding
	}
	return c.hold(n)
}

// answerBytes is the overhead of an object of an answer, beside four times its record: the decoded
// and the encoded form, and a list that grows.
const answerBytes = 256

// partBytes is the overhead of a record of an answer that is not decoded: its place in the list of
// parts, which grows.
const partBytes = 128

// pageBytes bounds the records of one page of a list, roughly. A page ends early when it is
// reached.
const pageBytes = 4 << 20

// chargedContext is the context of a request, with its charge.
type chargedContext struct {
	context.Context //nolint:containedctx // the value lives as long as the request
	charge          *charge
}

// Value implements context.Context.
func (c *chargedContext) Value(key any) any {
	if key == (chargeKey{}) {
		return c.charge
	}
	return c.Context.Value(key)
}

// charge opens the charge of a request, and makes the context that has it.
func (g *Gateway) charge(u *ongoing, w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	u.charge = charge{gateway: g, answer: w, budget: g.budgets.of(ctx)}
	u.context = chargedContext{ctx, &u.charge}
}
