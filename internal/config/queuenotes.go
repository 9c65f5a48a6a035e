package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/queuerule"
)

// knownRules are the placement rules that place jobs.
var knownRules = []string{"user", "fixed", "provided", "tag", "recovery"}

// QueueNotes returns what somebody should know about a tree of queues that is accepted: whether
// everybody or nobody may use it, which parts are kept but have no effect, and which are probably
// not meant. Field is a path as in the errors of ParseQueues, and Line is 0.
func QueueNotes(root *plimsoll.QueueConfig) []Problem {
	n := &noter{}
	n.queue(root, plimsoll.RootQueue)
	switch {
	case !n.access:
		n.add(plimsoll.RootQueue, "no queue has submitacl or adminacl: everybody may submit to and administer every "+
			"queue; once one has, a queue admits only those whom it or a queue above names")
	case !n.admits:
		n.add(plimsoll.RootQueue, "no access list names anybody: nobody may submit a job")
	}
	if queuerule.Trusting(root) != "" {
		n.add(plimsoll.RootQueue, "access lists with names, and limits, hold for the owner that a submit states: "+
			"a coordinator takes them only with --trust-owner")
	}
	if p := root.Partition; p != nil {
		n.partition(p)
	}
	return n.notes
}

type noter struct {
	notes          []Problem
	access, admits bool // a queue has an access list; one of them names somebody
}

func (n *noter) add(field, format string, args ...any) {
	n.notes = append(n.notes, Problem{Field: field, Msg: fmt.Sprintf(format, args...)})
}

func (n *noter) queue(q *plimsoll.QueueConfig, path string) {
	for _, l := range []*plimsoll.AccessList{q.SubmitAccess, q.AdminAccess} {
		n.access = n.access || l != nil
		n.admits = n.admits || l != nil && (l.Everybody || len(l.Users)+len(l.Groups) > 0)
	}
	leaf := !q.Parent && len(q.Queues) == 0
	if leaf && q.Properties[plimsoll.PropertyHalfLife] != "" {
		n.add(join(path+".properties", plimsoll.PropertyHalfLife),
			"has no effect on a leaf; state it on the queue above, for all queues below that one")
	}
	n.properties(path+".properties", q.Properties)
	if q.Template != nil {
		n.properties(path+".childtemplate.properties", q.Template.Properties)
		if leaf {
			n.add(path+".childtemplate", "has no effect on a leaf; write parent: true, or remove it")
		}
	}
	if len(q.Limits) > 0 {
		n.add(path+".limits", "hold for the owner of a job and its ownerGroups, as the job states them")
	}
	for i := range q.Queues {
		n.queue(&q.Queues[i], path+"."+q.Queues[i].Name)
	}
}

func (n *noter) properties(path string, properties map[string]string) {
	for _, p := range plimsoll.SortedPairs(properties) {
		if note := plimsoll.PropertyNote(p[0], p[1]); note != "" {
			n.add(join(path, p[0]), "%s", note)
		}
	}
}

func (n *noter) partition(p *plimsoll.PartitionConfig) {
	for i := range p.Rules {
		at := fmt.Sprintf("placementrules[%d]", i)
		for r := &p.Rules[i]; r != nil; r, at = r.Parent, at+".parent" {
			if !slices.Contains(knownRules, r.Name) {
				last := len(knownRules) - 1
				n.add(at+".name", "%q is no rule that is known: a job that comes to it is refused; write %s or %s",
					plimsoll.Shorten(r.Name), strings.Join(knownRules[:last], ", "), knownRules[last])
			} else if r.Value == "" && r.Name == "tag" {
				n.add(at+".value", "is missing, so the rule places no job; name the tag")
			}
		}
	}
}
