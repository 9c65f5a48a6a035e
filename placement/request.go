package placement

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
)

// Request describes instances that are to be placed, one or many of them.
type Request struct {
	Owner       string
	Job, Group  string // the instances that spreads count: those of this group of this job
	Resources   plimsoll.Resources
	Constraints plimsoll.Constraints
	Preferences plimsoll.Preferences
	// Needs is, by resource, the amount that must be free if Resources after over-provisioning is
	// not.
	Needs     plimsoll.Resources
	Platforms []plimsoll.PlatformRange // further ranges that must be met, such as that of an image
	// OwnOnly restricts near and far by instance id to instances of the request's owner.
	OwnOnly  bool
	AnyClass bool        // any over-provisioning is accepted
	Except   []Exclusion // servers that may not take the request for now
}

// Exclusion keeps a request off one server for now; the stage reserved applies it.
type Exclusion struct {
	Server string // id of the server
	Why    string // shown to users
}

// MaxExclusions is the largest number of servers that one request may be kept off.
const MaxExclusions = 64

// Validate reports the first field that cannot be used. It accepts any ids, unlike
// plimsoll.JobSpec.Validate, which knows the ids of a job file.
func (r *Request) Validate() error {
	if err := r.Resources.Validate("resources"); err != nil {
		return err
	}
	if err := r.Needs.Validate("needs"); err != nil {
		return err
	}
	c, p := &r.Constraints, &r.Preferences
	for _, list := range []struct {
		field    string
		n, bound int
	}{
		{"constraints.traits", len(c.Traits), plimsoll.MaxTraits},
		{"constraints.networks", len(c.Networks), plimsoll.MaxNetworks},
		{"constraints.volumesFrom", len(c.VolumesFrom), plimsoll.MaxVolumesFrom},
		{"constraints.near", len(c.Near), plimsoll.MaxSelectors},
		{"constraints.far", len(c.Far), plimsoll.MaxSelectors},
		{"constraints.spread", len(c.Spread), plimsoll.MaxSpreads},
		{"constraints.nodes", len(c.Nodes), plimsoll.MaxNodePatterns},
		{"constraints.class", len(c.Class), plimsoll.MaxRatios},
		{"preferences.near", len(p.Near), plimsoll.MaxSelectors},
		{"preferences.far", len(p.Far), plimsoll.MaxSelectors},
		{"preferences.spread", len(p.Spread), plimsoll.MaxSpreads},
		{"except", len(r.Except), MaxExclusions},
	} {
		if list.n > list.bound {
			return plimsoll.Invalid(list.field, "has %d entries; at most %d are possible", list.n, list.bound)
		}
	}
	for i, s := range c.Spread {
		if s.By == "" || s.MaxSkew < 1 {
			return plimsoll.Invalid(
				fmt.Sprintf("constraints.spread[%d]", i), "needs a label to spread by and a maxSkew of 1 or more",
			)
		}
	}
	return validRatios("constraints.class", c.Class)
}

// selector is a plimsoll.Selector, resolved against a fleet.
type selector struct {
	tag  uint32 // tag of a job or label; 0: the selector names one instance
	id   string // id of the instance, if tag is 0
	slot int32  // slot of the instance as of Prepared.resolve; -1: not known
}

// Prepared is a request resolved against a fleet and a chain. It remembers which classes of servers
// pass the filters on records, so keep it for all equal requests. It is used by one goroutine at a
// time, that of the fleet. Release it when it is no longer needed.
type Prepared struct {
	Request Request

	chain   *Chain
	fleet   *Fleet
	amounts Amounts
	needs   Amounts // amounts after over-provisioning, which are compared with the amounts left
	custom  []int   // indexes of the custom resources that are asked for
	owner   uint32  // tag of the owner
	group   uint32  // tag of the group; 0 if the request has no spread
	where   *ruleCache
	owners  []*ruleCache // owner rules of the chain that decide for the request
	owned   bool         // Invariant: if set, owners holds just the rule of the request's own owner
	volumes volumes

	platforms []plimsoll.PlatformRange

	// tags of selectors and the group, in the order of RecordedServer.Hits
	watched                              []uint32
	hardNear, hardFar, softNear, softFar []selector
	hardSpread                           []hardSpread
	softSpread                           []*counter
	allowed                              allowed // servers whose values hard spreads count

	epoch    uint64     // Fleet.epoch that verdicts belongs to
	verdicts []uint8    // by index of the class, as of epoch; see verdictUnknown
	skips    []bool     // by stage of the chain: the stage does nothing for this request
	bounded  bool       // Fleet.bounded when skips was computed
	byClass  []int      // stages of the prefix that are asked once for each class
	byServer []int      // stages of the prefix that are asked for each server
	plan     []planItem // items of the chain behind the prefix that do something
	looked   int        // servers that the request was compared with
	watching bool       // the fleet keeps a bitmap of its owner's servers
}

