package queue_test

import (
	"fmt"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/queue"
)

// BenchmarkOrder ends a task and places the next one, in a tree of 1,000 leaves with ten jobs each:
// without properties and limits, with priorities, with fair jobs, and with limits of users.
func BenchmarkOrder(b *testing.B) {
	for _, kind := range []string{"plain", "priorities", "fair", "limits", "fair and limits"} {
		b.Run(kind, func(b *testing.B) {
			var leaves []plimsoll.QueueConfig
			for i := range 1000 {
				c := plimsoll.QueueConfig{Name: fmt.Sprintf("leaf%03d", i), Properties: map[string]string{}}
				if kind == "fair" || kind == "fair and limits" {
					c.Properties[plimsoll.PropertySort] = "fair"
				}
				if kind == "limits" || kind == "fair and limits" {
					most := plimsoll.Resources{plimsoll.CPU: 1 << 40}
					c.Limits = []plimsoll.QueueLimit{{Users: []string{"*"}, Max: most}}
				}
				leaves = append(leaves, c)
			}
			p := newFixture(b, leaves...)
			c := p.class(1000, 1<<30)
			total := *c.Amounts()
			total[0], total[1] = 1e9, 1e15
			p.tree.SetTotal(&total)
			for i := range 10_000 {
				p.owner = queue.Owner{User: fmt.Sprint("user", i%100)}
				if kind == "priorities" {
					p.priority = int32(i % 7)
				}
				p.job("root."+leaves[i%1000].Name, c, 1<<30)
			}
			running := make([]*queue.Lane, 100_000)
			for i := range running {
				running[i] = p.tree.Next()
				p.tree.Charge(running[i])
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				l := &running[i%len(running)]
				p.tree.Refund(*l)
				*l = p.tree.Next()
				p.tree.Charge(*l)
			}
		})
	}
}
