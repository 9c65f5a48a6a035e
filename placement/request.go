package placement

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
)

// Request is what is to be placed, once or many times.
type Request struct {
	Owner       string
	Job, Group  string // what Constraints.Spread counts: instances of this group of this job
	Resources   plimsoll.Resources
	Constraints plimsoll.Constraints
	Preferences plimsoll.Preferences
	// by name: what must be free, where that is not Resources after over-provisioning
	Needs     plimsoll.Resources
	Platforms []plimsoll.PlatformRange // more ranges, all to be met, such as that of an image
	// near and far mean instances of the request's owner only, if they are given by id
	OwnOnly  bool
	AnyClass bool        // any over-provisioning will do
	Except   []Exclusion // servers that do not take it for now
}

// Exclusion keeps a request from one server for now; the stage reserved does that.
type Exclusion struct {
	Server string // its id
	Why    string // for people
}

// MaxExclusions is how many servers one request may be kept from.
const MaxExclusions = 64

// Validate reports the first field that cannot be used. It is laxer than plimsoll.JobSpec.Validate,
// which knows what ids look like in a job file: here they are those of any fleet.
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
	tag  uint32 // of a job or label; 0: it selects one instance
	id   string
	slot int32 // where the instance is, while the server set is being filtered; -1: not known
}

// Prepared is a request made ready for a fleet and a chain. It remembers which classes of servers
// pass the filters that look at records only, so keep it for requests that are alike. It is bound
// to the placer's goroutine, as the fleet is. Release it.
type Prepared struct {
	Request Request

	chain   *Chain
	fleet   *Fleet
	amounts Amounts
	needs   Amounts // amounts after over-provisioning: what is compared with what is free
	custom  []int   // indexes of custom resources that are asked for
	owner   uint32
	group   uint32 // tag of the group; 0 if nothing spreads
	where   *ruleCache
	owners  []*ruleCache // the owner rules of the chain that decide for the request
	owned   bool         // owners holds the rule of the request's own owner
	volumes volumes

	platforms []plimsoll.PlatformRange

	watched                              []uint32 // tags that selectors and spreads ask about
	hardNear, hardFar, softNear, softFar []selector
	hardSpread                           []hardSpread
	softSpread                           []*counter
	allowed                              allowed // the servers whose values hard spreads count

	epoch    uint64  // of the fleet's classes that verdicts is about
	verdicts []uint8 // by class: 0 not known, 1 kept, otherwise 2 + index of the stage in chain.prefix that drops it
	skips    []bool  // by stage of the chain: it does nothing for this request
	bounded  bool    // as Fleet.bounded when skips was found
	byClass  []int   // stages of the prefix that are asked once a class
	byServer []int   // stages of the prefix that are asked for each server
	plan     []planItem
	looked   int  // servers that it was compared with
	watching bool // its owner is watched
}

// Prepare makes a request ready. It fails if the request is invalid or brings too many resource
// names.
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
	if text := r.Constraints.Where; text != "" {
		rule, err := CompileRule(text)
		if err == nil && rule.reads {
			err = errors.New(
				"the expression asks for node.free or node.instances, which are not known so early; use resources",
			)
		}
		if err != nil {
			return nil, plimsoll.Invalid("constraints.where", "%s", err)
		}
		p.where = &ruleCache{Rule: rule}
	}
	p.amounts, _ = f.Names.Amounts(r.Resources)
	p.needs = p.amounts
	for i := range p.amounts {
		if i >= firstCustom && p.amounts[i] > 0 {
			p.custom = append(p.custom, i)
		}
		if i < f.Names.Len() {
			ratio := r.Constraints.Class[f.Names.Name(i)]
			if ratio > 0 {
				p.needs[i] = counted(math.Ceil(float64(p.amounts[i]) / promised(ratio)))
			}
			if n, ok := r.Needs[f.Names.Name(i)]; ok {
				p.needs[i] = n
			}
		}
	}
	p.tag()
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
	for i := range c.prefix {
		switch stage := c.root.items[i].stage; {
		case p.skips[stage]:
		case c.stages[stage].ByClass:
			p.byClass = append(p.byClass, stage)
			if c.stages[stage].excepts && len(r.Except) > 0 {
				p.byServer = append(p.byServer, stage)
			}
		default:
			p.byServer = append(p.byServer, stage)
		}
	}
	p.allowed.watch(p)
	return p, nil
}

// choose finds the stages that do something for the request. Of those in the prefix that does not
// change later.
func (p *Prepared) choose() {
	p.bounded = p.fleet.bounded
	p.skips = make([]bool, len(p.chain.stages))
	for i, s := range p.chain.stages {
		p.skips[i] = s.Applies != nil && !s.Applies(p)
	}
	p.plan = p.chain.plan(p)
}

func (p *Prepared) tag() {
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

// Release gives back what the fleet keeps for the request. The value cannot be used after it.
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

// Amounts returns what is asked for.
func (p *Prepared) Amounts() *Amounts { return &p.amounts }

// Relations returns a number that changes whenever instances came to or left servers in a way that
// the request's near, far, spread or volumes-from could notice; 0 for a request that has none of
// them. It lets a caller know when to try again.
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

// Distant is Relations for those by which an instance that comes to or leaves one server lets
// another take the request: spread and volumes-from. What is near or far makes a difference only
// where the instance came or left, unless the request is spread: then it decides which values
// count.
func (p *Prepared) Distant() uint64 {
	sum := uint64(0)
	if len(p.hardSpread) > 0 {
		sum += p.fleet.tags.info[p.group].version + p.fleet.shifts + p.neighbours()
	}
	if list := p.Request.Constraints.VolumesFrom; len(list) > 0 {
		sum += uint64(p.fleet.volumesAt(list)+2) << 40 // where they are, and not each move of others
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
