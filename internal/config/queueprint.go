package config

import (
	"github.com/plimsoll-dev/plimsoll"
)

// queueFile is the printed form of a queue file.
type queueFile struct {
	Partitions []partitionEntry `json:"partitions"`
}

type partitionEntry struct {
	Name           string           `json:"name"`
	PlacementRules []ruleEntry      `json:"placementrules,omitempty"`
	Preemption     *preemptionEntry `json:"preemption,omitempty"`
	NodeSortPolicy *nodeSortEntry   `json:"nodesortpolicy,omitempty"`
	Queues         []queueEntry     `json:"queues"`
}

type ruleEntry struct {
	Name   string       `json:"name"`
	Create bool         `json:"create,omitempty"`
	Value  string       `json:"value,omitempty"`
	Filter *filterEntry `json:"filter,omitempty"`
	Parent *ruleEntry   `json:"parent,omitempty"`
}

type filterEntry struct {
	Type   string   `json:"type"`
	Users  []string `json:"users,omitempty"`
	Groups []string `json:"groups,omitempty"`
}

type preemptionEntry struct {
	Enabled                *bool `json:"enabled,omitempty"`
	QuotaPreemptionEnabled bool  `json:"quotapreemptionenabled,omitempty"`
}

type nodeSortEntry struct {
	Type            string             `json:"type"`
	ResourceWeights map[string]float64 `json:"resourceweights,omitempty"`
}

type queueEntry struct {
	Name            string            `json:"name"`
	Parent          bool              `json:"parent,omitempty"`
	Resources       *queueResources   `json:"resources,omitempty"`
	MaxApplications int32             `json:"maxapplications,omitempty"`
	MaxTasks        int32             `json:"maxtasks,omitempty"`
	AdminACL        *string           `json:"adminacl,omitempty"`
	SubmitACL       *string           `json:"submitacl,omitempty"`
	Limits          []limitEntry      `json:"limits,omitempty"`
	Properties      map[string]string `json:"properties,omitempty"`
	ChildTemplate   *templateEntry    `json:"childtemplate,omitempty"`
	Queues          []queueEntry      `json:"queues,omitempty"`
}

type limitEntry struct {
	Limit           string   `json:"limit,omitempty"`
	Users           []string `json:"users,omitempty"`
	Groups          []string `json:"groups,omitempty"`
	MaxResources    any      `json:"maxresources,omitempty"`
	MaxApplications int32    `json:"maxapplications,omitempty"`
}

type templateEntry struct {
	MaxApplications int32             `json:"maxapplications,omitempty"`
	Properties      map[string]string `json:"properties,omitempty"`
	Resources       *queueResources   `json:"resources,omitempty"`
}

// queueResources has amounts or, for YuniKorn's programs, texts.
type queueResources struct {
	Guaranteed any `json:"guaranteed,omitempty"`
	Max        any `json:"max,omitempty"`
}

// FormatQueues prints the queue root as a queue file in YAML. ParseQueues reads it back to the
// same queues. Dynamic queues are left out: jobs make them, not a file.
func FormatQueues(root *plimsoll.QueueConfig) ([]byte, error) {
	return FormatYAML(QueueFile(root))
}

// QueueFile returns the queue root as a value that encoding/json and FormatYAML print as a queue
// file. Dynamic queues are left out.
func QueueFile(root *plimsoll.QueueConfig) any { return queueFileOf(root, asAmounts) }

// QueueFileForYuniKorn is QueueFile with each amount as a text. YuniKorn's programs read no number
// there.
func QueueFileForYuniKorn(root *plimsoll.QueueConfig) any { return queueFileOf(root, asTexts) }

// amountsForm is how amounts are printed; nil if there are none.
type amountsForm func(plimsoll.Resources) any

func asAmounts(r plimsoll.Resources) any {
	if len(r) == 0 {
		return nil
	}
	return amountsOf(r, true)
}

