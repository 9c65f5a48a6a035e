package sim

import (
	"context"
	"sync"
	"time"

	"github.com/plimsoll-dev/plimsoll/internal/faultnet"
)

// failover is a way in which a leader is lost. begin makes the fault; the returned function, which
// may be nil, ends it some time after another process leads.
type failover struct {
	name  string
	begin func(c *cluster, leader *role) (end func())
}

// Names of ways that some tests choose.
const (
	killed       = "kill"
	killedLate   = "unknown outcomes, late requests, and killed"
	killedBehind = "crash after a commit is stored"
	stopped      = "stop beyond the lease"
	stoppedAnew  = "stop beyond the lease, while a gateway starts anew"
	stoppedLate  = "late requests, and stopped"
)

// failovers are all ways.
var failovers = []failover{
	{killed, func(c *cluster, l *role) func() {
		l.kill()
		return func() { c.restart(l.name) }
	}},
	{stopped, func(_ *cluster, l *role) func() {
		l.stop()
		return l.goOn
	}},
	{stoppedAnew, func(c *cluster, l *role) func() {
		l.stop()
		name := gatewayNames[c.dice.intN(2)]
		c.startGateway(name)
		return l.goOn
	}},
	{"cut from the store", func(_ *cluster, l *role) func() {
		l.link.set(func() { l.link.mu.up, l.link.mu.down = true, true })
		return l.link.heal
	}},
	{"requests to the store are lost", func(_ *cluster, l *role) func() {
		l.link.set(func() { l.link.mu.up = true })
		return l.link.heal
	}},
	{"answers of the store are lost", func(_ *cluster, l *role) func() {
		l.link.set(func() { l.link.mu.down = true })
		return l.link.heal
	}},
	{"half-open links to the gateways, and cut from the store", func(c *cluster, l *role) func() {
		for _, link := range c.net.linksTo(addressOf(l.name)) {
			link.Lose(faultnet.Both, true)
		}
		l.link.set(func() { l.link.mu.up, l.link.mu.down = true, true })
		return func() {
			l.link.heal()
			c.net.heal()
		}
	}},
	{"one-way links from the gateways, and stopped", func(c *cluster, l *role) func() {
		for _, link := range c.net.linksTo(addressOf(l.name)) {
			link.Lose([]faultnet.Direction{faultnet.Up, faultnet.Down}[c.dice.intN(2)], false)
		}
		l.stop()
		return func() {
			l.goOn()
			c.net.heal()
		}
	}},
	{"step down", func(c *cluster, _ *role) func() {
		ctx, cancel := context.WithTimeout(c.t.Context(), 10*time.Second)
		defer cancel()
		_ = c.user("g1", -1).StepDown(ctx, 0) // where it fails, the leader is killed below
		return nil
	}},
	{"stalled store, and killed", func(c *cluster, l *role) func() {
		goOn := c.quorum.stalls()
		sleep(c.t.Context(), c.dice.between(100*time.Millisecond, 2*time.Second))
		l.kill()
		sleep(c.t.Context(), c.dice.between(0, 3*time.Second))
		goOn()
		return func() { c.restart(l.name) }
	}},
	{killedLate, func(c *cluster, l *role) func() {
		l.link.set(func() { l.link.mu.unknown, l.link.mu.late = 3, true })
		sleep(c.t.Context(), c.dice.between(100*time.Millisecond, 4*time.Second))
		l.kill()
		return func() {
			l.link.heal()
			c.restart(l.name)
		}
	}},
	{stoppedLate, func(c *cluster, l *role) func() {
		l.link.set(func() { l.link.mu.late = true })
		sleep(c.t.Context(), c.dice.between(0, time.Second))
		l.stop()
		return func() {
			l.goOn()
			l.link.heal()
		}
	}},
	{"clock jump, and killed", func(c *cluster, l *role) func() {
		step := []time.Duration{time.Hour, -time.Hour, -time.Millisecond}[c.dice.intN(3)]
		for _, name := range gatewayNames {
			c.gateway(name).stepClock(-step)
		}
		l.stepClock(step)
		sleep(c.t.Context(), c.dice.between(0, time.Second))
		l.kill()
		return func() { c.restart(l.name) }
	}},
	{"crash before a commit is stored", func(c *cluster, l *role) func() {
		l.link.crash(l, false)
		sleep(c.t.Context(), time.Second)
		l.kill() // if nothing was committed
		return func() { c.restart(l.name) }
	}},
	{killedBehind, func(c *cluster, l *role) func() {
		l.link.crash(l, true)
		sleep(c.t.Context(), time.Second)
		l.kill()
		return func() { c.restart(l.name) }
	}},
	{"kill, and crash while loading", func(c *cluster, l *role) func() {
		c.arm(c.crash)
		l.kill()
		return func() { c.restart(l.name) }
	}},
	{"kill, and stop beyond the lease while loading", func(c *cluster, l *role) func() {
		var mu sync.Mutex
		var held *role
		over := false
		c.arm(func(r *role) {
			mu.Lock()
			defer mu.Unlock()
			if !over {
				r.stop()
				held = r
			}
		})
		l.kill()
		return func() {
			mu.Lock()
			defer mu.Unlock()
			if over = true; held != nil {
				held.goOn()
			}
			c.restart(l.name)
		}
	}},
}

