package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/internal/calltest"
	"github.com/plimsoll-dev/plimsoll/internal/faultnet"
	"github.com/plimsoll-dev/plimsoll/internal/store/etcd/etcdtest"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

// failoverCluster is three members of etcd, three coordinators, two gateways, an agent and a
// historian, as processes. A link stands between each coordinator and each member, and between each
// gateway and each coordinator.
//
//	clients, agent, historian ── g1 g2 ── links ── c1 c2 c3 ── links ── etcd etcd etcd
type failoverCluster struct {
	*faultyCluster
	etcd     *etcdtest.Cluster
	gateways []string
	members  map[string][]*faultnet.Link // of a coordinator to the members of etcd
	asked    *client.Client              // asks the gateways
	last     client.Leader               // the newest one that was seen
	probes   int                         // jobs that writes has submitted
	begun    map[string][]*daemon        // all processes, by name
}

var coordinatorNames = []string{"c1", "c2", "c3"}

// askTimeout bounds one call of a test that waits.
const askTimeout = 10 * time.Second

// newFailoverCluster starts the processes. lease is that of a leader.
func newFailoverCluster(t testing.TB, lease time.Duration) *failoverCluster {
	t.Helper()
	c := &failoverCluster{
		faultyCluster: &faultyCluster{site: newSite(t), command: map[string][]string{}, running: map[string]*daemon{}},
		etcd:          etcdtest.StartOnDisks(t, 3), gateways: []string{"g1", "g2"},
		members: map[string][]*faultnet.Link{}, begun: map[string][]*daemon{},
	}
	socket := func(name string) string { return "unix:" + c.path(name) }
	add := func(name string, words ...string) {
		c.names = append(c.names, name)
		c.command[name] = append([]string{"plimsoll"}, words...)
	}
	var leaders, users []string
	for _, name := range coordinatorNames {
		leaders = append(leaders, socket(name))
	}
	jobs := c.path("archive", "jobs.db")
	for _, name := range coordinatorNames {
		var endpoints []string
		for i, m := range c.etcd.Members {
			at := c.path(fmt.Sprint(name, ".e", i))
			c.members[name] = append(c.members[name], newLink(t, "unix:"+at, strings.TrimPrefix(m.Endpoint, "http://")))
			endpoints = append(endpoints, "unix://"+at)
		}
		add(name, "coordinator", "--data", c.path(name+".d"), "--listen", socket(name), "--lease", lease.String(),
			"--etcd", strings.Join(endpoints, ","), "--peers", strings.Join(leaders, ","), "--archive", jobs)
	}
	for _, name := range c.gateways {
		var links []string
		for _, leader := range coordinatorNames {
			at := socket(name + "." + leader)
			c.links = append(c.links, namedLink{name + " to " + leader, false, newLink(t, at, socket(leader))})
			links = append(links, at)
		}
		users = append(users, socket(name+".users"))
		add(name, c.gatewayWords(name, strings.Join(links, ","))...)
	}
	add("agent", "agent", "--data", c.path("agent"), "--gateways", users[0], "--gateways", users[1], "--node", "n1",
		"--capacity", "cpu=4;memory=2Gi")
	add("historian", "historian", "--server", strings.Join(users, ","), "--data", c.path("historian.d"),
		"--listen", socket("historian"))
	for _, name := range c.names {
		c.begin(name)
	}
	c.address = strings.Join(users, ",")
	c.asked = c.clientOf(c.address)
	c.await("the node is ready", func(ctx context.Context) error {
		nodes, err := c.asked.Nodes(ctx)
		if err == nil && (len(nodes) != 1 || !nodes[0].Node.Ready) {
			err = fmt.Errorf("%+v", nodes)
		}
		return err
	})
	c.leads(0)
	return c
}

// gatewayWords are the words of a gateway's command. Users call it at NAME.users.
func (c *failoverCluster) gatewayWords(name, leader string) []string {
	return []string{
		"gateway", "--id", name, "--data", c.path(name + ".d"), "--leader", leader,
		"--listen", "unix:" + c.path(name+".users"), "--archive", c.path("archive", "jobs.db"),
	}
}

// begin starts a process, also one that was killed.
func (c *failoverCluster) begin(name string) {
	c.t.Helper()
	c.faultyCluster.begin(name)
	c.begun[name] = append(c.begun[name], c.running[name])
}

