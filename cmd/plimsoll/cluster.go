package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	procs "github.com/plimsoll-dev/plimsoll/internal/processes"
	"github.com/plimsoll-dev/plimsoll/internal/store/etcd"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

type clusterCmd struct {
	Up clusterUpCmd `cmd:"" help:"Run a whole cluster on this machine, to try it: etcd, coordinators, gateways, agents and a historian."`
}

// Help is the detail of the help text.
func (clusterCmd) Help() string {
	return example("plimsoll cluster up --nodes 3", "plimsoll leader") + "\n\ndocs/cluster.md sets one up by hand."
}

type clusterUpCmd struct {
	Data     string            `help:"Directory of the cluster's state." default:"plimsoll-data/cluster" env:"PLIMSOLL_DATA"`
	Nodes    int               `help:"Machines to stand for. Each has a coordinator, a member of etcd and an agent." default:"3"`
	Gateways int               `help:"Gateways." default:"2"`
	Port     int               `help:"Port of the first gateway on 127.0.0.1; the others follow it, then the historian." default:"9080"`
	Etcd     string            `help:"The program etcd." default:"etcd" env:"PLIMSOLL_ETCD_PROGRAM" placeholder:"PATH"`
	Capacity map[string]string `help:"Amounts that each agent offers, such as cpu=1;memory=1Gi. Default: its part of this machine." placeholder:"NAME=AMOUNT;…"`
}

// Help is the detail of the help text.
func (clusterUpCmd) Help() string {
	return `All processes listen on this machine alone: etcd and the coordinators on sockets in the directory,
the gateways and the historian on ports. A process that ends is started again after a moment, so
kill one and see what happens. Ctrl-C ends all; tasks that run go on, and are taken up again by the
next start with the same directory. For real machines see docs/cluster.md.

` + example("plimsoll cluster up", "plimsoll cluster up --nodes 5 --gateways 3 --data /tmp/cluster")
}

// Validate checks the numbers.
func (cmd *clusterUpCmd) Validate() error {
	switch {
	case cmd.Nodes < 1 || cmd.Nodes > 9:
		return plimsoll.Invalid("--nodes", "is %d; give 1 to 9, and better an odd number", cmd.Nodes)
	case cmd.Gateways < 1 || cmd.Gateways > 9:
		return plimsoll.Invalid("--gateways", "is %d; give 1 to 9", cmd.Gateways)
	case cmd.Port < 1 || cmd.Port+cmd.Gateways > 1<<16-1:
		return plimsoll.Invalid("--port", "is %d; give one from 1 to %d", cmd.Port, 1<<16-1-cmd.Gateways)
	}
	return nil
}

// localCluster holds the processes of a cluster on this machine.
type localCluster struct {
	dir, self, etcd string
	cmd             *clusterUpCmd
	processes       []procs.Process
	addresses       map[string]string // of processes that users call, by name
}

// Run runs the cluster until it is stopped.
func (cmd *clusterUpCmd) Run(ctx context.Context, a *app) error {
	l := &localCluster{cmd: cmd, addresses: map[string]string{}}
	if err := l.find(); err != nil {
		return err
	}
	if err := l.makeDirs(); err != nil {
		return err
	}
	l.etcdMembers()
	l.coordinators()
	l.gateways()
	l.agents()
	l.historian()
	all := len(l.processes)
	var mu sync.Mutex // guards seen, and keeps the notes in order
	seen := map[string]bool{}
	events := procs.Events{
		Started: func(name string, pid int) {
			mu.Lock()
			defer mu.Unlock()
			if seen[name] {
				a.notes.printf("%s runs again, process %d\n", name, pid)
				return
			}
			seen[name] = true
			a.notes.printf("%2d of %d: %s, process %d%s\n", len(seen), all, name, pid, l.at(name))
		},
		Ended: func(name, how string, pause time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			a.notes.printf("%s ended (%s); it is started again in %v\n", name, oneLine(how), pause)
		},
	}
	g := procs.New(procs.Config{
		Env: withoutSettings(os.Environ()), Logs: filepath.Join(l.dir, "logs"), Events: events,
	})
	return g.Run(ctx, l.processes, func() { l.ready(a) })
}

