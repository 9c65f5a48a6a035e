package agent

import (
	"context"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// lost is a gateway whose link is lost silently after the registration.
type lost struct{ local }

func (lost) heartbeat(ctx context.Context, _ string, _ uint64) (bool, error) {
	<-ctx.Done()
	return false, plimsoll.Errorf(plimsoll.CodeDeadline, "%v", context.Cause(ctx))
}

// A silently lost link to a gateway is found in four seconds, with the interval that gateways name.
// The agent tries another gateway before the node is taken for silent.
func TestALostLinkToAGatewayIsFoundInFourSeconds(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		first, second := newCluster(), newCluster()
		first.every, second.every = 2*time.Second, 2*time.Second
		b.gateways["a"], b.gateways["b"] = lost{local{first}}, local{second}
		b.sessions.gateways = []string{"a", "b"}
		registered := func() (n int) {
			second.look(func() { n = second.registers })
			return n
		}
		b.run()
		after(4*time.Second - time.Millisecond)
		if registered() != 0 {
			t.Error("the first gateway had no time to answer")
		}
		after(time.Millisecond + redial.First)
		if registered() != 1 {
			t.Errorf("after 4 s the agent has dialed %v", b.dialed)
		}
	})
}