func asTexts(r plimsoll.Resources) any {
	if len(r) == 0 {
		return nil
	}
	texts := map[string]string{}
	for name, amount := range amountsOf(r, true) {
		texts[name] = string(amount)
	}
	return texts
}

func queueFileOf(root *plimsoll.QueueConfig, form amountsForm) queueFile {
	f := partitionEntry{Name: partitionName, Queues: []queueEntry{queueEntryOf(root, form)}}
	if p := root.Partition; p != nil {
		f.PlacementRules = ruleEntries(p.Rules)
		if p.NoPreemption || p.QuotaPreemption {
			f.Preemption = &preemptionEntry{QuotaPreemptionEnabled: p.QuotaPreemption}
			if enabled := false; p.NoPreemption {
				f.Preemption.Enabled = &enabled
			}
		}
		f.NodeSortPolicy = nodeSortOf(p.NodeSort)
	}
	return queueFile{[]partitionEntry{f}}
}

func ruleEntries(rules []plimsoll.PlacementRule) []ruleEntry {
	var out []ruleEntry
	for i := range rules {
		out = append(out, *ruleEntryOf(&rules[i]))
	}
	return out
}

func ruleEntryOf(r *plimsoll.PlacementRule) *ruleEntry {
	if r == nil {
		return nil
	}
	e := &ruleEntry{Name: r.Name, Create: r.Create, Value: r.Value, Parent: ruleEntryOf(r.Parent)}
	if f := r.Filter; f != nil {
		e.Filter = &filterEntry{Type: "allow", Users: f.Users, Groups: f.Groups}
		if f.Deny {
			e.Filter.Type = "deny"
		}
	}
	return e
}

func nodeSortOf(s *plimsoll.NodeSort) *nodeSortEntry {
	if s == nil {
		return nil
	}
	e := &nodeSortEntry{Type: "fair"}
	if s.Binpacking {
		e.Type = "binpacking"
	}
	for name, weight := range s.Weights {
		if e.ResourceWeights == nil {
			e.ResourceWeights = map[string]float64{}
		}
		e.ResourceWeights[yuniKornName(name)] = weight
	}
	return e
}

func queueEntryOf(q *plimsoll.QueueConfig, form amountsForm) queueEntry {
	// A queue that holds queues is a parent implicitly, and root always is.
	f := queueEntry{
		Name:            q.Name,
		Resources:       queueResourcesOf(q.Guaranteed, q.Max, form),
		MaxApplications: q.MaxJobs,
		MaxTasks:        q.MaxTasks,
		AdminACL:        accessText(q.AdminAccess),
		SubmitACL:       accessText(q.SubmitAccess),
		Properties:      q.Properties,
	}
	for i := range q.Limits {
		l := &q.Limits[i]
		f.Limits = append(f.Limits, limitEntry{
			Limit: l.Name, Users: l.Users, Groups: l.Groups, MaxResources: form(l.Max), MaxApplications: l.MaxJobs,
		})
	}
	if t := q.Template; t != nil {
		f.ChildTemplate = &templateEntry{
			MaxApplications: t.MaxJobs, Properties: t.Properties,
			Resources: queueResourcesOf(t.Guaranteed, t.Max, form),
		}
	}
	for i := range q.Queues {
		if !q.Queues[i].Dynamic {
			f.Queues = append(f.Queues, queueEntryOf(&q.Queues[i], form))
		}
	}
	f.Parent = q.Parent && len(f.Queues) == 0 && q.Name != plimsoll.RootQueue
	return f
}

func queueResourcesOf(guaranteed, most plimsoll.Resources, form amountsForm) *queueResources {
	if len(guaranteed)+len(most) == 0 {
		return nil
	}
	return &queueResources{Guaranteed: form(guaranteed), Max: form(most)}
}

func accessText(l *plimsoll.AccessList) *string {
	if l == nil {
		return nil
	}
	text := l.String()
	return &text
}

func yuniKornName(resource string) string {
	if resource == plimsoll.CPU {
		return "vcore"
	}
	return resource
}