// await calls ask until it returns nil. While that takes long, it tells the states of all processes
// and of etcd. It gives up when the time of the tests runs out, or after ten minutes.
func (c *failoverCluster) await(what string, ask func(ctx context.Context) error) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 10*time.Minute)
	defer cancel()
	if t, is := c.t.(*testing.T); is {
		if end, is := t.Deadline(); is {
			ctx, cancel = context.WithDeadline(ctx, end.Add(-30*time.Second))
			defer cancel()
		}
	}
	tell := time.NewTicker(time.Minute)
	defer tell.Stop()
	for {
		call, over := context.WithTimeout(ctx, askTimeout)
		err := ask(call)
		over()
		if err == nil {
			return
		}
		select {
		case <-tell.C:
			c.t.Logf("%s: %v\n%s", what, err, c.states())
		case <-ctx.Done():
			c.t.Fatalf("%s: %v\n%s", what, err, c.states())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// states tells the state of each process and of each member of etcd.
func (c *failoverCluster) states() string {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	var all strings.Builder
	for _, name := range c.names {
		address := "unix:" + c.path(name)
		if slices.Contains(c.gateways, name) {
			address += ".users"
		} else if name == "agent" {
			address = ""
		}
		d := c.running[name]
		fmt.Fprintf(&all, "%s: process %d, %s", name, d.cmd.Process.Pid, processState(d.cmd.Process.Pid))
		if address != "" {
			h, err := healthOf(ctx, address)
			fmt.Fprintf(&all, ", health %+v, %v", h, err)
		}
		said := strings.TrimSpace(d.stderr())
		fmt.Fprintf(&all, ", said at the end: %s\n", said[strings.LastIndexByte(said, '\n')+1:])
	}
	return all.String() + c.etcd.Status(ctx)
}

// processState returns the state of a process as the kernel names it.
func processState(pid int) string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return "gone"
	}
	_, state, _ := strings.Cut(string(data), "State:")
	state, _, _ = strings.Cut(state, "\n")
	return strings.TrimSpace(state)
}

// processHealth is an answer of /healthz.
type processHealth struct{ Status, Role, Reason string }

// healthOf asks a process, which may not run.
func healthOf(ctx context.Context, address string) (h processHealth, err error) {
	caller, url, err := transport.CallClient(address)
	if err != nil {
		return h, err
	}
	defer caller.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/healthz", nil)
	if err != nil {
		return h, err
	}
	response, err := caller.Do(req)
	if err != nil {
		return h, err
	}
	data, err := io.ReadAll(response.Body)
	err = errors.Join(err, response.Body.Close(), json.Unmarshal(data, &h))
	return h, err
}

// leads waits until a coordinator leads with a higher epoch than a given one, and returns its name.
// A coordinator that does not know yet that it was deposed may still say that it leads.
func (c *failoverCluster) leads(above uint64) string {
	c.t.Helper()
	c.await(fmt.Sprintf("a coordinator leads with an epoch above %d", above), func(ctx context.Context) error {
		now, err := c.asked.Leader(ctx)
		if err != nil {
			return err
		}
		if now.Epoch <= above || now.Epoch < c.last.Epoch {
			return fmt.Errorf("%s leads with epoch %d", now.Address, now.Epoch)
		}
		c.last = now
		return nil
	})
	return filepath.Base(strings.TrimPrefix(c.last.Address, "unix:"))
}

// serves waits until both gateways answer a strict read.
func (c *failoverCluster) serves() {
	c.t.Helper()
	for _, name := range c.gateways {
		reader := c.user(name, -1)
		c.await(name+" answers a strict read", func(ctx context.Context) error {
			_, err := reader.Queues(ctx)
			return err
		})
	}
}

// writes waits until a job is taken in.
func (c *failoverCluster) writes() {
	c.t.Helper()
	c.probes++
	job := calltest.Spec(fmt.Sprint("probe-", c.probes), "prober", 1)
	c.await("a job is taken in", func(ctx context.Context) error {
		_, err := c.asked.SubmitJob(ctx, job)
		switch plimsoll.CodeOf(err) {
		case plimsoll.CodeConflict, plimsoll.CodeAlreadyExists: // an attempt before had its effect
			return nil
		}
		return err
	})
}

