package config

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
)

const partitionName = "default"

func asError(err error, into **plimsoll.Error) bool { return errors.As(err, into) }

// ParseQueues reads a queue file in YuniKorn's schema into the queue root. name is for the
// messages. As in YuniKorn, names of queues are lower-cased and vcore is cpu. If several queues
// are at the top, they are put under root. The error is a *Error; its fields are paths of queues,
// such as root.batch.resources.max.memory.
func ParseQueues(name string, data []byte) (plimsoll.QueueConfig, error) {
	root, _, err := ReadQueues(name, data)
	return root, err
}

// ReadQueues is ParseQueues. It also returns notes on the accepted file: those of QueueNotes, and
// those on parts of the file that Plimsoll does not keep.
func ReadQueues(name string, data []byte) (root plimsoll.QueueConfig, notes []Problem, err error) {
	v, err := parseValue(name, data)
	if err != nil {
		return plimsoll.QueueConfig{}, nil, err
	}
	d := &queueDecoder{decoder: newDecoder(name, v)}
	found := false
	d.fields(v, "",
		field{"partitions", func(v *value, path string) {
			if d.list(v, path, func(*value, string) {}); len(v.items) > 0 {
				found = true
				root = d.partition(v.items[0], path+"[0]")
			}
			if len(v.items) > 1 {
				d.problem(
					v.items[1].line, path+"[1]", "is a second partition, which is not supported; keep one, named %q",
					partitionName,
				)
			}
		}},
		field{"checksum", func(v *value, path string) {
			d.note(v.line, path, "has no effect; changes are found by comparing the whole file")
		}},
	)
	if !found && len(d.problems) == 0 {
		d.problem(v.line, "partitions", "is empty; write one partition named %q with its queues", partitionName)
	}
	if len(d.problems) == 0 {
		d.invalid(root.Validate())
	}
	if err := d.err(); err != nil {
		return plimsoll.QueueConfig{}, nil, err
	}
	for _, n := range QueueNotes(&root) {
		d.note(d.lineOf(n.Field), n.Field, n.Msg)
	}
	slices.SortStableFunc(d.notes, func(a, b Problem) int { return a.Line - b.Line })
	return root, d.notes, nil
}

// queueDecoder reads a queue file. As in YuniKorn, a field without a value is one that is not
// there.
type queueDecoder struct {
	*decoder
	notes []Problem
}

func (d *queueDecoder) note(line int, field, msg string) {
	d.notes = append(d.notes, Problem{Line: line, Field: field, Msg: msg})
}

// stated wraps a reader, which is then called only if there is a value.
func stated(read func(v *value, path string)) func(v *value, path string) {
	return func(v *value, path string) {
		if v.kind != nullKind {
			read(v, path)
		}
	}
}

func (d *queueDecoder) partition(v *value, path string) plimsoll.QueueConfig {
	name := partitionName
	var root plimsoll.QueueConfig
	var partition plimsoll.PartitionConfig
	var limits []plimsoll.QueueLimit
	found, preemption := false, false
	d.fields(v, path,
		field{"name", stated(d.text(&name))},
		field{"queues", stated(func(v *value, path string) {
			found = true
			root = d.top(v, path)
		})},
		field{"placementrules", stated(func(v *value, path string) {
			d.list(v, path, func(v *value, path string) {
				partition.Rules = append(partition.Rules, d.rule(v, path))
			})
		})},
		field{"limits", stated(d.limits(&limits))},
		field{"preemption", stated(func(v *value, path string) {
			enabled := true
			preemption = true
			d.fields(v, path,
				field{"enabled", stated(d.truth(&enabled))},
				field{"quotapreemptionenabled", stated(d.truth(&partition.QuotaPreemption))},
			)
			partition.NoPreemption = !enabled
			d.note(v.line, path, "is kept but has no effect yet: no running task is stopped to make room for another")
		})},
		field{"nodesortpolicy", stated(func(v *value, path string) { partition.NodeSort = d.nodeSort(v, path) })},
		field{"usergroupresolver", stated(func(v *value, path string) {
			var kind string
			d.fields(v, path, field{"type", stated(d.text(&kind))})
			d.note(v.line, path, "has no effect; a job states the groups of its owner: ownerGroups, or submit --owner-group")
		})},
	)
	if name != "" && !strings.EqualFold(name, partitionName) {
		d.note(d.lineOf(path+".name"), path+".name",
			fmt.Sprintf("is %q; the one partition is named %q here", plimsoll.Shorten(name), partitionName))
	}
	if !found && v.kind == mapKind {
		d.problem(v.line, path+".queues", "is missing; list the queues of the partition")
	}
	if !preemption {
		d.note(d.lineOf(path+".preemption"), path+".preemption",
			"is not stated, which turns it on in YuniKorn; here no running task is stopped yet to make room for another")
	}
	d.partitionLines(path)
	if partition.Rules != nil || partition.NodeSort != nil || partition.NoPreemption || partition.QuotaPreemption {
		root.Partition = &partition
	}
	d.partitionLimits(&root, limits, path+".limits")
	return root
}

