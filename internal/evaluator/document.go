package evaluator

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
	"github.com/plimsoll-dev/plimsoll/placement/fleetjson"
	"github.com/plimsoll-dev/plimsoll/placement/remote"
	"github.com/plimsoll-dev/plimsoll/placement/triton"
)

// Document is the content of a file or URL with servers.
type Document struct {
	Servers []placement.Server
	Profile *triton.Profile // for Triton's records; nil if the servers are those of package fleetjson
}

// Parse reads a list of servers, or an object with such a list in its field "servers". The servers
// are those of package fleetjson, or records of Triton's CNAPI, which have a uuid instead of an
// id. defaults are those of Triton's designation. Their over-provisioning holds for all records;
// without defaults each record has its own.
func Parse(data, defaults []byte) (Document, error) {
	records, ok := tritonRecords(data)
	if !ok {
		servers, err := fleetjson.ReadServers(data)
		return Document{Servers: servers}, err
	}
	profile, err := triton.New(placement.NewNames())
	if err != nil {
		return Document{}, err
	}
	if defaults != nil {
		if err := profile.Override(defaults); err != nil {
			return Document{}, err
		}
	}
	d := Document{Profile: profile, Servers: make([]placement.Server, len(records))}
	for i, record := range records {
		s, err := profile.Server(record)
		if err != nil {
			s = placement.Server{Setup: true, Status: placement.StatusRunning, Fault: err.Error()}
		}
		if s.ID == "" {
			s.ID = fmt.Sprintf("servers[%d]", i)
		}
		d.Servers[i] = s
	}
	return d, nil
}

// tritonRecords returns the records of a document if the first is one of Triton's.
func tritonRecords(data []byte) ([]json.RawMessage, bool) {
	var list []json.RawMessage
	if first := bytes.TrimLeft(data, " \t\r\n"); len(first) > 0 && first[0] == '{' {
		var object struct {
			Servers []json.RawMessage `json:"servers"`
		}
		if json.Unmarshal(data, &object) != nil {
			return nil, false
		}
		list = object.Servers
	} else if json.Unmarshal(data, &list) != nil {
		return nil, false
	}
	if len(list) == 0 {
		return nil, false
	}
	var names map[string]json.RawMessage
	if json.Unmarshal(list[0], &names) != nil {
		return nil, false
	}
	return list, names["uuid"] != nil && names["id"] == nil
}

// Stages returns the stages for a fleet that uses names. They are those of package placement; for
// Triton's records, they have Triton's arithmetic.
func (d *Document) Stages(names *placement.Names) ([]placement.Stage, error) {
	if d.Profile == nil {
		return placement.Stages(), nil
	}
	profile, err := d.Profile.With(names)
	if err != nil {
		return nil, err
	}
	return profile.Stages(), nil
}

// Evaluator returns an evaluator of the document in this process. The document must not be used
// afterwards.
func (d Document) Evaluator() (*remote.Local, error) {
	p := newPart(d)
	return remote.NewLocal(remote.Config{
		Profile: d.Stages,
		Servers: func(_ context.Context, q placement.Query) ([]placement.Server, error) { return p.matching(q), nil },
		Source: remote.Source{
			Instances: func(_ context.Context, server string) (list []placement.Instance, err error) {
				return p.instances[server], nil
			},
			Instance: func(_ context.Context, id string) (server, owner string, err error) { return p.location(id) },
			Group: func(_ context.Context, job, group string) (map[string][]placement.Instance, error) {
				return p.groups[groupName{job, group}], nil
			},
		},
	})
}

// instances reads the instances on one server, in the form of the document.
func (d *Document) instances(data []byte) ([]placement.Instance, error) {
	if d.Profile != nil {
		return d.Profile.Instances(data)
	}
	return fleetjson.ReadInstances(data)
}

// part is a document prepared for calls. It is immutable.
type part struct {
	Document                                  // the servers without their instances
	slots     map[string]int                  // slot of a server, by its id
	instances map[string][]placement.Instance // by server
	locations map[string]location             // by id of the instance
	groups    map[groupName]map[string][]placement.Instance
}

type location struct{ server, owner string }

type groupName struct{ job, group string }

func newPart(d Document) *part {
	p := &part{
		Document: d, slots: map[string]int{},
		instances: map[string][]placement.Instance{}, locations: map[string]location{},
		groups: map[groupName]map[string][]placement.Instance{},
	}
	for i := range d.Servers {
		s := &d.Servers[i]
		if _, twice := p.slots[s.ID]; twice { // the first one counts; the fleet reports the second
			s.Instances = nil
			continue
		}
		p.slots[s.ID] = i
		p.instances[s.ID] = s.Instances
		for _, in := range s.Instances {
			if in.ID != "" {
				p.locations[in.ID] = location{s.ID, in.Owner}
			}
			if in.Job == "" {
				continue
			}
			name := groupName{in.Job, in.Group}
			if p.groups[name] == nil {
				p.groups[name] = map[string][]placement.Instance{}
			}
			p.groups[name][s.ID] = append(p.groups[name][s.ID], in)
		}
		s.Instances = nil
	}
	return p
}

// location returns the server and the owner of an instance; both are empty for an unknown instance.
func (p *part) location(id string) (server, owner string, err error) {
	return p.locations[id].server, p.locations[id].owner, nil
}

// matching returns the servers that match a query.
func (p *part) matching(q placement.Query) []placement.Server {
	if p.Profile != nil {
		q.Platforms = nil // the profile may compare releases differently from a query
	}
	out := make([]placement.Server, 0, len(p.Servers))
	for i := range p.Servers {
		if q.Matches(&p.Servers[i]) {
			out = append(out, p.Servers[i])
		}
	}
	return out
}

func unknown(server string) error {
	return plimsoll.Errorf(plimsoll.CodeNotFound, "server %q is not one of this evaluator", server)
}