// Prepare resolves a request against a fleet. It fails if the request is invalid or brings too many
// resource names.
func (c *Chain) Prepare(f *Fleet, r *Request) (*Prepared, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	if err := f.Names.Check("resources", r.Resources); err != nil {
		return nil, err
	}
	if err := f.Loader.validate(); err != nil {
		return nil, err
	}
	spreads := len(r.Constraints.Spread)+len(r.Preferences.Spread) > 0
	if f.lazy() && spreads && f.Loader.Spreads == nil {
		return nil, plimsoll.Invalid(
			"constraints.spread",
			"needs to count the instances of all servers, and this fleet loads them; book them instead",
		)
	}
	if err := f.checkVolumes(r.Constraints.VolumesFrom); err != nil {
		return nil, err
	}
	p := &Prepared{Request: *r, chain: c, fleet: f}
	if err := p.compileWhere(); err != nil {
		return nil, err
	}
	p.countAmounts()
	p.acquireTags()
	if spreads && f.Loader.Spreads != nil {
		if err := p.spreadsGiven(); err != nil {
			p.Release()
			return nil, err
		}
	}
	if c := &r.Constraints.Platform; len(c.Min)+len(c.Max) > 0 {
		p.platforms = append(p.platforms, *c)
	}
	p.platforms = append(p.platforms, r.Platforms...)
	p.owners, p.owned = c.rulesFor(r.Owner)
	p.choose()
	p.splitPrefix()
	p.allowed.prepare(p)
	return p, nil
}

// compileWhere compiles the request's where expression, which may not read instances.
func (p *Prepared) compileWhere() error {
	text := p.Request.Constraints.Where
	if text == "" {
		return nil
	}
	rule, err := CompileRule(text)
	if err == nil && rule.reads {
		err = errors.New(
			"the expression asks for node.free or node.instances, which are not known so early; use resources",
		)
	}
	if err != nil {
		return plimsoll.Invalid("constraints.where", "%s", err)
	}
	p.where = &ruleCache{Rule: rule}
	return nil
}

// countAmounts computes the amounts of the request, with and without over-provisioning.
func (p *Prepared) countAmounts() {
	names, r := p.fleet.Names, &p.Request
	p.amounts, _ = names.Amounts(r.Resources)
	p.needs = p.amounts
	for i := range p.amounts {
		if i >= firstCustom && p.amounts[i] > 0 {
			p.custom = append(p.custom, i)
		}
		if i < names.Len() {
			ratio := r.Constraints.Class[names.Name(i)]
			if ratio > 0 {
				p.needs[i] = counted(math.Ceil(float64(p.amounts[i]) / effectiveRatio(ratio)))
			}
			if n, ok := r.Needs[names.Name(i)]; ok {
				p.needs[i] = n
			}
		}
	}
}

// splitPrefix divides the stages of the prefix into those by class and those by server.
func (p *Prepared) splitPrefix() {
	c := p.chain
	for i := range c.prefix {
		switch stage := c.root.items[i].stage; {
		case p.skips[stage]:
		case c.stages[stage].ByClass:
			p.byClass = append(p.byClass, stage)
			if c.stages[stage].excepts && len(p.Request.Except) > 0 {
				p.byServer = append(p.byServer, stage)
			}
		default:
			p.byServer = append(p.byServer, stage)
		}
	}
}

