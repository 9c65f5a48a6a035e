package dev_test

import (
	"context"
	"iter"
	"path/filepath"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/internal/dev"
)

// manager is a resource manager that reads one message after the other.
type manager struct {
	t    *testing.T
	next func() (client.RequestNews, error, bool)
	stop func()
}

func newManager(t *testing.T, c *client.Client, me client.ResourceManager) *manager {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	next, stop := iter.Pull2(c.FollowRequestEvents(ctx, me))
	return &manager{t, next, func() {
		stop()
		cancel()
	}}
}

// until reads messages up to one that is wanted.
func (m *manager) until(wanted func(*client.RequestNews) bool) client.RequestNews {
	m.t.Helper()
	for {
		news, err, more := m.next()
		if err != nil || !more {
			m.t.Fatalf("the events end with %v", err)
		}
		if wanted(&news) {
			return news
		}
	}
}

func tells(job string, cause plimsoll.RequestCause) func(*client.RequestNews) bool {
	return func(news *client.RequestNews) bool {
		for i := range news.Events {
			if e := &news.Events[i]; e.Cause == cause && e.Event.Reference == job {
				return true
			}
		}
		return false
	}
}

// A resource manager is sent again by its next stream what it has not acknowledged. After a change
// of the leader it learns of a loss, and is sent the groups that wait now, on the same call.
func TestAResourceManagerKnowsTheTruthAfterABreakAndAfterAnotherLeader(t *testing.T) {
	cfg := dev.Config{Data: t.TempDir(), Listen: "unix:" + filepath.Join(shortDir(t), "s")}
	d, stop := start(t, cfg)
	c, err := client.New(client.Config{Server: d.URL()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx := t.Context()
	if _, err := c.SetEventSettings(ctx, map[string]string{"requestEventsEnabled": "true"}); err != nil {
		t.Fatal(err)
	}
	me := client.ResourceManager{Name: "shim", Owner: "alice"}
	complete := func(news *client.RequestNews) bool { return news.WaitingEnd }

	first := newManager(t, c, me)
	first.until(complete)
	submit(t, d.URL(), "a")
	first.until(tells("a", plimsoll.CauseNewJob))
	first.stop()

	second := newManager(t, c, me)
	again := second.until(tells("a", plimsoll.CauseNewJob))
	second.until(complete)
	last := again.Events[len(again.Events)-1].Sequence
	if _, err := c.AcknowledgeRequestEvents(ctx, me, again.Store, last); err != nil {
		t.Error(err)
	}
	second.stop()

	third := newManager(t, c, me)
	defer third.stop()
	begun := third.until(func(*client.RequestNews) bool { return true })
	if begun.Store != again.Store || len(begun.Events) > 0 && begun.Events[0].Sequence <= last {
		t.Errorf("behind an acknowledgement of %d come %+v of store %s", last, begun.Events, begun.Store)
	}
	third.until(complete)
	mustStop(t, stop)
	_, stop = start(t, cfg)
	defer mustStop(t, stop)
	if now := third.until(func(news *client.RequestNews) bool { return news.LostUnknown }); now.Store == again.Store {
		t.Error("another leader has the same store")
	}
	third.until(complete)
	submit(t, d.URL(), "b")
	third.until(tells("b", plimsoll.CauseNewJob))
}
