package fleetjson

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// reservedUnsaid is the reason for "reserved": true, which gives none.
const reservedUnsaid = "reserved"

// ReadServers reads a fleet from JSON: a list of servers, or an object with such a list in its
// field "servers", as WriteServers writes it. A server has an id and any of these fields:
//
//	setup, status            true and "running" unless they are given
//	headnode, reservoir      false unless they are given
//	reserved                 true, or why the server takes no instances
//	capacity (or resources)  {"cpu": 8, "memory": "32Gi", "disk": "1Ti", "gpu": 2}
//	reserve, overprovision   {"memory": 0.15}, {"cpu": 4}
//	traits                   {"ssd": true, "tier": "gold", "gpu": ["a100", "h100"]}
//	networks                 {"external": true, "storage": false}, or ["external"] if all are up
//	release, platform        "7.0", "20260114T101500Z"
//	lastBoot, nextReboot     Unix seconds, or "2026-01-31T08:00:00Z"
//	maxTasks                 the most instances that the server takes
//	labels                   {"rack": "r1"}
//	fault                    why the record cannot be used
//	instances                a list of objects with the fields id, owner, job, group, labels,
//	                         resources, failed, left and modified
//
// A record that cannot be used keeps its place: its server has the reason as its Fault, and the
// filter invalid-servers drops it. Without an id of its own the server is named by its place in the
// list. Only a document without a list is an error.
func ReadServers(data []byte) ([]placement.Server, error) {
	raw, err := document(data)
	if err != nil {
		return nil, err
	}
	list, err := serverList(data, raw)
	if err != nil {
		return nil, err
	}
	servers := make([]placement.Server, len(list))
	r := newReader()
	owners := make(map[string]int, len(list))
	for i, record := range list {
		servers[i] = r.server(record)
		s := &servers[i]
		if s.ID == "" {
			continue
		}
		if other, taken := owners[s.ID]; taken {
			*s = faulty(
				"", fmt.Sprintf("id: %q is the id of servers[%d] already; give each server its own", s.ID, other),
			)
			continue
		}
		owners[s.ID] = i
	}
	for i := range servers {
		if servers[i].ID != "" {
			continue
		}
		id := fmt.Sprintf("servers[%d]", i)
		for _, taken := owners[id]; taken; _, taken = owners[id] {
			id += "'"
		}
		servers[i].ID, owners[id] = id, i
	}
	return servers, nil
}

// ReadServer reads one server as ReadServers does: an error in the record becomes its fault.
func ReadServer(data []byte) (placement.Server, error) {
	raw, err := document(data)
	if err != nil {
		return placement.Server{}, err
	}
	return newReader().server(raw), nil
}

// serverList returns the records of a document.
func serverList(data []byte, raw json.RawMessage) ([]json.RawMessage, error) {
	start := 1 + skip(data, 0)
	list := raw
	if first(raw) == '{' {
		list = nil
		newReader().pairs(raw, func(name string, value json.RawMessage) {
			if name == "servers" {
				list = value
			}
		})
		if first(list) != '[' {
			return nil, notJSON(
				data, start, fmt.Sprintf(`the field "servers" is %s; put the list of servers there`, what(list)),
			)
		}
	}
	if first(list) != '[' {
		return nil, notJSON(
			data, start, fmt.Sprintf(`it is %s; write a list of servers, or {"servers": [ … ]}`, what(list)),
		)
	}
	return slices.Collect(items(list)), nil
}

// faulty returns a server whose record cannot be used. All its other fields are in order, so that
// no other reason hides the fault.
func faulty(id, fault string) placement.Server {
	return placement.Server{ID: id, Setup: true, Status: placement.StatusRunning, Fault: fault}
}

// server reads a record. The first error in it becomes its fault.
func (r *reader) server(raw json.RawMessage) placement.Server {
	s := placement.NewServer("", nil)
	r.err, r.path = nil, r.path[:0]
	given := "" // the name under which the capacity was given
	capacity := func(name string) read {
		return func(raw json.RawMessage) {
			if given != "" {
				r.fail("is the same as %s; give one of them", given)
			}
			given = name
			r.amounts(&s.Capacity)(raw)
		}
	}
	r.object(
		raw,
		member{"id", r.text(&s.ID)},
		member{"setup", r.flag(&s.Setup)},
		member{"status", r.text(&s.Status)},
		member{"reserved", r.reserved(&s.Reserved)},
		member{"fault", r.text(&s.Fault)},
		member{"headnode", r.flag(&s.Headnode)},
		member{"reservoir", r.flag(&s.Reservoir)},
		member{"capacity", capacity("capacity")},
		member{"resources", capacity("resources")},
		member{"reserve", r.ratios(&s.Reserve)},
		member{"overprovision", r.ratios(&s.Overprovision)},
		member{"traits", r.traits(&s.Traits)},
		member{"networks", r.links(&s.Networks)},
		member{"release", r.text(&s.Release)},
		member{"platform", r.text(&s.Platform)},
		member{"lastBoot", r.moment(&s.LastBoot)},
		member{"nextReboot", r.moment(&s.NextReboot)},
		member{"maxTasks", r.most(&s.MaxTasks)},
		member{"labels", r.textMap(&s.Labels)},
		member{"instances", func(raw json.RawMessage) {
			r.list(raw, func(raw json.RawMessage) {
				var in placement.Instance
				r.instance(&in)(raw)
				s.Instances = append(s.Instances, in)
			})
		}},
	)
	switch {
	case r.err != nil && first(raw) != '{':
		return faulty("", fmt.Sprintf("the record is %s; write an object", what(raw)))
	case r.err != nil:
		return faulty(s.ID, r.err.Error())
	case s.Fault != "":
		return s
	}
	if err := s.Validate(); err != nil {
		return faulty(s.ID, err.Error())
	}
	return s
}

func (r *reader) reserved(into *string) read {
	return func(raw json.RawMessage) {
		switch first(raw) {
		case 't':
			*into = reservedUnsaid
		case 'f':
			*into = ""
		case '"':
			r.text(into)(raw)
		default:
			r.fail("is %s; write true, false, or why the server takes no instances", what(raw))
		}
	}
}

// links reads the networks of a server: an object of name and state, or the names of those that are
// up.
func (r *reader) links(into *map[string]bool) read {
	return func(raw json.RawMessage) {
		out := map[string]bool{}
		if first(raw) == '[' {
			var names []string
			r.texts(&names)(raw)
			for _, name := range names {
				out[name] = true
			}
		} else {
			r.pairs(raw, func(name string, raw json.RawMessage) {
				var up bool
				r.flag(&up)(raw)
				out[name] = up
			})
		}
		if len(out) > plimsoll.MaxNodeNetworks {
			r.fail("has %d entries; at most %d are possible", len(out), plimsoll.MaxNodeNetworks)
		}
		*into = out
	}
}

func (r *reader) instance(in *placement.Instance) read {
	return func(raw json.RawMessage) {
		r.object(
			raw,
			member{"id", r.text(&in.ID)},
			member{"owner", r.text(&in.Owner)},
			member{"job", r.text(&in.Job)},
			member{"group", r.text(&in.Group)},
			member{"labels", r.textMap(&in.Labels)},
			member{"resources", r.amounts(&in.Resources)},
			member{"failed", r.flag(&in.Failed)},
			member{"left", r.amounts(&in.Left)},
			member{"modified", r.moment(&in.Modified)},
		)
	}
}
