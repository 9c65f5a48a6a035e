package placement

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
)

// Reads is a set of facts that a stage reads and that earlier stages must have given.
type Reads uint8

// The facts of a server.
const (
	ReadsRecord    Reads = 0         // only the server's own record
	ReadsInstances Reads = 1 << iota // the instances on the server
	ReadsFree                        // the amounts left on the server
)

// Stage is a named part of a chain: a filter of single servers (Keep), a filter that compares the
// servers of a batch (Batch), or a score (Batch with Scores set). A stage with both runs Batch, and
// Keep repeats the verdict about one server afterwards. Stages are stateless values.
type Stage struct {
	Name    string
	Aliases []string // other names, such as those of RFD 60
	Reads   Reads
	Gives   Reads // facts that later stages may read
	Closes  bool  // Keep asks if the server takes instances at all now, whatever the request
	ByClass bool  // Keep reads only the record without the id, so that it is asked once for equal servers
	Scores  bool  // Batch adds to scores and drops nothing

	// Applies reports whether the stage does anything for a request; nil: always.
	Applies func(*Prepared) bool
	// Keep reports whether a server stays.
	Keep func(*View) bool
	// Batch returns the servers of a batch that stay, in the order in which they go on. It may
	// reorder and cut the slice.
	Batch   func(*Batch, []int32) []int32
	excepts bool  // Keep also reads the exclusions of the request, which name servers
	room    int   // index + 1 of the resource whose room Keep compares, if it reads nothing else
	clear   uint8 // flags of a row: Keep is true if the row has none of them; 0: no such flags

	// restricts reports whether the stage is a constraint of the request although it reads
	// instances. A spread does not count the servers that such a stage drops. nil: it is not.
	restricts func(*Prepared) bool
	// alike reports whether Keep has one answer for all servers of a class for this request,
	// although ByClass is not set; nil: it does not.
	alike func(*Prepared) bool

	// Why says in a few words why a server was dropped: the same words for the same reason.
	Why func(*View) string
}

// Chain is a checked expression of stages with its settings. It is immutable, and can be shared.
type Chain struct {
	Settings Settings
	Text     Expression

	root   *node
	stages []Stage          // in the order of the chain, alternatives included
	prefix int              // number of first items of the root that are filters on records only
	rules  map[string]*Rule // compiled owner rules by owner
}

type node struct {
	op    string // "", "pipe" or "or"
	stage int
	items []*node
}

// NewChain checks an expression against the given stages and returns the chain. definitions are
// expressions that others may name; settings are read by the stages.
func NewChain(e Expression, stages []Stage, definitions map[string]Expression, settings Settings) (*Chain, error) {
	if err := settings.validate(); err != nil {
		return nil, err
	}
	c := &Chain{Settings: settings, Text: e, rules: map[string]*Rule{}}
	for _, owner := range sortedKeys(settings.OwnerRules) {
		rule, err := CompileRule(settings.OwnerRules[owner])
		if err != nil {
			return nil, plimsoll.Invalid("owner-rules."+owner, "%s", err)
		}
		c.rules[owner] = rule
	}
	b := builder{chain: c, definitions: definitions, stages: map[string]Stage{}}
	for _, s := range stages {
		for _, name := range append([]string{s.Name}, s.Aliases...) {
			b.stages[name] = s
		}
	}
	root, _, err := b.build(e, "chain", ReadsRecord)
	if err != nil {
		return nil, err
	}
	c.root = root
	for c.root.op == "pipe" && c.prefix < len(root.items) {
		n := root.items[c.prefix]
		if s := &c.stages[n.stage]; n.op != "" || s.Keep == nil || s.Batch != nil || s.Reads != ReadsRecord {
			break
		}
		c.prefix++
	}
	return c, nil
}

// planItem is a part of a chain as it runs: adjacent filters, or one node of another kind.
type planItem struct {
	keeps []planKeep
	node  *node
}

// planKeep is a filter of a plan.
type planKeep struct {
	stage int
	keep  func(*View) bool
	room  int // room and clear are those of the stage
	clear uint8
	need  int64
}

// plan returns the items of a pipe behind its prefix, without the stages that do nothing for the
// request.
func (c *Chain) plan(p *Prepared) (plan []planItem) {
	if c.root.op != "pipe" {
		return nil
	}
	for _, item := range c.root.items[c.prefix:] {
		s := &c.stages[item.stage]
		last := len(plan) - 1
		switch {
		case item.op != "" || s.Batch != nil && !p.skips[item.stage]:
			plan = append(plan, planItem{node: item})
			continue
		case p.skips[item.stage]:
			continue
		case last < 0 || plan[last].node != nil:
			plan = append(plan, planItem{})
			last++
		}
		k := planKeep{stage: item.stage, keep: s.Keep, room: s.room, clear: s.clear}
		if k.room > 0 {
			k.need = p.needs[k.room-1]
		}
		if c.Settings.MaxInstances > 0 {
			k.clear &^= full // the flag full follows the records' bounds, not this one
		}
		plan[last].keeps = append(plan[last].keeps, k)
	}
	return plan
}

