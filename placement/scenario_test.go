package placement_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// The files in testdata/scenario tell what the chain does with a fleet, in these commands:
//
//	server n0 cpu=4 memory=8Gi label=rack:r1 trait=ssd network=admin reservoir headnode
//	server n1 cpu=4 platform=20260101T000000Z status=unknown reserved=cordoned
//	server n0 gone
//	bind n0 count=2 cpu=1 memory=1Gi owner=bob job=b group=g label=app:db
//	place cpu=1 owner=alice job=a group=g book count=3 # a line for each choice; book: book it
//	explain cpu=1                                      # the steps of all stages of the chain
//	capacity                                           # the amounts left on every server
//
// place and explain also take trait=ssd, network=admin, near=app:db, far=app:db, prefer-near=…,
// prefer-far=…, spread=rack:1, prefer-spread=rack, nodes=n*, reservoir=never and where=(…). Rewrite
// the expected output with -rewrite, and read the difference before you commit it.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenario", func(t *testing.T, path string) {
		f := placement.NewFleet(placement.NewNames())
		s := &scenario{fleet: f, placer: newPlacer(f, 1)}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.t = t
			switch d.Cmd {
			case "server":
				return s.server(d)
			case "bind":
				return s.bind(d)
			case "place":
				return s.place(d)
			case "explain":
				return s.explain(d)
			case "capacity":
				return s.capacity()
			}
			t.Fatalf("%s: there is no command %q", d.Pos, d.Cmd)
			return ""
		})
	})
}

type scenario struct {
	t      *testing.T
	fleet  *placement.Fleet
	placer *placement.Placer
}

func (s *scenario) quantity(name, text string) int64 {
	v, err := plimsoll.ParseQuantity(name, text)
	if err != nil {
		s.t.Fatal(err)
	}
	return v
}

func (s *scenario) number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

// each calls do for every argument behind the first so many, with its value: the name, or what
// stands in brackets.
func each(d *datadriven.TestData, first int, do func(key, value string)) {
	for _, arg := range d.CmdArgs[first:] {
		do(arg.Key, strings.Join(arg.Vals, ","))
	}
}

func (s *scenario) server(d *datadriven.TestData) string {
	server := placement.NewServer(d.CmdArgs[0].Key, plimsoll.Resources{})
	server.Labels, server.Traits, server.Networks = map[string]string{}, map[string]plimsoll.Trait{}, map[string]bool{}
	gone := false
	each(d, 1, func(key, value string) {
		switch key {
		case "gone":
			gone = true
		case "label":
			name, text, _ := strings.Cut(value, ":")
			server.Labels[name] = text
		case "trait":
			server.Traits[value] = plimsoll.Trait{Flag: true}
		case "network":
			server.Networks[value] = true
		case "platform":
			server.Platform = value
		case "reservoir":
			server.Reservoir = true
		case "headnode":
			server.Headnode = true
		case "status":
			server.Status = value
		case "reserved":
			server.Reserved = value
		default:
			server.Capacity[key] = s.quantity(key, value)
		}
	})
	if gone {
		s.fleet.Remove(s.fleet.Slot(server.ID))
		return ""
	}
	s.fleet.Add(&server)
	return ""
}

func (s *scenario) bind(d *datadriven.TestData) string {
	in, count := placement.Instance{Resources: plimsoll.Resources{}, Labels: map[string]string{}}, 1
	each(d, 1, func(key, value string) {
		switch key {
		case "count":
			count = s.number(value)
		case "owner":
			in.Owner = value
		case "job":
			in.Job = value
		case "group":
			in.Group = value
		case "label":
			name, text, _ := strings.Cut(value, ":")
			in.Labels[name] = text
		default:
			in.Resources[key] = s.quantity(key, value)
		}
	})
	kind := s.fleet.Kind(&in)
	for range count {
		s.fleet.Bind(s.fleet.Slot(d.CmdArgs[0].Key), kind)
	}
	return ""
}

func selectorOf(value string) []plimsoll.Selector {
	if name, text, ok := strings.Cut(value, ":"); ok {
		return []plimsoll.Selector{{Label: name + "=" + text}}
	}
	return []plimsoll.Selector{{Job: value}}
}

