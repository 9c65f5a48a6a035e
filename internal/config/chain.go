package config

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// Placement is the content of a placement file: the stages that choose a node for a task, their
// order and their settings.
type Placement struct {
	Expression placement.Expression
	Define     map[string]placement.Expression // named expressions
	Settings   placement.Settings
	EvictedFor time.Duration    // time for which a group does not return to a node that evicted one of its tasks
	Chain      *placement.Chain // made of the other fields
}

// DefaultPlacement returns the placement used without a placement file.
func DefaultPlacement() Placement {
	chain := placement.ClusterDefault()
	return Placement{
		Expression: chain.Text, Settings: chain.Settings, EvictedFor: state.DefaultEvictedFor, Chain: chain,
	}
}

// required lists the stages without which a task could be given to a node that will not run it.
var required = []struct{ stage, without string }{
	{"running", "tasks would be placed on nodes that are not heard from, and wait there for ever"},
	{"reserved", "tasks would be placed on nodes that are cordoned or draining"},
}

// maxWeight is the largest weight of a score, of either sign.
const maxWeight = 1_000_000

// ParsePlacement reads a placement file. name is for the messages. Missing fields are as in
// DefaultPlacement. The error is a *Error.
func ParsePlacement(name string, data []byte) (Placement, error) {
	v, err := parseValue(name, data)
	if err != nil {
		return Placement{}, err
	}
	d := newDecoder(name, v)
	p := DefaultPlacement()
	c := chainReader{decoder: d, define: map[string]placement.Expression{}, used: map[string]bool{}}
	s, given := &p.Settings, false
	d.fields(v, "",
		field{"chain", func(v *value, path string) { given, p.Expression = true, c.expression(v, path, 0) }},
		field{"define", c.definitions},
		field{"batch", d.count(&s.Batch, 1)},
		field{"all", d.boolean(&s.All)},
		field{"maxInstances", d.count(&s.MaxInstances, 0)},
		field{"capness", d.boolean(&s.Capness)},
		field{"headnodes", d.boolean(&s.Headnodes)},
		field{"largeServers", d.boolean(&s.LargeServers)},
		field{"ownerSpread", d.boolean(&s.OwnerSpread)},
		field{"sickFor", d.seconds(&s.SickFor)},
		field{"evictedFor", func(v *value, path string) {
			d.duration(&p.EvictedFor)(v, path)
			if p.EvictedFor < time.Second {
				d.problem(
					v.line, path, "is %s; give at least 1s, so that a task does not come back at once", v.kindName(),
				)
			}
		}},
		field{"strategy", word(d, &s.Strategy, plimsoll.ParseStrategy, wordsFrom(plimsoll.StrategyDefault))},
		field{"weights", d.weights(&s.Weights)},
		field{"owners", d.owners(&s.OwnerRules)},
	)
	c.check()
	if len(d.problems) == 0 {
		p.Define = c.define
		p.Chain, err = placement.NewChain(p.Expression, placement.Stages(), p.Define, p.Settings)
		d.invalid(c.placed(err))
	}
	if len(d.problems) == 0 && given {
		c.complete(p.Expression)
	}
	if err := d.err(); err != nil {
		return Placement{}, err
	}
	return p, nil
}

// chainReader reads the expressions of a placement file.
type chainReader struct {
	*decoder
	define map[string]placement.Expression
	names  []namedStage // the places that name stages and definitions
	used   map[string]bool
}

type namedStage struct {
	name, path string
	line       int
}

const (
	maxChainDepth = 32   // nesting of lists
	maxNamed      = 1000 // names of stages in a file; real chains have fewer
)

// expression reads the name of a stage, or a list that begins with pipe or or.
func (c *chainReader) expression(v *value, path string, depth int) placement.Expression {
	c.lines[path] = v.line
	switch {
	case depth > maxChainDepth:
		c.problem(v.line, path, "is nested more than %d deep; give a part of it a name with define:", maxChainDepth)
	case v.kind == scalarKind && v.text != "" && v.text != "pipe" && v.text != "or":
		c.names = append(c.names, namedStage{v.text, path, v.line})
		c.used[v.text] = true
		return placement.Named(v.text)
	case v.kind == scalarKind:
		c.problem(v.line, path, "%q is not the name of a stage", v.text)
	case v.kind != listKind:
		c.problem(
			v.line, path, `is %s; the name of a stage is expected, or a list such as [or, reservoir, identity]`,
			v.kindName(),
		)
	case len(v.items) == 0:
		c.problem(v.line, path, "is an empty list; begin it with pipe or or, and name stages")
	case v.items[0].text != "pipe" && v.items[0].text != "or":
		c.problem(
			v.items[0].line, path+"[0]",
			"is %s; a list begins with pipe (one after another) or or (the first that leaves a node)",
			v.items[0].kindName(),
		)
	case v.items[0].text == "or" && len(v.items) < 3:
		c.problem(v.line, path, "is an or of %d; it chooses between two or more", len(v.items)-1)
	case len(v.items) < 2:
		c.problem(v.line, path, "is a pipe of nothing; name stages behind it")
	default:
		e := placement.Expression{Op: v.items[0].text}
		for i, item := range v.items[1:] {
			e.List = append(e.List, c.expression(item, path+"["+strconv.Itoa(i+1)+"]", depth+1))
		}
		return e
	}
	return placement.Expression{}
}