// crash kills the process at the next transaction, in front of it or behind it.
func (l *storeLink) crash(r *role, behind bool) {
	l.set(func() {
		l.mu.crash = func(stored bool) bool {
			if stored != behind {
				return false
			}
			l.set(func() { l.mu.crash = nil })
			r.kill()
			return true
		}
	})
}

// crashes is called in front of a transaction and behind it. It reports whether the transaction is
// lost with its process.
func (l *storeLink) crashes(stored bool) (lost bool) {
	l.mu.Lock()
	crash := l.mu.crash
	l.mu.Unlock()
	return crash != nil && crash(stored)
}

// failOver makes a fault of the leader, and waits until another term leads.
func (c *cluster) failOver(kind failover) bool {
	leader, epoch := c.leading()
	end := kind.begin(c, leader)
	led := c.awaitLeader(epoch, 15*time.Second)
	if !led && end == nil { // the step down was not answered
		leader.kill()
		end = func() { c.restart(leader.name) }
		led = c.awaitLeader(epoch, 30*time.Second)
	}
	longest := []time.Duration{300 * time.Millisecond, 1500 * time.Millisecond}[c.dice.intN(2)]
	sleep(c.t.Context(), c.dice.between(0, longest))
	if end != nil {
		end()
	}
	return led || c.awaitLeader(epoch, time.Minute)
}

// plague makes faults that lose no leader, until over is closed: of gateways, of the historian, and
// of the links between them.
func (c *cluster) plague(d *dice, over <-chan struct{}) {
	for {
		select {
		case <-over:
			return
		case <-time.After(d.between(200*time.Millisecond, 3*time.Second)):
		}
		name := gatewayNames[d.intN(len(gatewayNames))]
		link := c.net.link(name, addressOf(coordinatorNames[d.intN(len(coordinatorNames))]))
		if name == "behind" {
			link = c.net.link(name, downAddress)
		}
		switch d.intN(10) {
		case 0:
			c.gateway(name).kill()
			sleep(c.t.Context(), d.between(0, time.Second))
			c.startGateway(name)
		case 1:
			r := c.gateway(name)
			r.stop()
			sleep(c.t.Context(), d.between(0, 5*time.Second))
			r.goOn()
		case 2:
			link.Lose(faultnet.Up, false)
			sleep(c.t.Context(), d.between(0, 5*time.Second))
			link.CutLost()
		case 3:
			link.Lose(faultnet.Down, false)
			sleep(c.t.Context(), d.between(0, 5*time.Second))
			link.CutLost()
		case 4:
			link.Lose(faultnet.Both, false)
		case 5:
			link.Delay(d.between(0, 200*time.Millisecond))
			sleep(c.t.Context(), d.between(0, 2*time.Second))
			link.Delay(0)
		case 6:
			c.net.link("users", addressOf(name)).Cut()
		case 7:
			c.historian.kill()
			c.startHistorian()
		case 8:
			c.quorum.forget()
		default:
			link.Cut()
		}
	}
}
