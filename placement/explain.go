package placement

import (
	"fmt"
	"slices"
	"strings"
)

// examples is how many servers are named for each reason.
const examples = 10

// Step says what one stage did to the servers that reached it.
type Step struct {
	Stage     string
	Remaining int
	Dropped   int
	Reasons   []Reason // most frequent first
}

// Reason is why servers were dropped.
type Reason struct {
	Text     string
	Servers  int
	Examples []string // ids of at most ten of them, in the fleet's order
}

// Explanation tells of one request and every server of a fleet.
type Explanation struct {
	Servers  int // in the fleet
	Eligible int // ready and open for tasks
	FitEmpty int // would have room if nothing ran on them
	Fit      int // have room now
	Steps    []Step
}

// Explain runs the chain on every server and says what each stage dropped and why. It changes nothing.
func (c *Chain) Explain(r *Request, fleet []Server, names *Names) Explanation {
	var x Explanation
	remaining := make([]int, 0, len(fleet))
	for i := range fleet {
		if !fleet[i].Present {
			continue
		}
		remaining = append(remaining, i)
		if r.FitsEmpty(&fleet[i]) {
			x.FitEmpty++
		}
		if fleet[i].Eligible() {
			x.Eligible++
		}
	}
	x.Servers = len(remaining)
	for _, stage := range c.Stages {
		step := Step{Stage: stage.Name}
		kept := remaining[:0]
		for _, i := range remaining {
			if stage.Keep(r, &fleet[i]) {
				kept = append(kept, i)
				continue
			}
			step.Dropped++
			step.drop(stage.Why(r, &fleet[i], names), fleet[i].ID)
		}
		remaining = kept
		step.Remaining = len(kept)
		slices.SortStableFunc(step.Reasons, func(a, b Reason) int { return b.Servers - a.Servers })
		x.Steps = append(x.Steps, step)
	}
	x.Fit = len(remaining)
	return x
}

func (s *Step) drop(text, id string) {
	i := slices.IndexFunc(s.Reasons, func(r Reason) bool { return r.Text == text })
	if i < 0 {
		i = len(s.Reasons)
		s.Reasons = append(s.Reasons, Reason{Text: text})
	}
	r := &s.Reasons[i]
	r.Servers++
	if len(r.Examples) < examples {
		r.Examples = append(r.Examples, id)
	}
}

// Summary says in one line why servers were left out: "2 of 3 nodes: not enough cpu; 1 of 3 nodes: draining".
func (x *Explanation) Summary() string {
	if x.Servers == 0 {
		return "there is no node"
	}
	var parts []string
	for _, step := range x.Steps {
		for _, reason := range step.Reasons {
			parts = append(parts, fmt.Sprintf("%d of %d nodes: %s", reason.Servers, x.Servers, reason.Text))
		}
	}
	if len(parts) == 0 {
		return fmt.Sprintf("%d of %d nodes have room", x.Fit, x.Servers)
	}
	return strings.Join(parts, "; ")
}