func (c *chainReader) definitions(v *value, path string) {
	c.pairs(v, path, func(e entry, path string) {
		known, _ := stageNames()
		switch {
		case e.name == "" || e.name == "pipe" || e.name == "or" || e.name == "chain" || slices.Contains(known, e.name):
			c.problem(e.line, path, "%q has a meaning already; choose another name", plimsoll.Shorten(e.name))
			return
		case strings.ContainsAny(e.name, ".[] \n\t") || len(e.name) > 80:
			c.problem(e.line, path, "is not a possible name; use up to 80 letters, digits and dashes")
			return
		}
		c.define[e.name] = c.expression(e.value, path, 0)
	})
}

// check reports names that do not exist, and definitions that are not used.
func (c *chainReader) check() {
	known, shown := stageNames()
	if n := len(c.names); n > maxNamed {
		c.problem(c.lineOf("chain"), "chain", "and the definitions name %d stages; at most %d are read", n, maxNamed)
		return
	}
	for _, n := range c.names {
		if _, ok := c.define[n.name]; !ok && !slices.Contains(known, n.name) {
			c.problem(
				n.line, n.path, "%q is not the name of a stage; %s", plimsoll.Shorten(n.name),
				nearestStage(n.name, known, shown),
			)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.define)) {
		if at := join("define", name); !c.used[name] {
			c.problem(c.lineOf(at), at, "is not used; name it in chain:, or remove it")
		}
	}
}

// stageNames returns all names of stages, and separately the names that are Plimsoll's own.
func stageNames() (all, own []string) {
	for _, s := range placement.Stages() {
		own = append(own, s.Name)
		all = append(append(all, s.Name), s.Aliases...)
	}
	return all, own
}

func nearestStage(name string, known, shown []string) string {
	if best := plimsoll.Nearest(name, known); best != "" {
		return "did you mean " + strconv.Quote(best) + "?"
	}
	return "possible are " + strings.Join(shown, ", ")
}

// placed sets the field of a chain's error to its place in the file.
func (c *chainReader) placed(err error) error {
	var e *plimsoll.Error
	if !asError(err, &e) {
		return err
	}
	moved := *e
	name := e.Field[:strings.IndexAny(e.Field+"[", ".[")]
	if _, ok := c.define[name]; ok {
		moved.Field = "define." + e.Field
	}
	return &moved
}

// complete reports a chain that lacks a required stage: without it, tasks would be lost.
func (c *chainReader) complete(e placement.Expression) {
	for _, r := range required {
		if !c.requires(e, r.stage) {
			c.problem(
				c.lineOf("chain"), "chain", "%q does not stand on every way through it, so %s; add it", r.stage,
				r.without,
			)
		}
	}
}

// requires reports whether every node accepted by an expression has passed a stage.
func (c *chainReader) requires(e placement.Expression, stage string) bool {
	requires := func(e placement.Expression) bool { return c.requires(e, stage) }
	switch e.Op {
	case "pipe":
		return slices.ContainsFunc(e.List, requires)
	case "or":
		return !slices.ContainsFunc(e.List, func(e placement.Expression) bool { return !requires(e) })
	}
	if d, ok := c.define[e.Name]; ok {
		return requires(d)
	}
	i := slices.IndexFunc(placement.Stages(), func(s placement.Stage) bool { return s.Name == stage })
	s := placement.Stages()[i]
	return e.Name == s.Name || slices.Contains(s.Aliases, e.Name)
}

// count reads a whole number that is at least least.
func (d *decoder) count(into *int, least int) func(v *value, path string) {
	return func(v *value, path string) {
		n, err := strconv.ParseInt(v.text, 10, 32)
		if v.kind != scalarKind || v.quoted || err != nil || int(n) < least {
			d.problem(v.line, path, "is %s; a whole number is expected, at least %d", v.kindName(), least)
			return
		}
		*into = int(n)
	}
}

