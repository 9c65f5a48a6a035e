package placement

import (
	"fmt"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
)

// recordStages returns the stages that read the server's own record only.
func recordStages() []Stage { return slices.Concat(closingStages(), attributeStages(), choiceStages()) }

// closingStages returns the stages that close servers, and volumes-from, which RFD 60 has between
// them because it leaves one server at most.
func closingStages() []Stage {
	return []Stage{
		{
			Name: "setup", Aliases: []string{"hard-filter-setup"}, Closes: true, ByClass: true,
			Keep: func(v *View) bool { return v.class.record.Setup },
			Why:  func(*View) string { return "not set up" },
		},
		{
			Name: "running", Aliases: []string{"hard-filter-running"}, Closes: true, ByClass: true,
			Keep: func(v *View) bool { return v.class.record.Status == StatusRunning },
			Why:  func(v *View) string { return notRunning(v.class.record.Status) },
		},
		{
			Name: "invalid-servers", Aliases: []string{"hard-filter-invalid-servers"}, Closes: true, ByClass: true,
			Keep: func(v *View) bool { return v.class.record.Fault == "" },
			Why:  func(v *View) string { return "its record cannot be used: " + v.class.record.Fault },
		},
		{
			Name: "volumes-from", Aliases: []string{"hard-filter-volumes-from"},
			Applies: func(p *Prepared) bool { return len(p.Request.Constraints.VolumesFrom) > 0 },
			Keep:    func(v *View) bool { return v.holdsVolumes() },
			Why:     func(v *View) string { return v.p.volumes.why },
		},
		{
			Name: "reserved", Aliases: []string{"hard-filter-reserved", "schedulable"}, Closes: true, ByClass: true,
			excepts: true,
			Keep:    func(v *View) bool { return v.class.record.Reserved == "" && v.exception() == nil },
			Why: func(v *View) string {
				if x := v.exception(); v.class.record.Reserved == "" && x != nil {
					return x.Why
				}
				return v.class.record.Reserved
			},
		},
	}
}

// exception returns the exclusion that keeps the request from the server, nil if there is none.
func (v *View) exception() *Exclusion {
	if v.anyOf {
		return nil
	}
	for i := range v.p.Request.Except {
		if x := &v.p.Request.Except[i]; x.Server == v.ID() {
			return x
		}
	}
	return nil
}

// attributeStages returns the stages that compare attributes of a server with the request.
func attributeStages() []Stage {
	return []Stage{
		{
			Name: "networks", Aliases: []string{"vlans", "hard-filter-vlans"}, ByClass: true,
			Applies: func(p *Prepared) bool { return p.Request.Constraints.Networks != nil },
			Keep:    func(v *View) bool { return v.class.record.Networks != nil && v.lackingNetwork() < 0 },
			Why:     whyNetwork,
		},
		{
			Name: "platform-versions", Aliases: []string{"hard-filter-platform-versions"}, ByClass: true,
			Applies: func(p *Prepared) bool { return len(p.platforms) > 0 },
			Keep:    func(v *View) bool { return v.platformProblem(compareReleases) == "" },
			Why:     func(v *View) string { return v.platformProblem(compareReleases) },
		},
		{
			Name: "traits", Aliases: []string{"hard-filter-traits"}, ByClass: true,
			Keep: func(v *View) bool { return v.traitProblem() == "" },
			Why:  (*View).traitProblem,
		},
		{
			Name: "headnode", Aliases: []string{"hard-filter-headnode"}, ByClass: true,
			Applies: func(p *Prepared) bool { return !p.chain.Settings.Headnodes },
			Keep:    func(v *View) bool { return !v.class.record.Headnode },
			Why:     func(*View) string { return "is a head node" },
		},
		{
			Name: "overprovision-ratios", Aliases: []string{"hard-filter-overprovision-ratios"}, ByClass: true,
			Applies: func(p *Prepared) bool { return !p.Request.AnyClass },
			Keep:    func(v *View) bool { return v.ratioProblem() == "" },
			Why:     (*View).ratioProblem,
		},
	}
}

