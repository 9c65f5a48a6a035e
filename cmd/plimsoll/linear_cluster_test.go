package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/faultnet"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

// faultyCluster is every role as a process, with a link between each two that speak to each other.
//
//	clients ── link ── g1 g2 g3 relay behind
//	                   │  │  │   │  └─ link ── relay
//	                   └──┴──┴───┴─ link ── leader
//	agent ── links ── g1 g2
type faultyCluster struct {
	*site
	names   []string // of the processes
	command map[string][]string
	running map[string]*daemon
	links   []namedLink
}

type namedLink struct {
	name  string
	users bool // callers are the clients of the test
	*faultnet.Link
}

// gatewayNames are the gateways that clients use.
var gatewayNames = []string{"g1", "g2", "g3", "relay", "behind"}

// newFaultyCluster starts the processes. The relay reads an old copy of the archive. It tells or
// hides how old that is, as mark says.
func newFaultyCluster(t *testing.T, mark string) *faultyCluster {
	t.Helper()
	c := &faultyCluster{site: newSite(t), command: map[string][]string{}, running: map[string]*daemon{}}
	socket := func(name string) string { return "unix:" + c.path(name) }
	link := func(name, at, to string, users bool) {
		c.links = append(c.links, namedLink{name, users, newLink(t, socket(at), socket(to))})
	}
	add := func(name string, words ...string) {
		c.names = append(c.names, name)
		c.command[name] = words
	}
	add("leader", steppedCoordinator, "-data", c.path("store"), "-listen", socket("leader"),
		"-clock", c.path("leader.clock"), "-keep-ended", "2s")
	jobs := c.path("archive", "jobs.db")
	for _, name := range gatewayNames {
		above := "leader"
		if name == "behind" {
			above = "down"
		}
		link(name+" to its source", name+".up", above, false)
		link("clients to "+name, name+".users", name, true)
	}
	add("g1", "plimsoll", "gateway", "--id", "g1", "--leader", socket("g1.up"), "--listen", socket("g1"),
		"--archive", jobs)
	add("g2", smallGateway, "-id", "g2", "-leader", socket("g2.up"), "-listen", socket("g2"),
		"-clock", c.path("g2.clock"), "-archive", jobs)
	add("g3", "plimsoll", "gateway", "--id", "g3", "--leader", socket("g3.up"), "--listen", socket("g3"),
		"--archive", jobs)
	add("relay", smallGateway, "-id", "relay", "-leader", socket("relay.up"), "-listen", socket("relay"),
		"-listen-replication", socket("down"), "-clock", c.path("relay.clock"),
		"-archive", jobs, "-old-archive", mark)
	add("behind", "plimsoll", "gateway", "--id", "behind", "--leader", socket("behind.up"),
		"--listen", socket("behind"), "--archive", jobs)
	link("agent to g1", "agent.g1", "g1", false)
	link("agent to g2", "agent.g2", "g2", false)
	add("agent", "plimsoll", "agent", "--data", c.path("agent"), "--gateways", socket("agent.g1"),
		"--gateways", socket("agent.g2"), "--node", "n1", "--capacity", "cpu=2;memory=2Gi")
	for _, name := range c.names {
		c.begin(name)
	}
	c.address = socket("g1.users")
	c.nodeReady("n1")
	for _, name := range gatewayNames {
		c.answers(name)
	}
	return c
}

// begin starts a process, also one that was killed.
func (c *faultyCluster) begin(name string) {
	c.t.Helper()
	words := c.command[name]
	c.running[name] = startCommand(c.t, exec.Command(words[0], words[1:]...))
}

// answers waits until a gateway answers a strict read.
func (c *faultyCluster) answers(name string) {
	c.t.Helper()
	reader := c.user(name, -1)
	eventually(c.t, "read at "+name, func() error {
		_, err := reader.Queues(c.t.Context())
		return err
	})
}

// user is a client of one gateway, through its link.
func (c *faultyCluster) user(name string, budget time.Duration) *client.Client {
	c.t.Helper()
	user, err := client.New(client.Config{Server: "unix:" + c.path(name+".users"), RetryBudget: budget})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(user.Close)
	return user
}

