package evaluator

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
	"github.com/plimsoll-dev/plimsoll/placement/remote"
)

// source keeps the servers as they were last read.
type source struct {
	cfg    *Config
	client *http.Client
	lock   chan struct{}        // held while the document is checked
	last   atomic.Pointer[part] // last content; set before the first call
	stamp  stamp                // stamp of the file from which last was read; guarded by lock
	at     time.Time            // instant at which last was read; guarded by lock
	loads  atomic.Uint64
}

// stamp distinguishes two contents of a file.
type stamp struct {
	size    int64
	changed time.Time
	info    os.FileInfo
}

func (s *stamp) same(other *stamp) bool {
	return s.info != nil && other.info != nil && s.size == other.size && s.changed.Equal(other.changed) &&
		os.SameFile(s.info, other.info)
}

func newSource(cfg *Config) *source {
	return &source{cfg: cfg, client: newClient(), lock: make(chan struct{}, 1)}
}

// now returns the present servers. It reads them again if necessary.
func (s *source) now(ctx context.Context) (*part, error) {
	select {
	case s.lock <- struct{}{}:
		defer func() { <-s.lock }()
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the servers to be read: %w", context.Cause(ctx))
	}
	var stamped stamp
	if isURL(s.cfg.Servers) {
		if p := s.last.Load(); p != nil && s.cfg.Now().Sub(s.at) < s.cfg.Refresh {
			return p, nil
		}
	} else {
		info, err := os.Stat(s.cfg.Servers)
		if err != nil {
			return nil, plimsoll.Errorf(plimsoll.CodeUnavailable, "read %s: %s", s.cfg.Servers, withoutName(err))
		}
		stamped = stamp{info.Size(), info.ModTime(), info}
		if p := s.last.Load(); p != nil && stamped.same(&s.stamp) {
			return p, nil
		}
	}
	data, err := read(ctx, s.client, s.cfg.Servers, MaxServersBytes)
	if err != nil {
		return nil, err
	}
	d, err := Parse(data, s.cfg.Defaults)
	if err != nil {
		return nil, plimsoll.Within(shown(s.cfg.Servers), err)
	}
	p := newPart(d)
	s.last.Store(p)
	s.stamp, s.at = stamped, s.cfg.Now()
	return p, nil
}

// servers lists the servers that match a query.
func (s *source) servers(ctx context.Context, q placement.Query) ([]placement.Server, error) {
	p, err := s.now(ctx)
	if err != nil {
		return nil, err
	}
	return p.matching(q), nil
}

// stages makes the stages of a fleet that uses names.
func (s *source) stages(names *placement.Names) ([]placement.Stage, error) {
	return s.last.Load().Stages(names)
}

// local returns the source of an evaluator in this process.
func (s *source) local() remote.Source {
	out := remote.Source{Instances: s.instances, Instance: s.instance}
	if s.cfg.Instances == "" {
		out.Group = s.group
	}
	return out
}

// instances returns the instances on a server of the document. Other servers are refused, because
// the id comes from the caller.
func (s *source) instances(ctx context.Context, server string) ([]placement.Instance, error) {
	p, err := s.now(ctx)
	if err != nil {
		return nil, err
	}
	if _, known := p.slots[server]; !known {
		return nil, unknown(server)
	}
	s.loads.Add(1)
	if s.cfg.Instances == "" {
		return p.instances[server], nil
	}
	where, err := fill(s.cfg.Instances, server)
	if err != nil {
		return nil, err
	}
	data, err := read(ctx, s.client, where, maxInstancesBytes)
	if err != nil {
		return nil, err
	}
	list, err := p.Document.instances(data)
	if err != nil {
		return nil, plimsoll.Within(shown(where), err)
	}
	return list, nil
}

func (s *source) instance(ctx context.Context, id string) (server, owner string, err error) {
	if s.cfg.Instances != "" {
		return "", "", plimsoll.Errorf(plimsoll.CodeUnimplemented,
			"an evaluator that loads by server does not find instances by id; give it servers with theirs")
	}
	p, err := s.now(ctx)
	if err != nil {
		return "", "", err
	}
	return p.location(id)
}

func (s *source) group(ctx context.Context, job, group string) (map[string][]placement.Instance, error) {
	p, err := s.now(ctx)
	if err != nil {
		return nil, err
	}
	return p.groups[groupName{job, group}], nil
}

// checkTemplate refuses a template of instances that names no server.
func checkTemplate(template string) error {
	if template != "" && !strings.Contains(template, placeholder) {
		return plimsoll.Invalid("instances",
			"%s does not say where the instances of one server are; put %s where its id belongs", template, placeholder)
	}
	return nil
}
