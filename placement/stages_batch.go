package placement

import (
	"math"
	"slices"

	"github.com/plimsoll-dev/plimsoll"
)

// batchStages compare the servers of a batch with each other.
func batchStages() []Stage {
	return []Stage{
		{
			Name: "reservoir", Aliases: []string{"hard-filter-reservoir"}, ByClass: true,
			Keep: func(v *View) bool { return !v.class.record.Reservoir },
			Why:  func(*View) string { return "is a reservoir node, and there are others" },
		},
		{
			Name: "identity", Applies: func(*Prepared) bool { return false }, Keep: func(*View) bool { return true },
		},
		{
			Name: "large-servers", Aliases: []string{"hard-filter-large-servers"}, Reads: ReadsFree | ReadsInstances,
			Applies: func(p *Prepared) bool { return p.chain.Settings.LargeServers },
			Batch:   withoutLarge,
			Why: func(*View) string {
				return "is among the servers with the most free memory, which are kept for large instances"
			},
		},
		{
			Name: "soft-locality", Aliases: []string{"soft-filter-locality-hints"}, Reads: ReadsInstances,
			Batch: softLocality,
			Why: func(v *View) string {
				switch {
				case !v.p.namesInstances():
					return "has instances of the owner, and others have none"
				case v.holdsAny(v.p.softFar):
					return "holds instances that it should be far from, and others do not"
				}
				return "does not hold the instances that it should be near, and others do"
			},
		},
	}
}

// withoutLarge drops the 15 % of the servers with the most free memory. The rest is in the order of
// free memory, the most first, as in the original. A large set keeps its own order instead: that
// costs a look at each server and no sort, and differs only in the winner of a tie.
func withoutLarge(b *Batch, set []int32) []int32 {
	k := len(set) * 15 / 100
	switch {
	case k < 1:
		return set
	case len(set) > manyServers:
		b.keysByFree(set, IndexMemory, ^uint64(0))
		return b.dropLowest(set, k)
	}
	out := set[:0]
	for _, r := range b.rankedByFree(set, IndexMemory, ^uint64(0))[k:] {
		out = append(out, r.at)
	}
	return out
}

// namesInstances reports whether the request names instances that it is to be near to or far from.
func (p *Prepared) namesInstances() bool {
	return len(p.hardNear)+len(p.hardFar)+len(p.softNear)+len(p.softFar) > 0
}

// softLocality applies up to two filters, each unless it would drop all servers. The first drops
// servers with instances that the request should be far from, the second those without instances
// that it should be near. For a request that names neither, the servers with instances of its owner
// are dropped.
func softLocality(b *Batch, set []int32) []int32 {
	p := b.p
	if !p.namesInstances() {
		if !b.chain.Settings.OwnerSpread || len(p.custom) > 0 {
			return set
		}
		return b.withoutOwner(set)
	}
	if len(p.softFar) > 0 {
		set = b.unlessAll(set, func(i int32) bool { return !b.At(i).holdsAny(p.softFar) })
	}
	if len(p.softNear) > 0 {
		set = b.unlessAll(set, func(i int32) bool { return b.At(i).holdsAny(p.softNear) })
	}
	return set
}

// unlessAll keeps the servers for which keep is true, or all of them if there is none.
func (b *Batch) unlessAll(set []int32, keep func(int32) bool) []int32 {
	n := 0
	for k, i := range set {
		if keep(i) {
			// dropped servers may change places; if all are dropped, none did
			set[k], set[n] = set[n], i
			n++
		}
	}
	if n == 0 {
		return set
	}
	return set[:n]
}

// scoreStages returns the stages that order the survivors.
func scoreStages() []Stage {
	return []Stage{
		scoreStage("score-unreserved-memory", freeScore(IndexMemory), "score-unreserved-ram"),
		scoreStage("score-unreserved-disk", freeScore(IndexDisk)),
		scoreStage("score-unreserved-custom", scoreCustom),
		scoreStage("score-stranded-custom", scoreStranded),
		scoreStage("score-owner-instances", scoreOwner, "score-num-owner-zones"),
		scoreStage("score-current-platform", scorePlatform),
		scoreStage("score-next-reboot", scoreReboot),
		scoreStage("score-near", scoreNear),
		scoreStage("score-spread", scoreSpread),
		scoreStage("score-random", scoreRandom, "score-uniform-random"),
	}
}

func scoreStage(name string, score func(*Batch, []int32), aliases ...string) Stage {
	return Stage{
		Name: name, Aliases: aliases, Reads: ReadsFree | ReadsInstances, Scores: true,
		Batch: func(b *Batch, set []int32) []int32 {
			if len(set) > 0 {
				score(b, set)
			}
			return set
		},
	}
}

// strategy returns the request's strategy, or else the chain's.
func (b *Batch) strategy() plimsoll.Strategy {
	if s := b.p.Request.Preferences.Strategy; s != plimsoll.StrategyDefault {
		return s
	}
	return b.chain.Settings.Strategy
}

