package placement

import (
	"fmt"
	"slices"
)

// loadStages returns the stages that load the instances of servers and calculate the amounts left.
func loadStages() []Stage {
	return []Stage{
		{
			Name: "load-instances", Aliases: []string{"load-server-vms"}, Gives: ReadsInstances,
			Batch: func(b *Batch, set []int32) []int32 { return b.load(set) },
			Keep:  func(v *View) bool { return v.batch.fault[v.slot] == "" },
			Why:   func(v *View) string { return v.batch.fault[v.slot] },
		},
		{
			Name: "calculate-tickets", Aliases: []string{"calculate-ticketed-vms"}, Reads: ReadsInstances,
			Batch: func(b *Batch, set []int32) []int32 { return b.applyTickets(set) },
			Keep:  func(v *View) bool { return v.row.tickets == 0 },
			Why:   func(*View) string { return "an instance of unknown size is on its way to it" },
		},
		{
			Name: "capness", Aliases: []string{"hard-filter-capness"}, Reads: ReadsInstances,
			Applies: func(p *Prepared) bool { return p.chain.Settings.Capness },
			Keep: func(v *View) bool {
				if v.p.amounts[IndexCPU] > 0 {
					return v.row.uncapped == 0
				}
				return v.row.uncapped == v.row.count
			},
			Why: func(v *View) string {
				if v.p.amounts[IndexCPU] > 0 {
					return "has instances without a bound on cpu"
				}
				return "has instances with a bound on cpu"
			},
		},
		{
			Name: "instance-count", Aliases: []string{"vm-count", "hard-filter-vm-count"}, Reads: ReadsInstances,
			clear:   full,
			Applies: func(p *Prepared) bool { return p.chain.Settings.MaxInstances > 0 || p.fleet.bounded },
			Keep:    func(v *View) bool { return !v.atSetting() && !v.class.fullWith(v.row.count) },
			Why: func(v *View) string {
				if v.atSetting() {
					return fmt.Sprintf("has %d instances or more", v.settings().MaxInstances)
				}
				return fmt.Sprintf("has as many instances as it takes, %d", v.class.record.MaxTasks)
			},
		},
		{
			Name: "sick-servers", Aliases: []string{"hard-filter-sick-servers"}, Reads: ReadsInstances, clear: sick,
			Keep: func(v *View) bool { return v.row.flags&sick == 0 || !v.isSick() },
			Why:  func(*View) string { return "the last two instances failed on it" },
		},
		{
			Name: "calculate-unreserved", Aliases: []string{"calculate-server-unreserved"}, Reads: ReadsInstances,
			Gives:   ReadsFree,
			Applies: func(*Prepared) bool { return false }, // rows keep the amounts left up to date
			Keep:    func(*View) bool { return true },
		},
	}
}

// atSetting reports whether the server has as many instances as the chain's settings allow on any.
func (v *View) atSetting() bool {
	most := v.settings().MaxInstances
	return most > 0 && int(v.row.count) >= most
}

// isSick reports whether the two newest outcomes, both failures, are recent.
func (v *View) isSick() bool {
	return v.fleet.loads[v.slot].last[1].at > v.batch.now-v.settings().sickFor()
}

// roomStages returns the stages that compare the request with the amounts left and the instances.
func roomStages() []Stage {
	return []Stage{
		roomStage("min-memory", IndexMemory, "min-ram", "hard-filter-min-ram"),
		roomStage("min-cpu", IndexCPU, "hard-filter-min-cpu"),
		roomStage("min-disk", IndexDisk, "hard-filter-min-disk"),
		{
			Name: "min-custom", Reads: ReadsFree | ReadsInstances,
			Applies: func(p *Prepared) bool { return len(p.custom) > 0 && !p.chain.Settings.NoRoom },
			Keep:    func(v *View) bool { return v.lackingCustom() < 0 },
			Why: func(v *View) string {
				if i := v.lackingCustom(); i >= 0 {
					return "not enough " + v.fleet.Names.Name(i)
				}
				return ""
			},
		},
		{
			Name: "locality", Aliases: []string{"locality-hints", "hard-filter-locality-hints"}, Reads: ReadsInstances,
			Applies:   func(p *Prepared) bool { return len(p.hardNear)+len(p.hardFar) > 0 },
			restricts: func(*Prepared) bool { return true },
			Keep:      func(v *View) bool { return !v.holdsAny(v.p.hardFar) && v.holdsAll(v.p.hardNear) },
			Why: func(v *View) string {
				if v.holdsAny(v.p.hardFar) {
					return "holds instances that it must be far from"
				}
				return "does not hold the instances that it must be near"
			},
		},
		{
			Name: "spread", Reads: ReadsInstances,
			Applies: func(p *Prepared) bool { return len(p.hardSpread) > 0 },
			Keep:    func(v *View) bool { return v.skewed() < 0 },
			Why:     whySpread,
		},
		{
			Name: "owners-servers", Aliases: []string{"hard-filter-owners-servers"}, Reads: ReadsFree | ReadsInstances,
			Applies:   func(p *Prepared) bool { return len(p.owners) > 0 },
			restricts: func(p *Prepared) bool { return !p.ownersRead() },
			alike:     (*Prepared).ownersAlike,
			Keep:      func(v *View) bool { return v.ownerProblem() == "" },
			Why:       func(v *View) string { return v.ownerProblem() },
		},
	}
}

func roomStage(name string, i int, aliases ...string) Stage {
	return Stage{
		Name: name, Aliases: aliases, Reads: ReadsFree | ReadsInstances, room: i + 1,
		Applies: func(p *Prepared) bool { return p.amounts[i] > 0 && !p.chain.Settings.NoRoom },
		Keep:    func(v *View) bool { return v.Free(i) >= v.p.needs[i] },
		Why:     func(v *View) string { return "not enough " + v.fleet.Names.Name(i) },
	}
}

func (v *View) lackingCustom() int {
	for _, i := range v.p.custom {
		if v.Free(i) < v.p.needs[i] {
			return i
		}
	}
	return -1
}

// ownerProblem says which owner rule keeps the request from the server.
func (v *View) ownerProblem() string {
	for _, rule := range v.p.owners {
		switch ok, err := rule.matches(v); {
		case err != nil:
			return "an owner rule fails: " + err.Error()
		case v.p.owned && !ok:
			return "is not one of its owner's servers"
		case !v.p.owned && ok:
			return "is kept for another owner"
		}
	}
	return ""
}

// ownersRead reports whether an owner rule reads the amounts left or the instances.
func (p *Prepared) ownersRead() bool {
	return slices.ContainsFunc(p.owners, func(r *ruleCache) bool { return r.reads })
}

// ownersAlike reports whether the owner rules have one answer for all servers of a class.
func (p *Prepared) ownersAlike() bool {
	return !slices.ContainsFunc(p.owners, func(r *ruleCache) bool { return !r.byClass })
}