// partitionLines makes the lines of the partition's fields known under the names that errors of the
// tree have, which leave the partition out.
func (d *queueDecoder) partitionLines(path string) {
	for field, line := range maps.Clone(d.lines) {
		if short, within := strings.CutPrefix(field, path+"."); within {
			d.lines[short] = line
		}
	}
}

// partitionLimits copies the limits of the partition to root, where they hold.
func (d *queueDecoder) partitionLimits(root *plimsoll.QueueConfig, limits []plimsoll.QueueLimit, path string) {
	switch {
	case len(limits) == 0:
	case len(root.Limits) == 0:
		root.Limits = limits
		d.lines[plimsoll.RootQueue+".limits"] = d.lineOf(path)
	case !plimsoll.SameLimits(limits, root.Limits):
		d.problem(d.lineOf(path), path, "differ from the limits of root; remove one of the two")
	}
}

// top reads the list at the top of the partition: root alone, or queues under an implicit root.
func (d *queueDecoder) top(v *value, path string) plimsoll.QueueConfig {
	if v.kind == listKind && len(v.items) == 1 && queueName(v.items[0]) == plimsoll.RootQueue {
		root := d.queue(v.items[0], plimsoll.RootQueue)
		root.Parent = true
		d.rootResources(v.items[0])
		return root
	}
	root := plimsoll.QueueConfig{Name: plimsoll.RootQueue, Parent: true}
	d.list(v, path, func(v *value, path string) {
		root.Queues = append(root.Queues, d.queue(v, queuePath(plimsoll.RootQueue, v, path)))
	})
	return root
}

// rootResources refuses resources of root, even without any amount.
func (d *queueDecoder) rootResources(root *value) {
	for _, e := range root.entries {
		if e.name != "resources" {
			continue
		}
		for _, r := range e.value.entries {
			if r.value.kind == mapKind {
				d.problem(r.line, plimsoll.RootQueue+".resources",
					"root has no resources of its own: they are those of the nodes; remove them")
				return
			}
		}
	}
}

// queueName looks ahead for the name of a queue, because the fields before it may be wrong.
func queueName(v *value) string {
	for _, e := range v.entries {
		if e.name == "name" && e.value.kind == scalarKind {
			return strings.ToLower(e.value.text)
		}
	}
	return ""
}

func queuePath(parent string, v *value, place string) string {
	if name := queueName(v); name != "" {
		return join(parent, name)
	}
	return place
}

func (d *queueDecoder) queue(v *value, path string) plimsoll.QueueConfig {
	var q plimsoll.QueueConfig
	parent := false
	d.lines[path] = v.line
	d.fields(v, path,
		field{"name", stated(func(v *value, path string) {
			d.text(&q.Name)(v, path)
			q.Name = strings.ToLower(q.Name)
		})},
		field{"parent", stated(d.truth(&parent))},
		field{"resources", stated(d.guarantees(&q.Guaranteed, &q.Max))},
		field{"maxapplications", stated(d.count(&q.MaxJobs))},
		field{"maxtasks", stated(d.count(&q.MaxTasks))},
		field{"adminacl", stated(d.access(&q.AdminAccess))},
		field{"submitacl", stated(d.access(&q.SubmitAccess))},
		field{"limits", stated(d.limits(&q.Limits))},
		field{"properties", stated(d.properties(&q.Properties))},
		field{"childtemplate", stated(func(v *value, path string) { q.Template = d.template(v, path) })},
		field{"queues", stated(func(v *value, _ string) {
			d.list(v, path+".queues", func(v *value, place string) {
				q.Queues = append(q.Queues, d.queue(v, queuePath(path, v, place)))
			})
		})},
	)
	if q.Name == "" && v.kind == mapKind {
		d.problem(v.line, path+".name", "is missing; give the queue a name")
	}
	if q.Name != "" &&
		(strings.Contains(q.Name, ".") || plimsoll.ValidateQueuePath("", join(plimsoll.RootQueue, q.Name)) != nil) {
		d.problem(d.lineOf(path+".name"), path+".name",
			"%q is not a possible queue name: use 1 to 64 letters, digits and _ : # / @ -", plimsoll.Shorten(q.Name))
	}
	q.Parent = parent || len(q.Queues) > 0
	return q
}

func (d *queueDecoder) template(v *value, path string) *plimsoll.QueueTemplate {
	var t plimsoll.QueueTemplate
	d.fields(v, path,
		field{"maxapplications", stated(d.count(&t.MaxJobs))},
		field{"properties", stated(d.properties(&t.Properties))},
		field{"resources", stated(d.guarantees(&t.Guaranteed, &t.Max))},
	)
	if t.MaxJobs == 0 && len(t.Properties)+len(t.Guaranteed)+len(t.Max) == 0 {
		return nil
	}
	return &t
}

