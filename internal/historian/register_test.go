package historian_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// reported returns the reports that the gateway has got since the last call, as name@instance next.
func (c *cell) reported() (list []string) {
	synctest.Wait()
	c.from.Lock()
	defer c.from.Unlock()
	for _, h := range c.from.reports {
		list = append(list, fmt.Sprintf("%s@%s%d", h.Name, h.InstanceUUID, h.Next))
	}
	c.from.reports = nil
	return list
}

func (c *cell) reports(want ...string) {
	c.t.Helper()
	if got := fmt.Sprint(c.reported()); got != fmt.Sprint(want) {
		c.t.Errorf("it reported %s; want %s", got, want)
	}
}

// A historian tells how far the file has come: at once when it starts, then every five seconds if
// there is something new, and every minute if there is not.
func TestAHistorianReportsHowFarItHasCome(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		c := newCell(t)
		c.name = "h"
		c.start()
		c.reports("h@0") // it has nothing, and wants all
		c.from.tell(queueEvent())
		time.Sleep(6 * time.Second)
		c.reports("h@first1")
		for range 20 {
			c.from.tell(jobEvent("a", plimsoll.ChangeSet, plimsoll.AppAccepted, ""))
			time.Sleep(time.Second / 2)
		}
		if got := c.reported(); len(got) > 3 || len(got) < 2 {
			t.Errorf("in ten seconds it reported %s", got)
		}
		time.Sleep(10 * time.Second)
		c.reports("h@first21")
		time.Sleep(5 * time.Minute)
		c.reports("h@first21", "h@first21", "h@first21", "h@first21", "h@first21")
		c.stop()
		c.reports()
		c.start()
		c.reports("h@first21")
		c.stop()
	})
}

// Events that are not on the disk are not reported: the gateways would drop them.
func TestAPositionIsReportedOnceItIsOnTheDisk(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		c := newCell(t)
		c.name = "h"
		c.from.tell(queueEvent())
		c.start()
		time.Sleep(10 * time.Second)
		c.reported()
		c.kept.breaks(plimsoll.Errorf(plimsoll.CodeExhausted, "its disk is full"))
		c.from.tell(jobEvent("a", plimsoll.ChangeAdd, plimsoll.DetailNone, ""))
		time.Sleep(10 * time.Minute)
		for _, r := range c.reported() {
			if r != "h@first1" {
				t.Errorf("it reported %s, which is not on the disk", r)
			}
		}
		c.kept.breaks(nil)
		time.Sleep(time.Minute)
		got := c.reported()
		if len(got) == 0 || got[len(got)-1] != "h@first2" {
			t.Errorf("behind the failure it reported %s", got)
		}
		c.stop()
	})
}

// A historian that is refused goes on without, says so once, and tries again.
func TestARefusedHistorianSaysSo(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		c := newCell(t)
		c.name = "h"
		c.from.full = plimsoll.Errorf(plimsoll.CodeExhausted, "16 historians are registered")
		c.from.tell(queueEvent())
		c.start()
		time.Sleep(time.Minute)
		c.has("first0")
		c.said("registered 16 historians are registered")
		if got := c.get("status"); !strings.Contains(got, `"name":"h","unregistered":"16historiansareregistered"`) {
			t.Errorf("the status is %s", got)
		}
		c.from.change(func() { c.from.full = nil })
		time.Sleep(6 * time.Second)
		c.reports("h@first1")
		c.said("registered <nil>")
		want := `"name":"h","registered":{"instanceUuid":"first","next":"1"}`
		if got := c.get("status"); !strings.Contains(got, want) {
			t.Errorf("the status is %s, want %s", got, want)
		}
		c.stop()
	})
}

// A gateway that is away for a while does not end the registration. The next report tells how far
// the historian has come by then.
func TestAnAbsentGatewayDoesNotEndTheRegistration(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		c := newCell(t)
		c.name = "h"
		c.from.tell(queueEvent())
		c.start()
		time.Sleep(10 * time.Second)
		c.said("registered <nil>")
		c.reported()
		c.from.change(func() { c.from.away = plimsoll.Errorf(plimsoll.CodeUnavailable, "nobody listens") })
		time.Sleep(10 * time.Minute)
		c.said("waiting nobody listens")
		c.from.change(func() { c.from.away = nil })
		c.from.tell(jobEvent("a", plimsoll.ChangeAdd, plimsoll.DetailNone, ""))
		time.Sleep(10 * time.Second)
		if got := c.reported(); len(got) == 0 || got[len(got)-1] != "h@first2" {
			t.Errorf("it reported %s", got)
		}
		c.said()
		c.stop()
	})
}

// A historian without a name has that of its history, so that it is the same wherever it runs.
func TestAHistorianHasTheNameOfItsHistory(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		c := newCell(t)
		c.from.tell(queueEvent())
		c.start()
		time.Sleep(10 * time.Second)
		c.reports("own@0", "own@first1")
		if got := c.get("status"); !strings.Contains(got, `"name":"own"`) {
			t.Errorf("the status is %s", got)
		}
		c.stop()
	})
}

// A historian that the leader has not heard for 72 hours is registered no more, and says so.
func TestAHistorianThatIsNotHeardForLongIsRegisteredNoMore(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		c := newCell(t)
		c.name = "h"
		c.from.tell(queueEvent())
		c.start()
		time.Sleep(10 * time.Second)
		c.said("registered <nil>")
		c.from.change(func() { c.from.away = plimsoll.Errorf(plimsoll.CodeUnavailable, "nobody listens") })
		time.Sleep(71 * time.Hour)
		c.said("waiting nobody listens")
		if got := c.gauge("plimsoll_historian_registered"); got != 1 {
			t.Errorf("after 71 hours the metric is %v", got)
		}
		time.Sleep(time.Hour)
		c.said("registered no leader has heard it for 72h0m0s: nobody listens")
		if got := c.gauge("plimsoll_historian_registered"); got != 0 {
			t.Errorf("after 72 hours the metric is %v", got)
		}
		c.from.change(func() { c.from.away = nil })
		time.Sleep(time.Minute)
		c.said("registered <nil>")
		if got := c.gauge("plimsoll_historian_registered"); got != 1 {
			t.Errorf("when it is heard again the metric is %v", got)
		}
		c.stop()
	})
}