// withoutSettings leaves out the settings of other clusters and of the user.
func withoutSettings(environment []string) []string {
	return slices.DeleteFunc(environment, func(setting string) bool { return strings.HasPrefix(setting, "PLIMSOLL_") })
}

// makeDirs makes the directories. Tasks of other users pass through the first one to theirs.
func (l *localCluster) makeDirs() error {
	for _, dir := range []struct {
		name string
		mode os.FileMode
	}{{"", 0o711}, {"etcd", 0o700}, {"logs", 0o700}} { // in this order: each makes those above it that are missing
		if err := os.MkdirAll(filepath.Join(l.dir, dir.name), dir.mode); err != nil {
			return fmt.Errorf("make the directory of the cluster: %w", err)
		}
	}
	return nil
}

func (l *localCluster) ready(a *app) {
	server := l.addresses["gateway-1"]
	a.notes.printf(`plimsoll is ready at http://%s, with its data in %s and the output of each process in %s
Try, in another terminal:
  plimsoll --server %s submit examples/wordcount.yaml --wait
  plimsoll --server %s leader
Kill one of the processes above, and see it go on. Ctrl-C ends all.
`, server, l.dir, filepath.Join(l.dir, "logs"), server, server)
}

// at returns the address of a process that users call, for a note.
func (l *localCluster) at(name string) string {
	if address := l.addresses[name]; address != "" {
		return " at " + address
	}
	return ""
}

// maxSocketName bounds the longest name of a socket in the directory, in bytes.
const maxSocketName = len("/etcd/client-9.sock")

// find finds the directory and the programs.
func (l *localCluster) find() (err error) {
	if l.dir, err = filepath.Abs(l.cmd.Data); err != nil {
		return fmt.Errorf("find the directory: %w", err)
	}
	if most := 107 - maxSocketName; len(l.dir) > most {
		return plimsoll.Invalid(
			"--data", "%s has %d bytes, and the sockets in it allow %d; choose a shorter path", l.dir, len(l.dir), most,
		)
	}
	if l.self, err = os.Executable(); err != nil {
		return fmt.Errorf("find this program, to start its roles: %w", err)
	}
	if l.etcd, err = exec.LookPath(l.cmd.Etcd); err != nil {
		return plimsoll.Invalid("--etcd", "%s is not there (%s); install etcd 3.5.23, 3.6.5 or later, from your "+
			"distribution or https://etcd.io/docs/latest/install/, or name the program", l.cmd.Etcd, cause(err))
	}
	return nil
}

// add adds a process of this program.
func (l *localCluster) add(name string, ready func(context.Context) error, args ...string) {
	l.processes = append(l.processes, procs.Process{
		Name: name, Command: append([]string{l.self}, args...), Ready: ready, Dir: l.dir,
	})
}

func (l *localCluster) etcdSocket(i int) string {
	return "unix://" + filepath.Join(l.dir, "etcd", fmt.Sprintf("client-%d.sock", i))
}

func (l *localCluster) coordinator(i int) string {
	return "unix:" + filepath.Join(l.dir, fmt.Sprintf("coordinator-%d.sock", i))
}

// etcdMembers adds the members of etcd. Their sockets are in the directory in which they run, which
// no other user may enter.
func (l *localCluster) etcdMembers() {
	var peers []string
	for i := 1; i <= l.cmd.Nodes; i++ {
		peers = append(peers, fmt.Sprintf("etcd-%d=unix://peer-%d:0", i, i))
	}
	for i := 1; i <= l.cmd.Nodes; i++ {
		name, client, peer := fmt.Sprintf("etcd-%d", i), l.etcdSocket(i), fmt.Sprintf("unix://peer-%d:0", i)
		l.processes = append(l.processes, procs.Process{
			Name: name, Dir: filepath.Join(l.dir, "etcd"),
			Command: []string{
				l.etcd, "--name", name, "--data-dir", name, "--log-level", "warn",
				"--listen-client-urls", client, "--advertise-client-urls", client,
				"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
				"--initial-cluster", strings.Join(peers, ","),
			},
		})
	}
	l.processes[len(l.processes)-1].Ready = l.etcdReady
}

