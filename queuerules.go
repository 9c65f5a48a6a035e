package plimsoll

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
)

// Bounds on placement rules.
const (
	MaxPlacementRules = 100
	MaxRuleDepth      = 16   // rules in each other as parents
	MaxRuleNames      = 1000 // users or groups of a filter

	maxRuleText    = 1024 // bytes of a value or a regular expression
	maxSortWeights = 100
)

var (
	ruleName = regexp.MustCompile(`^[_a-zA-Z][a-zA-Z0-9_]*$`)
	// special are the characters that only a regular expression has.
	special = regexp.MustCompile(`[\^$*+?()\[{}|]`)
)

// validate checks the settings of the whole tree.
func (p *PartitionConfig) validate(root *QueueConfig) error {
	if p == nil {
		return nil
	}
	if len(p.Rules) > MaxPlacementRules {
		return Invalid("placementrules", "has %d rules; at most %d are possible", len(p.Rules), MaxPlacementRules)
	}
	for i := range p.Rules {
		at := fmt.Sprintf("placementrules[%d]", i)
		if err := p.Rules[i].validate(at, 1); err != nil {
			return err
		}
		if err := p.Rules[i].validateTarget(at, root); err != nil {
			return err
		}
	}
	return p.NodeSort.validate()
}

func (s *NodeSort) validate() error {
	if s == nil {
		return nil
	}
	if len(s.Weights) > maxSortWeights {
		return Invalid("nodesortpolicy.resourceweights", "has %d entries; at most %d are possible", len(s.Weights),
			maxSortWeights)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Weights)) {
		weight := s.Weights[name]
		if !(weight >= 0) || math.IsInf(weight, 0) || len(name) > maxPropertyName {
			return Invalid(
				"nodesortpolicy.resourceweights", "holds a weight that is negative or no number, or a name that is too long",
			)
		}
	}
	return nil
}

func (r *PlacementRule) validate(at string, depth int) error {
	if depth > MaxRuleDepth {
		return Invalid(at, "is the parent of %d rules in each other; at most %d are possible", depth-1, MaxRuleDepth-1)
	}
	if len(r.Name) > maxPropertyName || !ruleName.MatchString(r.Name) {
		return Invalid(at+".name", "%q is no possible name of a rule; write user, fixed, provided or tag",
			Shorten(r.Name))
	}
	if len(r.Value) > maxRuleText {
		return Invalid(at+".value", "is longer than %d bytes", maxRuleText)
	}
	if r.Parent != nil {
		if err := r.Parent.validate(at+".parent", depth+1); err != nil {
			return err
		}
	}
	if r.Filter == nil {
		return nil
	}
	if err := validateFilter(at+".filter.users", r.Filter.Users, userName); err != nil {
		return err
	}
	return validateFilter(at+".filter.groups", r.Filter.Groups, groupName)
}

// validateFilter checks a list of a filter. A single entry is a name or a regular expression; of
// several, those that are no names match nobody.
func validateFilter(at string, list []string, name *regexp.Regexp) error {
	if len(list) > MaxRuleNames {
		return Invalid(at, "has %d entries; at most %d are possible", len(list), MaxRuleNames)
	}
	for i, entry := range list {
		if len(entry) > maxRuleText {
			return Invalid(fmt.Sprintf("%s[%d]", at, i), "is longer than %d bytes", maxRuleText)
		}
	}
	if len(list) != 1 || name.MatchString(list[0]) {
		return nil
	}
	if _, err := regexp.Compile(list[0]); err != nil {
		return Invalid(at+"[0]", "%q is neither a name nor a regular expression: %s", Shorten(list[0]), err)
	}
	if !special.MatchString(list[0]) {
		return Invalid(at+"[0]", "%q is neither a name nor a regular expression; begin with a letter or _",
			Shorten(list[0]))
	}
	return nil
}

// fixedRule is the name of the rule whose queue is known beforehand.
const fixedRule = "fixed"

// staticPath returns the path that a rule and its parents name beforehand. It is empty if the
// outermost rule is not fixed. whole reports that nothing follows which depends on the job.
func (r *PlacementRule) staticPath(at string) (path string, whole bool, err error) {
	if r.Parent != nil {
		if path, whole, err = r.Parent.staticPath(at + ".parent"); err != nil || !whole {
			return path, whole, err
		}
	}
	if r.Name != fixedRule {
		return path, false, nil
	}
	if !strings.HasPrefix(r.Value, RootQueue) {
		if path == "" {
			path = RootQueue
		}
		return path + "." + r.Value, true, nil
	}
	if path != "" {
		return "", false, Invalid(at+".value", "%q begins with root, but the rule has a fixed parent; leave root out",
			Shorten(r.Value))
	}
	return r.Value, true, nil
}

// validateTarget checks that the static path of a rule leads to a leaf or, if queues follow, to a
// parent; or to a queue that the rule may create.
func (r *PlacementRule) validateTarget(at string, root *QueueConfig) error {
	if r.Name == "fixed" && r.Value == "" {
		return Invalid(at+".value", "is missing; name the queue that the rule gives")
	}
	path, whole, err := r.staticPath(at)
	if err != nil || path == "" {
		return err
	}
	parts := strings.Split(strings.ToLower(path), ".")
	q := root
	if parts[0] != RootQueue {
		q = nil
	}
	for _, name := range parts[1:] {
		if q == nil {
			break
		}
		if len(q.Queues) == 0 && !q.Parent {
			return Invalid(at, "leads to %q below the leaf %q, where no queue can be made; choose another queue",
				Shorten(path), q.Name)
		}
		q = q.child(name)
	}
	switch parent := q != nil && (q.Parent || len(q.Queues) > 0); {
	case q == nil && !r.Create:
		return Invalid(at, "leads to %q, which does not exist; add the queue, or write create: true", Shorten(path))
	case q == nil:
	case whole && parent:
		return Invalid(at, "leads to %q, which is no leaf; choose a leaf", Shorten(path))
	case !whole && !parent:
		return Invalid(at, "leads below %q, which is a leaf; write parent: true there", Shorten(path))
	}
	return nil
}

func (c *QueueConfig) child(name string) *QueueConfig {
	for i := range c.Queues {
		if c.Queues[i].Name == name {
			return &c.Queues[i]
		}
	}
	return nil
}