// seconds reads a duration of at least a second.
func (d *decoder) seconds(into *int64) func(v *value, path string) {
	return func(v *value, path string) {
		var t time.Duration
		before := len(d.problems)
		d.duration(&t)(v, path)
		switch {
		case len(d.problems) > before:
		case t < time.Second || t%time.Second != 0:
			d.problem(
				v.line, path,
				"is %s; give whole seconds, at least 1s (to leave sick nodes in, leave out the stage sick-servers)",
				v.kindName(),
			)
		default:
			*into = int64(t / time.Second)
		}
	}
}

func (d *decoder) weights(into *placement.Weights) func(v *value, path string) {
	return func(v *value, path string) {
		var known []field
		for _, w := range weightNames(into) {
			known = append(known, field{w.name, d.weight(w.weight)})
		}
		d.fields(v, path, known...)
	}
}

type namedWeight struct {
	name   string
	weight *float64
}

func weightNames(w *placement.Weights) []namedWeight {
	return []namedWeight{
		{"unreservedMemory", &w.UnreservedMemory},
		{"unreservedDisk", &w.UnreservedDisk},
		{"unreservedCustom", &w.UnreservedCustom},
		{"ownerInstances", &w.OwnerInstances},
		{"currentPlatform", &w.CurrentPlatform},
		{"nextReboot", &w.NextReboot},
		{"near", &w.Near},
		{"spread", &w.Spread},
		{"random", &w.Random},
	}
}

func (d *decoder) weight(into *float64) func(v *value, path string) {
	return func(v *value, path string) {
		w, err := strconv.ParseFloat(v.text, 64)
		if v.kind != scalarKind || v.quoted || err != nil || math.IsNaN(w) || math.Abs(w) > maxWeight {
			d.problem(v.line, path, "is %s; a number from -%d to %d is expected: 2 counts twice as much as 1, 0 nothing, a negative one turns the order round",
				v.kindName(), maxWeight, maxWeight)
			return
		}
		*into = w
	}
}

// owners reads the rules that keep nodes for an owner. Each rule is compiled, so that all wrong
// ones are found at once.
func (d *decoder) owners(into *map[string]string) func(v *value, path string) {
	return func(v *value, path string) {
		d.textMap(into)(v, path)
		for _, owner := range slices.Sorted(maps.Keys(*into)) {
			if _, err := placement.CompileRule((*into)[owner]); err != nil {
				at := join(path, owner)
				d.problem(d.lineOf(at), at, `%s; write for example node.labels.tier == "gold"`, err)
			}
		}
	}
}

// placementFile is the printed form of a placement file.
type placementFile struct {
	Chain        placement.Expression            `json:"chain"`
	Define       map[string]placement.Expression `json:"define,omitempty"`
	Batch        int                             `json:"batch"`
	All          bool                            `json:"all"`
	MaxInstances int                             `json:"maxInstances"`
	Capness      bool                            `json:"capness"`
	Headnodes    bool                            `json:"headnodes"`
	LargeServers bool                            `json:"largeServers"`
	OwnerSpread  bool                            `json:"ownerSpread"`
	SickFor      string                          `json:"sickFor"`
	EvictedFor   string                          `json:"evictedFor"`
	Strategy     string                          `json:"strategy"`
	Weights      map[string]float64              `json:"weights"`
	Owners       map[string]string               `json:"owners,omitempty"`
}

// PlacementFile returns a placement with its defaults, as a value that encoding/json and
// FormatYAML print as a placement file.
func PlacementFile(p *Placement) any {
	s, weights := p.Settings, map[string]float64{}
	for _, w := range weightNames(&s.Weights) {
		weights[w.name] = *w.weight
	}
	return placementFile{
		Chain: p.Expression, Define: p.Define, Batch: s.Batch, All: s.All, MaxInstances: s.MaxInstances,
		Capness:   s.Capness,
		Headnodes: s.Headnodes, LargeServers: s.LargeServers, OwnerSpread: s.OwnerSpread,
		SickFor: FormatDuration(time.Duration(s.SickFor) * time.Second), EvictedFor: FormatDuration(p.EvictedFor),
		Strategy: s.Strategy.String(), Weights: weights, Owners: s.OwnerRules,
	}
}

// FormatPlacement prints a placement file in YAML. ParsePlacement reads it back to the same value.
func FormatPlacement(p *Placement) ([]byte, error) { return FormatYAML(PlacementFile(p)) }