func (s *scenario) request(d *datadriven.TestData) (r *placement.Request, count int, book bool) {
	r, count = &placement.Request{Resources: plimsoll.Resources{}}, 1
	c, p := &r.Constraints, &r.Preferences
	each(d, 0, func(key, value string) {
		switch key {
		case "count":
			count = s.number(value)
		case "book":
			book = true
		case "owner":
			r.Owner = value
		case "job":
			r.Job = value
		case "group":
			r.Group = value
		case "trait":
			c.Traits = map[string]plimsoll.Trait{value: {Flag: true}}
		case "network":
			c.Networks = append(c.Networks, []string{value})
		case "near":
			c.Near = selectorOf(value)
		case "far":
			c.Far = selectorOf(value)
		case "prefer-near":
			p.Near = selectorOf(value)
		case "prefer-far":
			p.Far = selectorOf(value)
		case "spread":
			by, skew, _ := strings.Cut(value, ":")
			c.Spread = []plimsoll.Spread{{By: by, MaxSkew: int32(s.number(skew))}}
		case "prefer-spread":
			p.Spread = []plimsoll.Spread{{By: value}}
		case "nodes":
			c.Nodes = []string{value}
		case "where":
			c.Where = value
		case "reservoir":
			c.Reservoir = map[string]plimsoll.ReservoirUse{
				"never": plimsoll.ReservoirNever, "only": plimsoll.ReservoirOnly,
			}[value]
		default:
			r.Resources[key] = s.quantity(key, value)
		}
	})
	return r, count, book
}

func (s *scenario) place(d *datadriven.TestData) string {
	r, count, book := s.request(d)
	p, err := placement.Default().Prepare(s.fleet, r)
	if err != nil {
		return err.Error() + "\n"
	}
	defer p.Release()
	kind := s.fleet.Kind(&placement.Instance{Owner: r.Owner, Job: r.Job, Group: r.Group, Resources: r.Resources})
	var out strings.Builder
	for range count {
		choice := s.placer.Place(p, 0)
		if choice.Slot < 0 {
			x := s.placer.Explain(p, 0)
			fmt.Fprintf(&out, "none of %d: %s\n", choice.Looked, x.Summary())
			break
		}
		fmt.Fprintf(&out, "%s, score %.2f\n", s.fleet.ID(choice.Slot), choice.Score)
		if book {
			s.fleet.Bind(choice.Slot, kind)
		}
	}
	return out.String()
}

func (s *scenario) explain(d *datadriven.TestData) string {
	r, _, _ := s.request(d)
	p, err := placement.Default().Prepare(s.fleet, r)
	if err != nil {
		return err.Error() + "\n"
	}
	defer p.Release()
	x := s.placer.Explain(p, 0)
	var out strings.Builder
	fmt.Fprintf(
		&out, "%d servers: %d open, %d eligible, %d would fit if empty, %d fit\n", x.Servers, x.Open, x.Eligible,
		x.FitEmpty, x.Fit,
	)
	for _, step := range x.Steps {
		if step.Dropped == 0 && step.Refused == 0 {
			continue
		}
		fmt.Fprintf(
			&out, "%s (%s): %d of %d left, refuses %d in all\n", step.Stage, step.Kind, step.Remaining, step.Received,
			step.Refused,
		)
		for _, reason := range step.Reasons {
			fmt.Fprintf(&out, "  %s: %s\n", reason.Text, strings.Join(reason.Examples, " "))
		}
	}
	return out.String()
}

func (s *scenario) capacity() string {
	var out strings.Builder
	c, err := placement.CapacityChain(placement.Stages())
	if err != nil {
		s.t.Fatal(err)
	}
	var slots []int32
	for slot := range int32(s.fleet.Len()) {
		if s.fleet.ID(slot) != "" {
			slots = append(slots, slot)
		}
	}
	list, err := s.placer.Capacities(c, slots, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, one := range list {
		fmt.Fprintf(&out, "%s, %d instances:", one.Server, one.Instances)
		for _, name := range slices.Sorted(maps.Keys(one.Free)) {
			fmt.Fprintf(&out, " %s %s", name, plimsoll.FormatQuantity(name, one.Free[name]))
		}
		out.WriteString(strings.TrimSuffix(" "+one.Why, " ") + "\n")
	}
	return out.String()
}