// linear adds (n-1-i)/(n-1) of the weight to the i-th of n servers, or all of it to a single one. A
// negative weight reverses the order.
func (b *Batch) linear(order []rank, weight float64) {
	n := len(order)
	if n > manyServers {
		step := math.Abs(weight) / float64(n-1)
		for i := range order {
			b.score[order[i].at] += float64(float64(n-1-turned(n, i, weight)) * step)
		}
		return
	}
	for i := range order {
		b.score[order[i].at] += share(n, turned(n, i, weight), math.Abs(weight))
	}
}

// share returns the part of a weight for the i-th of n servers.
func share(n, i int, weight float64) float64 {
	if n == 1 {
		return weight
	}
	return float64(float64(n-1-i) / float64(n-1) * weight)
}

// freeScore ranks by the amount left, the least first, so that servers are filled one after
// another. The strategies pack and spread give memory the weight 2 or -2 and turn disk off. Other
// strategies turn both off.
func freeScore(resource int) func(*Batch, []int32) {
	return func(b *Batch, set []int32) {
		w := &b.chain.Settings.Weights
		weight := w.UnreservedMemory
		if resource == IndexDisk {
			weight = w.UnreservedDisk
		}
		switch s := b.strategy(); {
		case s == plimsoll.StrategyDefault:
		case resource != IndexMemory:
			return
		case s == plimsoll.StrategyPack:
			weight = 2
		case s == plimsoll.StrategySpread:
			weight = -2
		default:
			return
		}
		if weight != 0 {
			b.linear(b.rankedByFree(set, resource, 0), weight)
		}
	}
}

// scoreOwner ranks by the instances of the owner, the fewest first.
func scoreOwner(b *Batch, set []int32) {
	weight := b.chain.Settings.Weights.OwnerInstances
	switch b.strategy() {
	case plimsoll.StrategyDefault:
	case plimsoll.StrategyFewestOwner:
		weight = 2
	default:
		return
	}
	if weight != 0 {
		b.linear(b.ranked(set, func(v *View) uint64 { return uint64(v.Owned()) }), weight)
	}
}

// scorePlatform adds most for the newest platform and least for the oldest. A platform that is no
// stamp counts as the oldest.
func scorePlatform(b *Batch, set []int32) {
	weight := b.chain.Settings.Weights.CurrentPlatform
	if weight == 0 || len(set) < 2 {
		return
	}
	low, high := int64(math.MaxInt64), int64(math.MinInt64)
	for _, id := range b.distinct(set) {
		if t := b.fleet.classes[id].platform; t != noTime {
			low, high = min(low, t), max(high, t)
		}
	}
	b.addByClass(set, func(c *class) float64 {
		t := c.platform
		switch {
		case low >= high: // all are the same
			return weight
		case weight >= 0 && t != noTime:
			return float64(t-low) / float64(high-low) * weight
		case weight < 0 && t != noTime:
			return float64(high-t) / float64(high-low) * -weight
		}
		return max(-weight, 0) // not a stamp: the oldest
	})
}

// addByClass adds a value that is computed once for each class to the scores of its servers.
func (b *Batch) addByClass(set []int32, value func(*class) float64) {
	for _, id := range b.distinct(set) {
		b.values[id] = value(b.fleet.classes[id])
	}
	for _, i := range set {
		b.score[i] += b.values[b.fleet.classAt[b.slots[i]]]
	}
}

// distinct returns the classes of the servers that are scored, which are the same for all scores of
// a chain.
func (b *Batch) distinct(set []int32) []uint32 {
	if len(b.classes) > 0 {
		return b.classes
	}
	b.newMark()
	for _, i := range set {
		if id := b.fleet.classAt[b.slots[i]]; b.marks[id] != b.mark {
			b.marks[id] = b.mark
			b.classes = append(b.classes, id)
		}
	}
	return b.classes
}

// week is the width of the buckets of scoreReboot, in seconds.
const week = 7 * 24 * 60 * 60

// scoreReboot ranks by the next reboot: none first, then from the latest to the soonest, in weeks
// counted back from the latest.
func scoreReboot(b *Batch, set []int32) {
	weight := b.chain.Settings.Weights.NextReboot
	if weight == 0 || len(set) < 2 {
		return
	}
	latest := int64(noTime)
	for _, id := range b.distinct(set) {
		latest = max(latest, b.fleet.classes[id].reboot)
	}
	weeks := b.weeks[:0]
	for _, id := range b.distinct(set) {
		if k := rebootWeek(b.fleet.classes[id].reboot, latest); !slices.Contains(weeks, k) {
			weeks = append(weeks, k)
		}
	}
	slices.Sort(weeks)
	b.weeks = weeks
	b.addByClass(set, func(c *class) float64 {
		place := slices.Index(weeks, rebootWeek(c.reboot, latest))
		return share(len(weeks), turned(len(weeks), place, weight), math.Abs(weight))
	})
}

