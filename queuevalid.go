package plimsoll

import (
	"maps"
	"strings"
)

// Bounds on the settings of a queue. The whole tree is bounded too, by the size of a record.
const (
	MaxQueueLimits     = 100 // limits of a queue
	MaxLimitNames      = 1000
	MaxQueueProperties = 100

	maxPropertyName  = 128 // in bytes
	maxPropertyValue = 1024
	maxAccessNames   = 1000 // in each list of users or groups
)

// Validate returns an error about the first wrong queue, named by its path. The rules are
// YuniKorn's:
//
//   - A child's maximum is at most its parent's, and guaranteed is at most max.
//   - The guarantees of children add up to at most their parent's. Those of a queue that guarantees
//     nothing itself are the sum of those below it.
//   - Below a queue with maxapplications, each queue has them too, and at most as many.
//   - A limit holds for somebody and limits something, at most to the maximum of its queue and to
//     what a queue above allows the same user or group.
//   - The static part of a placement rule leads to a leaf, or to one that it may create.
//
// Dynamic queues are not compared with the others: they come and go.
func (c *QueueConfig) Validate() error {
	if c.Name != RootQueue {
		return Invalid("queues", "the top queue is named %q; it must be %q", Shorten(c.Name), RootQueue)
	}
	if len(c.Guaranteed) > 0 || len(c.Max) > 0 {
		return Invalid(
			RootQueue+".resources", "root has no resources of its own: they are those of the nodes; remove them",
		)
	}
	count := 0
	if _, err := c.validate(RootQueue, nil, 1, &count); err != nil {
		return err
	}
	if err := c.validateLimitsBelow(RootQueue, limitScope{}); err != nil {
		return err
	}
	return c.Partition.validate(c)
}

// ValidateStored checks the tree as Validate does, but compares no queue with another. A tree that
// an earlier version has stored need not keep to all of its rules.
func (c *QueueConfig) ValidateStored() error {
	if c.Name != RootQueue {
		return Invalid("queues", "the top queue is named %q; it must be %q", Shorten(c.Name), RootQueue)
	}
	count := 0
	return c.validateStored(c.Name, 1, &count)
}

func (c *QueueConfig) validateStored(path string, depth int, count *int) error {
	if *count++; *count > MaxQueues {
		return Invalid("queues", "there are more than %d queues", MaxQueues)
	}
	if depth > MaxQueueDepth {
		return Invalid(path, "is deeper than %d levels", MaxQueueDepth)
	}
	if err := validateQueueName(path, c.Name); err != nil {
		return err
	}
	if err := c.validateAlone(path); err != nil {
		return err
	}
	if len(c.Limits) > 0 {
		if err := c.validateLimits(path + ".limits"); err != nil {
			return err
		}
	}
	for i := range c.Queues {
		if err := c.Queues[i].validateStored(path+"."+c.Queues[i].Name, depth+1, count); err != nil {
			return err
		}
	}
	return nil
}

// validate checks a queue and those below it. It returns what is guaranteed there.
func (c *QueueConfig) validate(path string, parentMax Resources, depth int, count *int) (Resources, error) {
	if *count++; *count > MaxQueues {
		return nil, Invalid("queues", "there are more than %d queues", MaxQueues)
	}
	if depth > MaxQueueDepth {
		return nil, Invalid(path, "is deeper than %d levels", MaxQueueDepth)
	}
	if err := c.validateAlone(path); err != nil {
		return nil, err
	}
	if depth > 1 && c.Partition != nil {
		return nil, Invalid(path, "has settings of the whole tree, which only root has; remove them")
	}
	effective := maps.Clone(parentMax)
	if effective == nil {
		effective = Resources{}
	}
	for _, name := range c.Max.Names() {
		if limit, limited := parentMax[name]; limited && c.Max[name] > limit {
			return nil, Invalid(path+".resources.max."+name, "is %s, more than the %s of the queue above",
				FormatQuantity(name, c.Max[name]), FormatQuantity(name, limit))
		}
		effective[name] = c.Max[name]
	}
	for _, name := range c.Guaranteed.Names() {
		if limit, limited := effective[name]; limited && c.Guaranteed[name] > limit {
			return nil, Invalid(path+".resources.guaranteed."+name, "is %s, more than the maximum of %s",
				FormatQuantity(name, c.Guaranteed[name]), FormatQuantity(name, limit))
		}
	}
	return c.validateChildren(path, effective, depth, count)
}

// validateAlone checks what a queue states without a look at other queues.
func (c *QueueConfig) validateAlone(path string) error {
	if c.MaxJobs < 0 {
		return Invalid(path+".maxapplications", "is negative; give zero for no limit, or more")
	}
	if c.MaxTasks < 0 {
		return Invalid(path+".maxtasks", "is negative; give zero for no limit, or more")
	}
	if err := c.Guaranteed.Validate(path + ".resources.guaranteed"); err != nil {
		return err
	}
	if err := c.Max.Validate(path + ".resources.max"); err != nil {
		return err
	}
	if err := c.SubmitAccess.validate(path + ".submitacl"); err != nil {
		return err
	}
	if err := c.AdminAccess.validate(path + ".adminacl"); err != nil {
		return err
	}
	if err := validateProperties(path+".properties", c.Properties); err != nil {
		return err
	}
	return c.Template.validate(path + ".childtemplate")
}