// access reads an access list: users, a space and groups, each separated by commas.
func (d *queueDecoder) access(into **plimsoll.AccessList) func(v *value, path string) {
	return func(v *value, path string) {
		var text string
		before := len(d.problems)
		if d.text(&text)(v, path); len(d.problems) > before {
			return
		}
		list, err := plimsoll.ParseAccessList(text)
		if err != nil {
			d.problem(v.line, path, "%s", err)
			return
		}
		if *into = &list; strings.Contains(text, ", ") {
			d.note(v.line, path, fmt.Sprintf("is read as the users %q and the groups %q: names stand behind commas without "+
				"spaces, and a space begins the groups", list.Users, list.Groups))
		}
	}
}

func (d *queueDecoder) limits(into *[]plimsoll.QueueLimit) func(v *value, path string) {
	return func(v *value, path string) {
		d.list(v, path, func(v *value, path string) {
			var l plimsoll.QueueLimit
			d.fields(v, path,
				field{"limit", stated(d.text(&l.Name))},
				field{"users", stated(d.names(&l.Users))},
				field{"groups", stated(d.names(&l.Groups))},
				field{"maxresources", stated(func(v *value, path string) { l.Max = d.amounts(v, path, true) })},
				field{"maxapplications", stated(d.count(&l.MaxJobs))},
			)
			*into = append(*into, l)
		})
	}
}

// names reads a list of texts.
func (d *queueDecoder) names(into *[]string) func(v *value, path string) {
	return func(v *value, path string) {
		d.list(v, path, func(v *value, path string) {
			var s string
			stated(d.text(&s))(v, path)
			*into = append(*into, s)
		})
	}
}

// properties reads properties. One without a value has an empty one.
func (d *queueDecoder) properties(into *map[string]string) func(v *value, path string) {
	return func(v *value, path string) {
		m := map[string]string{}
		d.pairs(v, path, func(e entry, path string) {
			var s string
			stated(d.text(&s))(e.value, path)
			m[e.name] = s
		})
		if len(m) > 0 {
			*into = m
		}
	}
}

func (d *queueDecoder) rule(v *value, path string) plimsoll.PlacementRule {
	var r plimsoll.PlacementRule
	d.fields(v, path,
		field{"name", stated(func(v *value, path string) {
			d.text(&r.Name)(v, path)
			r.Name = strings.ToLower(r.Name)
		})},
		field{"create", stated(d.truth(&r.Create))},
		field{"filter", stated(func(v *value, path string) { r.Filter = d.filter(v, path) })},
		field{"parent", stated(func(v *value, path string) {
			above := d.rule(v, path)
			r.Parent = &above
		})},
		field{"value", stated(d.text(&r.Value))},
	)
	return r
}

func (d *queueDecoder) filter(v *value, path string) *plimsoll.RuleFilter {
	var f plimsoll.RuleFilter
	kind := ""
	d.fields(v, path,
		field{"type", stated(func(v *value, path string) {
			d.text(&kind)(v, path)
			switch f.Deny = strings.EqualFold(kind, "deny"); {
			case f.Deny, kind == "", strings.EqualFold(kind, "allow"):
			default:
				d.problem(v.line, path, "%q is no type of filter; write allow or deny", plimsoll.Shorten(kind))
			}
		})},
		field{"users", stated(d.names(&f.Users))},
		field{"groups", stated(d.names(&f.Groups))},
	)
	if !f.Deny && len(f.Users)+len(f.Groups) == 0 {
		return nil
	}
	return &f
}

func (d *queueDecoder) nodeSort(v *value, path string) *plimsoll.NodeSort {
	var s plimsoll.NodeSort
	kind := ""
	d.fields(v, path,
		field{"type", stated(func(v *value, path string) {
			d.text(&kind)(v, path)
			switch s.Binpacking = kind == "binpacking"; kind {
			case "", "fair", "binpacking":
			default:
				d.problem(v.line, path, "%q is no order of nodes; write fair or binpacking", plimsoll.Shorten(kind))
			}
		})},
		field{"resourceweights", stated(func(v *value, path string) {
			s.Weights = map[string]float64{}
			d.pairs(v, path, func(e entry, at string) {
				name := d.resource(e, at, func(name string) bool { _, is := s.Weights[name]; return is })
				weight, err := strconv.ParseFloat(e.value.text, 64)
				possible := weight >= 0 && !math.IsInf(weight, 0)
				if e.value.kind != scalarKind || err != nil || !possible {
					d.problem(e.line, at, "is %s; a number that is not negative is expected", e.value.kindName())
					return
				}
				if name != "" {
					s.Weights[name] = weight
				}
			})
			if len(s.Weights) == 0 {
				s.Weights = nil
			}
		})},
	)
	if kind == "" && s.Weights == nil {
		return nil
	}
	return &s
}
