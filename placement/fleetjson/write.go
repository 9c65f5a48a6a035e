package fleetjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// WriteServers writes a fleet as ReadServers reads it, each server on a line.
func WriteServers(servers []placement.Server) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("{\"servers\": [")
	for i := range servers {
		line, err := WriteServer(&servers[i])
		if err != nil {
			return nil, fmt.Errorf("write servers[%d]: %w", i, err)
		}
		b.WriteString(map[bool]string{true: "\n", false: ",\n"}[i == 0])
		b.Write(line)
	}
	b.WriteString("\n]}\n")
	return b.Bytes(), nil
}

// WriteServer writes a server as ReadServer reads it.
func WriteServer(s *placement.Server) ([]byte, error) {
	out := serverJSON{
		ID: s.ID, Reserved: s.Reserved, Fault: s.Fault, Headnode: s.Headnode, Reservoir: s.Reservoir,
		Capacity: quantities(s.Capacity),
		Reserve:  s.Reserve, Overprovision: s.Overprovision, Traits: traitValues(s.Traits), Networks: s.Networks,
		Release:  s.Release,
		Platform: s.Platform, LastBoot: s.LastBoot, NextReboot: s.NextReboot, MaxTasks: s.MaxTasks,
		Labels: s.Labels,
	}
	for i := range s.Instances {
		in := &s.Instances[i]
		out.Instances = append(out.Instances, instanceJSON{
			in.ID, in.Owner, in.Job, in.Group, in.Labels, quantities(in.Resources), in.Failed, quantities(in.Left),
			in.Modified,
		})
	}
	if !s.Setup {
		out.Setup = &s.Setup
	}
	if s.Status != placement.StatusRunning {
		out.Status = &s.Status
	}
	data, err := json.Marshal(&out)
	if err != nil {
		return nil, fmt.Errorf("write server %q: %w", s.ID, err)
	}
	return data, nil
}

// serverJSON is the written form of a server. Fields with their default are left out.
type serverJSON struct {
	ID            string             `json:"id"`
	Setup         *bool              `json:"setup,omitempty"`
	Status        *string            `json:"status,omitempty"`
	Reserved      string             `json:"reserved,omitempty"`
	Fault         string             `json:"fault,omitempty"`
	Headnode      bool               `json:"headnode,omitempty"`
	Reservoir     bool               `json:"reservoir,omitempty"`
	Capacity      map[string]string  `json:"capacity,omitempty"`
	Reserve       map[string]float64 `json:"reserve,omitempty"`
	Overprovision map[string]float64 `json:"overprovision,omitempty"`
	Traits        map[string]any     `json:"traits,omitempty"`
	Networks      map[string]bool    `json:"networks,omitzero"` // an empty object differs from an absent one
	Release       string             `json:"release,omitempty"`
	Platform      string             `json:"platform,omitempty"`
	LastBoot      int64              `json:"lastBoot,omitempty"`
	NextReboot    int64              `json:"nextReboot,omitempty"`
	MaxTasks      int32              `json:"maxTasks,omitempty"`
	Labels        map[string]string  `json:"labels,omitempty"`
	Instances     []instanceJSON     `json:"instances,omitempty"`
}