// watchClient returns a client for the watches of a gateway, as its messages are on the wire.
func (c *faultyCluster) watchClient(name string) plimsollv1connect.WatchServiceClient {
	c.t.Helper()
	caller, base, err := transport.Client("unix:" + c.path(name+".users"))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(caller.CloseIdleConnections)
	return plimsollv1connect.NewWatchServiceClient(caller, base)
}

// fault is a fault of a process or a link. strike makes it, and returns what ends it.
type fault struct {
	name   string
	strike func() (end func())
}

// processFaults are all faults of processes and of their clocks.
func (c *faultyCluster) processFaults() (all []fault) {
	for _, name := range c.names {
		all = append(all, fault{"kill " + name, func() func() {
			c.running[name].kill()
			return func() { c.begin(name) }
		}}, fault{"stop " + name, func() func() {
			c.signal(name, syscall.SIGSTOP)
			return func() { c.signal(name, syscall.SIGCONT) }
		}})
	}
	all = append(all, fault{"kill leader and relay", func() func() {
		c.running["leader"].kill()
		c.running["relay"].kill()
		return func() {
			c.begin("leader")
			c.begin("relay")
		}
	}})
	for _, clock := range []struct {
		of   string
		step time.Duration
	}{
		{"leader", time.Hour},
		{"leader", -time.Hour},
		{"leader", time.Millisecond},
		{"g2", 20 * time.Second},
		{"g2", -time.Hour},
		{"relay", time.Hour},
	} {
		all = append(all, fault{fmt.Sprintf("step the clock of %s by %s", clock.of, clock.step), func() func() {
			stepClock(c.t, c.path(clock.of+".clock"), clock.step)
			return func() { stepClock(c.t, c.path(clock.of+".clock"), 0) }
		}})
	}
	return all
}

func (c *faultyCluster) signal(name string, s os.Signal) {
	c.t.Helper()
	if err := c.running[name].cmd.Process.Signal(s); err != nil {
		c.t.Errorf("signal %s: %v", name, err)
	}
}

// linkFaults are all faults of links. A connection that has lost bytes is cut at the end of the
// fault if its callers are users. Of the others, each second one is left to the roles, which have
// to find out themselves.
func (c *faultyCluster) linkFaults() (all []fault) {
	for i, l := range c.links {
		lose := func(what string, directions faultnet.Direction) {
			all = append(all, fault{what + " " + l.name, func() func() {
				l.Lose(directions, true)
				return func() {
					if l.Heal(); l.users || i%2 == 0 {
						l.CutLost()
					}
				}
			}})
		}
		lose("lose what goes up from", faultnet.Up)
		lose("lose what comes down to", faultnet.Down)
		lose("half open:", faultnet.Both)
		all = append(all, fault{"cut " + l.name, func() func() {
			l.Cut()
			return func() {}
		}}, fault{"refuse " + l.name, func() func() {
			l.Refuse()
			l.Cut()
			return l.Heal
		}}, fault{"delay " + l.name, func() func() {
			l.Delay(150 * time.Millisecond)
			return l.Heal
		}})
	}
	return all
}

// plague makes faults one after another: the first of them, and then the others in a random order
// that has each once before any comes twice. It returns the names of those that it made.
func plague(rng *rand.Rand, faults []fault, count int, most time.Duration, over <-chan struct{}) (made []string) {
	rng.Shuffle(len(faults)-1, func(i, j int) { faults[i+1], faults[j+1] = faults[j+1], faults[i+1] })
	for i := range count {
		f := faults[i%len(faults)]
		end := f.strike()
		made = append(made, f.name)
		passed := waitFor(rng, most, over)
		end()
		if !passed || !waitFor(rng, most, over) {
			break
		}
	}
	return made
}

// waitFor waits for a random time. It returns false if all is over before.
func waitFor(rng *rand.Rand, most time.Duration, over <-chan struct{}) bool {
	timer := time.NewTimer(most/4 + time.Duration(rng.Int64N(int64(most))))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-over:
		return false
	}
}
