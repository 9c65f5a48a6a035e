package etcd

import (
	"context"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// members asks each member of etcd all the time, and takes those that do not answer out of the
// endpoints of a client. The client itself gives up a member only when its connection breaks. A
// member whose disk hangs keeps its connections and answers nothing, so a share of all calls would
// wait for it in vain.
//
// A member answers if it makes a read that needs etcd's majority. If none does, all stay: then the
// majority is gone, and calls find out when it is back.
type members struct {
	cfg    Config
	client *clientv3.Client
	probes []*clientv3.Client // one for each endpoint
	end    context.CancelFunc
	group  sync.WaitGroup

	mu struct {
		sync.Mutex
		silent []bool // by endpoint
	}
}

// watchMembers begins to ask, and returns when each member has answered or was silent for a call.
// close ends it.
func watchMembers(cfg Config, client *clientv3.Client) (*members, error) {
	m := &members{cfg: cfg, client: client}
	ctx, end := context.WithCancel(context.Background())
	m.end = end
	m.mu.silent = make([]bool, len(cfg.Endpoints))
	if len(cfg.Endpoints) == 1 {
		return m, nil // there is no other to take
	}
	settings, err := cfg.client()
	if err != nil {
		return nil, err
	}
	for _, endpoint := range cfg.Endpoints {
		settings.Endpoints = []string{endpoint}
		probe, err := clientv3.New(settings)
		if err != nil {
			m.close()
			return nil, cfg.unreachable("connect to etcd", err)
		}
		m.probes = append(m.probes, probe)
	}
	var first sync.WaitGroup
	for i, probe := range m.probes {
		first.Add(1)
		m.group.Go(func() {
			m.ask(ctx, i, probe)
			first.Done()
			for ctx.Err() == nil {
				pause(ctx, probePause)
				m.ask(ctx, i, probe)
			}
		})
	}
	first.Wait()
	return m, nil
}

// ask asks one member once.
func (m *members) ask(ctx context.Context, i int, probe *clientv3.Client) {
	call, cancel := context.WithTimeout(ctx, m.cfg.callTimeout())
	defer cancel()
	_, err := probe.Get(call, m.cfg.Prefix+metaKey, clientv3.WithCountOnly())
	if ctx.Err() == nil {
		m.note(i, err != nil)
	}
}

const probePause = 500 * time.Millisecond

// note takes over whether a member answers.
func (m *members) note(i int, silent bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.silent[i] == silent {
		return
	}
	m.mu.silent[i] = silent
	var answer []string
	for i, endpoint := range m.cfg.Endpoints {
		if !m.mu.silent[i] {
			answer = append(answer, endpoint)
		}
	}
	if silent {
		m.cfg.Logger.Warn("a member of etcd does not answer", "endpoint", m.cfg.Endpoints[i])
	} else {
		m.cfg.Logger.Info("a member of etcd answers again", "endpoint", m.cfg.Endpoints[i])
	}
	if len(answer) == 0 {
		answer = m.cfg.Endpoints
	}
	if !slices.Equal(answer, m.client.Endpoints()) {
		m.client.SetEndpoints(answer...)
	}
}

// close ends the questions and their connections.
func (m *members) close() {
	m.end()
	m.group.Wait()
	for _, probe := range m.probes {
		_ = probe.Close() // its calls have ended
	}
}
