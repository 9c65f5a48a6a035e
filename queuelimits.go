package plimsoll

import (
	"fmt"
	"maps"
	"regexp"
)

const (
	wildcard      = "*"
	maxNameOfUser = 256 // bytes of the name of a user, a group or a limit
)

// The names of users and groups that YuniKorn takes in limits and filters.
var (
	userName  = regexp.MustCompile(`^[_a-zA-Z][a-zA-Z0-9:#/_.@-]*[$]?$`)
	groupName = regexp.MustCompile(`^[_a-zA-Z][a-zA-Z0-9:_.-]*$`)
)

// holders are those for whom limits hold: users or groups.
type holders struct {
	field, word string
	form        *regexp.Regexp
	list        func(l *QueueLimit) []string
}

var limitHolders = [...]holders{
	{"users", "user", userName, func(l *QueueLimit) []string { return l.Users }},
	{"groups", "group", groupName, func(l *QueueLimit) []string { return l.Groups }},
}

// limitScope holds the limits of the queues above, by holders and name.
type limitScope [len(limitHolders)]map[string]bound

// bound is the limit that holds for a name.
type bound struct {
	most Resources
	jobs int32
}

// validateLimitsBelow checks the limits of a queue against those above, and those of the queues
// below it.
func (c *QueueConfig) validateLimitsBelow(path string, above limitScope) error {
	scope := above
	if len(c.Limits) > 0 {
		if err := c.validateLimits(path + ".limits"); err != nil {
			return err
		}
		for h := range limitHolders {
			own, err := c.validateHeld(path+".limits", h, above[h])
			if err != nil {
				return err
			}
			scope[h] = own
		}
	}
	for i := range c.Queues {
		if err := c.Queues[i].validateLimitsBelow(path+"."+c.Queues[i].Name, scope); err != nil {
			return err
		}
	}
	return nil
}

// validateLimits checks the limits of a queue without a look at other queues.
func (c *QueueConfig) validateLimits(path string) error {
	if len(c.Limits) > MaxQueueLimits {
		return Invalid(path, "has %d limits; at most %d are possible", len(c.Limits), MaxQueueLimits)
	}
	var seen [len(limitHolders)]map[string]bool
	for h := range seen {
		seen[h] = map[string]bool{}
	}
	for i := range c.Limits {
		l, at := &c.Limits[i], fmt.Sprintf("%s[%d]", path, i)
		if len(l.Name) > maxNameOfUser {
			return Invalid(at+".limit", "is longer than %d bytes", maxNameOfUser)
		}
		if len(l.Users)+len(l.Groups) == 0 {
			return Invalid(at, "holds for nobody; name users or groups")
		}
		for h := range limitHolders {
			if err := limitHolders[h].validate(at, l, seen[h]); err != nil {
				return err
			}
		}
		if err := c.validateLimit(l, at); err != nil {
			return err
		}
	}
	return nil
}

// validate checks the names of a limit. seen are those of the limits before it.
func (h *holders) validate(at string, l *QueueLimit, seen map[string]bool) error {
	names := h.list(l)
	if len(names) > MaxLimitNames {
		return Invalid(at+"."+h.field, "has %d names; at most %d are possible", len(names), MaxLimitNames)
	}
	for i, name := range names {
		at := fmt.Sprintf("%s.%s[%d]", at, h.field, i)
		switch {
		case name != wildcard && (len(name) > maxNameOfUser || !h.form.MatchString(name)):
			return Invalid(at, "%q is no possible name of a %s; begin with a letter or _", Shorten(name), h.word)
		case seen[name]:
			return Invalid(at, "%q stands twice in the limits of this queue; remove one", name)
		case seen[wildcard]:
			return Invalid(at, `%q stands after "*"; put it before`, name)
		}
		seen[name] = true
	}
	if h.field == "groups" && seen[wildcard] && len(seen) == 1 {
		return Invalid(
			at+"."+h.field,
			`is only "*", which limits all groups together, as resources.max does; name a group before it, or use that`,
		)
	}
	return nil
}

// validateLimit checks what a limit of a queue allows.
func (c *QueueConfig) validateLimit(l *QueueLimit, at string) error {
	if l.MaxJobs < 0 {
		return Invalid(at+".maxapplications", "is negative; give 1 or more, or leave it out")
	}
	if err := l.Max.Validate(at + ".maxresources"); err != nil {
		return err
	}
	if l.MaxJobs == 0 && len(l.Max) == 0 {
		return Invalid(at, "limits nothing; give maxresources or maxapplications above zero")
	}
	some := len(l.Max) == 0
	for _, name := range l.Max.Names() {
		some = some || l.Max[name] > 0
		if most, limited := c.Max[name]; limited && l.Max[name] > most {
			return Invalid(at+".maxresources."+name, "is %s, more than the maximum of the queue, %s",
				FormatQuantity(name, l.Max[name]), FormatQuantity(name, most))
		}
	}
	if !some {
		return Invalid(at+".maxresources", "has no amount above zero; give one")
	}
	if c.MaxJobs > 0 && l.MaxJobs > c.MaxJobs {
		return Invalid(at+".maxapplications", "is %d, more than the %d of the queue", l.MaxJobs, c.MaxJobs)
	}
	return nil
}

// validateHeld compares the limits of users, or groups, with those of the queues above. It returns
// the limits that count below.
func (c *QueueConfig) validateHeld(path string, h int, above map[string]bound) (map[string]bound, error) {
	scope := maps.Clone(above)
	if scope == nil {
		scope = map[string]bound{}
	}
	for i := range c.Limits {
		l, at := &c.Limits[i], fmt.Sprintf("%s[%d]", path, i)
		for _, name := range limitHolders[h].list(l) {
			own := bound{l.Max, l.MaxJobs}
			most, named := above[name]
			if !named && name != wildcard {
				most = above[wildcard]
			}
			if err := own.within(most, at, limitHolders[h].word, name); err != nil {
				return nil, err
			}
			if named {
				own.most = leastOf(own.most, most.most)
			}
			scope[name] = own
		}
	}
	return scope, nil
}

// within compares a limit with that of a queue above.
func (b bound) within(above bound, at, word, name string) error {
	for _, r := range b.most.Names() {
		if most, limited := above.most[r]; limited && b.most[r] > most {
			return Invalid(at+".maxresources."+r,
				"is %s for the %s %q, more than the %s that a queue above allows; give at most that",
				FormatQuantity(r, b.most[r]), word, name, FormatQuantity(r, most))
		}
	}
	if above.jobs > 0 && (b.jobs == 0 || b.jobs > above.jobs) {
		return Invalid(at+".maxapplications", "is %d for the %s %q; a queue above allows %d: give 1 to %d",
			b.jobs, word, name, above.jobs, above.jobs)
	}
	return nil
}

// leastOf returns the smaller of two maxima for each resource that one of them has.
func leastOf(a, b Resources) Resources {
	out := maps.Clone(b)
	if out == nil {
		out = Resources{}
	}
	for _, name := range a.Names() {
		if most, has := out[name]; !has || a[name] < most {
			out[name] = a[name]
		}
	}
	return out
}