func (t *QueueTemplate) validate(path string) error {
	if t == nil {
		return nil
	}
	if t.MaxJobs < 0 {
		return Invalid(path+".maxapplications", "is negative; give zero for no limit, or more")
	}
	if err := t.Guaranteed.Validate(path + ".resources.guaranteed"); err != nil {
		return err
	}
	if err := t.Max.Validate(path + ".resources.max"); err != nil {
		return err
	}
	return validateProperties(path+".properties", t.Properties)
}

// validateProperties bounds properties. A wrong value is refused only if the property is one of
// Plimsoll's own; YuniKorn's take their default then.
func validateProperties(path string, properties map[string]string) error {
	if len(properties) > MaxQueueProperties {
		return Invalid(path, "has %d entries; at most %d are possible", len(properties), MaxQueueProperties)
	}
	for _, p := range SortedPairs(properties) {
		if len(p[0]) > maxPropertyName || len(p[1]) > maxPropertyValue {
			return Invalid(path, "%q is too long; a name has at most %d bytes and a value at most %d", Shorten(p[0]),
				maxPropertyName, maxPropertyValue)
		}
	}
	for i := range queueProperties {
		p, s := &queueProperties[i], DefaultQueueSettings()
		if text, stated := properties[p.name]; stated && p.own && !p.set(&s, text) {
			return Invalid(path+"."+p.name, "is %q; write %s", Shorten(text), p.possible)
		}
	}
	return nil
}

func (l *AccessList) validate(path string) error {
	if l == nil {
		return nil
	}
	for _, names := range [][]string{l.Users, l.Groups} {
		if len(names) > maxAccessNames {
			return Invalid(path, "has %d names in a list; at most %d are possible: use groups",
				len(names), maxAccessNames)
		}
		for _, name := range names {
			if name == "" || len(name) > maxNameOfUser || strings.ContainsAny(name, ", \t\r\n") {
				return Invalid(path, "%q is no possible name; it has 1 to %d bytes, without space or comma",
					Shorten(name), maxNameOfUser)
			}
		}
	}
	if parsed, err := ParseAccessList(l.String()); err != nil {
		return Invalid(path, "%s", err)
	} else if parsed.Everybody && !l.Everybody {
		return Invalid(path, `has "*" as the only user or group, which stands for everybody; say so`)
	}
	return nil
}

func (c *QueueConfig) validateChildren(
	path string, limits Resources, depth int, count *int,
) (guaranteed Resources, err error) {
	sum, seen := Resources{}, make(map[string]bool, len(c.Queues))
	for i := range c.Queues {
		child := &c.Queues[i]
		if err := validateQueueName(path+".queues", child.Name); err != nil {
			return nil, err
		}
		below := path + "." + child.Name
		if seen[strings.ToLower(child.Name)] {
			return nil, Invalid(below, "stands twice; give each queue its own name")
		}
		seen[strings.ToLower(child.Name)] = true
		atMost := limits
		if child.Dynamic {
			atMost = nil // a template may state more
		}
		more, err := child.validate(below, atMost, depth+1, count)
		if err != nil {
			return nil, err
		}
		if child.Dynamic {
			continue
		}
		if err := c.validateJobsOf(child, below); err != nil {
			return nil, err
		}
		for _, name := range more.Names() {
			if sum[name] += more[name]; sum[name] > MaxAmount {
				return nil, Invalid(
					path+".queues", "are guaranteed more %s together than the largest amount, %s", name,
					FormatQuantity(name, MaxAmount),
				)
			}
		}
	}
	return c.validateSum(path, sum, limits)
}

// validateJobsOf checks maxapplications of a child.
func (c *QueueConfig) validateJobsOf(child *QueueConfig, path string) error {
	switch {
	case c.MaxJobs == 0 || child.MaxJobs > 0 && child.MaxJobs <= c.MaxJobs:
		return nil
	case child.MaxJobs == 0:
		return Invalid(
			path+".maxapplications", "is missing, but the queue above has %d; give 1 to %d", c.MaxJobs, c.MaxJobs,
		)
	}
	return Invalid(path+".maxapplications", "is %d, more than the %d of the queue above", child.MaxJobs, c.MaxJobs)
}

// validateSum compares the guarantees of the children with the own ones, and returns those that
// count above.
func (c *QueueConfig) validateSum(path string, sum, limits Resources) (Resources, error) {
	own := false
	for _, name := range c.Guaranteed.Names() {
		own = own || c.Guaranteed[name] > 0
	}
	for _, name := range sum.Names() {
		if own, set := c.Guaranteed[name]; set && sum[name] > own {
			return nil, Invalid(
				path+".resources.guaranteed."+name, "is %s, less than the %s that its queues are guaranteed together",
				FormatQuantity(name, own), FormatQuantity(name, sum[name]),
			)
		}
		if limit, limited := limits[name]; limited && sum[name] > limit {
			return nil, Invalid(
				path+".resources.max."+name, "is %s, less than the %s that its queues are guaranteed together",
				FormatQuantity(name, limit), FormatQuantity(name, sum[name]),
			)
		}
	}
	if own {
		return c.Guaranteed, nil
	}
	return sum, nil
}