type builder struct {
	chain       *Chain
	stages      map[string]Stage
	definitions map[string]Expression
	open        []string // definitions that are being built
	scored      string   // the first score so far
}

// build checks an expression and returns its node and the facts that later stages may read.
func (b *builder) build(e Expression, field string, have Reads) (*node, Reads, error) {
	if e.Name != "" {
		if d, ok := b.definitions[e.Name]; ok {
			return b.define(e.Name, d, field, have)
		}
		return b.stage(e.Name, field, have)
	}
	if e.Op != "pipe" && e.Op != "or" {
		return nil, 0, plimsoll.Invalid(field, `begins with %q; a list begins with "pipe" or "or"`, e.Op)
	}
	least := map[string]int{"pipe": 1, "or": 2}[e.Op]
	if len(e.List) < least {
		return nil, 0, plimsoll.Invalid(field, "its %q has %d of at least %d parts", e.Op, len(e.List), least)
	}
	n, given := &node{op: e.Op}, have
	for i, item := range e.List {
		sub, gives, err := b.build(item, fmt.Sprintf("%s[%d]", field, i+1), have)
		if err != nil {
			return nil, 0, err
		}
		if e.Op == "pipe" && sub.op == "pipe" {
			// a pipe in a pipe, often a definition, is as if its stages stood there
			n.items = append(n.items, sub.items...)
		} else {
			n.items = append(n.items, sub)
		}
		if e.Op == "pipe" {
			have, given = gives, gives
		} else if i == 0 {
			given = gives
		} else {
			given &= gives // only facts that every alternative gives
		}
	}
	return n, given, nil
}

func (b *builder) define(name string, d Expression, field string, have Reads) (*node, Reads, error) {
	if slices.Contains(b.open, name) {
		return nil, 0, plimsoll.Invalid(
			field, "%q is defined by itself: %s", name, strings.Join(append(b.open, name), " → "),
		)
	}
	b.open = append(b.open, name)
	n, gives, err := b.build(d, name, have)
	b.open = b.open[:len(b.open)-1]
	return n, gives, err
}

func (b *builder) stage(name, field string, have Reads) (*node, Reads, error) {
	s, ok := b.stages[name]
	if !ok {
		return nil, 0, plimsoll.Invalid(
			field, "%q is not the name of a stage; there are %s", name, strings.Join(sortedKeys(b.stages), ", "),
		)
	}
	if missing := s.Reads &^ have; missing&ReadsInstances != 0 {
		return nil, 0, plimsoll.Invalid(field, "%q reads what runs on a server; put it after load-instances", name)
	} else if missing != 0 {
		return nil, 0, plimsoll.Invalid(
			field, "%q reads what is left on a server; put it after calculate-unreserved", name,
		)
	}
	if s.Scores && b.scored == "" {
		b.scored = name
	} else if !s.Scores && b.scored != "" {
		return nil, 0, plimsoll.Invalid(
			field, "%q filters, and stands behind the score %q; put scores last", name, b.scored,
		)
	}
	if len(b.chain.stages) == maxStages {
		return nil, 0, plimsoll.Invalid(field, "the chain has more than %d stages", maxStages)
	}
	b.chain.stages = append(b.chain.stages, s)
	return &node{stage: len(b.chain.stages) - 1}, have | s.Gives, nil
}

// Stages returns the names of the stages in their order, alternatives too.
func (c *Chain) Stages() []string {
	names := make([]string, len(c.stages))
	for i, s := range c.stages {
		names[i] = s.Name
	}
	return names
}

// rulesFor returns the owner rules that decide for an owner: the owner's own rule, or else the
// rules of all other owners.
func (c *Chain) rulesFor(owner string) (rules []*ruleCache, own bool) {
	if r := c.rules[owner]; r != nil {
		return []*ruleCache{{Rule: r}}, true
	}
	for _, name := range sortedKeys(c.rules) {
		rules = append(rules, &ruleCache{Rule: c.rules[name]})
	}
	return rules, false
}

