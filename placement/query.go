package placement

import (
	"reflect"
	"slices"

	"github.com/plimsoll-dev/plimsoll"
)

// Query tells a source of servers which ones it may leave out when it lists them for a request (RFD
// 60, phase 1). It holds the chain's filters on records, as far as they can be written as data. A
// source may ignore any part of it, because the chain filters again.
type Query struct {
	Setup       bool // only servers that are set up
	Running     bool // only servers that run
	Unreserved  bool // only servers that take instances
	NoHeadnodes bool

	// Traits leaves servers that have exactly these traits, each with a value that matches. If it
	// is empty, see NoTraits.
	Traits   map[string]plimsoll.Trait
	NoTraits bool // only servers without traits

	Networks  [][]string               // one network of each entry is up; nil: any
	Platforms []plimsoll.PlatformRange // all ranges are met
	Nodes     []string                 // patterns of ids with * and ?, one of which is met; empty: any
	Reservoir plimsoll.ReservoirUse    // never and only leave servers out; last does not

	Class    map[string]float64 // if OneClass is set, only servers with exactly these over-provisioning ratios
	OneClass bool
}

// Query returns the filters that a source of servers may apply for the request. Alternatives of an
// or are left out, and so are filters that a program has put in place of the package's own. A
// request with a spread asks for every server, because instances on ineligible servers count too. A
// Loader with Spreads lifts that.
func (p *Prepared) Query() Query {
	var q Query
	if p.group != 0 && p.fleet.Loader.Spreads == nil {
		return q
	}
	own := recordStages()
	for _, item := range p.chain.root.items[:p.chain.prefix] {
		s := &p.chain.stages[item.stage]
		i := slices.IndexFunc(own, func(o Stage) bool { return o.Name == s.Name })
		if i < 0 || !sameFunc(own[i].Keep, s.Keep) || !sameFunc(own[i].Applies, s.Applies) || p.skips[item.stage] {
			continue
		}
		q.push(s.Name, p)
	}
	return q
}

// sameFunc reports whether two functions without variables of their own are the same.
func sameFunc[F any](a, b F) bool {
	return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer()
}

// push adds the condition of one of the package's filters.
func (q *Query) push(stage string, p *Prepared) {
	c := &p.Request.Constraints
	switch stage {
	case "setup":
		q.Setup = true
	case "running":
		q.Running = true
	case "reserved":
		q.Unreserved = true
	case "headnode":
		q.NoHeadnodes = true
	case "traits":
		q.Traits, q.NoTraits = c.Traits, len(c.Traits) == 0
	case "networks":
		q.Networks = c.Networks
	case "platform-versions":
		q.Platforms = p.platforms
	case "names":
		q.Nodes = c.Nodes
	case "reservoir-use":
		q.Reservoir = c.Reservoir
	case "overprovision-ratios":
		q.Class, q.OneClass = c.Class, true
	}
}

// Matches reports whether a server meets the query. A server whose record cannot be used meets
// every query: the chain drops it and says why.
func (q Query) Matches(s *Server) bool {
	switch {
	case s.Fault != "":
		return true
	case q.Setup && !s.Setup,
		q.Running && s.Status != StatusRunning,
		q.Unreserved && s.Reserved != "",
		q.NoHeadnodes && s.Headnode:
		return false
	case (q.NoTraits || len(q.Traits) > 0) && traitProblem(q.Traits, s.Traits) != "",
		q.OneClass && ratioProblem(q.Class, s.Overprovision) != "",
		q.Reservoir != plimsoll.ReservoirLast && s.Reservoir != (q.Reservoir == plimsoll.ReservoirOnly):
		return false
	}
	return q.networksMet(s.Networks) && q.platformsMet(s) && q.nameMet(s.ID)
}

func (q *Query) networksMet(up map[string]bool) bool {
	if q.Networks == nil {
		return true
	}
	for _, alternatives := range q.Networks {
		if !slices.ContainsFunc(alternatives, func(name string) bool { return up[name] }) {
			return false
		}
	}
	return up != nil
}

func (q *Query) platformsMet(s *Server) bool {
	for _, r := range q.Platforms {
		if !minPlatform(r.Min, s.Release, s.Platform, compareReleases) ||
			!maxPlatform(r.Max, s.Release, s.Platform, compareReleases) {
			return false
		}
	}
	return true
}

func (q *Query) nameMet(id string) bool {
	return len(q.Nodes) == 0 ||
		slices.ContainsFunc(q.Nodes, func(pattern string) bool { return matchName(pattern, id) })
}