// rebootWeek returns 0 without a reboot, and otherwise 1 plus the weeks between the reboot and the
// latest one.
func rebootWeek(at, latest int64) int64 {
	if at == noTime {
		return 0
	}
	return 1 + (latest-at)/week
}

// buckets is linear over groups of servers with equal keys, the lowest key first.
func (b *Batch) buckets(set []int32, weight float64, key func(int32) uint64) {
	b.keys = b.keys[:0]
	var distinct [16]uint64
	n := 0
	for _, i := range set {
		k := key(i)
		b.keys = append(b.keys, rank{k, i})
		if n <= len(distinct) && !slices.Contains(distinct[:min(n, len(distinct))], k) {
			if n < len(distinct) {
				distinct[n] = k
			}
			n++
		}
	}
	if n > len(distinct) {
		b.sort()
		b.sortedBuckets(weight)
		return
	}
	slices.Sort(distinct[:n])
	for _, r := range b.keys {
		b.score[r.at] += share(n, turned(n, slices.Index(distinct[:n], r.key), weight), math.Abs(weight))
	}
}

// sortedBuckets is buckets for many keys, which are sorted.
func (b *Batch) sortedBuckets(weight float64) {
	n := 1
	for i := 1; i < len(b.keys); i++ {
		if b.keys[i].key != b.keys[i-1].key {
			n++
		}
	}
	bucket := 0
	for i := range b.keys {
		if i > 0 && b.keys[i].key != b.keys[i-1].key {
			bucket++
		}
		b.score[b.keys[i].at] += share(n, turned(n, bucket, weight), math.Abs(weight))
	}
}

// turned returns a place among n, counted from the other end for a negative weight.
func turned(n, place int, weight float64) int {
	if weight < 0 {
		return n - 1 - place
	}
	return place
}

// scoreCustom ranks by the amounts left of the custom resources that are asked for, the least
// first. A request that asks for none goes to servers with the least free custom resources.
func scoreCustom(b *Batch, set []int32) {
	weight, f := b.chain.Settings.Weights.UnreservedCustom, b.fleet
	if weight == 0 || f.Names.Len() == firstCustom {
		return
	}
	custom := b.p.custom
	b.buckets(set, weight, func(i int32) uint64 {
		v := b.At(i)
		sum := int64(0)
		if len(custom) == 0 {
			for i := firstCustom; i < f.Names.Len(); i++ {
				sum += min(v.Free(i), math.MaxInt64/plimsoll.MaxResourceNames)
			}
		}
		for _, i := range custom {
			sum += min(v.Free(i), math.MaxInt64/plimsoll.MaxResourceNames)
		}
		return ordered(sum)
	})
}

// scoreNear ranks by the instances that the request prefers to be near to, less those that it
// prefers to be far from, the most first.
func scoreNear(b *Batch, set []int32) {
	p, weight := b.p, b.chain.Settings.Weights.Near
	if weight == 0 || len(p.softNear)+len(p.softFar) == 0 {
		return
	}
	b.buckets(set, weight, func(i int32) uint64 {
		v := b.At(i)
		n := int64(0)
		for i := range p.softNear {
			n -= int64(v.hits(&p.softNear[i]))
		}
		for i := range p.softFar {
			n += int64(v.hits(&p.softFar[i]))
		}
		return ordered(n)
	})
}

// scoreSpread ranks, for each preferred spread, by the instances of the group with the same value,
// the fewest first.
func scoreSpread(b *Batch, set []int32) {
	weight := b.chain.Settings.Weights.Spread
	for _, c := range b.p.softSpread {
		b.buckets(set, weight, func(i int32) uint64 {
			v := b.At(i)
			value := b.fleet.valueOf(c.domain, v.slot)
			if value < 0 {
				return math.MaxUint64
			}
			return uint64(c.at(value))
		})
	}
}

// scoreRandom ranks at random.
func scoreRandom(b *Batch, set []int32) {
	weight := b.chain.Settings.Weights.Random
	switch b.strategy() {
	case plimsoll.StrategyDefault:
	case plimsoll.StrategyRandom:
		weight = 2
	default:
		return
	}
	if weight == 0 {
		return
	}
	if len(set) > manyServers { // among so many servers a random score is as good as a random place
		unit := math.Abs(weight) / math.MaxInt32
		for _, i := range set {
			b.score[i] += float64(float64(b.random(math.MaxInt32)) * unit)
		}
		return
	}
	b.keys = b.keys[:0]
	for _, i := range set {
		b.keys = append(b.keys, rank{at: i})
	}
	for i := len(b.keys) - 1; i > 0; i-- {
		j := b.random(i + 1)
		b.keys[i], b.keys[j] = b.keys[j], b.keys[i]
	}
	b.linear(b.keys, weight)
}
