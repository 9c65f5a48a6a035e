package qos

import (
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// with returns the options overridden by those of policies. If several policies give the same
// option, the first policy by name counts.
func (o Options) with(nodes []*plimsoll.NodeQOS) Options {
	nodes = slices.Clone(nodes)
	slices.SortStableFunc(nodes, func(a, b *plimsoll.NodeQOS) int { return strings.Compare(b.Name, a.Name) })
	for _, n := range nodes { // the first policy by name comes last, so its options stay
		given := &n.Options
		if given.Excess > 0 {
			o.Excess = int64(given.Excess) * 10 // percent to thousandths
		}
		for _, d := range []struct {
			field *time.Duration
			given time.Duration
		}{
			{&o.Overdue, given.Overdue},
			{&o.Stale, given.Stale},
			{&o.Backoff, given.Backoff},
			{&o.Settle, given.Settle},
			{&o.Lag, given.Lag},
		} {
			if d.given > 0 {
				*d.field = d.given
			}
		}
	}
	return o
}

// Options returns the options that the node plans with: its policies' options, then its own, then
// the defaults.
func (p *Policies) Options() Options { return p.opt }