// choiceStages returns the stages that RFD 60 lacks, by which a request names the servers that suit
// it.
func choiceStages() []Stage {
	return []Stage{
		{
			Name:    "names",
			Applies: func(p *Prepared) bool { return len(p.Request.Constraints.Nodes) > 0 },
			Keep: func(v *View) bool {
				for _, pattern := range v.p.Request.Constraints.Nodes {
					if matchName(pattern, v.ID()) {
						return true
					}
				}
				return false
			},
			Why: func(*View) string { return "not one of the nodes that are asked for" },
		},
		{
			Name: "reservoir-use", ByClass: true,
			Applies: func(p *Prepared) bool { return p.Request.Constraints.Reservoir != plimsoll.ReservoirLast },
			Keep: func(v *View) bool {
				return v.class.record.Reservoir == (v.p.Request.Constraints.Reservoir == plimsoll.ReservoirOnly)
			},
			Why: func(v *View) string {
				if v.class.record.Reservoir {
					return "is a reservoir node"
				}
				return "is not a reservoir node"
			},
		},
		{
			Name:    "where",
			Applies: func(p *Prepared) bool { return p.where != nil },
			alike:   func(p *Prepared) bool { return p.where.byClass },
			Keep:    func(v *View) bool { ok, err := v.p.where.matches(v); return ok && err == nil },
			Why: func(v *View) string {
				if _, err := v.p.where.matches(v); err != nil {
					return "the where expression fails: " + err.Error()
				}
				return "the where expression is false"
			},
		},
	}
}

func notRunning(status string) string {
	if status == "" {
		return "not running: its status is not known"
	}
	return status
}

// lackingNetwork returns the first entry of the request that no network of the server meets, -1 if
// there is none.
func (v *View) lackingNetwork() int {
	up := v.class.record.Networks
	for i, alternatives := range v.p.Request.Constraints.Networks {
		met := false
		for _, name := range alternatives {
			met = met || up[name]
		}
		if !met {
			return i
		}
	}
	return -1
}

func whyNetwork(v *View) string {
	nets := v.class.record.Networks
	if nets == nil {
		return "has no networks"
	}
	i := v.lackingNetwork()
	if i < 0 {
		return "" // it has all
	}
	alternatives := v.p.Request.Constraints.Networks[i]
	for _, name := range alternatives {
		if _, known := nets[name]; known {
			return fmt.Sprintf("network %s is not up", name)
		}
	}
	return "has no network " + strings.Join(alternatives, " or ")
}

func (v *View) traitProblem() string {
	return traitProblem(v.p.Request.Constraints.Traits, v.class.record.Traits)
}

func (v *View) ratioProblem() string {
	return ratioProblem(v.p.Request.Constraints.Class, v.class.record.Overprovision)
}

// traitProblem says why a server's traits do not suit a request: the server must have exactly the
// traits that are asked for.
func traitProblem(asked, has map[string]plimsoll.Trait) string {
	if len(asked) == 0 && len(has) == 0 {
		return ""
	}
	for _, name := range sortedKeys(asked) {
		t, ok := has[name]
		if !ok {
			return "lacks trait " + name
		}
		if !asked[name].Matches(t) {
			return "has another value of trait " + name
		}
	}
	if len(asked) == len(has) {
		return ""
	}
	for _, name := range sortedKeys(has) {
		if _, ok := asked[name]; !ok {
			return "has trait " + name + ", which is not asked for"
		}
	}
	return ""
}

// platformProblem says which range of platforms the server is outside of.
func (v *View) platformProblem(compare func(a, b string) int) string {
	for _, r := range v.p.platforms {
		if !minPlatform(r.Min, v.class.record.Release, v.class.record.Platform, compare) {
			return "platform " + platformName(v) + " is too old"
		}
		if !maxPlatform(r.Max, v.class.record.Release, v.class.record.Platform, compare) {
			return "platform " + platformName(v) + " is too new"
		}
	}
	return ""
}

func platformName(v *View) string {
	if v.class.record.Platform == "" {
		return "unknown"
	}
	return v.class.record.Platform
}

// matchName reports whether a name matches a pattern with * for any text and ? for any character.
func matchName(pattern, name string) bool {
	star, from := -1, 0
	i, j := 0, 0
	for j < len(name) {
		switch {
		case i < len(pattern) && pattern[i] == '*':
			star, from = i, j
			i++
		case i < len(pattern) && (pattern[i] == '?' || pattern[i] == name[j]):
			i++
			j++
		case star >= 0:
			from++
			i, j = star+1, from
		default:
			return false
		}
	}
	return strings.Trim(pattern[i:], "*") == ""
}