// choose computes skips and the plan. The skipped stages of the prefix never change later.
func (p *Prepared) choose() {
	p.bounded = p.fleet.bounded
	p.skips = make([]bool, len(p.chain.stages))
	for i, s := range p.chain.stages {
		p.skips[i] = s.Applies != nil && !s.Applies(p)
	}
	p.plan = p.chain.plan(p)
}

// acquireTags acquires the tags and counters of the request, until Release.
func (p *Prepared) acquireTags() {
	f, c, prefs := p.fleet, &p.Request.Constraints, &p.Request.Preferences
	p.owner = f.tags.acquire(ownerTag(p.Request.Owner))
	p.hardNear, p.hardFar = p.selectors(c.Near), p.selectors(c.Far)
	p.softNear, p.softFar = p.selectors(prefs.Near), p.selectors(prefs.Far)
	if len(c.Spread)+len(prefs.Spread) == 0 {
		return
	}
	p.group = f.tags.acquire(groupTag(p.Request.Job, p.Request.Group))
	p.watched = append(p.watched, p.group)
	for _, s := range c.Spread {
		p.hardSpread = append(p.hardSpread, hardSpread{counter: f.count(p.group, s)})
	}
	for _, s := range prefs.Spread {
		p.softSpread = append(p.softSpread, f.count(p.group, s))
	}
}

func (p *Prepared) selectors(list []plimsoll.Selector) []selector {
	var out []selector
	for _, s := range list {
		switch {
		case s.Task != "":
			out = append(out, selector{id: s.Task, slot: -1})
		case s.Job != "":
			out = append(out, p.watch(jobTag(s.Job)))
		default:
			out = append(out, p.watch(labelTag(s.Label)))
		}
	}
	return out
}

// watch returns a selector of the instances with a tag.
func (p *Prepared) watch(name string) selector {
	tag := p.fleet.tags.acquire(name)
	p.watched = append(p.watched, tag)
	return selector{tag: tag, slot: -1}
}

// Release gives the tags and counters of the request back to the fleet. The request cannot be used
// after it.
func (p *Prepared) Release() {
	t := &p.fleet.tags
	if p.watching {
		p.fleet.unwatchOwner(p.owner)
	}
	for _, c := range p.counters() {
		p.fleet.uncount(c)
	}
	for _, list := range [][]selector{p.hardNear, p.hardFar, p.softNear, p.softFar} {
		for _, s := range list {
			t.release(s.tag)
		}
	}
	t.release(p.owner)
	t.release(p.group)
	p.fleet = nil
}

// Amounts returns the amounts that are asked for.
func (p *Prepared) Amounts() *Amounts { return &p.amounts }

// Relations returns a number that changes with every move of an instance that could matter to the
// request's near, far, spread or volumesFrom. A caller compares it to know when to try again. It is
// 0 for a request without such constraints.
func (p *Prepared) Relations() uint64 {
	sum := p.Distant()
	for _, list := range [][]selector{p.hardNear, p.hardFar} {
		for _, s := range list {
			if s.tag == 0 {
				sum += p.fleet.moves
			} else {
				sum += p.fleet.tags.info[s.tag].version
			}
		}
	}
	if p.relational() {
		return sum + 1
	}
	return 0
}

// Distant is Relations restricted to moves that let another server take the request than the one
// where the instance came or left. These are moves that matter to spread and volumesFrom. near and
// far count only with a spread, where they decide which values count.
func (p *Prepared) Distant() uint64 {
	sum := uint64(0)
	if len(p.hardSpread) > 0 {
		sum += p.fleet.tags.info[p.group].version + p.fleet.shifts + p.neighbours()
	}
	if list := p.Request.Constraints.VolumesFrom; len(list) > 0 {
		sum += uint64(p.fleet.volumesAt(list)+2) << 40 // their server, which not every move of other instances changes
	}
	return sum
}

func (p *Prepared) relational() bool {
	return len(p.hardNear)+len(p.hardFar)+len(p.hardSpread)+len(p.Request.Constraints.VolumesFrom) > 0
}

func ownerTag(owner string) string      { return "o\x00" + owner }
func jobTag(job string) string          { return "j\x00" + job }
func labelTag(pair string) string       { return "l\x00" + pair }
func groupTag(job, group string) string { return strings.Join([]string{"g", job, group}, "\x00") }
