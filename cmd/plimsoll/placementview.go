package main

import (
	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
)

// The views of commands about placement are the types that they print as JSON and YAML.

type explainView struct {
	Task          taskView          `json:"task"`
	WaitCode      string            `json:"waitCode"`
	Summary       string            `json:"summary"`
	Steps         []explainStepView `json:"steps"`
	Nodes         nodeCountsView    `json:"nodes"`
	Spreads       []spreadCountView `json:"spreads,omitempty"`
	Verdicts      []verdictView     `json:"verdicts,omitempty"`
	Decision      *decisionView     `json:"decision"`
	DecisionsKept int32             `json:"decisionsKept"`
	Revision      uint64            `json:"revision"`
}

type explainStepView struct {
	Stage     string              `json:"stage"`
	Kind      string              `json:"kind"`
	Received  int32               `json:"received"`
	Remaining int32               `json:"remaining"`
	Dropped   int32               `json:"dropped"`
	Refused   int32               `json:"refused"`
	Reasons   []explainReasonView `json:"reasons"`
}

type explainReasonView struct {
	Reason   string   `json:"reason"`
	Nodes    int32    `json:"nodes"`
	Examples []string `json:"examples"`
}

type nodeCountsView struct {
	Total    int32 `json:"total"`
	Open     int32 `json:"open"`
	Eligible int32 `json:"eligible"`
	FitEmpty int32 `json:"fitEmpty"`
	Fit      int32 `json:"fit"`
}

// spreadCountView shows the values that a hard spread compares.
type spreadCountView struct {
	By        string   `json:"by"`
	MaxSkew   int32    `json:"maxSkew"`
	Values    int32    `json:"values"`
	Counted   int32    `json:"counted"`
	Fewest    int32    `json:"fewest"`
	FewestIn  string   `json:"fewestIn"`
	Uncounted []string `json:"uncounted,omitempty"`
	Summary   string   `json:"summary"`
}

type verdictView struct {
	Stage  string `json:"stage"`
	Kind   string `json:"kind"`
	Keeps  bool   `json:"keeps"`
	Reason string `json:"reason"`
}

type decisionView struct {
	Time       *string           `json:"time"`
	Node       string            `json:"node"`
	Score      float64           `json:"score"`
	Looked     int32             `json:"looked"`
	Batches    int32             `json:"batches"`
	Steps      []explainStepView `json:"steps"`
	Candidates []candidateView   `json:"candidates"`
}

type candidateView struct {
	Node  string             `json:"node"`
	Kept  bool               `json:"kept"`
	Score float64            `json:"score"`
	Free  plimsoll.Resources `json:"free"`
	Tasks int32              `json:"tasks"`
}

func viewExplanation(x *client.Explanation) explainView {
	v := explainView{
		Task: viewTask(&x.Task, ""), WaitCode: x.WaitCode.String(), Summary: x.Summary, Steps: viewSteps(x.Steps),
		Nodes: nodeCountsView(x.Nodes), DecisionsKept: x.Kept, Revision: x.Revision,
	}
	for i := range x.Spreads {
		v.Spreads = append(v.Spreads, spreadCountView(x.Spreads[i]))
	}
	for _, n := range x.Verdicts {
		v.Verdicts = append(
			v.Verdicts, verdictView{Stage: n.Stage, Kind: n.Kind.String(), Keeps: n.Reason == "", Reason: n.Reason},
		)
	}
	if d := x.Decision; d != nil {
		v.Decision = &decisionView{
			Time: stamp(d.Time), Node: d.Node, Score: d.Score, Looked: d.Looked, Batches: d.Batches,
			Steps:      viewSteps(d.Steps),
			Candidates: []candidateView{},
		}
		for _, c := range d.Candidates {
			v.Decision.Candidates = append(
				v.Decision.Candidates, candidateView{c.Node, c.Kept, c.Score, amounts(c.Free), c.Tasks},
			)
		}
	}
	return v
}

func viewSteps(steps []client.ExplainStep) []explainStepView {
	out := []explainStepView{}
	for _, s := range steps {
		step := explainStepView{
			Stage: s.Stage, Kind: s.Kind.String(), Received: s.Received, Remaining: s.Remaining, Dropped: s.Dropped,
			Refused: s.Refused,
			Reasons: []explainReasonView{},
		}
		for _, r := range s.Reasons {
			step.Reasons = append(step.Reasons, explainReasonView(r))
		}
		out = append(out, step)
	}
	return out
}

// trialView is the result of a dry run. Of the tasks that were tried, Fit find a node. AtLeast says
// that more may fit.
type trialView struct {
	Job         string           `json:"job"`
	Fit         int              `json:"fit"`
	Asked       int              `json:"asked"`
	AtLeast     bool             `json:"atLeast"`
	QueueReason string           `json:"queueReason"`
	Groups      []triedGroupView `json:"groups"`
	Revision    uint64           `json:"revision,omitempty"` // 0: the trial was made without a cluster
}

type triedGroupView struct {
	Group   string       `json:"group"`
	Fit     int          `json:"fit"`
	Asked   int          `json:"asked"`
	AtLeast bool         `json:"atLeast"`
	Placed  []placedView `json:"placed"`
	Refused *refusalView `json:"refused"`
}

type placedView struct {
	Node  string             `json:"node"`
	Score float64            `json:"score"`
	Free  plimsoll.Resources `json:"free"` // resources that would remain on the node
}

type refusalView struct {
	WaitCode string            `json:"waitCode"`
	Summary  string            `json:"summary"`
	Nodes    nodeCountsView    `json:"nodes"`
	Steps    []explainStepView `json:"steps"`
}

func viewTrial(job string, t *client.Trial) trialView {
	v := trialView{Job: job, QueueReason: t.QueueReason, Groups: []triedGroupView{}, Revision: t.Revision}
	for i := range t.Groups {
		g := &t.Groups[i]
		group := triedGroupView{
			Group: g.Name, Fit: len(g.Placed), Asked: int(g.Asked), AtLeast: g.Stopped,
			Placed: make([]placedView, len(g.Placed)),
		}
		for k, p := range g.Placed {
			group.Placed[k] = placedView{p.Node, p.Score, amounts(p.Free)}
		}
		if r := g.Refused; r != nil {
			group.Refused = &refusalView{r.WaitCode.String(), r.Summary, nodeCountsView(r.Nodes), viewSteps(r.Steps)}
		}
		v.Fit, v.Asked, v.AtLeast = v.Fit+group.Fit, v.Asked+group.Asked, v.AtLeast || group.AtLeast
		v.Groups = append(v.Groups, group)
	}
	return v
}

type replayView struct {
	Task  string            `json:"task"`
	Was   string            `json:"was"`
	Node  string            `json:"node"`
	Same  bool              `json:"same"`
	Score float64           `json:"score"`
	Steps []explainStepView `json:"steps"`
}

// roomView is the room that is left on a node. Unreserved is null if the node is not counted.
type roomView struct {
	ID         string             `json:"id"`
	Counted    bool               `json:"counted"`
	Reason     string             `json:"reason"`
	Tasks      int32              `json:"tasks"`
	MaxTasks   *int32             `json:"maxTasks"` // null: no bound
	Unreserved plimsoll.Resources `json:"unreserved"`
	Whole      plimsoll.Resources `json:"whole"`
	Revision   uint64             `json:"revision"`
}
