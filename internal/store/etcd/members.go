package etcd

import (
	"context"
	"fmt"
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
	end    context.CancelFunc
	group  sync.WaitGroup

	mu struct {
		sync.Mutex
		silent []bool // by endpoint
	}
}

// watchMembers begins to ask, with a pause behind each answer. It returns when each member has
// answered or was silent for a call. close ends it.
func watchMembers(cfg Config, client *clientv3.Client, between time.Duration) (*members, error) {
	m := &members{cfg: cfg, client: client}
	ctx, end := context.WithCancel(context.Background())
	m.end = end
	m.mu.silent = make([]bool, len(cfg.Endpoints))
	if len(cfg.Endpoints) == 1 {
		return m, nil // there is no other to take
	}
	settings, err := cfg.client()
	if err != nil {
		end()
		return nil, err
	}
	settings.Context = ctx // close need not wait for a client that is being made
	var first sync.WaitGroup
	for i, endpoint := range cfg.Endpoints {
		settings.Endpoints = []string{endpoint}
		p := &probe{settings: settings}
		first.Add(1)
		m.group.Go(func() {
			defer p.close()
			m.ask(ctx, i, p)
			first.Done()
			for ctx.Err() == nil {
				pause(ctx, between)
				m.ask(ctx, i, p)
			}
		})
	}
	first.Wait()
	return m, nil
}

// ask asks one member once.
func (m *members) ask(ctx context.Context, i int, p *probe) {
	err := p.ask(ctx, m.cfg.Prefix+metaKey, m.cfg.callTimeout())
	if ctx.Err() == nil {
		m.note(i, err != nil)
	}
}

// probe asks one member. A client for a user of etcd shows the password when it is made, which
// fails if the member is silent. So it is made by the first question that is answered, and kept.
type probe struct {
	settings clientv3.Config  // for this member alone
	client   *clientv3.Client // nil: not made yet
}

// ask makes the client, if that has not succeeded before, and asks. Each takes at most so long.
func (p *probe) ask(ctx context.Context, key string, timeout time.Duration) error {
	if p.client == nil {
		client, err := clientv3.New(p.settings)
		if err != nil {
			return fmt.Errorf("connect to a member of etcd: %w", err)
		}
		p.client = client
	}
	call, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if _, err := p.client.Get(call, key, clientv3.WithCountOnly()); err != nil {
		return fmt.Errorf("ask a member of etcd: %w", err)
	}
	return nil
}

func (p *probe) close() {
	if p.client != nil {
		_ = p.client.Close() // its calls have ended
	}
}

// The pauses of those that call etcd all the time, and of those that only look for the leader. Of
// these, the gateways, there may be a hundred.
const (
	probePause     = 500 * time.Millisecond
	probePauseIdle = 5 * time.Second
)

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
	if m.cfg.Silent != nil {
		m.cfg.Silent(len(m.cfg.Endpoints) - len(answer))
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
}