// etcdReady waits until a majority of the members answers.
func (l *localCluster) etcdReady(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	finder := &etcdFinder{config: etcd.Config{Endpoints: l.etcdSockets()}}
	defer func() { err = errors.Join(err, finder.Close()) }()
	for {
		_, err := finder.Find(ctx)
		if err == nil || errors.Is(err, errNobodyLeads) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("etcd is not ready after %v: %w", readyTimeout, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// etcdSockets returns the addresses of all members for clients.
func (l *localCluster) etcdSockets() []string {
	var all []string
	for i := 1; i <= l.cmd.Nodes; i++ {
		all = append(all, l.etcdSocket(i))
	}
	return all
}

func (l *localCluster) coordinators() {
	for i := 1; i <= l.cmd.Nodes; i++ {
		name := fmt.Sprintf("coordinator-%d", i)
		l.add(name, nil, "coordinator", "--data", filepath.Join(l.dir, name), "--listen", l.coordinator(i),
			"--etcd", strings.Join(l.etcdSockets(), ","), "--peers", l.leaders(),
			"--archive", filepath.Join(l.dir, "archive", "jobs.db"))
	}
}

// leaders returns the addresses of all coordinators.
func (l *localCluster) leaders() string {
	var all []string
	for i := 1; i <= l.cmd.Nodes; i++ {
		all = append(all, l.coordinator(i))
	}
	return strings.Join(all, ",")
}

func (l *localCluster) port(i int) string { return fmt.Sprintf("127.0.0.1:%d", l.cmd.Port+i) }

func (l *localCluster) gateways() {
	for i := range l.cmd.Gateways {
		name, address := fmt.Sprintf("gateway-%d", i+1), l.port(i)
		l.addresses[name] = address
		l.add(name, ready(address), "gateway", "--id", name, "--data", filepath.Join(l.dir, name), "--listen", address,
			"--leader", l.leaders(), "--archive", filepath.Join(l.dir, "archive", "jobs.db"))
	}
}

func (l *localCluster) agents() {
	for i := 1; i <= l.cmd.Nodes; i++ {
		name := fmt.Sprintf("agent-%d", i)
		args := []string{"agent", "--data", filepath.Join(l.dir, name), "--node", fmt.Sprintf("n%d", i)}
		for g := range l.cmd.Gateways {
			args = append(args, "--gateways", l.port(g))
		}
		for _, pair := range plimsoll.SortedPairs(l.capacity()) {
			args = append(args, "--capacity", pair[0]+"="+pair[1])
		}
		l.add(name, nil, args...)
	}
}

// capacity returns the amounts that each agent offers.
func (l *localCluster) capacity() map[string]string {
	if len(l.cmd.Capacity) > 0 {
		return l.cmd.Capacity
	}
	return map[string]string{plimsoll.CPU: fmt.Sprintf("%dm", 1000*runtime.NumCPU()/l.cmd.Nodes)}
}

func (l *localCluster) historian() {
	var servers []string
	for i := range l.cmd.Gateways {
		servers = append(servers, l.port(i))
	}
	address := l.port(l.cmd.Gateways)
	l.addresses["historian"] = address
	l.add("historian", ready(address), "historian", "--server", strings.Join(servers, ","),
		"--data", filepath.Join(l.dir, "historian"), "--listen", address)
}

// readyTimeout bounds the time until a process of the cluster serves.
const readyTimeout = time.Minute

// ready returns a function that waits until an address is ready to serve.
func ready(address string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, readyTimeout)
		defer cancel()
		client, url, err := transport.CallClient(address)
		if err != nil {
			return err
		}
		defer client.CloseIdleConnections()
		for last := errors.New("it did not answer"); ; {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz", nil)
			if err != nil {
				return fmt.Errorf("ask whether %s is ready: %w", address, err)
			}
			response, err := client.Do(request)
			switch {
			case err == nil && response.StatusCode == http.StatusOK:
				return response.Body.Close()
			case err == nil:
				last = errors.Join(fmt.Errorf("it answers %s", response.Status), response.Body.Close())
			case ctx.Err() == nil:
				last = err
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("it is not ready after %v: %w", readyTimeout, last)
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
}