// stepDown asks the leader of an epoch to step down.
func (c *failoverCluster) stepDown(epoch uint64) {
	c.t.Helper()
	c.await("the leader steps down", func(ctx context.Context) error { return c.asked.StepDown(ctx, epoch) })
}

// failovers are the faults that take leadership from a coordinator. Each ends when another term
// leads, and returns what repairs what it has broken.
func (c *failoverCluster) failovers() (all []fault) {
	ofLeader := func(name string, strike func(leader string) (repair func())) {
		all = append(all, fault{name, func() func() {
			leader, epoch := c.leads(0), c.last.Epoch
			repair := strike(leader)
			c.leads(epoch)
			return repair
		}})
	}
	ofLinks := func(name string, strike func(*faultnet.Link)) {
		ofLeader(name, func(leader string) func() {
			for _, l := range c.members[leader] {
				strike(l)
			}
			return func() {
				for _, l := range c.members[leader] {
					l.Heal()
					l.CutLost()
				}
			}
		})
	}
	ofLeader("kill the leader", func(leader string) func() {
		c.running[leader].kill()
		return func() { c.begin(leader) }
	})
	ofLeader("stop the leader beyond its lease", func(leader string) func() {
		c.signal(leader, syscall.SIGSTOP)
		return func() { c.signal(leader, syscall.SIGCONT) }
	})
	ofLinks("half open: the leader and etcd", func(l *faultnet.Link) { l.Lose(faultnet.Both, true) })
	ofLinks("cut the leader from etcd", func(l *faultnet.Link) { l.Refuse(); l.Cut() })
	ofLinks("delay what the leader and etcd say", func(l *faultnet.Link) { l.Delay(10 * time.Second) })
	ofLinks("lose what etcd answers the leader", func(l *faultnet.Link) { l.Lose(faultnet.Down, true) })
	ofLeader("step down", func(string) func() {
		c.stepDown(c.last.Epoch)
		return func() {}
	})
	ofLeader("lose the majority of etcd", func(string) func() {
		c.etcd.Members[0].Pause()
		c.etcd.Members[1].Pause()
		c.refuses()
		c.etcd.Members[0].Resume()
		c.etcd.Members[1].Resume()
		return func() {}
	})
	return all
}

// memberFaults are the faults of one member of etcd, the one that leads the others. The cluster
// goes on, with this leader or with another.
func (c *failoverCluster) memberFaults() []fault {
	return []fault{
		{"stall the disk of the member that leads etcd", func() func() {
			m := c.etcd.Leader(c.t)
			if err := m.StallDisk(); err != nil {
				c.t.Logf("disks cannot be stalled here: %v", err)
				m.Pause()
				c.writes()
				return m.Resume
			}
			c.writes()
			return m.FreeDisk
		}},
		{"kill the member that leads etcd", func() func() {
			m := c.etcd.Leader(c.t)
			m.Kill()
			c.writes()
			return func() {
				m.Start()
				m.Await()
			}
		}},
	}
}

// linkFaults are the faults of links between gateways and coordinators. Nobody is told: the
// gateways find out themselves.
func (c *failoverCluster) linkFaults() (all []fault) {
	for _, l := range c.links {
		all = append(all,
			fault{"half open: " + l.name, func() func() { l.Lose(faultnet.Both, false); return func() {} }},
			fault{"lose what goes up from " + l.name, func() func() { l.Lose(faultnet.Up, false); return func() {} }},
			fault{"cut " + l.name, func() func() { l.Cut(); return func() {} }},
			fault{"delay " + l.name, func() func() { l.Delay(200 * time.Millisecond); return l.Heal }},
		)
	}
	return all
}

// refuses waits until no coordinator says that it leads. Then nothing stale is served: each strict
// read is refused, as long as etcd has no majority.
func (c *failoverCluster) refuses() {
	c.t.Helper()
	for _, name := range coordinatorNames {
		c.await(name+" does not lead", func(ctx context.Context) error {
			h, err := healthOf(ctx, "unix:"+c.path(name))
			if err == nil && h.Status == "ok" {
				err = errors.New("it says that it leads")
			}
			return err
		})
	}
	for _, name := range c.gateways {
		ctx, cancel := context.WithTimeout(c.t.Context(), askTimeout)
		if _, err := c.user(name, -1).Queues(ctx); err == nil {
			c.t.Errorf("%s answers a strict read, although etcd has no majority", name)
		}
		cancel()
	}
}