// Weights say how much each score counts. A negative weight reverses the order; 0 leaves the score
// out.
type Weights struct {
	UnreservedMemory float64 // least free memory first
	UnreservedDisk   float64 // least free disk first
	// the least stranded custom resources first, or, in the stage score-unreserved-custom, the
	// least free ones
	UnreservedCustom float64
	OwnerInstances   float64 // fewest instances of the owner first
	CurrentPlatform  float64 // newest platform first
	NextReboot       float64 // no reboot, or the latest, first
	Random           float64
	Near             float64 // most instances of Preferences.Near first, and fewest of Far
	Spread           float64 // fewest instances of the group in the value of Preferences.Spread first
}

// Settings configure the stages of a chain. Start from DefaultSettings.
type Settings struct {
	Batch        int  // servers that are looked at before a choice is made
	All          bool // look at every server before a choice is made
	Capness      bool // keep instances with and without an amount of cpu on different servers
	Headnodes    bool // allow head nodes
	NoRoom       bool // do not compare the amounts asked for with the amounts left
	MaxInstances int  // most instances on a server; 0: no bound
	LargeServers bool // keep the servers with the most free memory for large instances
	// prefer servers without instances of the owner, unless custom resources are asked for
	OwnerSpread bool
	SickFor     int64             // seconds for which a server with two failures stays out; 0: RFD 60's day
	Strategy    plimsoll.Strategy // strategy of requests that name none
	OwnerRules  map[string]string // by owner: an expression that is true of the servers reserved for that owner
	Weights     Weights
}

// The defaults of RFD 60 and its service.
const (
	DefaultBatch   = 50
	DefaultSickFor = 24 * 60 * 60
)

// clusterSickFor is the SickFor of ClusterDefault, in seconds.
const clusterSickFor = 5 * 60

// DefaultSettings returns RFD 60's settings, but capness and the bound on instances are off:
// DESIGN.md says why.
func DefaultSettings() Settings {
	return Settings{
		Batch: DefaultBatch, LargeServers: true, OwnerSpread: true, SickFor: DefaultSickFor,
		Weights: Weights{
			UnreservedMemory: 2, UnreservedDisk: 1, UnreservedCustom: 16, CurrentPlatform: 1, NextReboot: 0.5,
			Random: 0.5, Near: 8, Spread: 8,
		},
	}
}

func (s *Settings) validate() error {
	if s.Batch < 0 || s.MaxInstances < 0 || s.SickFor < 0 {
		return plimsoll.Invalid("settings", "batch, max-instances and sick-for cannot be negative")
	}
	w := &s.Weights
	for _, v := range []float64{
		w.UnreservedMemory, w.UnreservedDisk, w.UnreservedCustom, w.OwnerInstances, w.CurrentPlatform, w.NextReboot,
		w.Random, w.Near, w.Spread,
	} {
		if math.IsNaN(v) || math.Abs(v) > 1e6 {
			return plimsoll.Invalid("weights", "%v is not a weight; give a number from -1,000,000 to 1,000,000", v)
		}
	}
	return nil
}

// DefaultExpression is RFD 60's chain with the stages that it lacks: names, where, custom resources
// and spread.
func DefaultExpression() Expression {
	e := Expression{Op: "pipe"}
	for _, name := range []string{
		"setup", "running", "invalid-servers", "volumes-from", "reserved", "networks", "platform-versions", "traits",
		"headnode",
		"overprovision-ratios", "names", "reservoir-use", "where",
		"load-instances", "calculate-tickets", "capness", "instance-count", "sick-servers", "calculate-unreserved",
		"min-memory", "min-cpu", "min-disk", "min-custom", "locality", "spread", "owners-servers",
	} {
		e.List = append(e.List, Named(name))
	}
	e.List = append(
		e.List, Or(Named("reservoir"), Named("identity")), Or(Named("large-servers"), Named("identity")),
		Named("soft-locality"),
	)
	for _, name := range []string{
		"score-unreserved-memory", "score-unreserved-disk", "score-owner-instances", "score-current-platform",
		"score-next-reboot",
		"score-stranded-custom", "score-near", "score-spread", "score-random",
	} {
		e.List = append(e.List, Named(name))
	}
	return e
}

// Default returns the chain of DefaultExpression with DefaultSettings.
func Default() *Chain { return defaultChain(DefaultSettings()) }

// ClusterDefault returns the chain that chooses nodes for the tasks of a Plimsoll cluster unless
// another one is configured. It is Default with a shorter SickFor, because the only node of a small
// cluster may be the sick one.
func ClusterDefault() *Chain {
	settings := DefaultSettings()
	settings.SickFor = clusterSickFor
	return defaultChain(settings)
}

func defaultChain(settings Settings) *Chain {
	c, err := NewChain(DefaultExpression(), Stages(), nil, settings)
	if err != nil {
		panic(err) // the default chain is a constant
	}
	return c
}
