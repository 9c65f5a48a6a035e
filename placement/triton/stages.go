package triton

import (
	"math"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// Stages returns the stages of package placement, with Triton's arithmetic in those that need it.
func (p *Profile) Stages() []placement.Stage {
	list := placement.Stages()
	for i := range list {
		switch s := &list[i]; s.Name {
		case "calculate-unreserved":
			s.Applies, s.Keep = nil, p.calculate
		case "min-memory":
			applyPackageRules(s, plimsoll.Memory)
		case "min-cpu":
			applyPackageRules(s, plimsoll.CPU)
		case "min-disk":
			applyPackageRules(s, plimsoll.Disk)
		case "platform-versions":
			if p.TextReleases {
				*s = placement.PlatformStage(strings.Compare)
			}
		}
	}
	return list
}

// applyPackageRules gives a stage that compares amounts Triton's rules for packages. Without a
// package any server will do. A package without a ratio goes to servers without one.
func applyPackageRules(s *placement.Stage, name string) {
	applies, keep, why := s.Applies, s.Keep, s.Why
	mismatch := func(v *placement.View) bool { return !(v.Request().Constraints.Class[name] > 0) }
	s.Applies = func(r *placement.Prepared) bool { return !r.Request.AnyClass && applies(r) }
	s.Keep = func(v *placement.View) bool {
		if mismatch(v) {
			return v.Record().Overprovision[name] == 0
		}
		return keep(v)
	}
	s.Why = func(v *placement.View) string {
		if mismatch(v) {
			return "over-provisions " + name + ", which the package does not ask for"
		}
		return why(v)
	}
}

// calculate computes the amounts left on a server, in whole percents of a core and MiB. It drops no
// server.
func (p *Profile) calculate(v *placement.View) bool {
	h := p.hosts[v.ID()]
	if !h.described {
		v.SetFree(placement.IndexCPU, 0)
		v.SetFree(placement.IndexMemory, 0)
		v.SetFree(placement.IndexDisk, 0)
		return true
	}
	used := func(i int) float64 { return float64(v.Used(i)) }

	cpu := h.cores * 100
	if v.Uncapped() > 0 {
		cpu = 0 // a machine without a cap may take all, and the others are promised beside it
	}
	cpu -= used(placement.IndexCPU) / milliPercent / h.ratio(v, plimsoll.CPU)
	v.SetFree(placement.IndexCPU, floor(cpu)*milliPercent)

	memory := h.memory/mib*(1-h.reserve) - used(placement.IndexMemory)/mib/h.ratio(v, plimsoll.Memory) - used(p.hvm)/mib
	v.SetFree(placement.IndexMemory, floor(memory)*mib)

	quota := h.quota + used(placement.IndexDisk)
	promised := h.pool - h.fixed - used(p.volumes) - h.filled - (quota-h.filled)/h.ratio(v, plimsoll.Disk)
	v.SetFree(placement.IndexDisk, floor(min(promised, h.pool-h.alloc)/mib)*mib)
	return true
}

// floor returns the whole part of an amount, within the bounds of any unit.
func floor(n float64) int64 {
	const most = float64(plimsoll.MaxAmount / mib)
	return int64(math.Floor(max(-most, min(n, most))))
}

// ratio returns how often a resource may be promised on a server. A record without any ratios
// promises cpu 4 times.
func (h *host) ratio(v *placement.View, name string) float64 {
	switch r := v.Record().Overprovision[name]; {
	case r > 0:
		return r
	case !h.ratios && name == plimsoll.CPU:
		return 4
	}
	return 1
}