type instanceJSON struct {
	ID        string            `json:"id,omitempty"`
	Owner     string            `json:"owner,omitempty"`
	Job       string            `json:"job,omitempty"`
	Group     string            `json:"group,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	Resources map[string]string `json:"resources,omitempty"`
	Failed    bool              `json:"failed,omitempty"`
	Left      map[string]string `json:"left,omitempty"`
	Modified  int64             `json:"modified,omitempty"`
}

// WriteRequest writes a request as ReadRequest reads it.
func WriteRequest(r *placement.Request) ([]byte, error) {
	c, p := &r.Constraints, &r.Preferences
	out := requestJSON{
		Owner: r.Owner, Job: r.Job, Group: r.Group, Resources: quantities(r.Resources), Needs: quantities(r.Needs),
		OwnOnly: r.OwnOnly, AnyClass: r.AnyClass,
		Constraints: constraintsJSON{
			Traits: traitValues(c.Traits), Networks: c.Networks, Platform: platformOf(c.Platform),
			VolumesFrom: c.VolumesFrom,
			Near:        selectorsOf(c.Near), Far: selectorsOf(c.Far), Nodes: c.Nodes, Class: c.Class, Where: c.Where,
		},
		Preferences: preferencesJSON{Near: selectorsOf(p.Near), Far: selectorsOf(p.Far)},
	}
	for _, s := range c.Spread {
		out.Constraints.Spread = append(out.Constraints.Spread, spreadJSON(s))
	}
	if c.Reservoir != plimsoll.ReservoirLast {
		out.Constraints.Reservoir = c.Reservoir.String()
	}
	for _, s := range p.Spread {
		out.Preferences.Spread = append(out.Preferences.Spread, s.By)
	}
	if p.Strategy != plimsoll.StrategyDefault {
		out.Preferences.Strategy = p.Strategy.String()
	}
	for _, x := range r.Except {
		out.Except = append(out.Except, exclusionJSON(x))
	}
	for _, platforms := range r.Platforms {
		out.Platforms = append(out.Platforms, platformOf(platforms))
	}
	data, err := json.Marshal(&out)
	if err != nil {
		return nil, fmt.Errorf("write a request: %w", err)
	}
	return data, nil
}

type requestJSON struct {
	Owner       string            `json:"owner,omitempty"`
	Job         string            `json:"job,omitempty"`
	Group       string            `json:"group,omitempty"`
	Resources   map[string]string `json:"resources,omitempty"`
	Constraints constraintsJSON   `json:"constraints,omitzero"`
	Preferences preferencesJSON   `json:"preferences,omitzero"`
	Needs       map[string]string `json:"needs,omitempty"`
	Platforms   []platformJSON    `json:"platforms,omitempty"`
	OwnOnly     bool              `json:"ownOnly,omitempty"`
	AnyClass    bool              `json:"anyClass,omitempty"`
	Except      []exclusionJSON   `json:"except,omitempty"`
}

type exclusionJSON struct {
	Server string `json:"server"`
	Why    string `json:"why"`
}

type constraintsJSON struct {
	Traits      map[string]any     `json:"traits,omitempty"`
	Networks    [][]string         `json:"networks,omitzero"` // an empty list asks for a node whose networks are known
	Platform    platformJSON       `json:"platform,omitzero"`
	VolumesFrom []string           `json:"volumesFrom,omitempty"`
	Near        []selectorJSON     `json:"near,omitempty"`
	Far         []selectorJSON     `json:"far,omitempty"`
	Spread      []spreadJSON       `json:"spread,omitempty"`
	Nodes       []string           `json:"nodes,omitempty"`
	Reservoir   string             `json:"reservoir,omitempty"`
	Class       map[string]float64 `json:"class,omitempty"`
	Where       string             `json:"where,omitempty"`
}

type preferencesJSON struct {
	Near     []selectorJSON `json:"near,omitempty"`
	Far      []selectorJSON `json:"far,omitempty"`
	Spread   []string       `json:"spread,omitempty"`
	Strategy string         `json:"strategy,omitempty"`
}

type platformJSON struct {
	Min map[string]string `json:"min,omitempty"`
	Max map[string]string `json:"max,omitempty"`
}

type selectorJSON struct {
	Task  string `json:"task,omitempty"`
	Job   string `json:"job,omitempty"`
	Label string `json:"label,omitempty"`
}

type spreadJSON struct {
	By      string `json:"by"`
	MaxSkew int32  `json:"maxSkew"`
}

// quantities writes exact amounts in the form of a job file.
func quantities(r plimsoll.Resources) map[string]string {
	if len(r) == 0 {
		return nil
	}
	out := make(map[string]string, len(r))
	for _, name := range r.Names() {
		out[name] = plimsoll.FormatQuantity(name, r[name])
	}
	return out
}

func traitValues(traits map[string]plimsoll.Trait) map[string]any {
	if len(traits) == 0 {
		return nil
	}
	out := make(map[string]any, len(traits))
	for _, name := range slices.Sorted(maps.Keys(traits)) {
		switch t := traits[name]; {
		case t.Words == nil:
			out[name] = t.Flag
		case len(t.Words) == 1:
			out[name] = t.Words[0]
		default:
			out[name] = t.Words
		}
	}
	return out
}

func platformOf(p plimsoll.PlatformRange) platformJSON {
	if len(p.Min)+len(p.Max) == 0 {
		return platformJSON{}
	}
	return platformJSON(p)
}

func selectorsOf(list []plimsoll.Selector) []selectorJSON {
	var out []selectorJSON
	for _, s := range list {
		out = append(out, selectorJSON(s))
	}
	return out
}
